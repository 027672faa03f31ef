"""The machine's own C++ compiler: sources to a shared library."""

from __future__ import annotations

import shlex
import shutil
import struct
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hlo_disc import ral
from hlo_disc.errors import ArgumentError, CompileError
from hlo_disc.frozen import frozen

# Products are not fused with sums, so that every machine computes the same; vectors are no part of any interface.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi")
_COMPILER = ("c++",)
_SHT_DYNAMIC, _DT_NEEDED = 6, 1


@frozen
class Lapack:
    """A LAPACK to link. flags: those of the linker. files: the shared libraries that are loaded at run time."""

    flags: tuple[str, ...]
    files: tuple[str, ...]


@frozen
class Toolchain:
    """A C++ compiler. compiler: the command, with options if any. flags, link_flags: the user's, after ours."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        """Whether the environment sets nothing, so that the runtime as built with this package can be linked."""
        return self.compiler == _COMPILER and not self.flags

    @staticmethod
    def of(settings: Mapping[str, str]) -> Toolchain:
        """Read CXX, CXXFLAGS and LDFLAGS. Raises ArgumentError if there is no compiler."""
        compiler = tuple(shlex.split(settings.get("CXX", ""))) or _COMPILER
        if shutil.which(compiler[0]) is None:
            raise ArgumentError(
                f"a library needs a C++17 compiler, and there is no {compiler[0]}: install one, as with "
                "'apt install g++', or name it in the environment, as CXX=clang++"
            )
        flags, link_flags = (tuple(shlex.split(settings.get(name, ""))) for name in ("CXXFLAGS", "LDFLAGS"))
        return Toolchain(compiler, flags, link_flags)

    def compile(self, folder: Path, sources: Sequence[Path], includes: Sequence[Path]) -> list[Path]:
        """Object files of C++ sources, in a folder. Raises CompileError with what the compiler says.

        Nothing of the places where these are gets into them.
        """
        include = [option for path in includes for option in ("-I", str(path))]
        same = [f"-ffile-prefix-map={path}=." for path in (folder, *includes)]

        def one(source: Path) -> Path:
            made = folder / f"{source.stem}.o"
            output = ["-c", str(source), "-o", made.name]
            self._run(folder, [*self.compiler, *_FLAGS, *same, *include, *self.flags, *output])
            return made

        with ThreadPoolExecutor(ral.usable_cores()) as pool:
            return list(pool.map(one, sources))

    def lapack(self, folder: Path, symbols: Collection[str]) -> Lapack:
        """Find these functions: in what the user links, or in the system's LAPACK and BLAS.

        Asks the compiler, for it knows where the machine that it compiles for has its libraries. Raises CompileError
        with what the linker says.
        """
        declared = "".join(f'extern "C" void {symbol}();\n' for symbol in sorted(symbols))
        calls = "".join(f"  {symbol}();\n" for symbol in sorted(symbols))
        (folder / "lapack.cc").write_text(f"{declared}void probe() {{\n{calls}}}\n")
        # No library but those that are called gets in, and nothing may be missing.
        options = ["-shared", "-fPIC", "-Wl,--as-needed", "-Wl,--no-undefined", "-o", "lapack.so", "lapack.cc"]
        command = [*self.compiler, *self.flags, *options, *self.link_flags]
        errors = []
        for flags in ((), ("-llapack",), ("-llapack", "-lblas")):
            try:
                self._run(folder, [*command, *flags, "-fno-sanitize=all"])
                return Lapack(flags, needed((folder / "lapack.so").read_bytes()))
            except CompileError as error:
                errors.append(error)
        raise errors[1]  # that there is no LAPACK, or what it lacks

    def link(
        self, folder: Path, objects: Sequence[Path], library: str, exported: str, libraries: Sequence[str] = ()
    ) -> None:
        """Link objects to `library`, in their folder. Only names that begin with `exported` are visible.

        libraries: flags for other libraries that it needs, behind the user's.
        """
        (folder / "exports").write_text(f"{{ global: {exported}*; local: *; }};\n")
        # relative, because the linker may write down where it found things
        inputs = [path.name if path.parent == folder else str(path) for path in objects]
        options = [f"-Wl,-soname,{library}", "-Wl,--version-script=exports", "-Wl,--strip-debug", "-Wl,--gc-sections"]
        command = [*self.compiler, *self.flags, "-shared", *options, "-o", library, *inputs]
        self._run(folder, [*command, *self.link_flags, *libraries, "-pthread", "-ldl", "-lm"])

    def _run(self, folder: Path, command: Sequence[str]) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = "\n".join(done.stderr.strip().splitlines()[:20])
            raise CompileError(f"the C++ compiler failed ({shlex.join(command)}):\n{said}")


def needed(library: bytes) -> tuple[str, ...]:
    """List the shared libraries that a 64-bit ELF library is loaded with (DT_NEEDED)."""
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count = struct.unpack_from("<HH", library, 0x3A)
    # a section's kind, offset, size, and the number of the one with its texts
    sections = [struct.unpack_from("<4xI16xQQI", library, table + i * size) for i in range(count)]
    start, length, texts = next(row[1:] for row in sections if row[0] == _SHT_DYNAMIC)
    entries = struct.iter_unpack("<QQ", library[start : start + length])
    names = [sections[texts][1] + offset for tag, offset in entries if tag == _DT_NEEDED]
    return tuple(library[name : library.index(b"\0", name)].decode() for name in names)
