"""A directory with a shared library that runs a program, its C headers, and what CMake needs to find it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hlo_disc import __version__
from hlo_disc import ral as runtime_package
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.replacing import replacing
from hlo_disc.errors import ArgumentError, CompileError, UnsupportedOpError
from hlo_disc.library.tables import Source, check, lapack_symbol
from hlo_disc.library.toolchain import Lapack, Toolchain
from hlo_disc.ral import _ral
from hlo_disc.wide import wide_object

# Weights of more bytes are always in a file of their own: code and data of a library reach each other within 2 GiB.
MOST_INSIDE = 1 << 30

_CMAKE = """\
# @NAME@: find_package(@NAME@ CONFIG REQUIRED) with @NAME@_DIR or CMAKE_PREFIX_PATH set to this directory, then link
# @NAME@::@NAME@.
if(NOT TARGET @NAME@::@NAME@)
  add_library(@NAME@::@NAME@ SHARED IMPORTED)
  set_target_properties(@NAME@::@NAME@ PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/lib@NAME@.so"
    IMPORTED_SONAME "lib@NAME@.so"
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
endif()
"""
# Before that: what the library is loaded with has to be there when a program is linked with it.
_CMAKE_LAPACK = """\
# lib@NAME@.so calls the LAPACK of this machine.
foreach(library @FILES@)
  find_library(@NAME@_${library} ${library})
  mark_as_advanced(@NAME@_${library})
  if(NOT @NAME@_${library})
    set(@NAME@_FOUND FALSE)
    set(@NAME@_NOT_FOUND_MESSAGE "lib@NAME@.so needs ${library}, which is not here: install LAPACK and BLAS, as with \
'apt install liblapack3', or name where they are in CMAKE_PREFIX_PATH")
    return()
  endif()
  list(APPEND @NAME@_LAPACK "${@NAME@_${library}}")
endforeach()
"""


def library_name(text: str) -> str:
    """Return a name for the functions of a library. Raises ArgumentError for one that C would not accept."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) or text.startswith(("hlo_disc", "ral_")):
        raise ArgumentError(
            f"a library cannot be called {text!r}: its functions begin so, as C has names, and not with hlo_disc; "
            "give another one with --name"
        )
    return text


def emit(
    programs: Sequence[tuple[str, Program]],
    directory: Path,
    name: str,
    environment: Mapping[str, str],
    weights_beside: bool = False,
) -> list[Path]:
    """Write a library of programs that are the same one compiled for several levels of features, the best first.

    Args:
        programs: each level's name, and the program. Weights that are packed are stored so; else opening packs them.
        directory: where the files go; it is made.
        name: what they and the functions are called, as `library_name` takes it.
        environment: CXX, CXXFLAGS and LDFLAGS. Without the first two the runtime is linked as it was built with this
            package, and else compiled from its sources.
        weights_beside: put constants into NAME.weights, not into the library.

    Returns:
        The files, the library first.

    Raises:
        UnsupportedOpError: what a library cannot hold, or linear algebra where the compiler finds no LAPACK.
        ArgumentError: no C++ compiler. CompileError: what it says.
        OSError: a file that cannot be written.
    """
    source = Source(name)
    for level, program in programs:
        check(program)
        source.add(program, level, wide_object(program))
    beside = weights_beside or source.weights.size > MOST_INSIDE
    toolchain = Toolchain.of(environment)
    runtime = Path(runtime_package.__file__).parent
    with tempfile.TemporaryDirectory(prefix="hlo_disc-") as scratch:
        folder = Path(scratch)
        for file, data in (("code.bin", source.code), ("weights.bin", source.weights)):
            with (folder / file).open("wb") as stream:
                stream.writelines(data.parts)
        (folder / "tables.cc").write_text(source.text(beside))
        includes = [runtime / "c_api", runtime / "core", _xla_headers()]
        objects = toolchain.compile(folder, [folder / "tables.cc"], includes)
        lapack = _lapack(folder, toolchain, source, [program for _, program in programs])
        if toolchain.is_default:
            objects.append(Path(_ral.__file__).with_name("libhlo_disc_runtime.a"))
        else:
            ours = [path for part in ("c_api", "core") for path in sorted((runtime / part).rglob("*.cc"))]
            objects += toolchain.compile(folder, ours, includes)
        toolchain.link(folder, objects, f"lib{name}.so", f"{name}_", lapack.flags)
        (folder / f"{name}.h").write_text(
            _header(name, programs[0][1], lapack, (runtime / "c_api" / "library.h.in").read_text())
        )
        (folder / f"{name}Config.cmake").write_text(_cmake(name, lapack))
        shutil.copyfile(runtime / "c_api" / "hlo_disc.h", folder / "hlo_disc.h")
        files = [f"lib{name}.so", f"{name}.h", "hlo_disc.h", f"{name}Config.cmake"]
        if beside and source.weights.size:
            (folder / "weights.bin").rename(folder / f"{name}.weights")
            files.append(f"{name}.weights")
        directory.mkdir(parents=True, exist_ok=True)
        return [_put(folder / file, directory / file) for file in files]


def _put(made: Path, file: Path) -> Path:
    """Replace a file as a whole: a process may have mapped the one that is there."""
    with made.open("rb") as source, replacing(file, 0o777 if file.suffix == ".so" else 0o666) as stream:
        shutil.copyfileobj(source, stream)
    return file


def _lapack(folder: Path, toolchain: Toolchain, source: Source, programs: Sequence[Program]) -> Lapack:
    """Find the LAPACK to link for linear algebra. Raises UnsupportedOpError where there is none."""
    if not source.symbols:
        return Lapack((), ())
    try:
        return toolchain.lapack(folder, source.symbols)
    except CompileError as error:
        call = next(x for program in programs for x in program.calls if lapack_symbol(x))
        raise UnsupportedOpError(
            f"{call.where}: a library calls the LAPACK of its machine, and this compiler links none: install one for "
            "what it compiles for, as with 'apt install liblapack-dev', or say in LDFLAGS where it is, as "
            f"LDFLAGS='-L/opt/openblas/lib -lopenblas'. {error}"
        ) from error


def _cmake(name: str, lapack: Lapack) -> str:
    text = _CMAKE
    if lapack.files:
        property_ = '    IMPORTED_LINK_DEPENDENT_LIBRARIES "${@NAME@_LAPACK}"\n'
        text = _CMAKE_LAPACK + text.replace("    INTERFACE_INCLUDE", property_ + "    INTERFACE_INCLUDE")
    return text.replace("@NAME@", name).replace("@FILES@", " ".join(lapack.files))


def _header(name: str, program: Program, lapack: Lapack, template: str) -> str:
    signature = [
        *(f" *   argument {i}: {x}" for i, x in enumerate(program.inputs)),
        *(f" *   result {i}: {x}" for i, x in enumerate(program.outputs)),
        *(f" *   for calls with {x.lhs} {x.relation} {x.rhs}" for x in program.guards),
        *([f" *   linear algebra by the machine's LAPACK: {', '.join(lapack.files)}"] if lapack.files else []),
    ]
    values = {
        "NAME": name,
        "VERSION": __version__,
        "SIGNATURE": "\n".join(signature).replace("*/", "* /"),
        "INPUTS": str(len(program.inputs)),
        "OUTPUTS": str(len(program.outputs)),
    }
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], template)


def _xla_headers() -> Path:
    """Return the directory of jaxlib's header of the XLA FFI, by which library functions are called."""
    from importlib.util import find_spec

    spec = find_spec("jaxlib")
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "include"
