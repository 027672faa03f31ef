"""Programs of `torch.export`, in memory and as files: compiled, and as StableHLO."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import zipfile
from pathlib import Path

import emitted
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hlo_disc
from hlo_disc.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch's own
SHAPES = [(3, 7), (1, 2), (16, 5), (0, 4)]


class Classifier(nn.Module):
    """Words to classes: an embedding, an attention, a mean over the words, and what it was of."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.words(ids)
        mean = self.attention(x, x, x, need_weights=False)[0].mean(1)
        return {"classes": self.out(mean).softmax(-1), "mean": mean}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Classifier().train(False)


@pytest.fixture(scope="module")
def exported(model: nn.Module) -> torch.export.ExportedProgram:
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=64)}
    return torch.export.export(model, (torch.zeros(2, 3, dtype=torch.long),), dynamic_shapes=(sizes,))


@pytest.fixture
def file(exported: torch.export.ExportedProgram, tmp_path: Path) -> Path:
    torch.export.save(exported, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def numbers(*shape: int) -> torch.Tensor:
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(sum(shape)))


def call(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_compiled(model, exported, file):
    for source, told in ((exported, ""), (file, f", {file}"), (str(file), f", {file}")):
        executable = hlo_disc.compile(source, trusted=source is not exported)
        assert executable.explain().splitlines()[0] == f"source  a torch.export.ExportedProgram{told}"
        for shape in SHAPES:
            torch.testing.assert_close(executable(numbers(*shape)), model(numbers(*shape)), check_stride=False)
        with pytest.raises(hlo_disc.ShapeError, match="<= 64"):
            executable(numbers(2, 65))


def test_as_stablehlo(model, exported, file):
    code, text, err = call("compile", file, "--trusted", "--emit", "stablehlo")
    assert code == 0, err
    assert text == hlo_disc.stablehlo(file, trusted=True)
    calls = []
    for shape in SHAPES:
        with torch.no_grad():
            results = model(numbers(*shape))
        calls.append(([numbers(*shape).numpy()], [results["classes"].numpy(), results["mean"].numpy()]))
    executable = emitted.check(text, calls)
    assert executable.dims == hlo_disc.compile(exported).dims
    with pytest.raises(hlo_disc.ShapeError, match="<= 64"):
        executable(numbers(2, 65).numpy())


def test_a_file_becomes_one_that_runs(file, tmp_path):
    code, out, err = call("compile", file, "--trusted", "-o", tmp_path / "model.disc")
    assert code == 0, err
    assert "int64[" in out
    assert hlo_disc.load(tmp_path / "model.disc")(numbers(2, 5).numpy())["classes"].shape == (2, 3)


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.system, (f"touch '{self.mark}'",)


def pickled(mark: Path) -> bytes:
    torch.save(Evil(mark), stream := io.BytesIO())
    return stream.getvalue()


def by_config(name: str, data: bytes, mark: Path) -> bytes:
    """All weights are said to be pickled, and are."""
    if name.endswith("weights_config.json"):
        config = json.loads(data)
        for x in config["config"].values():
            x["use_pickle"] = True
        return json.dumps(config).encode()
    return pickled(mark) if "/weight_" in name else data


def by_inputs(name: str, data: bytes, mark: Path) -> bytes:
    return pickled(mark) if "/sample_inputs/" in name else data


def by_expression(name: str, data: bytes, mark: Path) -> bytes:
    """A size is evaluated."""
    call = b"""__import__('os').system('touch %s')""" % bytes(mark)
    text = re.sub(rb'"expr_str": *"Symbol[^"]*"', b'"expr_str": "%s"' % call, data)
    return text if name.endswith("models/model.json") else data


@pytest.mark.parametrize("change", [by_config, by_inputs, by_expression])
def test_nothing_in_a_file_runs_unless_it_is_trusted(file, tmp_path, change):
    mark, evil = tmp_path / "mark", tmp_path / "evil.pt2"
    with zipfile.ZipFile(file) as good, zipfile.ZipFile(evil, "w") as made:
        parts = [(name, change(name, good.read(name), mark)) for name in good.namelist()]
        assert any(data != good.read(name) for name, data in parts)
        for name, data in parts:
            made.writestr(name, data)
    for read in (hlo_disc.compile, hlo_disc.stablehlo):
        with pytest.raises(hlo_disc.ArgumentError, match="PyTorch's loader runs what is in it.*trusted=True"):
            read(evil)
    code, out, err = call("compile", evil, "--emit", "stablehlo")
    assert (code, out) == (1, "") and "--trusted" in err
    assert not mark.exists()
    with contextlib.suppress(Exception):
        hlo_disc.stablehlo(evil, trusted=True)
    assert mark.exists(), "the file does harm where it is trusted"


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize("emit", ["disc", "stablehlo"])
def test_a_program_that_changes_something(tmp_path, emit):
    torch.export.save(torch.export.export(Counter(), (torch.ones(3),)), tmp_path / "counter.pt2")
    code, out, err = call("compile", tmp_path / "counter.pt2", "--trusted", "--emit", emit, "-o", tmp_path / "out")
    assert (code, out) == (1, "")
    assert "error: the exported program changes count (buffer mutation)" in err and "hlo_disc.torch.compile" in err
    assert not (tmp_path / "out").exists()


class Arguments(nn.Module):
    def forward(self, d, flag, n, *, scale, unused=None):
        total = d["b"] * scale + n if flag else d["a"]
        return {"total": total.float(), "none": None, "rows": d["b"].shape[0], "five": 5, "first": (d["a"],)}


def arguments(n: int, number: int) -> tuple[tuple, dict]:
    b, a, scale = torch.randn(3, n, 2, dtype=torch.float64)
    return ({"b": b, "a": a}, True, number), {"scale": scale}


@pytest.fixture(scope="module")
def with_arguments() -> torch.export.ExportedProgram:
    n, number = torch.export.Dim("n"), torch.export.Dim.DYNAMIC
    args, kwargs = arguments(3, 7)
    sizes = {"d": {"b": {0: n}, "a": {0: n}}, "flag": None, "n": number, "scale": {0: n}}
    return torch.export.export(Arguments(), args, kwargs, dynamic_shapes=sizes)


@pytest.mark.parametrize("keep", [lambda exe, _: exe, lambda exe, path: exe.save(path) or hlo_disc.load(path)])
def test_arguments_as_the_module_takes_them(with_arguments, tmp_path, keep):
    executable = keep(hlo_disc.compile(with_arguments), tmp_path / "x.disc")
    for n, number in ((4, 9), (1, 0), (0, 3), (7, 2**40)):
        args, kwargs = arguments(n, number)
        wanted = with_arguments.module()(*args, **kwargs)
        for got in (executable(*args, **kwargs), executable(*args, *kwargs.values())):
            assert list(got) == list(wanted)
            assert (got["none"], got["rows"], got["five"]) == (None, n, 5)
            assert type(got["rows"]) is int and type(got["first"]) is tuple
            torch.testing.assert_close(got["total"], wanted["total"])
            assert torch.equal(got["first"][0], wanted["first"][0])
    (d, flag, number), kwargs = arguments(4, 9)
    flat = executable(d["b"], d["a"], kwargs["scale"], torch.empty(number, 0, dtype=torch.bool))
    assert torch.equal(flat["total"], executable(d, flag, number, **kwargs)["total"])


def test_arguments_that_do_not_fit(with_arguments):
    executable = hlo_disc.compile(with_arguments)
    (d, flag, number), kwargs = arguments(4, 9)
    for args, keywords, reason in [
        ((d, flag), kwargs, "the positional arguments: 2 given, but the program has 3"),
        ((d, flag, number), {}, "the keyword arguments: nothing given, but the program has 'scale'"),
        ((d, flag, number), {"scal": d["a"]}, "'scal' given, but the program has 'scale'"),
        (({"a": d["a"]}, flag, number), kwargs, "number 0: 'a' given, but the program has 'b', 'a'"),
        (([d["a"]], flag, number), kwargs, "number 0: list given, but the program has 'b', 'a'"),
        ((d, False, number), kwargs, "number 1: False is given, but the program is for True alone"),
        ((d, 1, number), kwargs, "number 1: 1 is given, but the program is for True alone"),
        ((d, flag, -1), kwargs, "number 2: -1 is given, but the program takes an int, one that is not negative"),
        ((d, flag, 2.0), kwargs, "number 2: 2.0 is given, but the program takes an int"),
    ]:
        with pytest.raises(hlo_disc.ArgumentError, match=re.escape(reason)):
            executable(*args, **keywords)
    with pytest.raises(hlo_disc.ArgumentError, match="no keyword arguments; x given"):
        hlo_disc.compile(lambda x: x, "f32[n]")(x=d["a"])


@pytest.mark.parametrize("dim", [torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC, torch.export.Dim("n", min=2)])
def test_what_pytorch_assumes_of_a_dim_is_not_asked_of_calls(dim):
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(5, 4),), dynamic_shapes=({0: dim},))
    executable = hlo_disc.compile(program)
    for n in (1, 0, 6):
        torch.testing.assert_close(executable(torch.ones(n, 4)), program.module()(torch.ones(n, 4)))


