"""The page for those who use a keyboard or a screen reader, and a page as large as it must bear."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fedprior.report.page.page import write_report
from report.page.conftest import Open
from report.page.made import large
from report.page.test_browser import PHONE, STUDIES, STUDY, cells, column

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core, which `make test-browser` installs."""
    path = Path(os.environ.get("AXE", ".venv/npm/node_modules/axe-core/axe.min.js"))
    if not path.exists():
        pytest.skip(f"there is no {path}; `make test-browser` installs axe-core")
    return path.read_text()


@pytest.mark.parametrize("study", ["usual", "one seed", "many", "tasks", "old"])
@pytest.mark.parametrize("view", ["light", "dark", "phone", "no script", "another task"])
def test_axe_finds_nothing_serious(show: Open, axe: str, study: str, view: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "light": {},
        "dark": {"color_scheme": "dark"},
        "phone": PHONE,
        "no script": {"java_script_enabled": True},
        "another task": {},
    }
    page = show(STUDIES[study], **kinds[view]).page
    if view == "no script":  # axe is a script itself: what is there before ours runs is put back
        page.evaluate("text => document.querySelector('main').innerHTML = text", static_main(STUDIES[study]))
    if view == "another task" and study == "tasks":
        page.select_option("#task", "1")
    page.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:2]
    ]
    assert serious == []


def static_main(records: list[Any]) -> str:
    from fedprior.report.page.gather import gather
    from fedprior.report.page.page import main_html

    return main_html(gather(records))


def test_all_of_it_by_keyboard(show: Open) -> None:
    page = show(STUDY).page
    seen: list[str] = []
    describe = """() => { const e = document.activeElement, s = getComputedStyle(e);
        return [e.id || e.dataset.sort || e.className || e.tagName, s.outlineStyle, parseFloat(s.outlineWidth)]; }"""
    for _ in range(200):
        page.keyboard.press("Tab")
        name, style, width = page.evaluate(describe)
        if name == "BODY":
            break
        assert style != "none", name
        assert width >= 1, name  # the focus can be seen
        seen.append(name)
    controls = page.locator("button, select, summary, a, [tabindex='0']").filter(visible=True).count()
    assert len(seen) == controls
    for wanted in ("metric", "model", "round", "against", "theme", "value", "zoom", "along", "follow", "cost", "stage"):
        assert wanted in seen
    page.focus("#metric")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#metric") == "nll"
    assert page.evaluate("document.activeElement.id") == "metric"  # drawn anew, and still where one was
    page.focus("button.head[data-sort=method]")
    page.keyboard.press("Enter")
    assert column(page, "method")[0] == "local"
    page.focus("button.chip[data-method='1']")
    page.keyboard.press("Space")
    assert page.locator("path.curve").count() == 3
    page.keyboard.press("Space")
    assert page.locator("path.curve").count() == 4
    page.focus("#follow")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#follow") == "0"
    assert "client 0" in cells(page, "summary", "thead tr")[0]
    assert "client 0, " in page.text_content("#told")


def test_the_arrow_keys_read_curves_aloud(show: Open) -> None:
    page = show(STUDY).page
    page.focus(".stage")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#told").startswith("round 12: ")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#told").startswith("round 11: ditto ")
    page.keyboard.press("Home")
    assert page.text_content("#told").startswith("round 1: ")
    assert page.locator("section[data-part=curves] .tip").is_visible()


def spent(session: Any) -> float:
    """The seconds that the page's own thread has worked: other programs may be at work on the machine."""
    found = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def test_a_large_study_is_small_and_quick(show: Open, tmp_path: Path) -> None:
    path = write_report(large(), tmp_path / "large.html")
    assert path.stat().st_size < 1_000_000
    page = show(path.as_uri()).page
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = spent(session)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    shown = spent(session) - before
    assert 0 < shown < 2
    for name, value in (
        ("metric", "nll"),
        ("model", "global"),
        ("round", "best"),
        ("against", "method-9"),
        ("follow", "7"),
    ):
        before = spent(session)
        page.select_option(f"#{name}", value)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert 0 < spent(session) - before < 0.5, name
    assert page.locator("table.summary tbody tr").count() == 25
    assert page.locator("path.curve").count() == 25
    assert page.locator("circle.client").count() == 24 * 100
