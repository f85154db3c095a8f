"""Chromium for the tests that look at the page as a reader does; they are skipped where it is not asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedprior.records.schema import RunRecord
from fedprior.report.page.page import write_report

# As root there is no sandbox; the others keep the browser from asking anybody for anything by itself.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


class Opened(NamedTuple):
    """A page in the browser, and what went on in it."""

    page: Any
    path: Path
    errors: list[str]
    requests: list[str]  # but for the page itself

    def check(self) -> None:
        """Nothing was asked of anybody, and no script failed."""
        assert self.errors == []
        assert self.requests == []


Open = Callable[..., Opened]


def chromium() -> str | None:
    """Where the browser is: FEDPRIOR_CHROMIUM, or Debian's."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("FEDPRIOR_CHROMIUM") or next((p for name in names if (p := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="`make test-browser` installs playwright")
    path = chromium()
    if path is None:
        pytest.skip("there is no chromium; `make test-browser` installs it")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Write the page of some records and open it from its file; at the end nothing may have gone wrong in it."""
    opened: list[Opened] = []

    def open_page(given: list[RunRecord] | str, fragment: str = "", before: str = "", **context: Any) -> Opened:
        context = {"viewport": {"width": 1200, "height": 900}, **context}
        page = browser.new_context(**context).new_page()
        path = tmp_path / f"{len(opened)}.html"
        address = given if isinstance(given, str) else write_report(given, path).as_uri() + fragment
        seen = Opened(page, path, [], [])
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: _refuse(seen, dialog))
        page.on("request", lambda request: _note(seen, request.url, address))
        page.add_init_script(before)
        page.goto(address)
        if not before and context.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]", state="attached")
        opened.append(seen)
        return seen

    yield open_page
    for seen in opened:
        seen.check()
        seen.page.context.close()


def _refuse(seen: Opened, dialog: Any) -> None:
    seen.errors.append(f"dialog {dialog.message}")
    dialog.dismiss()


def _note(seen: Opened, url: str, address: str) -> None:
    if url.partition("#")[0] != address.partition("#")[0]:
        seen.requests.append(url)
