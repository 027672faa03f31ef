"""From a user's source (a file, text, bytes, a JAX export, a module) to an MLIR module.

Text and bytecode are told apart by content, portable artifacts are upgraded to this version of StableHLO. Whatever
cannot be parsed is a ParseError with the parser's own diagnostics: file, line and column.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from hlo_disc import mlir
from hlo_disc.errors import ParseError, UnsupportedOpError
from hlo_disc.import_.stablehlo import diagnostics
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from jax.export import Exported

_MAGIC = b"ML\xefR"
_ZIP = b"PK\x03\x04"
# What dialects that are not in jaxlib are for.
_UNSUPPORTED = {'!"quant"<': "quantized types", '#"sparse_tensor"<': "sparse layouts"}
_NO_GROUPS = re.compile(
    r"stablehlo\.all_to_all\b(?:(?!stablehlo\.)[\s\S])*?replica_groups\s*=\s*dense<[^>]*>\s*:\s*tensor<0x\d+xi64>"
)
_ARTIFACT = b"StableHLO_v"


def load_module(source: object) -> ir.Module:
    """Load the module in `source`.

    source: a path (text, bytecode or portable artifact), text that holds a module, bytes of any of these, a
    `jax.export.Exported`, or an `ir.Module`, which is returned as it is. Raises ParseError, UnsupportedOpError, and
    OSError for a file that cannot be read.
    """
    if isinstance(source, ir.Module):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(source), "<bytes>")
    if isinstance(source, str) and is_text(source):
        return _parse(source, "<text>")
    if isinstance(source, (str, os.PathLike)):
        return _from_bytes(Path(source).read_bytes(), os.fspath(source))
    if is_export(source):
        return _from_bytes(source.mlir_module_serialized, f"the export of {getattr(source, 'fun_name', 'a function')}")
    raise ParseError(
        f"cannot read a program from {type(source).__name__}: pass a function of JAX or TensorFlow, a "
        "jax.export.Exported, a torch.export.ExportedProgram, StableHLO text, bytecode, a portable artifact, or a path"
    )


def is_export(source: object) -> TypeGuard[Exported]:
    """Whether it is a `jax.export.Exported`, decided without importing JAX."""
    return isinstance(getattr(source, "mlir_module_serialized", None), bytes)


def is_text(source: str) -> bool:
    """Whether a string is a module itself, not the path of one."""
    # A module needs a brace or a line break, which no one puts into a path.
    return not source.strip() or "\n" in source or "{" in source


def is_bytecode(path: Path) -> bool:
    """Whether a file begins as MLIR bytecode does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _from_bytes(data: bytes, name: str) -> ir.Module:
    if data.startswith(_MAGIC):
        module = _parse(data, name)
        if _ARTIFACT in data[len(_MAGIC) : 64]:
            version = mlir.stablehlo.get_current_version()
            try:
                mlir.run_passes(module, f"vhlo-to-version{{target={version}}},vhlo-legalize-to-stablehlo")
            except ir.MLIRError as error:
                raise ParseError(f"{name} is no portable artifact of StableHLO {version}: {error}") from None
        return module
    if data.startswith(_ZIP):
        raise ParseError(
            f"{name} is a zip file, not a StableHLO module; a saved executable is opened with hlo_disc.load"
        )
    try:
        text = data.decode()
        bad = text.find("\0")  # the parser does not survive quoting such input
    except UnicodeDecodeError as error:
        bad = error.start
    if bad >= 0:
        raise ParseError(
            f"{name} is neither StableHLO text nor MLIR bytecode: it begins with {data[:8]!r}, and its byte {bad} is "
            f"{data[bad : bad + 1]!r}, which no UTF-8 text has there"
        )
    return _parse(text, name)


def _refuse_trap(text: str, name: str) -> None:
    """Refuse an `all_to_all` of 0 groups: jaxlib's verifier divides by their number, which would end the process."""
    if "all_to_all" in text and (found := _NO_GROUPS.search(text)):
        line = text.count("\n", 0, found.start()) + 1
        raise ParseError(f"{name}:{line}: stablehlo.all_to_all: replica_groups must not be empty")


def _parse(source: str | bytes, name: str) -> ir.Module:
    if not source.strip():
        raise ParseError(f"{name} holds no MLIR module: it is empty")
    if isinstance(source, str):
        _refuse_trap(source, name)
    try:
        if isinstance(source, str) and os.path.isfile(name):
            module = ir.Module.parseFile(name, context=mlir.context())  # with the file's name in its locations
        else:
            module = ir.Module.parse(source, context=mlir.context())
    except ir.MLIRError as error:
        message = diagnostics.describe(error, name, source if isinstance(source, str) else "")
        for dialect, what in _UNSUPPORTED.items():
            if dialect in message:
                raise UnsupportedOpError(f"{what} are not supported: {message}") from None
        raise ParseError(message) from None
    if not len(module.body.operations):
        raise ParseError(f"{name} holds no MLIR module: it has no operations")
    return module
