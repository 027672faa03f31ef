"""Tests in a browser, which `make test-page` runs: elsewhere there is nothing to drive one."""

from importlib.util import find_spec

if find_spec("playwright"):
    from tests.browser.visiting import OPENED, browser, visit

    __all__ = ["browser", "visit"]
    collect_ignore_glob = []

    def pytest_terminal_summary(terminalreporter):
        terminalreporter.write_line("\n".join(OPENED))

else:
    collect_ignore_glob = ["*"]
