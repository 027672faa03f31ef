"""`hlo_disc.jit`, a drop-in for `jax.jit`: from a Python function to compiled programs that serve its calls.

One compilation serves every call with the same structure, static values, dtypes and ranks. If the function asks about
sizes, there is one compilation for each answer. A call that a program already serves takes the fast path: the argument
types find the program, and the program itself checks dtypes, ranks and sizes. Only if it refuses does the slow path
look closer, and compile if necessary. A function that cannot be compiled runs through `jax.jit`, with one warning that
says why.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from hlo_disc import pipeline, ral
from hlo_disc.display.stats import Log, Stats
from hlo_disc.errors import ArgumentError, ShapeError, UnsupportedOpError
from hlo_disc.import_.sizes.symbols import constraint_texts, parse_constraints
from hlo_disc.jitted.call import Call, Served
from hlo_disc.jitted.fallback import all_numpy, in_numpy, line_of, of_jax
from hlo_disc.jitted.flat import FlatFunction
from hlo_disc.jitted.lowered import Lowered
from hlo_disc.jitted.placement import PARAMETERS, Placement
from hlo_disc.jitted.programs import Compiled, Fallen, Finished, Key, Path, Paths, Programs
from hlo_disc.jitted.showing import Shown
from hlo_disc.options import Options
from hlo_disc.ral.entries import ByJax, Kinds
from hlo_disc.tracing.generalise import STATIC
from hlo_disc.tracing.signature import Signature
from hlo_disc.tracing.structure import arrays
from hlo_disc.tracing.structure import names as static_names
from hlo_disc.tracing.trace import active
from hlo_disc.tracing.values import (
    describe_all,
    is_symbolic,
    is_tracer,
)

if TYPE_CHECKING:
    import jax
    from jax._src.pjit import JitWrapped
    from jax.tree_util import PyTreeDef
    from jax.typing import ArrayLike


P = ParamSpec("P")
Q = ParamSpec("Q")  # of a method, without the instance
R = TypeVar("R")


@functools.cache
def _flatten() -> Callable[[object], tuple[list[ArrayLike], PyTreeDef]]:
    """Call jaxlib's C++ flatten; JAX is imported at the first call, not with hlo_disc."""
    from jax import tree_util

    return tree_util.default_registry.flatten


