"""A page in a real browser, on a phone's width and on a desk's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

PICTURES = Path("build/page")
WIDTHS = (390, 1280)
PATIENCE = 120_000  # milliseconds, after which a page that does not come is an error
# Nothing but the page is loaded, and nothing needs a GPU or a sandbox.
ARGUMENTS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync""".split()
# What was measured, for the end of the report.
OPENED: list[str] = []
NASTY = "</script><script>throw 1</script><img src=x onerror=alert(1)> & \"'"


class Visit:
    """A page that is open, and what was wrong with it."""

    def __init__(self, page: Page, path: Path):
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.absolute().as_uri())

    def opened(self) -> float:
        """Return the seconds until all of the page was there, its script's work included."""
        return self.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1e3

    def faults(self) -> list[str]:
        """Return what no page may have: errors, requests besides its own, a body that scrolls sideways."""
        elsewhere = [url for url in self.requests[1:] if not url.startswith("data:")]
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return self.errors + elsewhere + ([f"{wide} pixels too wide"] if wide > 0 else [])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROME") or next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.exit("there is no browser: install one (apt-get install chromium), or say CHROME=FILE", 1)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=ARGUMENTS, timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture(params=WIDTHS)
def visit(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Callable[[Path], Visit]]:
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    context.set_default_timeout(PATIENCE)
    yield lambda path: Visit(context.new_page(), path)
    context.close()
