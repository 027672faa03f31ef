"""The page of benchmarks.peers in a real browser, on a phone's width and on a desk's. Pictures are in build/page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from benchmarks.peers.report import page as pages
from benchmarks.peers.report.results import Results
from tests.browser.visiting import NASTY, PICTURES, Visit
from tests.unit.benchmarks import made_up


def peers_drawn(visit: Visit, box: str) -> set[str]:
    marks = visit.page.locator(f"{box} circle[data-peer]")
    return set(marks.evaluate_all("marks => marks.map(mark => mark.dataset.peer)"))


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up.results()


@pytest.fixture(scope="module")
def written(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    pages.write(results, path, made_up.results(seed=1, machine=0.9), made_up.cold())
    return path


def test_every_program(visit, written, results):
    shown = visit(written)
    rows = shown.page.locator("#overview tbody tr")
    assert rows.count() == len(results["programs"])
    for program in results["programs"]:
        title = f"{program['name']}, {program['dtype']}"
        shown.page.select_option("#choice", label=title)
        shown.page.wait_for_function(
            "title => document.getElementById('program-title').textContent === title", arg=title
        )
        timed = {peer for shape in program["shapes"] for peer in shape["times"]}
        assert peers_drawn(shown, "#shapes") == timed
        assert peers_drawn(shown, "#besides") >= set(program["memory"])
        assert shown.page.locator("#shapes figure").count() == len(program["shapes"])
        listed = shown.page.locator("#shown dt").all_text_contents()
        assert listed == list(program["missing"])
        assert not shown.faults()


def test_until_the_first_result(visit, written, results):
    """A bar a program, which has all of its time in it."""
    shown = visit(written)
    rows = shown.page.locator("#cold-times tbody tr")
    assert rows.count() == len(results["programs"])
    parts = rows.first.locator(".stack rect")
    widths = parts.evaluate_all("parts => parts.map(part => parseFloat(part.getAttribute('width')))")
    assert len(widths) == shown.page.locator("#cold-parts li").count() and sum(widths) == pytest.approx(100)
    assert not shown.faults()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures(visit, written, scheme):
    shown = visit(written)
    width = shown.page.viewport_size["width"]
    shown.page.emulate_media(color_scheme=scheme)
    paper = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 380) == (scheme == "light")
    shown.page.screenshot(path=PICTURES / f"{width}-{scheme}.png", full_page=True)
    assert (PICTURES / f"{width}-{scheme}.png").stat().st_size > 10_000
    assert not shown.faults()


def test_toggles(visit, written, results):
    shown = visit(written)
    everybody = peers_drawn(shown, "#shapes")
    shown.page.get_by_role("checkbox", name="IREE").uncheck()
    assert peers_drawn(shown, "#shapes") == everybody - {"IREE"}
    shown.page.get_by_role("button", name="only those that compile once").click()
    dynamic = {peer["name"] for peer in results["peers"] if peer["dynamic"]}
    assert peers_drawn(shown, "#shapes") == everybody & dynamic
    for box in shown.page.locator("#toggles input").all():
        box.uncheck()
    assert peers_drawn(shown, "#shown") == set()
    shown.page.get_by_role("button", name="all", exact=True).click()
    assert peers_drawn(shown, "#shapes") == everybody
    assert not shown.faults()


def test_by_keyboard(visit, written, results):
    shown = visit(written)
    shown.page.locator("#overview tbody a").nth(2).focus()
    shown.page.keyboard.press("Enter")
    title = shown.page.locator("#program-title")
    third = results["programs"][2]
    expect(title).to_have_text(f"{third['name']}, {third['dtype']}")
    expect(title).to_be_focused()
    shown.page.get_by_role("radio", name="time").focus()
    shown.page.keyboard.press("Space")
    assert "the machine's limit" in shown.page.locator("#shown .scroll").text_content()
    shown.page.get_by_role("button", name="worst shape").focus()
    shown.page.keyboard.press("Enter")
    worst = shown.page.locator("#overview tbody tr td:nth-of-type(2)").evaluate_all(
        "cells => cells.map(c => c.innerText)"
    )
    ratios = [float(re.search(r"\d+\.?\d*", text)[0]) for text in worst]
    assert ratios == sorted(ratios)
    assert not shown.faults()


def test_strings_are_text(visit, tmp_path):
    odd = made_up.results()
    program = odd["programs"][0]
    odd["machine"]["cpu"] = odd["command"] = program["name"] = program["about"] = program["missing"]["IREE"] = NASTY
    odd["peers"][-1]["about"] = odd["peers"][-1]["absent"] = NASTY
    pages.write(odd, tmp_path / "page.html")
    shown = visit(tmp_path / "page.html")
    assert shown.page.locator("img").count() == 0
    assert NASTY in shown.page.locator("#program-title").text_content()
    assert shown.page.locator("#shown dd").filter(has_text=NASTY).count() == 2
    assert not shown.faults()


def test_little(visit, tmp_path):
    """One peer, one shape, and nothing else; results that are exact."""
    little = made_up.results()
    little["programs"] = little["programs"][-1:]
    program = little["programs"][0]
    program["shapes"][0]["times"] = {made_up.OURS[0]: program["shapes"][0]["times"][made_up.OURS[0]]}
    program["compile"], program["memory"], program["stream"] = {}, {}, None
    program["accuracy"]["errors"] = {made_up.OURS[0]: 0.0}
    pages.write(little, tmp_path / "page.html")
    shown = visit(tmp_path / "page.html")
    assert peers_drawn(shown, "#shapes") == {made_up.OURS[0]}
    assert not shown.faults()


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("<script>missing_function()</script>", "missing_function is not defined"),
        ('<img src="https://example.invalid/a.png" alt="">', "example.invalid"),
        ('<div style="width: 2000px">wide</div>', "pixels too wide"),
    ],
)
def test_faults_are_found(visit, written, tmp_path, planted, message):
    broken = tmp_path / "broken.html"
    broken.write_text(written.read_text().replace("</main>", f"</main>{planted}"))
    assert any(message in fault for fault in visit(broken).faults())
