"""From a compiled `Program` to something that can be called, and to and from one file on disk.

A `Program` is plain data: an object file, the signature and the constants. An `Executable` links the object code into
this process and calls it through `hlo_disc.ral`; it holds no state of a call, so any number of threads may use one.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, FormatError, ShapeError, UnsupportedOpError
from hlo_disc.options import Options
from hlo_disc.targets import registry

if TYPE_CHECKING:
    from hlo_disc.targets.target import Target

FORMAT = "hlo_disc executable"
VERSION = 3

Input = tuple[str, str, tuple[str, ...]]  # name, dtype, shape as dim expressions
Output = tuple[str, tuple[str, ...]]  # dtype, shape
GuardRow = tuple[str, str, str, str, tuple[str, ...]]  # lhs, relation, rhs, message, args
Call = tuple[Any, ...]  # the fields of stitch's LibraryCall: target, where, config, operands, results, aliases
Pack = tuple[str, int, int, str]  # "input" or "constant", its index, bytes of the packed form, name of the function


@dataclass(frozen=True, eq=False)
class Program:
    """What compiling makes and `save` writes.

    object: an ELF object with `plan`, `main` and the `pack` functions.
    target, features: the kind of machine that the object code is for, and the features that it uses.
    symbols: the dims' names, in the order in which `plan` writes their values into the env.
    env_size: 64-bit words that `plan` writes: arena bytes, scratch bytes of a worker, symbols, sizes of the outputs.
    structure: how the outputs nest, as JSON; "" for a plain sequence.
    compile_ms: milliseconds of each stage.
    """

    object: bytes
    target: str
    features: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    symbols: tuple[str, ...]
    guards: tuple[GuardRow, ...]
    constants: tuple[np.ndarray, ...]
    packs: tuple[Pack, ...]
    calls: tuple[Call, ...]
    env_size: int
    explain: str = ""
    structure: str = ""
    compile_ms: Mapping[str, float] = field(default_factory=dict)


class Memory(NamedTuple):
    """Bytes that one call allocates: for intermediates, freed when it returns, and for its results."""

    temporary: int
    outputs: int

    @property
    def total(self) -> int:
        return self.temporary + self.outputs


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a program as one file that `load` reads on any machine with the same CPU features."""
    header = {"format": FORMAT, "version": VERSION}
    header |= {k: v for k, v in asdict(replace(program, constants=())).items() if k not in ("object", "constants")}
    header["constants"] = [[str(c.dtype), list(c.shape)] for c in program.constants]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(header, indent=1))
        archive.writestr("object.o", program.object)
        for i, constant in enumerate(program.constants):
            buffer = io.BytesIO()
            # npy knows nothing of bfloat16 and its like: the header holds the dtype, the file the bytes.
            np.save(buffer, np.ascontiguousarray(constant).reshape(-1).view(np.uint8), allow_pickle=False)
            archive.writestr(f"constants/{i}.npy", buffer.getvalue())


def read(path: str | os.PathLike[str]) -> Program:
    """Read what `save` wrote. Raises FormatError for another format version or a damaged file, FileNotFoundError."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))
            if header.pop("format") != FORMAT:
                raise FormatError(f"{path}: no hlo_disc executable")
            version = header.pop("version")
            if version != VERSION:
                raise FormatError(
                    f"{path}: executable format version {version}, this hlo_disc reads {VERSION}: compile it again"
                )
            constants = tuple(
                np.load(io.BytesIO(archive.read(f"constants/{i}.npy")), allow_pickle=False)
                .view(dtype_named(dtype))
                .reshape(shape)
                for i, (dtype, shape) in enumerate(header.pop("constants"))
            )
            return Program(object=archive.read("object.o"), constants=constants, **_tuples(header))
    except FormatError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, EOFError, AttributeError) as error:
        raise FormatError(f"{path}: no hlo_disc executable, or a damaged one ({error})") from error


def _tuples(header: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples: make every list one again."""

    def deep(value: Any) -> Any:
        return tuple(map(deep, value)) if isinstance(value, list) else value

    return {key: deep(value) for key, value in header.items()}


