"""From a Python function to compiled programs that serve its calls: `hlo_disc.jit`, a drop-in for `jax.jit`.

One compilation serves every call with the same structure, static values, dtypes and ranks, unless the function asks
about sizes: then there is one for each answer. A call that a program already serves takes the fast path: the argument
types find the program, the program itself checks dtypes, ranks and sizes, and only when it refuses does the slow path
look closer, and compile where that is due. What cannot be compiled runs through `jax.jit`, with one warning that says
why.
"""

from __future__ import annotations

import functools
import logging
import operator
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ArgumentError, FallbackWarning, ShapeError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.generalise import Dims, Sizes, generalise
from hlo_disc.import_.symbols import constraint_texts, parse_constraints
from hlo_disc.jit.fallback import FallbackPath
from hlo_disc.jit.programs import Compiled, Entry, Path, Paths, Programs
from hlo_disc.jit.stats import Compilation, Fallback, Stats
from hlo_disc.options import Options
from hlo_disc.signature import Signature, Static, parse_dims
from hlo_disc.trace import Traced, active, broken, elsewhere, symbol_sizes, trace, trace_call, where
from hlo_disc.values import (
    Leaf,
    as_array,
    describe_all,
    given,
    given_in_jit,
    is_number,
    is_symbolic,
    is_tracer,
    show,
    taken,
)

logger = logging.getLogger("hlo_disc")

# The graph of a program that was asked nothing: nobody compares it with another's.
_NOTHING = Graph("", (), (), (), (), ShapeFacts(), {})

# So many programs are tried, one after the other, before the sizes of a call are looked at.
_TRIED = 8

P = ParamSpec("P")
Q = ParamSpec("Q")  # of a method, without the instance
R = TypeVar("R")


class Lowered:
    """A function traced for some arguments, not compiled yet."""

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self._options = options

    def as_text(self) -> str:
        """The program as StableHLO, dims as symbols."""
        from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo

        return to_stablehlo(self.graph)

    def compile(self) -> Executable:
        return build(self.graph, self._options)


def build(source: Graph | Callable[[], Graph], options: Options) -> Executable:
    """Compile a graph, or what makes one."""
    return Executable(pipeline.compile(source, options), options)


@functools.cache
def _flatten() -> Callable[[Any], tuple[list[Any], Any]]:
    """jaxlib's C++ flatten; JAX is imported at the first call, not with hlo_disc."""
    from jax import tree_util

    return tree_util.default_registry.flatten


