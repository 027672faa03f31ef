"""The functions of `hlo_disc.tensorflow.jit`: imported at the first call, they serve later calls of any shape."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hlo_disc.display.notebook import counted
from hlo_disc.display.stats import Compilation, Log, Stats
from hlo_disc.errors import ArgumentError
from hlo_disc.options import Options
from hlo_disc.tensorflow.compiled import Compiled, is_direct
from hlo_disc.tensorflow.importing import Imported

if TYPE_CHECKING:
    from hlo_disc.profile import Profile
    from hlo_disc.tensorflow.types import ConcreteFunction, Tensor

Shape = tuple["int | None", ...]
# The sizes that are unknown in a trace, in the order of attempts: all; those that are not 1; all but those of the last
# axes; those of the first axes; none, so that the trace is for the sizes of the call.
_GENERALITY: tuple[Callable[[Sequence[int | None]], Shape], ...] = (
    lambda sizes: (None,) * len(sizes),
    lambda sizes: tuple(n if n == 1 else None for n in sizes),
    lambda sizes: (*(None,) * (len(sizes) - 1), *sizes[-1:]),
    lambda sizes: (*(None,) * min(len(sizes), 1), *sizes[1:]),
    tuple,
)


class JitFunction:
    """A function that is compiled when it is called, from `hlo_disc.tensorflow.jit`. Any thread may call it.

    Tensors and arrays are arguments of its programs. All other values are parts of the function, as in `tf.function`.
    """

    autograph_info__: dict[str, Any] = {}  # AutoGraph does not convert objects that have this

    def __init__(self, function: Callable[..., object], options: Options | None, overrides: dict[str, object]):
        functools.update_wrapper(self, function)
        self._function = function
        self._settings = (options, overrides)
        self._programs: dict[Any, list[tuple[list[Shape], Compiled]]] = {}
        # Signatures with unknown sizes that could not be compiled. They are not traced again; a call's own sizes are.
        self._failed: dict[Any, list[list[Shape]]] = {}
        self._lock = threading.RLock()
        self._log = Log()

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def __get__(self, instance: object, owner: type | None = None) -> JitFunction | types.MethodType:
        """Bind a method to its instance. `self` is a part of the function: each instance has programs of its own."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Return the function's results, computed by a program for all shapes."""
        compiled, inputs = self._compiled_for(args, kwargs)
        return compiled.packed(compiled.run(inputs))

    def _compiled_for(self, args: tuple[Any, ...], kwargs: dict[str, object]) -> tuple[Compiled, Sequence[Tensor]]:
        """Return the program of a call, which is compiled if there is none, and the tensors of the call."""
        leaves: Sequence[Any]
        inputs: Sequence[Any]
        if not kwargs and all(isinstance(x, tf.Tensor) for x in args):
            leaves = inputs = args
            shapes = list(map(_shape, inputs))
            key: Any = tuple((x.dtype, len(shape)) for x, shape in zip(inputs, shapes, strict=True))
        else:
            leaves = tf.nest.flatten((args, kwargs))
            inputs = [tf.convert_to_tensor(x) for x in leaves if _is_array(x)]
            shapes = list(map(_shape, inputs))
            fixed = tuple(None if _is_array(x) else _key(x) for x in leaves)
            types = tuple((x.dtype, len(shape)) for x, shape in zip(inputs, shapes, strict=True))
            key = repr(tf.nest.map_structure(_mark, (args, kwargs))), fixed, types
        for general, compiled in self._programs.get(key, ()):
            if _serves(general, shapes) and compiled.is_for(shapes):
                return compiled, inputs
        return self._add(key, args, kwargs, leaves, inputs, shapes), inputs

    def _add(
        self,
        key: Hashable,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        leaves: Sequence[object],
        inputs: Sequence[Tensor],
        shapes: list[Shape],
    ) -> Compiled:
        with self._lock:
            start = time.perf_counter()
            programs = self._programs.setdefault(key, [])
            for general, compiled in programs:
                if _serves(general, shapes) and compiled.is_for(shapes):  # another thread's
                    return compiled
            # As in `tf.function`: layers without weights create them now, for the sizes of the call.
            exact = None
            with contextlib.suppress(Exception):  # which the last attempt will raise again
                exact = self._traced((args, kwargs), leaves, inputs, shapes)
            # A call that is not direct runs an op, which needs the whole program.
            sizes = [tuple(x.shape) for x in inputs] if is_direct() else None
            last: Exception | None = None
            for general in _signatures(shapes):
                failed = self._failed.setdefault(key, [])
                if general in failed or any(general == known for known, _ in programs):  # which is for other sizes
                    continue
                try:
                    compiled = self._compiled((args, kwargs), leaves, inputs, general, sizes)
                except Exception as error:  # of any kind: Python code meets a size that is None
                    last = error
                    failed += [general] if general != shapes else []
                    continue
                serves = compiled.is_for(shapes)
                if serves and exact is not None and not compiled.gives(exact):
                    # The Python code computes something else if a size is None.
                    last = ArgumentError(f"{self._name} gives other results each time that it is traced")
                    failed += [general] if general != shapes else []
                    continue
                self._record(compiled, key, time.perf_counter() - start)
                programs = self._programs[key] = [*programs, (general, compiled)]
                if serves:
                    return compiled
        assert last is not None
        raise last  # of the attempt that knows most: in others TensorFlow may have lacked a size

    def _record(self, compiled: Compiled, key: Hashable, seconds: float) -> None:
        if not any(self._programs.values()):
            reason = "first call"
        elif self._programs[key]:
            reason = "sizes that no program serves"
        else:
            reason = "first call with arguments of this structure and of these types"
        executable = compiled.executable
        program = executable.linked
        shown = tuple(map(str, program.inputs))
        asked = tuple(x.message for x in program.asked)
        record = Compilation(reason, shown, seconds, program.compile_ms, asked)
        self._log.add(record, executable.native.count, executable.tally)

    def stats(self) -> Stats:
        """Return the compilations, their reasons and times, and the number of calls, as `hlo_disc.jit` does.

        In graphs and gradients, each run of an op is a call: a graph that runs three times counts as three calls.
        """
        return self._log.stats()

    def _compiled(
        self,
        structure: object,
        leaves: Sequence[object],
        inputs: Sequence[Tensor],
        shapes: list[Shape],
        sizes: Sequence[Sequence[int]] | None,
    ) -> Compiled:
        imported = Imported(self._traced(structure, leaves, inputs, shapes))
        options, overrides = self._settings
        return Compiled(imported, imported.compiled(options=options, overrides=overrides, sizes=sizes))

    def _traced(
        self, structure: object, leaves: Sequence[object], inputs: Sequence[Tensor], shapes: list[Shape]
    ) -> ConcreteFunction:
        """Trace the function for arguments of these shapes. Return the concrete function."""

        def function(*tensors: Tensor) -> object:
            rest = iter(tensors)
            args, kwargs = tf.nest.pack_sequence_as(structure, [next(rest) if _is_array(x) else x for x in leaves])
            return self._function(*args, **kwargs)

        name = getattr(self._function, "__name__", "")
        function.__name__ = name if name.isidentifier() else "function"  # AutoGraph looks for lambdas by their name
        specs = [
            tf.TensorSpec(shape, x.dtype, f"x{i}") for i, (shape, x) in enumerate(zip(shapes, inputs, strict=True))
        ]
        return tf.function(function).get_concrete_function(*specs)

    def explain(
        self, full: bool = False, html: str | os.PathLike[str] | None = None, profile: Profile | None = None
    ) -> str:
        """Return the text of `Executable.explain` for each program so far.

        Args:
            full: whether the text is complete. Otherwise it has less than 60 lines, and says how many programs it
                leaves out.
            html: a file for the page, in which the reader chooses a program.
            profile: the result of `profile`.

        Raises:
            OSError: the file cannot be written.
        """
        from hlo_disc.explain.explanation import explain_function

        found = [compiled.executable.program for compiled in self.programs()]
        times = profile.as_dict() if profile else None
        return explain_function(f"{self._name}: {counted(len(found), 'program')}", found, full, html, times)

    def profile(self, *args: object, **kwargs: object) -> Profile:
        """Measure the time of each kernel: `Executable.profile` of a call's program, compiled if there is none."""
        compiled, inputs = self._compiled_for(args, kwargs)
        return compiled.measured(inputs, seconds=1.0)

    def programs(self) -> list[Compiled]:
        """Return the programs that have been compiled so far."""
        return [compiled for found in self._programs.values() for _, compiled in found]


