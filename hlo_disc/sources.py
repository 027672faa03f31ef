"""`hlo_disc.compile` and `hlo_disc.stablehlo`: any source of a program to an executable, or to StableHLO text."""

from __future__ import annotations

import functools
import os
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from hlo_disc import pipeline
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.saved import is_saved
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError, ParseError
from hlo_disc.executable import Executable
from hlo_disc.import_.sizes.symbols import constraint_texts
from hlo_disc.nest import describe_structure
from hlo_disc.options import Options
from hlo_disc.tracing.signature import Signature, spec_dims
from hlo_disc.tracing.trace import trace
from hlo_disc.tracing.values import describe_all

if TYPE_CHECKING:
    from types import ModuleType

    from torch.export import ExportedProgram

    from hlo_disc.import_.sizes.symbols import DimsOfInputs


class Read(NamedTuple):
    """A program, with the nests of its results and its arguments (`describe_structure`)."""

    graph: Graph
    results: str = ""
    arguments: str = ""


Dims = Mapping[str, object] | Sequence[object] | None
# What a source is, in words, and what reads it.
Reading = tuple[str, Callable[[], Read]]


class Given(NamedTuple):
    """A source with its specs, as `compile` takes both."""

    source: Any
    specs: Sequence[object]
    dims: Dims
    constraints: Sequence[str]
    trusted: bool
    signature: str


class Kind(NamedTuple):
    """A kind of sources.

    claims: whether a source with these specs is of this kind. read: what it is in words, and what reads it; raises
    ArgumentError for unsuitable specs and dims.
    """

    claims: Callable[[object, Sequence[object]], bool]
    read: Callable[[Given], Reading]


def compile(
    source: object,
    *specs: object,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    options: Options | None = None,
    trusted: bool = False,
    signature: str = "",
    **overrides: object,
) -> Executable:
    """Compile a program once for every shape.

    An executable knows numbers alone: random keys are their data there (uint32, as `jax.random.key_data` gives it),
    arrays of float0 are booleans, and no type is weak. Its `explain()` says first what the source was taken for.

    Args:
        source: a JAX function, jitted or plain; a `jax.export.Exported`; a `torch.export.ExportedProgram`, or the path
            of a `.pt2` file of one; a function of TensorFlow (a `tf.function`, one of its concrete functions, or any
            function or Keras model with specs of TensorFlow), or the directory of a SavedModel, of which one signature
            is taken; or a StableHLO module as text, MLIR bytecode or a portable artifact: its path, or itself.
            The weights of programs of PyTorch and TensorFlow become constants.
        specs: for a function of JAX, one a parameter: arrays, `jax.ShapeDtypeStruct`s or strings, in pytrees. A string
            is a dtype of numpy or StableHLO and sizes, `"f32[b, s, 64]"`; names are dims, and `"2*n"` is a size too.
            For one of TensorFlow, a `tf.TensorSpec` each, with None for unknown sizes; none where it has a signature.
        dims: for a function of JAX, a parameter's name -> shape string as in `hlo_disc.jit`; for a module or a program
            of TensorFlow, an input's name -> shape string, or a list with one for each input, which re-opens a static
            module.
        constraints: what holds for the dims, `"s <= 512"` or `["s <= 512", "s % 8 == 0"]`; a call that breaks one
            raises `ShapeError`.
        options: how to compile and run; by default what the environment says (`Options.from_env`).
        trusted: whether a `.pt2` file may be read, by PyTorch's loader, which runs what whoever wrote it has put there.
        signature: which one of a SavedModel, `"serving_default"` unless said.
        overrides: fields of `Options` by name, over `options`.

    Returns:
        What is called with arrays.

    Raises:
        ParseError: no program, or a constraint that is none.
        OSError: a file that cannot be read; FileNotFoundError for none.
        UnsupportedOpError: an op that cannot be compiled.
        ArgumentError: specs, dims or options that do not fit.
        ShapeError: a function that JAX cannot trace at these dims; the message has JAX's reason.

    Example:
        >>> exe = hlo_disc.compile(lambda x, y: x @ y, "f32[b, 4]", "f32[4, 2]")
        >>> exe(np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)).shape
        (3, 2)
    """
    merged = pipeline.merge(options, overrides)
    reading: dict[str, Any] = {"dims": dims, "constraints": constraints, "trusted": trusted, "signature": signature}
    made = program(source, *specs, options=merged, **reading)
    return Executable(made, merged)


def program(
    source: object,
    *specs: object,
    options: Options,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    trusted: bool = False,
    signature: str = "",
) -> Program:
    """Return the program that `compile` links. It may be for any machine. Takes and raises what `compile` does."""
    what, read = _reading(Given(source, specs, dims, constraint_texts(constraints), trusted, signature))
    once = functools.cache(read)
    made = pipeline.compile(lambda: once().graph, options)
    return made._replace(source=what, structure=once().results, arguments=once().arguments)


