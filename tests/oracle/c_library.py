"""Libraries that `hlo-disc compile --emit library` writes, called through their C interface."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlo_disc.compiled.program import dtype_named

OK, ARGUMENT, SHAPE, OUT_OF_MEMORY, CALL, DEVICE, OPEN, INTERNAL, OVERFLOW = range(9)
MOST_RANK = 16
# In the order of hlo_disc_dtype.
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn",
    "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class Tensor(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MOST_RANK),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )

    @staticmethod
    def of(array: np.ndarray) -> Tensor:
        """Return the tensor of a contiguous array, which must live as long."""
        assert array.flags.c_contiguous
        made = Tensor(DTYPES.index(str(array.dtype)), array.ndim)
        made.shape[: array.ndim] = array.shape
        made.data, made.bytes = array.ctypes.data, array.nbytes
        return made

    def array(self) -> np.ndarray:
        """Return a copy of the tensor's elements."""
        dtype, shape = dtype_named(DTYPES[self.dtype]), tuple(self.shape[: self.rank])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(self.data, size), dtype).reshape(shape)


class Type(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MOST_RANK),
        ("name", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
    )


class Settings(ctypes.Structure):
    _fields_ = (
        ("threads", ctypes.c_int32),
        ("weights", ctypes.c_char_p),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("log", LOG),
        ("context", ctypes.c_void_p),
    )


class Failed(Exception):
    """status: what the function returned."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Library:
    """The functions of a library by their names without the prefix."""

    def __init__(self, path: Path):
        self.name = path.stem.removeprefix("lib")
        self._library = ctypes.CDLL(str(path))
        pointer, whole = ctypes.c_void_p, ctypes.c_int32
        signatures: dict[str, tuple[Any, Sequence[Any]]] = {
            "input": (ctypes.POINTER(Type), (whole,)),
            "output": (ctypes.POINTER(Type), (whole,)),
            "open": (whole, (ctypes.POINTER(Settings), whole, ctypes.POINTER(pointer))),
            "close": (None, (pointer,)),
            "plan": (whole, (pointer, pointer, pointer, ctypes.POINTER(ctypes.c_size_t))),
            "run": (whole, (pointer, pointer, pointer)),
            "release": (None, (pointer, pointer)),
            "error": (ctypes.c_char_p, ()),
        }
        for name, (result, arguments) in signatures.items():
            function = self.function(name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def function(self, name: str) -> Callable[..., Any]:
        return self._library[f"{self.name}_{name}"]

    def check(self, status: int) -> None:
        """Raises Failed."""
        if status:
            raise Failed(status, self.error().decode())

    @property
    def outputs(self) -> int:
        return next(i for i in range(1000) if not self.output(i))


class Model:
    """A model of a library, to be called with arrays. settings: of `Settings`, by name."""

    def __init__(self, library: Library, version: int = 1, **settings: Any):
        self.library = library
        self.settings = Settings(**settings)
        self._model = ctypes.c_void_p()
        library.check(library.open(self.settings, version, self._model))

    def __call__(self, *arrays: np.ndarray, into: Sequence[np.ndarray | None] = ()) -> list[np.ndarray]:
        """Run the model. into: where results go; None, or nothing, for memory of the library's."""
        inputs = (Tensor * len(arrays))(*map(Tensor.of, arrays))
        outputs = (Tensor * max(self.library.outputs, 1))()
        for k, place in enumerate(into):
            if place is not None:
                outputs[k].data, outputs[k].bytes = place.ctypes.data, place.nbytes
        given = [bool(x.data) for x in outputs]
        self.library.check(self.library.run(self._model, inputs, outputs))
        results = [x.array() for x in outputs[: self.library.outputs]]
        for x, own in zip(outputs, given, strict=True):
            if not own:
                self.library.release(self._model, ctypes.byref(x))
        return results

    def plan(self, *shapes: np.ndarray) -> tuple[list[tuple[int, ...]], list[int], int]:
        """The shapes and bytes of results, and the bytes of intermediate values."""
        inputs = (Tensor * len(shapes))(*map(Tensor.of, shapes))
        outputs, temporary = (Tensor * max(self.library.outputs, 1))(), ctypes.c_size_t()
        self.library.check(self.library.plan(self._model, inputs, outputs, temporary))
        found = outputs[: self.library.outputs]
        return [tuple(x.shape[: x.rank]) for x in found], [x.bytes for x in found], temporary.value

    def close(self) -> None:
        self.library.close(self._model)
        self._model = ctypes.c_void_p()


def run(*command: object, **settings: Any) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(program: Any, folder: Path, name: str, *arguments: str) -> Path:
    """A library by the command line, of an executable."""
    from click.testing import CliRunner

    from hlo_disc.cli import main

    program.save(folder / f"{name}.disc")
    command = ["compile", str(folder / f"{name}.disc"), "-o", str(folder / name), "--emit", "library", *arguments]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return folder / name / f"lib{name}.so"


def exercise(program: Any, folder: Path, monkeypatch: Any, sanitizers: str, calls: int) -> None:
    """Run `exercise.cc` with a library of which all is compiled so; without sanitizers, as it is linked by default.

    calls: of each of eight threads.
    """
    import depth
    import pytest

    if sanitizers and depth.examples(0, 1) == 0:
        pytest.skip("compiles the runtime: with --full, or make library-sanitizers")
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g1"] if sanitizers else []
    monkeypatch.setenv("CXXFLAGS", " ".join(flags)) if sanitizers else monkeypatch.delenv("CXXFLAGS", raising=False)
    into = folder / f"san{len(sanitizers)}"
    into.mkdir()
    written(program, into, "layer")
    link = ["-L", into / "layer", "-llayer", f"-Wl,-rpath,{into / 'layer'}", "-pthread"]
    source = Path(__file__).parents[1] / "library" / "exercise.cc"
    run("c++", "-std=c++17", "-O1", *flags, "-I", into / "layer", source, "-o", into / "exercise", *link)
    assert run(into / "exercise", "8", calls).startswith("8 threads")