def _shape(x: Tensor) -> Shape:
    sizes = x._shape_tuple()
    if sizes is None:
        raise ArgumentError(f"the rank of {x} is not known: give it one with tf.ensure_shape")
    return sizes


def _is_array(x: object) -> bool:
    return isinstance(x, (tf.Tensor, np.ndarray, np.generic, tf.Variable))


class _Itself:
    """A key for an object without a hash, equal for this object alone. It keeps the object: addresses are reused."""

    def __init__(self, x: object):
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.x is other.x

    def __hash__(self) -> int:
        return id(self.x)


def _key(x: object) -> Hashable:
    """Return a key that tells a part of the function from others."""
    try:
        hash(x)
        return type(x), x
    except TypeError:
        return _Itself(x)


def _mark(x: object) -> str:
    return "x" if _is_array(x) else "."


def _serves(general: Sequence[Shape], shapes: Sequence[Shape]) -> bool:
    pairs = ((g, n) for given, shape in zip(general, shapes, strict=True) for g, n in zip(given, shape, strict=True))
    return all(g is None or g == n for g, n in pairs)


def _signatures(shapes: Sequence[Shape]) -> Iterator[list[Shape]]:
    """Yield the shapes to trace for, from the most general ones to those of this call."""
    seen: list[list[Shape]] = []
    for generalise in _GENERALITY:
        made = [generalise(shape) for shape in shapes]
        if made not in seen:
            seen.append(made)
            yield made