def stablehlo(
    source: object,
    *specs: object,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    trusted: bool = False,
    signature: str = "",
) -> str:
    """A program as the text of one StableHLO module, whatever it came as.

    It is what `compile` starts from. Sizes that are not known are `?`; the attribute `hlo_disc.shape` of an argument
    names them, and what must hold of them are custom calls `shape_assertion`, as JAX writes them. Weights that are
    constants are in the text. How results nest is not.

    Args:
        source: as `compile` takes it.
        specs: as `compile` takes them.
        dims: as `compile` takes them.
        constraints: as `compile` takes them.
        trusted: as `compile` takes it.
        signature: as `compile` takes it.

    Returns:
        The text, which `compile` reads, too.

    Raises:
        HloDiscError: what `compile` raises before it compiles.
        OSError: a file that cannot be read.

    Example:
        >>> text = hlo_disc.stablehlo(lambda x: -x, "f32[n]")
        >>> "stablehlo.negate %arg0 : (tensor<?xf32>) -> tensor<?xf32>" in text
        True
    """
    from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo

    return to_stablehlo(graph(source, *specs, dims=dims, constraints=constraints, trusted=trusted, signature=signature))


def graph(
    source: object,
    *specs: object,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    trusted: bool = False,
    signature: str = "",
) -> Graph:
    """Return the graph that `compile` starts from. Takes and raises what `stablehlo` does."""
    _, read = _reading(Given(source, specs, dims, constraint_texts(constraints), trusted, signature))
    return read().graph


def register(kind: Kind) -> None:
    """Register a further kind of sources, which is tried first."""
    _KINDS.insert(0, kind)


def is_function(source: object, specs: Sequence[object]) -> bool:
    """Whether JAX has to trace it: a function that belongs to neither PyTorch nor TensorFlow."""
    return _kind(source, specs).read is _function


def is_module(source: object) -> bool:
    """Whether it is a StableHLO module in some form."""
    return _kind(source, ()).read is _module


def _kind(source: object, specs: Sequence[object]) -> Kind:
    return next(kind for kind in _KINDS if kind.claims(source, specs))


def _reading(given: Given) -> Reading:
    """Return the source in words and a function that reads it. Raises ArgumentError for unsuitable specs and dims."""
    if given.signature and not is_saved_model(given.source):
        raise ArgumentError(
            f"signature={given.signature!r} has no effect on {given.source}: only SavedModels have signatures"
        )
    return _kind(given.source, given.specs).read(given)


def _check_typed(given: Given) -> None:
    """Raise ArgumentError for specs and dims that do not fit a source with types of its own."""
    if given.specs:
        raise ArgumentError(
            f"{len(given.specs)} specs given, but only a function takes specs: a module has its own types"
        )
    if isinstance(given.dims, str):
        raise ArgumentError(
            f"dims is {given.dims!r}, must be a list with a shape string for each input, as in dims=[{given.dims!r}]"
        )


def _is_exported(source: object, specs: Sequence[object]) -> bool:
    """Whether it is a program of `torch.export`, or a file of one."""
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".pt2"):
        return True
    return type(source).__module__.startswith("torch.export.") and type(source).__name__ == "ExportedProgram"


def _exported(given: Given) -> Reading:
    source = given.source
    path = source if isinstance(source, (str, os.PathLike)) else None
    if path is not None:
        _check_exported(path, given.trusted)
    if given.specs or given.dims or given.constraints:
        raise ArgumentError("an exported program has its own types and dims: say them to torch.export")
    try:
        import torch

        from hlo_disc.import_.aten.exported import read_exported
    except ImportError as error:
        raise ArgumentError(f"{source} is a program of PyTorch's, which cannot be imported: {error}") from None

    def read() -> Read:
        exported = read_exported(source if path is None else _load_exported(path, torch))
        arguments = describe_structure(exported.arguments) if exported.arguments else ""
        return Read(exported.graph, describe_structure(exported.results), arguments)

    return f"a torch.export.ExportedProgram{'' if path is None else f', {path}'}", read


def _check_exported(path: str | os.PathLike[str], trusted: bool) -> None:
    """Raise ParseError for a file that is no zip file, for which PyTorch logs tracebacks, and ArgumentError unless
    trusted.

    PyTorch unpickles example inputs, weights and constants, and has Python evaluate the texts of sizes: no part of such
    a file is only data to it.
    """
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ParseError(f"{path} is no program of torch.export: write it with torch.export.save")
    if not trusted:
        raise ArgumentError(
            f"{path} is a program of torch.export, and PyTorch's loader runs what is in it: only if you trust whoever "
            "wrote it, say so with trusted=True (--trusted)"
        )


