"""The page of `explain` in a real browser, for programs as large as they come. Pictures are in build/page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from cases.data_sized import DATA_DEPENDENT
from jax import lax
from playwright.sync_api import expect

import hlo_disc
from benchmarks import in_jax
from benchmarks.program import named
from hlo_disc.compiled.account import parse
from hlo_disc.dynamic_hlo.ir.graph import RELATIONS
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.explain import page as pages
from tests.browser.visiting import NASTY, OPENED, PICTURES, Visit

LARGEST = 2 << 20


class Explained(NamedTuple):
    path: Path
    executable: hlo_disc.Executable


def closed_over(name: str, spec: str, *sizes: int) -> tuple[hlo_disc.Executable, Any]:
    """Compile a program of `benchmarks` with its weights as constants; return it with its inputs. spec: of an input."""
    program = named(name)
    weights, fn = in_jax.weights(program), in_jax.function(program)
    inputs = in_jax.inputs(program, program.sizes(*sizes))
    specs = [spec] * len(inputs)
    return hlo_disc.compile(lambda *inputs: fn(weights, inputs), *specs, constraints=program.constraints), inputs


def training_step() -> tuple[hlo_disc.Executable, Any]:
    program = named("MLP training step")
    args = in_jax.weights(program), in_jax.inputs(program, program.sizes(8))
    return in_jax.compiled(program).lower(*args).compile(), args


MAKERS = {
    "bert": lambda: closed_over("BERT-base", "i32[b, s]", 1, 24),
    "resnet": lambda: closed_over("ResNet-50", "f32[b, h, w, 3]", 1, 64, 64),
    "training": training_step,
}


@pytest.fixture(scope="module", params=MAKERS)
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Explained:
    executable, args = MAKERS[request.param]()
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    executable.explain(html=path, profile=executable.profile(*args, seconds=0.1))
    return Explained(path, executable)


def sizes_of(executable: hlo_disc.Executable, dims: Mapping[str, int]) -> list[int]:
    return [Dim.parse(d).evaluate(dims) for x in executable.program.inputs for d in x.shape]


def set_dims(shown: Visit, dims: Mapping[str, int]) -> None:
    for name, size in dims.items():
        shown.page.get_by_label(name, exact=True).fill(str(size))


def test_a_page_is_small_and_whole(visit, explained):
    size = explained.path.stat().st_size
    assert size <= LARGEST
    shown = visit(explained.path)
    OPENED.append(f"{explained.path.name}: {size / 1000:.0f} KB, open after {shown.opened():.2f} s")
    account = parse(explained.executable.program.account)
    assert shown.page.locator("details.launch").count() == len(account.launches)
    assert shown.page.locator("#times tbody tr").count() > 5
    assert shown.page.locator("#times circle").count() > 5
    for launch in shown.page.locator("details.launch > summary").all()[:: max(len(account.launches) // 10, 1)]:
        launch.click()
    for section in shown.page.locator("details.plain > summary").all():
        section.click()
    width = shown.page.viewport_size["width"]
    for scheme in ("light", "dark"):
        shown.page.emulate_media(color_scheme=scheme)
        picture = PICTURES / f"{explained.path.stem}-{width}-{scheme}.png"
        shown.page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 10_000
    assert not shown.faults()


def test_forms_and_memory_are_those_of_a_call(visit, explained):
    """The forms and the memory that the page works out for sizes are those of a call."""
    shown, program = visit(explained.path), explained.executable.program
    account = parse(program.account)
    for k in (1, 7, 30, 130):
        dims = {name: k + 32 * i for i, name in enumerate(explained.executable.dims)}
        set_dims(shown, dims)
        taken = shown.page.evaluate("program.launches.map((launch) => takenForm(launch))")
        for launch, form in zip(account.launches, taken, strict=True):
            whens = [
                all(
                    Dim.parse(x.size).evaluate(dims) % x.bound == 0
                    if x.relation == "multiple of"
                    else RELATIONS[x.relation](Dim.parse(x.size).evaluate(dims), x.bound)
                    for x in form.when
                )
                for form in launch.forms
            ]
            assert form == whens.index(True)
        arena = explained.executable.native.plan(sizes_of(explained.executable, dims))[program.env.arena]
        ends = shown.page.evaluate(
            "program.slots.reduce((sum, [size]) => sum + Math.ceil(Math.max(sizeAt(size), 0) / 64) * 64, 0)"
        )
        assert ends == arena
    assert not shown.faults()


def test_a_line_and_its_launches(visit, explained):
    shown = visit(explained.path)
    line = shown.page.locator("button.row").first
    line.focus()
    shown.page.keyboard.press("Enter")
    expect(line).to_have_class(re.compile("marked"))
    said = int(re.search(r"\d+", line.locator(".count").inner_text())[0])
    assert shown.page.locator("details.launch.marked").count() == said
    launch = shown.page.locator("details.launch.marked > summary").first
    launch.click()
    assert shown.page.locator("details.launch.marked").count() == 1
    assert shown.page.locator("button.row.marked").count() >= 1
    assert not shown.faults()


def test_guards(visit, tmp_path):
    exe = hlo_disc.compile(lambda x, y: x + y, "f32[n]", "f32[n]", constraints=["n <= 512", "n % 8 == 0"])
    exe.explain(html=tmp_path / "page.html")
    shown = visit(tmp_path / "page.html")
    holds = shown.page.locator("#holds")
    for size, text in ((64, "✓"), (1024, "n <= 512 does not hold"), (12, "mod(n, 8) == 0 does not hold"), (0, "✓")):
        set_dims(shown, {"n": size})
        expect(holds).to_contain_text(text)
    shown.page.get_by_label("n, by a slider").fill("6")
    expect(shown.page.get_by_label("n", exact=True)).to_have_value("64")
    assert "There are no times" in shown.page.locator("#times").inner_text()
    assert not shown.faults()


def test_forms_over_sizes(visit, tmp_path):
    def softmax(x):
        e = jnp.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    exe = hlo_disc.compile(softmax, "f32[b, s]", target="cpu:avx2")
    exe.explain(html=tmp_path / "page.html")
    shown = visit(tmp_path / "page.html")
    kernels = [form.kernel for form in parse(exe.program.account).launches[0].forms]
    assert len(kernels) == 2
    assert shown.page.locator(".strip svg rect").count() == 2  # one form below a size, the other above
    for size, kernel in ((2, kernels[0]), (100, kernels[1])):
        set_dims(shown, {"s": size})
        expect(shown.page.locator("details.launch .kernel")).to_have_text(kernel)
    assert not shown.faults()


def test_many_programs(visit, tmp_path):
    def fn(x):
        return x * sum(range(x.shape[0]))

    compiled = hlo_disc.jit(fn)
    for n in (2, 3):
        compiled(np.ones(n, np.float32))
    compiled.explain(html=tmp_path / "page.html")
    shown = visit(tmp_path / "page.html")
    choice = shown.page.locator("#choice")
    assert choice.locator("option").count() == compiled.stats().compilations == 2
    choice.select_option("1")
    shown.page.get_by_text("Arguments (1)").click()
    expect(shown.page.locator("#signature")).to_contain_text("float32[3]")
    assert not shown.faults()


def test_sizes_that_data_decide(visit, tmp_path):
    exe = hlo_disc.compile(DATA_DEPENDENT)
    exe.explain(html=tmp_path / "page.html", profile=exe.profile(np.arange(5, dtype=np.int32), seconds=0.05))
    assert not visit(tmp_path / "page.html").faults()


def test_loops(visit, tmp_path):
    def loop(x, n):
        return lax.fori_loop(0, n, lambda i, c: jnp.tanh(c @ c), x)

    exe = hlo_disc.compile(loop, "f32[n, n]", "i32[]")
    found = exe.profile(np.ones((4, 4), np.float32), np.int32(3), seconds=0.05)
    exe.explain(html=tmp_path / "page.html", profile=found)
    shown = visit(tmp_path / "page.html")
    assert "body:" in shown.page.locator("#launches").inner_text()
    assert not shown.faults()


WEIGHTS = """
func.func public @main(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %w = stablehlo.constant dense<"0xNUMBERS"> : tensor<64x64xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}"""


def test_weights_stay_out(tmp_path):
    """Weights are not in the page, even where the program is a module with its weights as text."""

    def fn(x):
        return x @ np.sqrt(np.arange(64 * 64, dtype=np.float32)).reshape(64, 64)

    exe = hlo_disc.compile(fn, "f32[n, 64]")
    exe.explain(html=tmp_path / "page.html", profile=exe.profile(np.ones((2, 64), np.float32), seconds=0.01))
    text = (tmp_path / "page.html").read_text()
    assert "1.7320" not in text and len(text) < 100_000
    numbers = np.sqrt(np.arange(64 * 64, dtype=np.float32)).tobytes().hex()
    (tmp_path / "weights.mlir").write_text(WEIGHTS.replace("NUMBERS", numbers))
    hlo_disc.compile(tmp_path / "weights.mlir").explain(html=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "%y = stablehlo.dot_general %x, %w" in text and numbers[1000:1100] not in text and len(text) < 100_000


def test_strings_are_text(visit, tmp_path):
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    account = parse(exe.program.account)
    nasty = account._replace(
        name=NASTY,
        places=[f"{NASTY}:1:1 ({NASTY})"] * len(account.places),
        launches=[x._replace(writes=[NASTY], ops=[(NASTY, 0, 1)]) for x in account.launches],
    )
    program = exe.program._replace(account=nasty.text(), source=NASTY)
    (tmp_path / "page.html").write_text(pages.page([program]))
    shown = visit(tmp_path / "page.html")
    shown.page.locator("details.launch > summary").first.click()
    assert shown.page.locator("img").count() == 0
    assert NASTY in shown.page.locator("#title").text_content()
    assert NASTY in shown.page.locator("details.launch").first.text_content()
    assert not shown.faults()


def test_in_a_notebook(visit, tmp_path):
    text = hlo_disc.compile(lambda x: x + 1, "f32[n]").explain()
    (tmp_path / "notebook.html").write_text(f'<!doctype html><link rel="icon" href="data:,">{text._repr_html_()}')
    shown = visit(tmp_path / "notebook.html")
    expect(shown.page.frame_locator("iframe").locator("#title")).to_have_text("jit__lambda")
    assert not [error for error in shown.faults() if "about:srcdoc" not in error]
