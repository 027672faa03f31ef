"""`hlo_disc.compile`: from what a user has, a StableHLO module or a function with specs, to an executable."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError
from hlo_disc.executable import Executable, describe_structure
from hlo_disc.import_.symbols import constraint_texts
from hlo_disc.options import Options
from hlo_disc.signature import Signature, spec_dims
from hlo_disc.trace import Traced, trace
from hlo_disc.values import describe_all


def compile(
    source: Any,
    *specs: Any,
    dims: Mapping[str, Any] | Sequence[Any] | None = None,
    constraints: str | Sequence[str] = (),
    options: Options | None = None,
    **overrides: Any,
) -> Executable:
    """Compile a program once for every shape.

    An executable knows numbers alone: random keys are their data there (uint32, as `jax.random.key_data` gives it),
    arrays of float0 are booleans, and no type is weak.

    Args:
        source: the path, text or bytes of a StableHLO module (text, MLIR bytecode or portable artifact), a
            `jax.export.Exported`, a `torch.export.ExportedProgram` or the path of a `.pt2` file of one, whose weights
            become constants, the directory of a TensorFlow SavedModel, whose serving function is compiled, with its
            weights, or a JAX function, jitted or plain.
        specs: for a function, one a parameter: arrays, `jax.ShapeDtypeStruct`s or strings, in pytrees. A string is a
            dtype of numpy or StableHLO and sizes, `"f32[b, s, 64]"`; names are dims, and `"2*n"` is a size too.
        dims: for a function, a parameter's name -> shape string as in `hlo_disc.jit`; for a module or a SavedModel, an
            input's name -> shape string, or a list with one for each input, which re-opens a static module.
        constraints: what holds for the dims, `"s <= 512"` or `["s <= 512", "s % 8 == 0"]`; a call that breaks one
            raises `ShapeError`.
        options: how to compile and run; by default what the environment says (`Options.from_env`).
        overrides: fields of `Options` by name, over `options`.

    Raises:
        ParseError: no StableHLO, or a constraint that is none.
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
    texts = constraint_texts(constraints)
    if _is_exported(source):
        return _compile_exported(source, specs, dims, texts, merged)
    if hasattr(source, "get_concrete_function") or hasattr(source, "structured_outputs"):
        raise ArgumentError(f"{source!r} is TensorFlow's: hlo_disc.tensorflow.compile compiles such functions")
    if callable(source):
        return _compile_function(source, specs, {} if dims is None else dims, texts, merged)
    if specs:
        raise ArgumentError(f"{len(specs)} specs given, but only a function takes specs: a module has its own types")
    if isinstance(dims, str):
        raise ArgumentError(
            f"dims is {dims!r}, must be a list with a shape string for each input, as in dims=[{dims!r}]"
        )
    if is_saved_model(source):
        if find_spec("tensorflow") is None:
            raise ArgumentError(
                f"{source} is a SavedModel: to read it needs TensorFlow, as pip install hlo_disc[tensorflow]"
            )
        from hlo_disc.tensorflow.importing import Imported, saved_function

        return Imported(saved_function(os.fspath(source))).frozen(dims, constraints, merged)
    return Executable(pipeline.compile(lambda: _read_module(source, dims, texts), merged), merged)


def _is_exported(source: Any) -> bool:
    """Is it a program of `torch.export`, or a file of one?"""
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".pt2"):
        return True
    return type(source).__module__.startswith("torch.export.") and type(source).__name__ == "ExportedProgram"


def _compile_exported(
    source: Any, specs: Sequence[Any], dims: Any, constraints: Sequence[str], options: Options
) -> Executable:
    if specs or dims or constraints:
        raise ArgumentError("an exported program has its own types and dims: say them to torch.export")
    try:
        import torch

        from hlo_disc.import_.aten.exported import read_exported
    except ImportError as error:
        raise ArgumentError(f"{source} is a program of PyTorch's, which cannot be imported: {error}") from None
    program = torch.export.load(source) if isinstance(source, (str, os.PathLike)) else source
    made: list[Any] = []

    def read() -> Graph:
        made.append(read_exported(program))
        return made[0][0]

    compiled = pipeline.compile(read, options)
    return Executable(dataclasses.replace(compiled, structure=describe_structure(made[0][1])), options)


def is_saved_model(source: Any) -> bool:
    """Whether it is the directory of a TensorFlow SavedModel."""
    return isinstance(source, (str, os.PathLike)) and os.path.isfile(os.path.join(source, "saved_model.pb"))


def _read_module(source: Any, dims: Mapping[str, Any] | Sequence[Any] | None, constraints: Sequence[str]) -> Graph:
    from hlo_disc.import_.module import read_module
    from hlo_disc.import_.policy import JAX_EXPORT, STABLEHLO
    from hlo_disc.import_.source import is_export, load_module

    origin = JAX_EXPORT if is_export(source) else STABLEHLO
    return read_module(load_module(source), dims=dims, constraints=constraints, origin=origin)


def _compile_function(
    fn: Callable[..., Any], specs: Sequence[Any], dims: Any, constraints: Sequence[str], options: Options
) -> Executable:
    from jax import tree_util

    signature = Signature(fn)
    signature.check(specs, {})
    leaves, tree = tree_util.tree_flatten((tuple(specs), {}))
    names = signature.leaves(specs, {}, ())
    given = signature.dims(signature.check_dims(dims), specs, {}, ())
    parsed = [spec_dims(leaf, text, name) for leaf, text, name in zip(leaves, given, names, strict=True)]
    infos = describe_all([leaf for leaf, _ in parsed], names, signature.name)
    made_up = any(isinstance(leaf, str) for leaf in leaves)
    made: list[Traced] = []

    def read() -> Graph:
        made.append(trace(fn, tree, infos, tuple(d for _, d in parsed), names, constraints, made_up))
        return made[0].graph

    program = pipeline.compile(read, options)
    template = tree_util.tree_unflatten(made[0].out_tree, range(made[0].out_tree.num_leaves))
    return Executable(dataclasses.replace(program, structure=describe_structure(template)), options)