def _load_exported(path: str | os.PathLike[str], torch: ModuleType) -> ExportedProgram:
    try:
        return torch.export.load(path)
    except Exception as error:  # of many kinds
        raise ParseError(f"{path} is no program of torch.export that this PyTorch reads: {error}") from None


def _is_torch_module(source: object, specs: Sequence[object]) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def _torch_module(given: Given) -> Reading:
    raise ArgumentError(
        f"{type(given.source).__name__} is a module of PyTorch's: pass what torch.export.export makes of it, or "
        'compile it by torch.compile(…, backend="hlo_disc")'
    )


def is_compiled(source: object) -> bool:
    """Whether it is a file that `Executable.save` wrote."""
    if not isinstance(source, (str, os.PathLike)) or not os.path.isfile(source):
        return False
    return Path(source).suffix == ".disc" or Path(source).suffix != ".pt2" and is_saved(source)


def is_saved_model(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it is the directory of a TensorFlow SavedModel."""
    return isinstance(source, (str, os.PathLike)) and os.path.isfile(os.path.join(source, "saved_model.pb"))


def _saved_model(given: Given) -> Reading:
    _check_typed(given)
    directory, signature = os.fspath(given.source), given.signature or "serving_default"
    if find_spec("tensorflow") is None:
        raise ArgumentError(
            f"{directory} is a SavedModel: to read it needs TensorFlow, as pip install hlo_disc[tensorflow]"
        )
    from hlo_disc.tensorflow.importing import Imported, saved_function

    what = f"a SavedModel, {directory}, {signature}"
    return what, lambda: Read(*Imported(saved_function(directory, signature)).frozen(given.dims, given.constraints))


def _is_tensorflow(source: object, specs: Sequence[object]) -> bool:
    """Whether it is a function of TensorFlow, by its attributes or its specs."""
    if hasattr(source, "structured_outputs") or callable(source) and hasattr(source, "get_concrete_function"):
        return True
    if callable(source) and (tf := sys.modules.get("tensorflow")):
        from jax import tree_util

        return any(isinstance(x, tf.TypeSpec) for x in tree_util.tree_leaves(specs))
    return False


def _tensorflow_function(given: Given) -> Reading:
    from hlo_disc.tensorflow.importing import Imported, concrete_of

    if any(isinstance(x, str) for x in given.specs):
        raise ArgumentError("the specs of a function of TensorFlow are tf.TensorSpecs; dims names their sizes")
    concrete = concrete_of(given.source, given.specs or None)
    return f"a function of TensorFlow, {concrete.graph.name}", lambda: Read(
        *Imported(concrete).frozen(given.dims, given.constraints)
    )


def _module(given: Given) -> Reading:
    _check_typed(given)
    from hlo_disc.import_.stablehlo.module import read_module
    from hlo_disc.import_.stablehlo.policy import JAX_EXPORT, STABLEHLO
    from hlo_disc.import_.stablehlo.source import is_export, is_text, load_module

    source, dims = given.source, cast("DimsOfInputs | None", given.dims)
    origin = JAX_EXPORT if is_export(source) else STABLEHLO

    def read() -> Read:
        return Read(read_module(load_module(source), dims=dims, constraints=given.constraints, origin=origin))

    if is_export(source):
        return f"a jax.export.Exported, {getattr(source, 'fun_name', 'of a function')}", read
    is_path = isinstance(source, os.PathLike) or isinstance(source, str) and not is_text(source)
    return f"a StableHLO module{f', {Path(source)}' if is_path else ''}", read


def _function(given: Given) -> Reading:
    from jax import tree_util

    fn, specs = given.source, given.specs
    signature = Signature(fn)
    signature.check(specs, {})
    leaves, tree = tree_util.tree_flatten((tuple(specs), {}))
    names = signature.leaves(specs, {}, ())
    texts = signature.dims(signature.check_dims({} if given.dims is None else given.dims), specs, {}, ())
    parsed = [spec_dims(leaf, text, name) for leaf, text, name in zip(leaves, texts, names, strict=True)]
    infos = describe_all([leaf for leaf, _ in parsed], names, signature.name)
    made_up = any(isinstance(leaf, str) for leaf in leaves)

    def read() -> Read:
        made = trace(fn, tree, infos, tuple(d for _, d in parsed), names, given.constraints, made_up)
        template = tree_util.tree_unflatten(made.out_tree, range(made.out_tree.num_leaves))
        return Read(made.graph, describe_structure(template))

    return f"a function of JAX, {signature.name}", read


# The first that claims a source reads it.
_KINDS = [
    Kind(_is_exported, _exported),
    Kind(_is_tensorflow, _tensorflow_function),
    Kind(_is_torch_module, _torch_module),
    Kind(lambda source, specs: callable(source), _function),
    Kind(lambda source, specs: is_saved_model(source), _saved_model),
    Kind(lambda source, specs: True, _module),
]
