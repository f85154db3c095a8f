"""The page of odd records, in an old browser, and from an address that somebody made up."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from fedprior.records.schema import NLL, LabelCounts
from fedprior.report.page.page import write_report
from report.page.conftest import Open
from report.page.made import made
from report.page.test_browser import STUDIES, STUDY, cells
from report.page.test_page import EVIL
from report.page.test_sentences import study

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_a_client_without_results_cannot_be_followed(show: Open) -> None:
    records = made(("local", "mh"), 1)
    for run in records:
        counts = run.label_counts
        assert counts is not None
        more = LabelCounts(counts.classes, {**counts.clients, "idle": {"train": [5, 0, 0, 0]}})
        object.__setattr__(run, "read_labels", functools.partial(lambda labels: labels, more))
    page = show(records).page
    page.locator("section[data-part=holdings] .column").last.locator("rect").first.click()
    assert page.input_value("#follow") == ""
    page.select_option("#follow", "2")
    assert page.locator("section[data-part=gains] .followed").count() == 1


def test_an_address_from_elsewhere_breaks_nothing(show: Open) -> None:
    page = show(STUDY, fragment="#metric=constructor&average=toString&model=x&round=y&against=z&client=q").page
    assert page.input_value("#metric") == "accuracy"
    assert page.input_value("#average") == "weighted"


def test_a_browser_that_is_too_old_is_told_so(show: Open, tmp_path: Path) -> None:
    path = write_report(STUDY, tmp_path / "old.html")
    page = show(path.as_uri(), before="delete window.DecompressionStream").page
    assert page.locator("main > p.said").first.inner_text().startswith("This browser is too old")
    assert page.locator("main > p.said").first.is_visible()


def test_the_table_of_tasks_holds_what_its_caption_says(show: Open) -> None:
    page = show([*made(task="one", pooled=True), *made(task="two")]).page
    assert all("\N{EN DASH}" not in row for row in cells(page, "overview"))
    page.select_option("#data", "pooled")
    assert "pooled" in page.inner_text("section[data-part=overview] .caption")
    for row in cells(page, "overview"):
        assert row[1] != "\N{EN DASH}"
        assert row[2:] == ["\N{EN DASH}"] * 3  # there is none of "two", and so no average


def test_curves_run_along_rounds_where_a_task_has_recorded_nothing_else(show: Open) -> None:
    page = show([*made(task="one"), *made(task="two", cost=None)]).page
    page.select_option("#along", "gradients")
    page.select_option("#task", "1")
    assert page.input_value("#along") == "rounds"
    assert page.locator("article:not([hidden]) path.curve").count() == 3


def test_all_that_tie_are_marked_as_best(show: Open) -> None:
    page = show(study({"local": [[50.0, 60.0]], "fedavg": [[60.0, 65.0]], "mh": [[60.001, 65.001]]})).page
    assert page.locator("table.summary tr.best button.name").all_inner_texts() == ["mh", "fedavg"]


def test_what_is_infinite_with_some_seeds_is_never_the_best(show: Open) -> None:
    inf = float("inf")
    values = {"local": [[1.5, 1.6]] * 3, "fedavg": [[inf, 1.0], [1.0, 1.0], [inf, 1.0]], "mh": [[inf, 0.4]] * 3}
    page = show(study(values, NLL)).page
    shown = {row[0]: (row[1], row[-1]) for row in cells(page, "summary")}
    assert shown == {"local": ("1.550 \N{PLUS-MINUS SIGN} 0.000", "3"), "fedavg": ("∞", "3"), "mh": ("∞", "3")}
    assert page.locator("table.summary tr.best button.name").all_inner_texts() == ["local"]
    page.click("button.head[data-sort=value]")  # the other way round
    assert [row[0] for row in cells(page, "summary")][-1] == "local"
    page.select_option("#against", "mh")
    assert "The reference is infinite here" in page.inner_text("section[data-part=gains]")


def test_intervals_stand_in_one_column(show: Open) -> None:
    """Whatever stands beside them: the marks of no difference make one vertical line."""
    page = show(STUDIES["many"]).page
    assert len({len(row[2]) for row in cells(page, "summary")}) > 2
    left = "glyphs => glyphs.map(glyph => Math.round(glyph.getBoundingClientRect().left))"
    assert len(set(page.eval_on_selector_all("table.summary tbody .glyph", left))) == 1


def test_names_are_text(show: Open) -> None:
    records = made(("local", f"mh {EVIL}"), 2, names=("a", EVIL, "c"), task=EVIL)
    page = show(records).page
    assert EVIL in page.inner_text("h1")
    place = next(k for k, name in enumerate(page.locator("#follow option").all_inner_texts()) if "script" in name)
    page.select_option("#follow", str(place - 1))
    page.locator("circle.client.followed").first.hover()
    assert "<script>" in page.inner_text("section[data-part=gains] .tip")
    assert page.locator("main script, main img").count() == 0


def test_old_records_lack_what_they_lack(show: Open) -> None:
    page = show(STUDIES["old"]).page
    assert page.locator("section[data-part=holdings]").is_hidden()
    assert "gradients" not in " ".join(cells(page, "summary", "thead tr")[0])
    assert "These records do not hold what a round costs" in page.inner_text("section[data-part=about]")
    assert page.locator("#cost option").all_inner_texts() == ["seconds of the run"]


def test_methods_of_one_name_are_switched_one_by_one(show: Open) -> None:
    records = made(("local", "mh", "mh lam=30"), 1)
    for run in records:
        run.config["changed"] = {"lam": 30.0} if run.variant == "mh" else {}
    page = show(records).page
    chips, curves = page.locator(".chip"), page.locator("section[data-part=curves] path.curve")
    assert chips.nth(1).inner_text() == chips.nth(2).inner_text() == "mh lam=30"
    chips.nth(1).click()
    assert [chips.nth(k).get_attribute("aria-pressed") for k in range(3)] == ["true", "false", "true"]
    assert curves.count() == 2