class JitFunction(Generic[P, R]):
    """A function compiled for dynamic shapes; made by `jit`. Any number of threads may call it."""

    def __init__(
        self,
        fn: Callable[P, R],
        dims: Mapping[str, Any] | None,
        constraints: str | Sequence[str],
        static_argnums: int | Iterable[int] | None,
        static_argnames: str | Iterable[str] | None,
        options: Options,
    ):
        functools.update_wrapper(self, fn)
        self.signature = Signature(fn, static_argnums, static_argnames)
        self._dims = dims
        self._constraints = constraint_texts(constraints)
        parse_constraints(self._constraints)  # a mistake is told here, not at the first call
        self._options = options
        self._programs = Programs(lambda: False)  # of the settings that the last call saw
        self._by_settings: dict[Any, Programs] = {}
        self._fallbacks: dict[Any, FallbackPath] = {}
        self._counts: list[Any] = []  # of the calls that each program served
        self._records: list[Compilation] = []
        self._lock = threading.Lock()
        if dims is not None:
            self.signature.check_dims(dims)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: JitFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        programs = self._programs
        if not programs.unchanged():
            found = self._under_these_settings()
            if found is None:
                return self.signature.fn(*args, **kwargs)
            programs = found
        plain = None if kwargs else programs.plain.get(tuple(map(type, args)))
        if plain is not None:
            try:
                run, unflatten = plain
                results = run(*args)
                return results[0] if unflatten is None else unflatten(results)
            except (ArgumentError, ShapeError):
                pass  # another program may serve it
        try:
            array_args, array_kwargs, static = self.signature.split(args, dict(kwargs))
            leaves, tree = _flatten()((array_args, array_kwargs))
            path = programs.paths.get((tree, static, tuple(map(type, leaves))))
            if path is not None:
                return path(leaves)
        except (ArgumentError, ShapeError):
            pass  # the slow path says why, or compiles
        return self._slow(programs, args, kwargs)

    def _under_these_settings(self) -> Programs | None:
        """The programs for JAX's settings in this thread; None when they say that nothing is to be compiled."""
        from hlo_disc.jit import settings

        if settings.jit_is_disabled():
            return None
        key = settings.now()
        programs = self._by_settings.get(key)
        if programs is None:
            first = "first call with these settings of JAX" if self._by_settings else "first call"
            made = Programs(settings.watch(key), settings.reason_for_jax(), first)
            programs = self._by_settings.setdefault(key, made)
        self._programs = programs
        return programs

    def _slow(self, programs: Programs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find or make the program for this call, run it, and prepare the fast path of the next one."""
        self.signature.check(args, kwargs)
        array_args, array_kwargs, static = self.signature.split(args, dict(kwargs))
        leaves, tree = _flatten()((array_args, array_kwargs))
        if active() or any(map(is_symbolic, leaves)):
            return self.signature.fn(*args, **kwargs)
        traced = any(map(is_tracer, leaves))
        kinds = tuple(map(type, leaves))
        try:
            if programs.reason_for_jax and not traced:
                raise UnsupportedOpError(programs.reason_for_jax)
            entry, infos = self._entry(programs, array_args, array_kwargs, static, leaves, tree)
            variant = self._variant(entry, infos, static, tree)
            conversions = [taken(x, info) for x, info in zip(leaves, infos, strict=True)]
            # Without an array there is no type to follow: the results are JAX's then, as from jax.jit.
            wrap = all(map(is_number, leaves))
            path = _path(variant, conversions, traced, wrap)
            result = path([x if c else as_array(x, i) for x, i, c in zip(leaves, infos, conversions, strict=True)])
        except (UnsupportedOpError, ShapeError) as error:
            if isinstance(error, ShapeError) and self._dims is not None:
                raise
            # A size that breaks what nobody asked for is no mistake. What the user has set needs no warning.
            fallback = self._fallback(str(error), leaves, static, tree, quiet=str(error) == programs.reason_for_jax)
            if traced:
                return fallback.run(*leaves)
            # Sizes that a program serves stay with it.
            programs.paths.setdefault((tree, static, kinds), fallback)
            return fallback(leaves)
        if traced:
            return result
        others = [p for p in reversed(entry.programs) if p is not variant][: _TRIED - 1]
        if path.is_plain and not kwargs and not self.signature.has_static and same_objects(leaves, args):
            programs.plain[kinds] = path.run, path.unflatten
            if not others:
                return result
        paths = [path, *(_path(p, conversions, traced, wrap) for p in others)]
        programs.paths[tree, static, kinds] = Paths(paths) if others else path
        return result

    def _entry(
        self,
        programs: Programs,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        static: Static,
        leaves: Sequence[Any],
        tree: Any,
    ) -> tuple[Entry, list[Leaf]]:
        infos = describe_all(leaves, lambda: self.signature.leaves(args, kwargs, static), self.signature.name)
        key = (tree, static, tuple((info.dtype, len(info.shape), info.weak) for info in infos))
        entry = programs.entries.get(key)
        if entry is None:
            names = self.signature.leaves(args, kwargs, static)
            dims = None
            if self._dims is not None:
                given = self.signature.dims(self._dims, args, kwargs, static)
                dims = tuple(
                    (None,) * len(i.shape) if text is None else parse_dims(text, len(i.shape), n)
                    for text, i, n in zip(given, infos, names, strict=True)
                )
            with self._lock:
                entry = programs.entries.setdefault(key, Entry(names, dims, programs.first_of(tree, static)))
        return entry, infos

    def _variant(self, entry: Entry, infos: list[Leaf], static: Static, tree: Any) -> Compiled:
        sizes = tuple(info.shape for info in infos)
        variant = entry.find(sizes)
        if variant is not None:
            return variant
        with entry.lock:
            variant = entry.find(sizes)
            if variant is None:
                if entry.unsupported:
                    raise UnsupportedOpError(entry.unsupported)
                try:
                    variant = self._compile(entry, infos, sizes, static, tree)
                except UnsupportedOpError as error:
                    entry.unsupported = str(error)
                    raise
                if all(variant is not known for known in entry.programs):
                    entry.add(variant)
        return variant

    def _fallback(self, reason: str, leaves: Sequence[Any], static: Static, tree: Any, quiet: bool) -> FallbackPath:
        """The path through `jax.jit` for what is not supported. The first time there is a warning, unless `quiet`."""
        key = tree, static, reason if quiet else ""
        found = self._fallbacks.get(key)
        if found is None:
            shown = tuple(f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__ for x in leaves)
            made = FallbackPath(self.signature.bind(static), tree, reason, shown)
            if not quiet and all(f.reason != made.reason for f in list(self._fallbacks.values())):
                text = (
                    f"hlo_disc.jit cannot compile {self.signature.name}, which runs through jax.jit instead: {reason}"
                )
                warnings.warn(text, FallbackWarning, stacklevel=4)
            found = self._fallbacks.setdefault(key, made)
        return found

    @staticmethod
    def _dims_for(entry: Entry, sizes: Sizes) -> Dims:
        """The user's, or those of all sizes that were seen."""
        return generalise([*entry.history, sizes]) if entry.dims is None else entry.dims

    def _trace(self, entry: Entry, leaves: list[Leaf], sizes: Sizes, static: Static, tree: Any) -> Traced:
        """What serves these sizes and all that were seen."""
        fn = self.signature.bind(static)
        dims = self._dims_for(entry, sizes)
        try:
            return trace_call(fn, tree, leaves, dims, entry.names, self._constraints)
        except ShapeError as error:
            if entry.dims is not None or not any(map(any, dims)):
                raise
            # Nobody asked for these dims: what has no program for them is left to JAX.
            raise UnsupportedOpError(str(error)) from error

    def _compile(self, entry: Entry, infos: list[Leaf], sizes: Sizes, static: Static, tree: Any) -> Compiled:
        start = time.perf_counter()
        traced: list[Traced] = []  # for this call, and for more

        def special() -> Traced:
            if not traced:
                traced.append(self._trace(entry, infos, sizes, static, tree))
            return traced[0]

        unmet = 0  # by this call, of what the program for more was asked

        def source() -> Graph:
            nonlocal unmet
            wider = self._wider(entry, infos, static, tree, special())
            if wider is not None:
                traced.append(wider[0])
                unmet = wider[1]
            return traced[-1].graph

        if entry.programs:
            for known in entry.fitting(sizes):
                breaks = known.unmet(sizes)
                if self._agrees(entry, infos, static, tree, known.traced, breaks, special()) and (
                    known.executable.native.accept(breaks)
                ):
                    return known
        why = entry.why(sizes)
        executable = build(source, self._options)
        program = traced[-1]
        if unmet:
            executable.native.accept(unmet)
        executable.native.set_weak([info.weak for info in infos], [result.weak for result in program.results])
        self._counts.append(executable.native.count)
        seconds = time.perf_counter() - start
        shown = tuple(show(n, i, d) for n, i, d in zip(entry.names, infos, program.dims, strict=True))
        asked = tuple(entry.told(program.wanted, f"{a} ({a.line})") for a in (*program.numbers, *program.asked))
        self._records.append(Compilation(why, shown, seconds, executable.program.compile_ms, asked))
        logger.info("compiled %s in %.2f s: %s", self.signature.name, seconds, why)
        return Compiled(program if program.asked else program._replace(graph=_NOTHING), sizes, executable)

    def _wider(
        self, entry: Entry, leaves: list[Leaf], static: Static, tree: Any, special: Traced
    ) -> tuple[Traced, int] | None:
        """The program for other sizes, if it does for this call too, which has found some equal or to be numbers; and
        what of its conditions the call breaks.
        """
        if not special.numbers and all(asked.relation != "==" for asked in special.asked):
            return None
        fn, names = self.signature.bind(static), entry.names
        candidates = [
            [leaf._replace(shape=shape) for leaf, shape in zip(leaves, shapes, strict=True)]
            for shapes in entry.history[-1:]
        ]
        generic = elsewhere(special, leaves, names, self._constraints)
        for others in [*candidates, generic] if generic else candidates:
            try:
                found = trace_call(fn, tree, others, special.wanted, names, self._constraints)
            except Exception:  # what these sizes raise is not about this call
                continue
            unmet = broken(found.asked, symbol_sizes(special.wanted, leaves, names))
            if unmet and found.dims == special.wanted:
                if self._agrees(entry, leaves, static, tree, found, unmet, special):
                    return found, unmet
        return None

    def _agrees(
        self, entry: Entry, leaves: list[Leaf], static: Static, tree: Any, program: Traced, unmet: int, special: Traced
    ) -> bool:
        """Whether a program is right for all calls that break these of its conditions; `special` is of one of them."""
        from hlo_disc.jit.agreement import agree

        def at(guards: Sequence[Guard]) -> Traced | None:
            others = where(guards, program.dims, leaves, entry.names)
            if others is None:
                return None
            try:
                return trace_call(
                    self.signature.bind(static), tree, others, program.dims, entry.names, self._constraints
                )
            except Exception:  # what these sizes raise is not about this call
                return None

        return agree(program, unmet, special, at)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace for these arguments (arrays or ShapeDtypeStructs), without compiling or running.

        The program is for all sizes, and JAX answers what the function asks about them, as for `hlo_disc.compile`.
        """
        self.signature.check(args, kwargs)
        array_args, array_kwargs, static = self.signature.split(args, dict(kwargs))
        leaves, tree = _flatten()((array_args, array_kwargs))
        programs = self._under_these_settings() or Programs(lambda: False)
        entry, infos = self._entry(programs, array_args, array_kwargs, static, leaves, tree)
        dims = self._dims_for(entry, tuple(info.shape for info in infos))
        traced = trace(self.signature.bind(static), tree, infos, dims, entry.names, self._constraints)
        return Lowered(traced.graph, self._options)

    def stats(self) -> Stats:
        """Calls from Python (not from compiled programs), compilations, their reasons and times."""
        fallbacks = tuple(Fallback(f.reason, f.arguments, f.calls) for f in list(self._fallbacks.values()))
        calls = sum(count.value for count in list(self._counts)) + sum(f.calls for f in fallbacks)
        return Stats(calls, tuple(self._records), fallbacks)

    def explain(self) -> str:
        """What was compiled, and why, for each program in use."""
        parts = [f"{self.signature.name}: {self.stats()}"]
        for entry in [
            entry for programs in list(self._by_settings.values()) for entry in list(programs.entries.values())
        ]:
            parts += [variant.executable.explain() for variant in entry.programs]
        return "\n\n".join(parts)


def _path(variant: Compiled, taken: Sequence[Any], traced: bool, wrap: bool) -> Path:
    """How calls run in a program, or in `jax.jit` when it traces. wrap: numpy's results become JAX's."""
    native = variant.executable.native
    if not traced:
        return Path(native, taken, [given(result, wrap) for result in variant.traced.results], variant.traced.out_tree)
    from hlo_disc.ral.contexts.jax import call_in_jit

    run = functools.partial(call_in_jit, native)
    return Path(run, taken, [given_in_jit(result) for result in variant.traced.results], variant.traced.out_tree)


def same_objects(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


@overload
def jit(
    fn: Callable[P, R],
    *,
    dims: Mapping[str, Any] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: Any,
) -> JitFunction[P, R]: ...
@overload
def jit(
    fn: None = None,
    *,
    dims: Mapping[str, Any] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: Any,
) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    dims: Mapping[str, Any] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: Any,
) -> Any:
    """Compile a JAX function once for every shape; a decorator with or without arguments, which keeps its signature.

    dims: a parameter's name -> a shape string, or a pytree (prefix) of them: "(b, s, _)" makes two dims dynamic, `_`
        keeps one static, "..." stands for static dims. Parameters that are not named are static. Without `dims`, the
        first call is compiled for its sizes, and sizes that change in later calls become dims by themselves.
        What the function asks about dims (`x.shape[0] == 1`, `range(n)`) is answered as it is at the call, and picks
        the program of later ones; `stats()` names the lines that asked. The function is traced again for each answer.
    constraints: what holds for the dims, "s <= 512" or ["s <= 512", "s % 8 == 0"]; a call that breaks one raises
        ShapeError. What cannot be read raises ParseError here.
    static_argnums, static_argnames: as for `jax.jit`; such an argument is hashable and part of the program.
    options, overrides: `Options`, whole or by field (`features="avx2"`).

    Arguments are pytrees of jax.Arrays, random keys among them, numpy arrays and numbers; results are jax.Arrays with
    the dtypes and weak types of `jax.jit`, or numpy arrays for a call whose arrays are all numpy's, random keys
    excepted. Inside `jax.jit` the program becomes a custom call.

    What hlo_disc does not support runs through `jax.jit`, with one FallbackWarning that names the op and the source
    line; `stats()` counts such calls.

    JAX's settings (64-bit types, promotion, precision ...) hold as for `jax.jit`: other settings are another program.
    With `jax.disable_jit()` the function itself runs and nothing is counted. With `jax_debug_nans` or `jax_debug_infs`,
    and where `jax_default_device` or a mesh places results, calls run through `jax.jit`, counted and without a warning.
    """
    merged = pipeline.merge(options, overrides)
    if fn is None:
        return lambda f: JitFunction(f, dims, constraints, static_argnums, static_argnames, merged)
    return JitFunction(fn, dims, constraints, static_argnums, static_argnames, merged)
