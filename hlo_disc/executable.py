"""Links a compiled `Program`, so that it can be called.

An `Executable` links a program's object code into this process and calls it through `hlo_disc.ral`. It holds no state
of a call, so any number of threads may use one.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hlo_disc.compiled.deferred import Deferred, Tally, Unmade, background
from hlo_disc.compiled.program import Attribute, LibraryCall, LinkedCall, Program, dtype_named
from hlo_disc.compiled.saved import content_hash, read, read_open, release_pages, save
from hlo_disc.display.notebook import html_table, signature_text
from hlo_disc.errors import ArgumentError, DeviceError, FormatError, ShapeError, UnsupportedOpError
from hlo_disc.nest import inputs_of, nest
from hlo_disc.options import Options
from hlo_disc.targets import registry
from hlo_disc.wide import Wide

if TYPE_CHECKING:
    from hlo_disc import ral
    from hlo_disc.profile import Profile
    from hlo_disc.targets.target import Library, Target


class Memory(NamedTuple):
    """Bytes that one call allocates.

    Args:
        temporary: for intermediates, freed when it returns.
        outputs: for its results, without those whose size depends on data.
    """

    temporary: int
    outputs: int

    @property
    def total(self) -> int:
        """Both, in bytes."""
        return self.temporary + self.outputs


class Executable:
    """A program linked into this process; made by `compile`, `load` and `Lowered.compile`. Any thread may call it.

    It can be pickled, with its options; to unpickle is to load it. Its copies are itself, for it never changes.

    Args:
        program: what was compiled or read.
        options: how to run it: `threads` and `packed_bytes`; by default what the environment says.
        unmade: the kernels that the program lacks, and calls may need.

    Raises:
        FormatError: a target that is not there, or a feature of the object code that the machine lacks.
        UnsupportedOpError: a library call for which this process has no handler.
    """

    def __init__(self, program: Program, options: Options | None = None, unmade: Unmade | None = None):
        from hlo_disc import ral

        target = _target(program.target)
        target.check(program.features)
        self.options = options or Options.from_env()
        library = target.link(program.object, ral.symbols())
        self.linked = _packed(program, library.address)
        self._deferred = Deferred(unmade, library, target.link) if unmade else None
        self.native = self._native(target, library)
        self._nested = ral.nested

    @functools.cached_property
    def program(self) -> Program:
        """The program with all its kernels. `linked` is the same, but its object may lack deferred kernels."""
        return _whole(self.linked, self._deferred)

    @property
    def tally(self) -> Tally | None:
        """The progress of its deferred kernels; None if it has none."""
        return self._deferred.tally if self._deferred else None

    @contextmanager
    def first_call(self) -> Iterator[None]:
        """Begin and end the first call. After it, a thread compiles the kernels that the call did not take."""
        try:
            yield
        finally:
            if self._deferred and not self._deferred.is_whole:
                background.add(self._deferred)

    @functools.cached_property
    def _structure(self) -> Any:
        return json.loads(self.linked.structure) if self.linked.structure else None

    @functools.cached_property
    def _arguments(self) -> Any:
        return json.loads(self.linked.arguments) if self.linked.arguments else None

    def _native(self, target: Target, library: Library) -> ral.Executable:
        """Return the native executable. It keeps the library with the machine code alive, and what that calls."""
        from hlo_disc import ral

        program = self.linked
        functions: list[Any] = []
        return ral.Executable(
            program,
            library.address,
            calls=[_linked_call(x, functions) for x in program.calls],
            threads=self.options.threads,
            packed_bytes=self.options.packed_bytes,
            driver=target.driver,
            recordable=bool(target.driver) and not any(x in program.object for x in (_READ, _WRITE, _ALLOCATE)),
            multiplies=bool(target.driver) and _PRODUCT in program.object,
            wide_modules=Wide(functools.partial(_whole, program, self._deferred)) if program.env.wide >= 0 else None,
            make_kernel=self._deferred,
            packs_inputs=self._deferred.packs_inputs if self._deferred else None,
            late_modules=self._deferred.late_modules if self._deferred else None,
            keep_alive=(library, functions),
        )

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run. The executable stays usable after an error.

        Args:
            args: the arrays in the order of `explain`, or pytrees that flatten to them. They may be numpy's, JAX's,
                PyTorch's, or any with DLPack or the buffer protocol on the CPU; dtypes are those that were compiled.
            kwargs: of an exported program of PyTorch, which takes all arguments as its module does: nested, and with
                the numbers and constants among them.

        Returns:
            The result, several as a tuple, or nested as the compiled function nested them: jax.Arrays or
            torch.Tensors where the first argument of either is one, numpy arrays otherwise.

        Raises:
            ArgumentError: the number of arguments, a dtype or a rank; masked arrays.
            ShapeError: sizes that are not the program's, disagree or break a constraint.
            CallError: a library function that failed.
            OutOfMemoryError: no memory for results or intermediates.
        """
        results = self.native(*self._leaves(args, kwargs))
        if self._structure is not None:
            return nest(self._structure, results)
        return results[0] if len(results) == 1 else tuple(results)

    def __repr__(self) -> str:
        p = self.linked
        return f"<hlo_disc.Executable {signature_text(p.inputs, p.outputs)} for {p.target}, {len(p.object)} bytes>"

    def _repr_html_(self) -> str:
        p = self.linked
        rows = [*(("input", x) for x in p.inputs), *(("output", x) for x in p.outputs)]
        return html_table(f"Executable for {p.target}, {len(p.object)} bytes of code", rows)

    def __reduce__(self) -> tuple[Callable[..., Executable], tuple[object, ...]]:
        content = io.BytesIO()
        save(self.program, content)
        return _unpickled, (content.getvalue(), self.options)

    def __copy__(self) -> Executable:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Executable:
        return self

    def memory(self, **dims: int) -> Memory:
        """Bytes that a call allocates, without running it.

        Args:
            dims: the size of each of `Executable.dims`, by name.

        Raises:
            ShapeError: a dim too few or too many, or sizes that a call would refuse.

        Example:
            >>> exe = hlo_disc.compile(lambda x: x + 1, "f32[b, 4]")
            >>> exe.memory(b=8)
            Memory(temporary=0, outputs=128)
        """
        from hlo_disc.dynamic_hlo.sizes.dim import Dim

        self._check_dims(dims)
        program = self.linked
        try:
            sizes = [Dim.parse(d).evaluate(dims) for x in program.inputs for d in x.shape]
        except ZeroDivisionError as error:
            raise ShapeError(f"memory({_keywords(dims)}): {error}") from None
        env = self.native.plan(sizes)
        outputs, at = 0, program.env.outputs
        for result in program.outputs:
            sizes = env[at : at + len(result.shape)]
            known = min(sizes, default=0) >= 0
            outputs += math.prod(sizes) * dtype_named(result.dtype).itemsize if known else 0
            at += len(sizes)
        return Memory(env[program.env.arena] + self.native.workers * env[program.env.scratch], outputs)

    def _check_dims(self, dims: Mapping[str, int]) -> None:
        symbols = self.dims
        needs = f"this program's dims are {', '.join(symbols)}" if symbols else "this program has no dims"
        for name, size in dims.items():
            if name not in symbols:
                raise ShapeError(f"memory({_keywords(dims)}): unknown dim {name!r}; {needs}")
            if not isinstance(size, (int, np.integer)) or size < 0:
                raise ShapeError(f"memory({_keywords(dims)}): the size of {name} must be an integer >= 0")
        missing = [name for name in symbols if name not in dims]
        if missing:
            raise ShapeError(f"memory({_keywords(dims)}): no size for {', '.join(missing)}; {needs}")

    @property
    def dims(self) -> tuple[str, ...]:
        """The names that the shapes of the arguments are made of, in the order of their appearance."""
        return tuple(dict.fromkeys(s for x in self.linked.inputs for d in x.shape for s in _symbols(d)))

    @functools.cached_property
    def content(self) -> int:
        """A hash of what it computes, 63 bits: equal in all processes, for compiling is deterministic."""
        return content_hash(self.program)

    def explain(
        self, full: bool = False, html: str | os.PathLike[str] | None = None, profile: Profile | None = None
    ) -> str:
        """Describe the program: its source, signature, compile times and plan (launches, their forms and why, memory).

        A notebook shows the text as a page.

        Args:
            full: every launch with its work, not those that are alike in one line, and the parts of the arena; for GPUs
                also what the code says of its kernels: threads of a block, shared memory, registers where it has them.
                Otherwise it is less than 60 lines.
            html: a file for the page, which loads nothing from a network: the user's lines and the launches that
                compute them, which form runs at which sizes, guards, memory, and, with a profile, times.
            profile: what `Executable.profile` returned, for the page.

        Raises:
            OSError: the file cannot be written.
        """
        from hlo_disc.explain.explanation import explain_program

        return explain_program(self.program, full, html, profile.as_dict() if profile else None)

    def profile(self, *args: object, seconds: float = 1.0, **kwargs: object) -> Profile:
        """Measure the time of each kernel in calls with these arrays.

        The program is linked once more for it, with functions of the runtime that note every launch: calls of the
        executable cost as much as before. The first profile of a process also measures the limits of the machine.

        Args:
            args: as of a call.
            kwargs: as of a call.
            seconds: how long to call it; three times at least.

        Raises:
            DeviceError: a program for GPUs, whose vendors have profilers.
            HloDiscError: what a call raises.

        Example:
            >>> exe = hlo_disc.compile(lambda x: x @ x.T, "f32[n, 64]")
            >>> found = exe.profile(np.ones((100, 64), np.float32), seconds=0.1)
            >>> [(row.launches, row.operations) for row in found.kernels]
            [(1, 1280000)]
        """
        from hlo_disc.profile.measure import measure

        native, names = self._recorded
        leaves = self._leaves(args, kwargs)
        with suppress(ArgumentError, ShapeError):  # the first call says it as calls do
            sizes = [size for x in leaves for size in np.shape(x)]
            unmet = native.unmet(sizes)
            if unmet and not self.native.unmet(sizes):  # calls may break these conditions, as was found later
                native.accept(unmet)
        return measure(self.program, native, names, leaves, seconds)

    @functools.cached_property
    def _recorded(self) -> tuple[ral.Executable, dict[int, str]]:
        """Link the program again, so that its launches are recorded. Returns it with its functions by address."""
        from hlo_disc import ral

        target = _target(self.linked.target)
        if target.driver:
            raise DeviceError(
                f"kernels of the target {self.linked.target!r} are launched by the driver: profile them with the "
                "vendor's tools (nsys, rocprof)"
            )
        library = target.link(self.program.object, {**ral.symbols(), **ral.recorded_symbols()})
        return self._native(target, library), {address: name for name, address in library.functions().items()}

    def _leaves(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
        """Flatten the arguments to arrays."""
        if self._arguments is not None:
            flat = not kwargs and len(args) == len(self.linked.inputs) and all(hasattr(x, "shape") for x in args)
            return args if flat else inputs_of(self._arguments, args, kwargs)
        if kwargs:
            raise ArgumentError(f"this program has no keyword arguments; {', '.join(kwargs)} given")
        if not self._nested(args):
            return args
        from jax import tree_util

        return tuple(tree_util.tree_leaves(args))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as one file for `hlo_disc.load`.

        Args:
            path: the file, which is replaced. It holds weights that the function closed over, but no Python.

        Raises:
            OSError: it cannot be written.
        """
        save(self.program, path)


def runs_here(program: Program) -> bool:
    """Whether this machine is one of those that a program was compiled for."""
    target = _target(program.target)
    try:
        target.check(program.features)
    except FormatError:
        return False
    return True


# Functions of the runtime that main calls besides a launch's, as the object code names them.
_READ, _WRITE, _ALLOCATE, _PRODUCT = b"ral_read\0", b"ral_write\0", b"ral_allocate\0", b"ral_product\0"


def _whole(program: Program, deferred: Deferred | None) -> Program:
    """Return a program with all its kernels."""
    return program._replace(**deferred.whole()._asdict()) if deferred else program


def _packed(program: Program, address: Callable[[str], int]) -> Program:
    """Return a program with all packed forms of its constants. Constants that nothing else reads are dropped."""
    from hlo_disc import ral

    if program.forms:
        return program
    none = np.zeros(0, np.uint8)
    forms = [
        ral.pack(address(x.function), program.constants[x.number], x.size) if x.kind == "constant" else none
        for x in program.packs
    ]
    constants = [none if i in program.packed else x for i, x in enumerate(program.constants)]
    return program._replace(constants=tuple(constants), forms=tuple(forms))


def _target(name: str) -> Target:
    try:
        return registry.find(name)
    except ArgumentError:
        known = ", ".join(registry.kinds())
        raise FormatError(f"compiled for the target {name!r}; this hlo_disc has {known}") from None


def register_ffi_target(name: str, function: object) -> None:
    """Let programs that are compiled or loaded from now on call an XLA FFI handler by name.

    What is registered with JAX (`jax.ffi.register_ffi_target`) is found without this, but for handlers with a state:
    jaxlib does not hand out their stage "instantiate".

    Args:
        name: the target, as custom calls name it.
        function: a capsule with the handler's address (`jax.ffi.pycapsule`), or {stage: capsule} for the stages
            "instantiate", "prepare", "initialize" and "execute", of which the last must be there.

    Raises:
        ArgumentError: other stages, or what is no capsule.
    """
    from hlo_disc.ral import handlers

    handlers.register_target(name, function)


def register_ffi_type(name: str, registration: Mapping[str, object]) -> None:
    """Tell the runtime of a type of which a custom call's handler keeps a state, so that it can destroy such states.

    XLA does not say how it destroys what is registered with it, so handlers with a state need this call too, after the
    one for JAX.

    Args:
        name: the type's, for messages.
        registration: what `jax.ffi.register_ffi_type` takes, `{"type_id": capsule, "type_info": capsule}`.

    Raises:
        ArgumentError: what is no such registration, or a type without a deleter.
    """
    from hlo_disc.ral import handlers

    handlers.register_type(name, registration)


def _linked_call(call: LibraryCall, functions: list[object]) -> LinkedCall:
    """Return a library call as the runtime takes it, and add the Python functions that it calls to `functions`.

    Raises UnsupportedOpError for a target that this process lacks.
    """
    from hlo_disc.ral import handlers

    found = handlers.find(call.target)
    if found is None:
        raise UnsupportedOpError(
            f"{call.where}: this process has no XLA FFI handler of that name for the CPU; register it before compiling "
            "or loading (jax.ffi.register_ffi_target, or hlo_disc.register_ffi_target)"
        )
    call = call._replace(config=tuple(_with_address(x, call.where, functions) for x in call.config))
    return LinkedCall(call, found, handlers.is_lapack(call.target), handlers.lapack_function(call.target))


def _with_address(x: Attribute, where: str, functions: list[object]) -> Attribute:
    """Return a Python function as the address of a wrapper that knows the user's line; anything else as it is."""
    if x.callback is None:
        return x
    functions.append(functools.partial(x.callback, where))
    return Attribute(x.name, "scalar", "uint64", np.uint64(id(functions[-1])).tobytes().hex())


def load(path: str | os.PathLike[str], options: Options | None = None, *, mmap: bool = True) -> Executable:
    """An executable that `Executable.save` or `hlo-disc compile` wrote. Nothing is traced, and JAX is not imported.

    What is in the file is machine code, which runs with your rights: load files that you trust. Constants are mapped,
    so that processes share them. A file that is written into, or made shorter, while it is loaded changes results, or
    ends the process by SIGBUS; `save` replaces it as a whole, which does neither.

    Args:
        path: the file.
        options: how to run it: `threads` and `packed_bytes`; by default what the environment says.
        mmap: False copies the constants, so that the file may change or go: for what others may write.

    Raises:
        FormatError: another format version, a damaged file, a target or features that this machine lacks.
        UnsupportedOpError: a library call for which this process has no handler.
        OSError: a file that cannot be read; FileNotFoundError for none.
    """
    program = read(path, mmap)
    executable = _linked(program, options, str(path))
    if executable.linked is not program:  # its constants were packed: what the file has of them is read no more
        release_pages(program)
    return executable


def _unpickled(content: bytes, options: Options) -> Executable:
    """Restore a pickled executable, for `Executable.__reduce__`. Raises the errors of `load`."""
    name = "a pickled executable"
    return _linked(read_open(io.BytesIO(content), name), options, name)


def _linked(program: Program, options: Options | None, name: str) -> Executable:
    try:
        return Executable(program, options)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    except DeviceError:
        raise
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"{name}: a damaged executable: {error}") from error


def _symbols(text: str) -> list[str]:
    from hlo_disc.dynamic_hlo.sizes.dim import Dim

    return sorted(Dim.parse(text).symbols)


def _keywords(dims: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())
