"""The data of the page of `explain`, and what is in its file: `tests/browser` looks at it."""

from __future__ import annotations

import json
import operator
import pickle
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.compiled.account import parse
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.explain import page as pages

OPERATORS = {
    "+": operator.add, "*": operator.mul, "/": operator.floordiv, "%": operator.mod, "min": min, "max": max,
}  # fmt: skip


def layer(x, y):
    return x @ y + 1.0


@pytest.fixture(scope="module")
def exe() -> hlo_disc.Executable:
    return hlo_disc.compile(layer, "f32[n, 8]", "f32[8, m]", constraints=["n <= 512", "m < 100"])


def data_of(text: str) -> dict[str, Any]:
    """Return the data that the script of a page reads."""
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def value(size: Any, values: dict[str, int]) -> int:
    if isinstance(size, list):
        return OPERATORS[size[0]](value(size[1], values), value(size[2], values))
    return values[size] if isinstance(size, str) else size


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "7",
        "b",
        "3*b*s + 1",
        "b - s",
        "-b + 40",
        "b^2*s",
        "floordiv(b + 7, 8)",
        "mod(s - 9, 4)",
        "min(b, s, 12)",
        "max(0, b - s)*4 + min(s, 3)",
    ],
)
def test_sizes_are_what_they_were(text):
    sizes = pages._Sizes()
    number = sizes(text)
    assert sizes(text) == number  # each once
    for b in (0, 1, 5, 32):
        for s in (0, 3, 17):
            values = {"b": b, "s": s}
            assert value(sizes.found[number], values) == Dim.parse(text).evaluate(values)
    assert set(sizes.symbols) == set(Dim.parse(text).symbols)


def test_what_the_page_has(exe):
    (program,) = data_of(pages.page([exe.program]))["programs"]
    account = parse(exe.program.account)
    assert program["name"] == "jit_layer" and program["source"] == "a function of JAX, layer"
    assert program["symbols"] == ["n", "m"] and program["largest"] == {"n": 512, "m": 99}
    assert [x["text"] for x in program["guards"]][-2:] == ["n <= 512", "m < 100"]
    assert len(program["launches"]) == len(account.launches) == 1
    (launch,) = program["launches"]
    assert [form[0] for form in launch["forms"]] == [form.kernel for form in account.launches[0].forms]
    sizes = {"n": 5, "m": 3}
    assert value(program["sizes"][launch["operations"]], sizes) == 2 * 5 * 8 * 3 + 5 * 3
    assert value(program["sizes"][launch["bytes"]], sizes) == 4 * (5 * 8 + 8 * 3 + 5 * 3)
    line = layer.__code__.co_firstlineno + 1
    (file,) = [k for k, (name, _) in enumerate(program["files"]) if name == __file__]
    assert [file, line, "layer"] in program["places"]
    assert [line, "    return x @ y + 1.0"] in program["files"][file][1]


def test_sizes_of_arguments_have_their_names():
    exe = hlo_disc.compile(lambda x, y: x + y, "f32[n]", "f32[n]")
    (program,) = data_of(pages.page([exe.program]))["programs"]
    (guard,) = program["guards"]
    assert guard["text"] == "y.shape[0] == n"
    assert value(program["sizes"][program["raw"]["%1.0"]], {"n": 9}) == 9


def test_why_ops_are_not_fused_is_with_their_launch():
    def fn(x):
        return x.sum(0), x.sum(1), jnp.exp(x).sum(0) / jnp.exp(x).sum()

    exe = hlo_disc.compile(fn, "f32[n, m]")
    (program,) = data_of(pages.page([exe.program]))["programs"]
    said = [(reason[0], reason[2]) for launch in program["launches"] for reason in launch["reasons"]]
    assert sorted(said) == [
        ("exponential", "two outputs of different shapes"),
        ("reduce", "reductions over different rows"),
    ]
    for launch in program["launches"]:
        ops = " ".join(text for _, text in launch["lines"])
        assert all(reason[0] in ops for reason in launch["reasons"])


def test_a_file_that_is_no_longer_there(exe):
    account = parse(exe.program.account)
    moved = account._replace(places=["/no/model.py:12:3 (f)", "nowhere", ""] + account.places)
    program = exe.program._replace(account=moved.text())
    (found,) = data_of(pages.page([program]))["programs"]
    assert found["files"][0] == ["/no/model.py", [[12, ""]]]
    assert found["places"][:3] == [[0, 12, "f"], [-1, 0, "nowhere"], [-1, 0, ""]]


def test_lines_around_and_long_ones(tmp_path):
    lines = [f"line {n}" for n in range(1, 31)]
    lines[9] = "x" * 1000
    (tmp_path / "model.py").write_text("\n".join(lines))
    places = [f"{tmp_path}/model.py:{n}:1 (f)" for n in (1, 10, 30, 99)]
    ((_, shown),), _ = pages._sources(places)
    assert [n for n, _ in shown] == [1, 2, 3, 8, 9, 10, 11, 12, 28, 29, 30, 99]
    assert dict(shown)[10] == "x" * 160 and dict(shown)[11] == "line 11" and dict(shown)[99] == ""


def test_nothing_is_asked_of_a_network(exe):
    text = pages.page([exe.program])
    assert re.findall(r"(?:src|href)=\"?([^\" >]*)", text) == ["data:,"]
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "{{" not in text


def test_a_name_that_ends_a_script(exe):
    account = parse(exe.program.account)._replace(name="</script><script>")
    text = pages.page([exe.program._replace(account=account.text())])
    assert data_of(text)["programs"][0]["name"] == "</script><script>"
    assert text.count("</script>") == 2


def test_programs_without_an_account_are_left_out(exe):
    assert data_of(pages.page([exe.program._replace(account="")]))["programs"] == []


def test_a_notebook_shows_the_page(exe, tmp_path):
    said = exe.explain(html=tmp_path / "page.html")
    shown = said._repr_html_()
    assert shown.startswith("<iframe ") and 'srcdoc="&lt;!doctype html&gt;' in shown
    assert shown.count('"') == 6  # whatever is in the page
    again = pickle.loads(pickle.dumps(said))
    assert type(again) is str and again == said and said.splitlines()[0] == "source  a function of JAX, layer"
    compiled = hlo_disc.jit(layer)
    compiled(np.ones((2, 8), np.float32), np.ones((8, 2), np.float32))
    assert "jit_layer" in compiled.explain()._repr_html_()


def test_the_page_of_a_file_is_that_of_the_program(exe, tmp_path: Path):
    exe.save(tmp_path / "f.disc")
    assert pages.page([hlo_disc.load(tmp_path / "f.disc").program]) == pages.page([exe.program])