class JitFunction(Shown, Generic[P, R]):
    """A function compiled for dynamic shapes; made by `hlo_disc.jit`. Any number of threads may call it."""

    def __init__(
        self,
        fn: Callable[P, R],
        dims: Mapping[str, object] | None,
        constraints: str | Sequence[str],
        static_argnums: int | Iterable[int] | None,
        static_argnames: str | Iterable[str] | None,
        options: Options,
        parameters: Mapping[str, Any] | None = None,
    ):
        functools.update_wrapper(self, fn)
        self._made_of = fn, dims, constraints, static_argnums, static_argnames, options, parameters
        self._parameters = parameters or {}
        donated = map(self._parameters.get, ("donate_argnums", "donate_argnames"))
        self.signature = Signature(fn, static_argnums, static_argnames, *donated)
        if parameters:
            self._jax  # noqa: B018 - a mistake is told here, not at the first call
        self._dims = dims
        self._constraints = constraint_texts(constraints)
        if parse_constraints(self._constraints) and dims is None:  # a mistake is told here, not at the first call
            raise ArgumentError(
                f"constraints={constraints!r} are about dims that have a name: name them, as in dims={{'x': '(n, _)'}}"
            )
        self._options = options
        self._by_settings: dict[Any, Programs] = {}
        # For calls without keywords, by the types of their arguments, where there is nothing but `jax.jit`. If none of
        # them is the type of an array, one must be seen, or results are numpy's.
        self._by_jax: dict[Kinds, ByJax] = {}
        self._programs = Programs(lambda: False, self._by_jax)  # of the settings that the last call saw
        self._lock = threading.Lock()  # of programs
        self._log = Log()
        if dims is not None:
            self.signature.check_dims(dims)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: JitFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str | tuple[object, ...]:
        """Pickle a decorated function as its name, any other as what it was made of. Its programs are left out."""
        name = getattr(self, "__qualname__", "")
        try:
            found = operator.attrgetter(name)(sys.modules[self.__module__])
        except (AttributeError, KeyError):
            found = None
        return name if found is self else (JitFunction, self._made_of)

    def _under_these_settings(self) -> Programs | None:
        """Return the programs for JAX's settings in this thread; None if they say that nothing is to be compiled."""
        from hlo_disc.jitted import settings

        if settings.jit_is_disabled():
            return None
        key = settings.now()
        with self._lock:
            programs = self._by_settings.get(key)
            if programs is None:
                first = "first call with these settings of JAX" if self._by_settings else "first call"
                reason = self._placement.reason_for_jax or settings.reason_for_jax()
                flatten = None if self.signature.has_static else _flatten()
                programs = Programs(settings.watch(key), self._by_jax, flatten, reason, first)
                self._by_settings[key] = programs
            self._programs = programs
        return programs

    @ral.fast_path("_programs", _under_these_settings)
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function: as `jax.jit` of it would, with one program for many sizes.

        Args:
            args: the function's, arrays of any rank and numbers in pytrees; `hlo_disc.jit` says which.
            kwargs: the same by name.

        Raises:
            ArgumentError: a call that the function does not allow, what is no array, a static one that is not hashable,
                or a rank that `dims` do not allow.
            ShapeError: sizes that break `dims` or `constraints`.
            CallError: a library function that failed.
            OutOfMemoryError: no memory for results or intermediates.
        """
        programs = self._programs
        if not programs.unchanged():
            found = self._under_these_settings()
            if found is None:
                return self.signature.fn(*args, **kwargs)
            programs = found
        fallen = None
        try:
            array_args, array_kwargs, static = self.signature.split(args, dict(kwargs))
            leaves, tree = _flatten()((array_args, array_kwargs))
            key: Key = tree, static, tuple(map(type, leaves))
            path = programs.paths.get(key)
            if path is not None:
                return path(leaves)
            fallen = programs.fallen.get(key)
        except (ArgumentError, ShapeError):
            pass  # the slow path says why, or compiles
        return self._slow(programs, args, kwargs) if fallen is None else self._fall_back(fallen, args, kwargs)

    def _slow(self, programs: Programs, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Find or compile the program for this call, run it, and prepare the fast path of the next one."""
        call = self._identify(args, kwargs)
        if active() or any(map(is_symbolic, call.leaves)):
            return self.signature.fn(*args, **kwargs)
        traced = any(map(is_tracer, call.leaves))
        call = self._with_sizes(programs, call)
        if call.sizes and not traced and call.key in programs.paths:
            try:
                return self._serve_known(programs, call)
            except (ArgumentError, ShapeError):
                pass  # the sizes are others
        flat = self._flat(programs, call)
        if traced:
            return self._in_trace(programs, flat, call)
        obtained, by_types = self._obtain(programs, flat, call)
        if isinstance(obtained, Fallen):
            if by_types:
                self._remember_fallen(programs, call, obtained)
            return self._fall_back(obtained, args, kwargs)
        if by_types:
            self._remember(programs, call, obtained)
        finish = self._placement.finish(obtained.program.donated)
        return finish(call.leaves, obtained.result) if finish else obtained.result

    def _identify(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Call:
        self.signature.check(args, kwargs)
        split = self.signature.split(args, dict(kwargs))
        leaves, tree = _flatten()(split[:2])
        return Call(args, kwargs, split, leaves, tree, tuple(map(type, leaves)), tree)

    def _with_sizes(self, programs: Programs, call: Call) -> Call:
        """Put arrays in the place of the changing sizes in a call's static data."""
        if self._dims is not None:  # who names dims names none in static data
            return call
        structure, sizes, before = programs.structures.of(call.tree)
        if before is not None:
            programs.widen(structure, *before)
        return call._replace(structure=structure, leaves=[*call.leaves, *arrays(sizes)])

    @staticmethod
    def _serve_known(programs: Programs, call: Call) -> object:
        """Run a call with new sizes in its static data in a program for all such sizes."""
        path = programs.paths[call.key]
        results = path(call.leaves)
        programs.remember((call.tree, call.static, call.kinds), path, call.sizes)
        return results

    def _in_trace(self, programs: Programs, flat: FlatFunction, call: Call) -> object:
        """Call the function on tracers."""
        from hlo_disc.jitted.transforms import call as in_trace

        try:
            return in_trace(flat, call.leaves, describe_all(call.leaves, flat.names, flat.name))
        except (UnsupportedOpError, ShapeError) as error:
            self._fallen(programs, flat, call, error)
        return self._jax(*call.args, **call.kwargs)

    def _obtain(self, programs: Programs, flat: FlatFunction, call: Call) -> tuple[Served | Fallen, bool]:
        """Run a call in a program, which is compiled if there is none. Returns also whether the types of its arguments
        decided what becomes of it; else where they lie did."""
        by_types = True
        try:
            infos = describe_all(call.leaves, flat.names, flat.name)
            if programs.reason_for_jax:
                raise UnsupportedOpError(programs.reason_for_jax)
            by_types = False
            there = flat.on_machine_of(call.leaves)
            by_types = there is flat
            return Served.by(there, call, infos), by_types
        except (UnsupportedOpError, ShapeError) as error:
            return self._fallen(programs, flat, call, error), by_types

    def _fallen(
        self, programs: Programs, flat: FlatFunction, call: Call, error: UnsupportedOpError | ShapeError
    ) -> Fallen:
        """Note that a call runs through `jax.jit`. Raises the error if it is about sizes that the user has named."""
        # A size that breaks what nobody asked for is no mistake. What the user has set needs no warning.
        if isinstance(error, ShapeError) and self._dims is not None:
            raise error
        quiet = str(error) == programs.reason_for_jax
        return Fallen(flat.fallback(str(error), call.leaves, quiet), all_numpy(call.kinds), quiet)

    def _remember(self, programs: Programs, call: Call, served: Served) -> None:
        """Let calls with the same types take the fast path."""
        plain = self._placement.finish(served.program.donated) is None
        takes_all = not (call.kwargs or self.signature.has_static) and same_objects(call.leaves, call.args)
        prefer = None
        if plain and served.path.plain and takes_all:
            prefer = functools.partial(programs.plain.__setitem__, call.kinds)
            prefer(served.path.plain)
            if not served.others:
                return
        paths = [self._finished(p, served.path_of(p)) for p in (served.program, *served.others)]
        programs.paths[call.key] = (Paths(paths, prefer) if served.others else paths[0]).call

    def _remember_fallen(self, programs: Programs, call: Call, fallen: Fallen) -> None:
        """Let calls with the same types run through `jax.jit` directly."""
        if call.structure is not call.tree:  # of which there are many
            return
        programs.fallen[call.key] = fallen
        if not (fallen.quiet or call.kwargs or self.signature.has_static or self._log.has_compiled()):
            outer, of_arrays = tuple(map(type, call.args)), of_jax(call.kinds)
            told = None if of_arrays.intersection(outer) else of_arrays
            self._by_jax[outer] = ByJax(self._jax, fallen.fallback.count, told)

    def _fall_back(self, fallen: Fallen, args: tuple[object, ...], kwargs: dict[str, object]) -> R:
        fallen.fallback.count()
        results = self._jax(*args, **kwargs)
        return in_numpy(results) if fallen.to_numpy else results

    def _finished(self, program: Compiled, path: Path) -> Path | Finished:
        finish = self._placement.finish(program.donated)
        return Finished(path, finish) if finish else path

    def _flat(self, programs: Programs, call: Call) -> FlatFunction:
        key = call.structure, call.static
        found = programs.functions.get(key)
        if found is None:
            signature = self.signature
            names = signature.leaves(*call.split)
            dims = None if self._dims is None else signature.dims(self._dims, *call.split)

            def items() -> list[str]:
                return static_names(signature.arguments(*call.split))

            first = programs.first_of(call.structure, call.tree, items)
            if call.structure is not call.tree:
                called = items()
                names += [STATIC + called[place] for place in call.structure.places]
            fn, texts, options = signature.bind(call.static), self._constraints, self._options
            made = FlatFunction(
                signature.name,
                fn,
                call.structure,
                names,
                dims,
                texts,
                options,
                first,
                self._log,
                programs.histories(call.structure),
                donated=signature.donated(*call.split),
                line=line_of(signature.fn),
            )
            found = programs.functions.setdefault(key, made)
        return found

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Trace for these arguments, without compiling or running.

        The program is for all sizes, and JAX answers what the function asks about them, as for `hlo_disc.compile`.

        Args:
            args: arrays or `jax.ShapeDtypeStruct`s, in pytrees.
            kwargs: the same by name.

        Raises:
            ArgumentError: as a call.
            UnsupportedOpError: what a call would run through `jax.jit`.
            ShapeError: a function that JAX cannot trace at symbolic sizes.
        """
        flat, leaves, _ = self._flat_for(args, kwargs, plain=True)
        return Lowered(flat.lower(describe_all(leaves, flat.names, flat.name)).graph, self._options)

    def _flat_for(
        self, args: tuple[object, ...], kwargs: dict[str, object], plain: bool = False
    ) -> tuple[FlatFunction, list[ArrayLike], str]:
        """Return the function of arrays that serves a call, these arrays, and why such calls run through `jax.jit`, or
        "".

        plain: keep the arguments' structure: do not pass sizes in static data as arrays.
        """
        call = self._identify(args, kwargs)
        found = self._under_these_settings()
        programs = found or Programs(lambda: False, {}, None, "jax.disable_jit() is in force")
        call = call if plain else self._with_sizes(programs, call)
        return self._flat(programs, call), call.leaves, programs.reason_for_jax

    def trace(self, *args: object, **kwargs: object) -> jax.stages.Traced:
        """Trace the function by `jax.jit`, for its `jaxpr`, `out_info` and more, at these sizes alone.

        Args:
            args: arrays or `jax.ShapeDtypeStruct`s, in pytrees.
            kwargs: the same by name.

        Raises:
            TypeError: as `jax.jit`, and what the function raises.
        """
        return self._jax.trace(*args, **kwargs)

    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """The results as `jax.ShapeDtypeStruct`s, without compiling or running.

        Args:
            args: arrays or `jax.ShapeDtypeStruct`s, in pytrees.
            kwargs: the same by name.

        Raises:
            TypeError: as `jax.jit`, and what the function raises.
        """
        return self._jax.eval_shape(*args, **kwargs)

    @functools.cached_property
    def _placement(self) -> Placement:
        return Placement(self._parameters)

    @functools.cached_property
    def _jax(self) -> JitWrapped:
        """Return `jax.jit` of the function."""
        import jax

        nums, names = self.signature.static_argnums, self.signature.static_argnames
        return jax.jit(self.signature.fn, static_argnums=nums, static_argnames=names, **self._parameters)

    def clear_cache(self) -> None:
        """Forget all programs: the next call compiles again. `stats()` keeps what was; calls that run go on."""
        with self._lock:
            self._by_settings, self._by_jax = {}, {}
            self._programs = Programs(lambda: False, self._by_jax)
        self._jax.clear_cache()

    def stats(self) -> Stats:
        """Calls from Python and from functions of `jax.jit`, compilations, their reasons and times."""
        return self._log.stats()


def same_objects(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


@overload
def jit(
    fn: Callable[P, R],
    *,
    dims: Mapping[str, object] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: object,
) -> JitFunction[P, R]: ...
@overload
def jit(
    fn: None = None,
    *,
    dims: Mapping[str, object] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: object,
) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
def jit(
    fn: Callable[P, R] | None = None,
    *,
    dims: Mapping[str, object] | None = None,
    constraints: str | Sequence[str] = (),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    options: Options | None = None,
    **overrides: object,
) -> JitFunction[P, R] | Callable[[Callable[P, R]], JitFunction[P, R]]:
    """Compile a JAX function once for every shape; a decorator with or without arguments, which keeps its signature.

    What the function asks about dims (`x.shape[0] == 1`, `range(n)`) is answered as it is at the call, and picks the
    program of later ones; `stats()` names the lines that asked. The function is traced again for each answer.

    Arguments are pytrees of jax.Arrays, random keys among them, numpy arrays and numbers; results are jax.Arrays with
    the dtypes and weak types of `jax.jit`, or numpy arrays for a call whose arrays are all numpy's, random keys
    excepted. Inside `jax.jit` the program becomes a custom call.

    What hlo_disc does not support runs through `jax.jit`, with one FallbackWarning that names the op and the source
    line; `stats()` counts such calls. With `fallback=False` it is an UnsupportedOpError.

    JAX's settings (64-bit types, promotion, precision ...) hold as for `jax.jit`: other settings are another program.
    With `jax.disable_jit()` the function itself runs and nothing is counted. With `jax_debug_nans` or `jax_debug_infs`,
    and where `jax_default_device` or a mesh places results, calls run through `jax.jit`, counted and without a warning.

    Args:
        fn: the function; without it, a decorator is returned.
        dims: a parameter's name -> a shape string, or a pytree (prefix) of them: `"(b, s, _)"` makes two dims dynamic,
            `_` keeps one static, `"..."` stands for static dims. Parameters that are not named are static. Without
            `dims`, the first call is compiled for its sizes, and sizes that change in later calls become dims.
        constraints: what holds for the dims, `"s <= 512"` or `["s <= 512", "s % 8 == 0"]`.
        static_argnums: as for `jax.jit`; such an argument is hashable and part of the program.
        static_argnames: the same by name.
        options: how to compile and run; by default what the environment says (`Options.from_env`).
        overrides: fields of `Options` by name, over `options` (`target="cpu:avx2"`); and `donate_argnums`,
            `donate_argnames`, `keep_unused`, `inline`, `in_shardings`, `out_shardings`, `device` and `backend`, as for
            `jax.jit`. A donated array is deleted after the call if a result is as large. Calls with shardings or a
            device other than the first CPU device run through `jax.jit`, counted and without a warning.

    Raises:
        ArgumentError: dims, static or donated arguments or options that do not fit the function.
        ParseError: a constraint that is none.

    Example:
        >>> double = hlo_disc.jit(lambda x: x * 2, dims={"x": "(n)"})
        >>> double(np.arange(3)), double(np.arange(5))
        (array([0, 2, 4], dtype=int32), array([0, 2, 4, 6, 8], dtype=int32))
        >>> double.stats().compilations
        1
    """
    for_jax = {name: overrides.pop(name) for name in PARAMETERS & overrides.keys()}
    merged = pipeline.merge(options, overrides)
    if fn is None:
        return lambda f: JitFunction(f, dims, constraints, static_argnums, static_argnames, merged, for_jax)
    return JitFunction(fn, dims, constraints, static_argnums, static_argnames, merged, for_jax)
