"""The build of what runs AArch64 code here: Debian's Python under QEMU, and the native module, cross-built.

    python tests/aarch64/build.py

It builds in build/aarch64. The command `python` there runs that Python with this checkout and `site`, which has
packages in the versions of this Python. An apt with a state of its own unpacks Debian's packages and does not install
them: the system does not change, and root is not needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "aarch64"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# Each program, and Debian's package with it.
TOOLS = {COMPILER: "g++-aarch64-linux-gnu", EMULATOR: "qemu-user", "apt-get": "apt", "dpkg-deb": "dpkg"}
DEBIAN = ("python3", "libpython3-dev", "libstdc++6")
PACKAGES = ("jax", "jaxlib", "llvmlite", "ml_dtypes", "nanobind", "numpy", "opt_einsum", "scipy")
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


def check_tools() -> None:
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        sys.exit(f"AArch64 is compiled for and emulated by what is not here: apt-get install {' '.join(missing)}")


def unpack_debian(root: Path) -> None:
    """Unpack Debian's Python for arm64, and its headers."""
    state = BUILD / "apt"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
    }
    (state / "conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(state / "conf")}
    fetch = ["apt-get", "install", "-qq", "-y", "--download-only", "--no-install-recommends", *DEBIAN]
    for command in (["apt-get", "update", "-qq"], fetch):
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    for package in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def write_python(root: Path, site: Path) -> Path:
    """Write the command that runs the unpacked Python, and return its path."""
    python = BUILD / "python"
    python.write_text(
        f'#!/bin/sh\nexport QEMU_LD_PREFIX="{root}" PYTHONPATH="{ROOT}:{site}"\n'
        f'exec {EMULATOR} "{root}/usr/bin/python3" "$@"\n'
    )
    python.chmod(0o755)
    return python


def said_by(python: Path, code: str) -> str:
    """Return what `code` prints in this Python."""
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def install_packages(python: Path, site: Path) -> None:
    version = said_by(python, "import sys; print(*sys.version_info[:2], sep='.')")
    wanted = [f"{name}=={metadata.version(name)}" for name in PACKAGES]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    kind = ["--only-binary=:all:", "--implementation=cp", "--python-version", version, *platforms]
    subprocess.run([*pip, "--target", site, *kind, *wanted], check=True)


def build_native(python: Path, root: Path) -> None:
    """Build the native module. Only what has changed since the last build is compiled."""
    tools = Path(sys.executable).parent
    settings = {
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": COMPILER,
        "CMAKE_CXX_FLAGS": f"-isystem {root}/usr/include",
        "CMAKE_LIBRARY_OUTPUT_DIRECTORY": BUILD / "native",
        "Python_EXECUTABLE": python,
        "Python_INCLUDE_DIR": said_by(python, "import sysconfig; print(sysconfig.get_path('include'))"),
        "Python_NumPy_INCLUDE_DIR": said_by(python, "import numpy; print(numpy.get_include())"),
    }
    given = [f"-D{name}={value}" for name, value in settings.items()]
    where = BUILD / "cmake"
    subprocess.run([tools / "cmake", "-S", ROOT, "-B", where, "-G", "Ninja", "--log-level=WARNING", *given], check=True)
    subprocess.run([tools / "cmake", "--build", where, "--", "--quiet"], check=True)


def main() -> None:
    check_tools()
    root, site, unpacked = BUILD / "root", BUILD / "site", BUILD / "unpacked"
    BUILD.mkdir(parents=True, exist_ok=True)
    python = write_python(root, site)
    made_of = "\n".join([Path(__file__).read_text(), *(f"{name} {metadata.version(name)}" for name in PACKAGES)])
    if not unpacked.exists() or unpacked.read_text() != made_of:
        for stale in (root, site, BUILD / "apt"):
            shutil.rmtree(stale, ignore_errors=True)
        unpack_debian(root)
        install_packages(python, site)
        unpacked.write_text(made_of)
    build_native(python, root)


if __name__ == "__main__":
    main()