def test_a_least_size_is_asked_of_calls():
    dim = torch.export.Dim("n", min=3)
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(5, 4),), dynamic_shapes=({0: dim},))
    with pytest.raises(hlo_disc.ShapeError, match=">= 3 must hold"):
        hlo_disc.compile(program)(torch.ones(2, 4))


class Quarters(nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 4).mean(2)


def test_a_file_with_derived_dims(tmp_path):
    sizes = {0: torch.export.Dim("b"), 1: 4 * torch.export.Dim("h", min=1, max=50)}
    program = torch.export.export(Quarters(), (torch.randn(2, 12),), dynamic_shapes=(sizes,))
    torch.export.save(program, tmp_path / "quarters.pt2")
    executables = [hlo_disc.compile(program), hlo_disc.compile(tmp_path / "quarters.pt2", trusted=True)]
    for executable in executables:
        for shape in ((3, 8), (1, 4), (5, 200)):
            x = torch.randn(*shape)
            torch.testing.assert_close(executable(x), Quarters()(x))
        with pytest.raises(hlo_disc.ShapeError):
            executable(torch.randn(3, 6))


def test_files_that_are_none(tmp_path):
    (tmp_path / "text.pt2").write_text("text")
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("x", "text")
    for name, reason in (("text", "write it with torch.export.save"), ("other", "that this PyTorch reads")):
        code, _, err = call("compile", tmp_path / f"{name}.pt2", "--trusted", "--emit", "stablehlo")
        assert code == 1
        assert f"error: {tmp_path / name}.pt2 is no program of torch.export" in err and reason in err
    with pytest.raises(FileNotFoundError, match="none.pt2"):
        hlo_disc.compile(tmp_path / "none.pt2")


def test_what_is_said_of_other_things_of_pytorch(model):
    for call in (lambda: hlo_disc.compile(model, "i64[b, s]"), lambda: hlo_disc.stablehlo(model)):
        with pytest.raises(hlo_disc.ArgumentError, match="Classifier is a module of PyTorch's: .* torch.export.export"):
            call()
