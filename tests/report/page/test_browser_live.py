"""A page that is served while a run goes on: new numbers come by themselves, and what was chosen stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import written_below

from fedprior.cli.serving import server
from fedprior.records.lock import hold
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.report.page.live import Watched
from report.page.made import made
from report.page.test_live import grown

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with server(Watched([tmp_path]), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/"
        serving.shutdown()
        thread.join()


def test_it_grows_and_keeps_what_was_chosen(browser: Any, address: str, tmp_path: Path) -> None:
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    errors: list[str] = []
    asked: set[str] = set()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.add(request.url))
    page.goto(address)
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.inner_text("h1") == "no runs yet"
    local, fedavg, mh = made(seeds=1, rounds=8)
    written_below(tmp_path, local)
    written_below(tmp_path, fedavg)
    page.wait_for_selector("table.summary tbody tr:nth-child(2)")
    assert page.inner_text("h1") == "toy"
    page.select_option("#metric", "nll")
    page.select_option("#against", "fedavg")
    page.select_option("#follow", "3")
    page.click("button.chip:has-text('fedavg')")
    page.click("details[data-fold=task] > summary")
    page.evaluate("window.scrollTo(0, 500)")
    page.focus("button.chip:has-text('fedavg')")
    run = RunFolder(tmp_path / "toy" / "mh" / "0")
    with hold(run.path):
        run.begin(mh.config)
        run.set_status(Status.RUNNING, 0)
        grown(mh, run, 3)
        page.wait_for_selector("table.summary tbody tr:nth-child(3)")
        assert "3 to 8 rounds" in page.inner_text("header")
        grown(mh, run, 8, since=3)
        run.set_status(Status.FINISHED, 8)
    page.wait_for_selector("header:has-text('3 methods, 1 seed, 8 rounds')")
    chosen = {name: page.input_value(f"#{name}") for name in ("metric", "against", "follow")}
    assert chosen == {"metric": "nll", "against": "fedavg", "follow": "3"}
    assert page.get_attribute("button.chip:has-text('fedavg')", "aria-pressed") == "false"
    assert page.locator("details[data-fold=task]").get_attribute("open") is not None
    assert page.evaluate("window.scrollY") == 500
    assert page.evaluate("document.activeElement.innerText") == "fedavg"
    assert errors == []
    assert {url.partition("#")[0] for url in asked} == {address, f"{address}version"}
    page.context.close()


def test_a_server_that_is_gone_is_told(browser: Any, tmp_path: Path) -> None:
    for each in made(seeds=1, rounds=2):
        written_below(tmp_path, each)
    page = browser.new_page()
    with server(Watched([tmp_path]), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        page.goto(f"http://127.0.0.1:{serving.server_address[1]}/")
        page.wait_for_selector("html[data-ready]", state="attached")
        serving.shutdown()
        thread.join()
    page.wait_for_selector("#live:has-text('the server does not answer')")
    assert page.locator("table.summary tbody tr").count() == 3
    page.close()
