"""The machine's own C++ compiler: sources to a shared library."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hlo_disc import ral
from hlo_disc.errors import ArgumentError, CompileError

# Products are not fused with sums, so that every machine computes the same; vectors are no part of any interface.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi")
_COMPILER = ("c++",)


@dataclass(frozen=True)
class Toolchain:
    """compiler: the command, with options if any. flags, link_flags: the user's, after ours."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        """Whether nothing was said of it, so that what this package was built to is as good as its sources."""
        return self.compiler == _COMPILER and not self.flags

    @staticmethod
    def of(settings: Mapping[str, str]) -> Toolchain:
        """By CXX, CXXFLAGS and LDFLAGS. Raises ArgumentError where there is no compiler."""
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

    def link(self, folder: Path, objects: Sequence[Path], library: str, exported: str) -> None:
        """Link objects to `library`, in their folder, of which only names that begin with `exported` can be seen."""
        (folder / "exports").write_text(f"{{ global: {exported}*; local: *; }};\n")
        # relative, because the linker may write down where it found things
        inputs = [path.name if path.parent == folder else str(path) for path in objects]
        options = [f"-Wl,-soname,{library}", "-Wl,--version-script=exports", "-Wl,--strip-debug", "-Wl,--gc-sections"]
        command = [*self.compiler, *self.flags, "-shared", *options, "-o", library, *inputs]
        self._run(folder, [*command, *self.link_flags, "-pthread", "-ldl", "-lm"])

    def _run(self, folder: Path, command: Sequence[str]) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = "\n".join(done.stderr.strip().splitlines()[:20])
            raise CompileError(f"the C++ compiler failed ({shlex.join(command)}):\n{said}")