def dtype_named(name: str) -> np.dtype:
    """The numpy dtype of this name, ml_dtypes' included. Raises TypeError for an unknown name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def describe_structure(template: Any) -> str:
    """A nest of dicts, lists, tuples and None with output numbers as leaves, as JSON; "" for a nest of other things."""
    try:
        return json.dumps(_encode(template))
    except TypeError:
        return ""


def _encode(node: Any) -> Any:
    if node is None or type(node) is int:
        return node
    if type(node) is dict and all(type(key) is str for key in node):
        return {"dict": [[key, _encode(value)] for key, value in node.items()]}
    if type(node) in (list, tuple):
        return {type(node).__name__: [_encode(value) for value in node]}
    raise TypeError(type(node))


def _nest(node: Any, leaves: Sequence[Any]) -> Any:
    if node is None:
        return None
    if isinstance(node, int):
        return leaves[node]
    ((kind, items),) = node.items()
    if kind == "dict":
        return {key: _nest(value, leaves) for key, value in items}
    values = [_nest(value, leaves) for value in items]
    return values if kind == "list" else tuple(values)


class Executable:
    """A program linked into this process. Call it with its arguments in order, pytrees flattened; any thread may.

    Raises FormatError for a target that is not there, and when the machine lacks a feature that the object code uses.
    """

    def __init__(self, program: Program, options: Options | None = None):
        from hlo_disc import ral

        target = _target(program.target)
        target.check(program.features)
        self.program = program
        self.options = options or Options.from_env()
        library = target.link(program.object, ral.symbols())
        # The machine code lives as long as the native object, which keeps the library.
        self.native = ral.Executable(
            library.address("plan"),
            library.address("main"),
            env_size=program.env_size,
            inputs=list(program.inputs),
            outputs=list(program.outputs),
            constants=list(program.constants),
            packs=[(kind, index, size, library.address(name)) for kind, index, size, name in program.packs],
            guards=[(message, len(args)) for *_, message, args in program.guards],
            calls=[_resolved(*call) for call in program.calls],
            threads=self.options.threads,
            packed_bytes=self.options.packed_bytes,
            keep_alive=library,
        )
        self._structure = json.loads(program.structure) if program.structure else None

    def __call__(self, *args: Any) -> Any:
        """Run. Arrays may be numpy's, JAX's, or any with DLPack or the buffer protocol on the CPU.

        One result is returned as it is, several as a tuple, or nested as the compiled function nested them. Raises
        ArgumentError (number, dtype, rank), ShapeError (sizes), OutOfMemoryError; the executable stays usable.
        """
        if any(isinstance(arg, (dict, list, tuple)) for arg in args):
            from jax import tree_util

            args = tuple(tree_util.tree_leaves(args))
        results = self.native(*args)
        if self._structure is not None:
            return _nest(self._structure, results)
        return results[0] if len(results) == 1 else tuple(results)

    def memory(self, **dims: int) -> Memory:
        """Bytes that a call with these dims allocates, as dims say. Raises ShapeError for dims that cannot be."""
        self._check_dims(dims)
        program = self.program
        try:
            sizes = [Dim.parse(d).evaluate(dims) for _, _, shape in program.inputs for d in shape]
        except ZeroDivisionError as error:
            raise ShapeError(f"memory({_keywords(dims)}): {error}") from None
        env = self.native.plan(sizes)
        outputs, at = 0, 2 + len(program.symbols)
        for dtype, shape in program.outputs:
            known = min(env[at : at + len(shape)], default=0) >= 0
            outputs += math.prod(env[at : at + len(shape)]) * dtype_named(dtype).itemsize if known else 0
            at += len(shape)
        return Memory(env[0] + self.native.workers * env[1], outputs)

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
        return tuple(dict.fromkeys(s for _, _, shape in self.program.inputs for d in shape for s in _symbols(d)))

    def explain(self) -> str:
        """The signature, the compile times and the plan: groups, schedules, variants, memory."""
        p = self.program
        times = ", ".join(f"{name} {ms:.1f}" for name, ms in p.compile_ms.items())
        lines = [
            *(f"input   {name}: {dtype}[{', '.join(shape)}]" for name, dtype, shape in p.inputs),
            *(f"output  {dtype}[{', '.join(shape)}]" for dtype, shape in p.outputs),
            *(f"guard   {lhs} {relation} {rhs}" for lhs, relation, rhs, _, _ in p.guards),
            f"object  {len(p.object)} bytes for {', '.join(p.features)}; {len(p.constants)} constants of "
            f"{sum(c.nbytes for c in p.constants)} bytes; {len(p.packs)} packed weights",
            f"compile {sum(p.compile_ms.values()):.1f} ms: {times}",
        ]
        return "\n".join([*lines, "", p.explain]).rstrip()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as one file for `hlo_disc.load`."""
        save(self.program, path)


def _target(name: str) -> Target:
    try:
        return registry.find(name)
    except ArgumentError:
        known = ", ".join(registry.names())
        raise FormatError(f"compiled for the target {name!r}; this hlo_disc has {known}") from None


def register_ffi_target(name: str, function: Any) -> None:
    """Let programs that are compiled or loaded from now on call an XLA FFI handler by name.

    function: a capsule with the handler's address, or {stage: capsule} for the stages "instantiate", "prepare",
    "initialize" and "execute". What is registered with JAX (`jax.ffi.register_ffi_target`) is found without this, but
    for handlers with a state: jaxlib does not hand out their stage "instantiate".
    """
    from hlo_disc.ral import handlers

    handlers.register_target(name, function)


def register_ffi_type(name: str, registration: Mapping[str, Any]) -> None:
    """Tell the runtime of a type of which a custom call's handler keeps a state, so that it can destroy such states.

    registration: what `jax.ffi.register_ffi_type` takes. XLA does not say how it destroys what is registered with it,
    so handlers with a state need this call too, after the one for JAX.
    """
    from hlo_disc.ral import handlers

    handlers.register_type(name, registration)


def _resolved(
    target: str, where: str, config: Sequence[Any], operands: Any, results: Any, aliases: Any
) -> tuple[Any, ...]:
    """A library call as the runtime takes it. Raises UnsupportedOpError for a target that this process lacks."""
    from hlo_disc.ral import handlers

    found = handlers.find(target)
    if found is None:
        raise UnsupportedOpError(
            f"{where}: this process has no XLA FFI handler of that name for the CPU; register it before compiling or "
            "loading (jax.ffi.register_ffi_target, or hlo_disc.register_ffi_target)"
        )
    skip_empty = handlers.is_lapack(target)
    return where, list(found), _attributes(config), list(operands), list(results), list(aliases), skip_empty


def _attributes(config: Sequence[Any]) -> list[tuple[str, str, str, Any]]:
    """The attributes' contents as bytes."""

    def content(kind: str, value: Any) -> Any:
        if kind == "dictionary":
            return _attributes(value)
        return value.encode() if kind == "string" else bytes.fromhex(value)

    return [(name, kind, dtype, content(kind, value)) for name, kind, dtype, value in config]


def load(path: str | os.PathLike[str], options: Options | None = None) -> Executable:
    """An executable that `save` wrote. Raises FormatError: another format version, a damaged file, another CPU."""
    return Executable(read(path), options)


def _symbols(text: str) -> list[str]:
    return sorted(Dim.parse(text).symbols)


def _keywords(dims: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())
