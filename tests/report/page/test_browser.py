"""The page as readers use it, in Chromium: by mouse, on a phone, in the dark, on paper, and without a script."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from fedprior.analysis.compare import compare
from fedprior.report.page.gather import gather
from fedprior.report.page.sentences import number_text, sentences
from fedprior.report.page.view import Choice
from report.page.conftest import Open
from report.page.made import made

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
STUDY = made(("local", "fedavg", "mh", "ditto"), pooled=True)
UNEQUAL = {"local": [0, 1, 2], "fedavg": [0], "mh": [1, 2]}
STUDIES = {
    "usual": STUDY,
    "one seed": made(seeds=1),
    "unequal seeds": made(tuple(UNEQUAL), UNEQUAL),
    "one method": made(("mh",), seeds=2),
    "many": made([f"a method with a long name {k}" for k in range(25)], 2, gap=0.5, names=tuple(range(40))),
    "names": made(("local", "x" * 90, "fedavg " + "word " * 12), 2, names=("y" * 70, "b", "c"), task="t" * 120),
    "tasks": [*made(task="one"), *made(task="two"), *made(task="three", seeds=1)],
    "old": made(seeds=1, labels=False, cost=None),
}


# Choose by the controls of the bar, and read the sentences and the table's differences.
CHOOSE = """choice => {
  for (const [name, value] of Object.entries(choice)) {
    const select = document.getElementById(name);
    select.value = value;
    select.dispatchEvent(new Event("change"));
  }
  const said = [...document.querySelectorAll("section[data-part=sentences] p.said")].map((p) => p.innerText);
  const rows = [...document.querySelectorAll("table.summary tbody tr")];
  const name = (row) => row.querySelector("button.name").innerText;
  return [said, Object.fromEntries(rows.map((row) => [name(row), row.querySelector(".of-apart").innerText.trim()]))];
}"""


# Identifiers that several elements have.
TWICE = """() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return ids.filter((id, k) => ids.indexOf(id) !== k); }"""


def cells(page: Any, kind: str, row: str = "tbody tr") -> list[list[str]]:
    """The text of a table's cells."""
    script = "rows => rows.map(row => [...row.children].map(cell => cell.innerText.replace(/\\s+/g, ' ').trim()))"
    found: list[list[str]] = page.eval_on_selector_all(f"table.{kind} {row}", script)
    return found


def column(page: Any, name: str) -> list[str]:
    heads = [head.rstrip(" \u25b4\u25be") for head in cells(page, "summary", "thead tr")[0]]
    return [row[heads.index(name)] for row in cells(page, "summary")]


def test_it_says_at_every_choice_what_compare_says(show: Open) -> None:
    page = show(STUDY).page
    (task,) = gather(STUDY).tasks
    choices = [
        Choice(*key[:2], "own", average, key[2], against)
        for key, average, against in itertools.product(task.blocks, ("weighted", "mean"), task.methods)
    ]
    for choice in choices:
        heard, shown = page.evaluate(CHOOSE, {k: v for k, v in choice._asdict().items() if k != "data"})
        assert heard == [sentence.text for sentence in sentences(task.view(choice), task.names)]
        if choice.average == "mean":
            oracle = compare(
                STUDY, against=choice.against, model=choice.model, choice=choice.round, metric=choice.metric
            )
            for variant, entry in oracle.variants.items():
                i = None if entry.difference is None else entry.difference.mean
                if i is not None and i.low is not None and i.high is not None:
                    mean, low, high = (number_text(x, oracle.metric, "+") for x in (i.mean, i.low, i.high))
                    assert shown[variant] == f"{mean} [{low}, {high}]"
    assert len(choices) == len(task.blocks) * 2 * 4


def test_pooled_samples_have_one_average(show: Open) -> None:
    page = show(STUDY).page
    before = column(page, "accuracy")
    page.select_option("#data", "pooled")
    assert column(page, "accuracy") != before
    assert page.locator("#average option[disabled]").count() == 2
    assert column(page, "method")[0]
    for own in ("better / equal / worse", "worst tenth"):
        assert own not in " ".join(cells(page, "summary", "thead tr")[0])
    page.select_option("#round", "best")  # which pooled samples do not have: own ones are shown again
    assert page.input_value("#data") == "own"


def test_sorting(show: Open) -> None:
    page = show(STUDY).page
    values = [float(text.split()[0]) for text in column(page, "accuracy")]
    assert values == sorted(values, reverse=True)
    page.click("button.head[data-sort=value]")
    assert [float(text.split()[0]) for text in column(page, "accuracy")] == sorted(values)
    assert page.get_attribute("th.of-value", "aria-sort") == "ascending"
    page.click("button.head[data-sort=value]")
    assert page.get_attribute("th.of-value", "aria-sort") == "descending"
    page.click("button.head[data-sort=gradients]")
    assert page.get_attribute("th.of-gradients", "aria-sort") == "ascending"
    page.click("button.head[data-sort=method]")
    assert column(page, "method") == ["local", "fedavg", "mh", "ditto"]
    assert page.evaluate("document.activeElement.dataset.sort") == "method"


def test_curves_are_switched_zoomed_and_read(show: Open) -> None:
    page = show(STUDY).page
    curves = page.locator("section[data-part=curves] path.curve")
    assert curves.count() == 4
    assert page.locator("path.curve.reference").count() == 1
    page.click("button.chip:has-text('fedavg')")
    assert curves.count() == 3
    assert page.get_attribute("button.chip:has-text('fedavg')", "aria-pressed") == "false"
    page.click("button:has-text('none but the reference')")
    assert curves.count() == 1
    page.click("button.plain:text-is('all')")
    assert curves.count() == 4
    before = curves.first.get_attribute("d")
    page.click("#zoom")
    assert curves.first.get_attribute("d") != before
    page.select_option("#along", "gradients")
    assert "gradients of the federation" in page.text_content("section[data-part=curves] svg.chart")
    page.select_option("#along", "rounds")
    stage = page.locator(".stage")
    box = stage.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
    tip = page.locator("section[data-part=curves] .tip")
    assert re.match(r"round \d+\n", tip.inner_text())
    assert tip.inner_text().count("\n") == 4
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_curves_that_end_before_others_and_those_that_cost_nothing(show: Open) -> None:
    runs = [*made(("local",), 2), *made(("mh",), 2, rounds=7)]
    for run in runs:
        if run.variant == "local":
            run.config["cost"] = {**run.config["cost"], "down": 0.0, "up": 0.0}
    page = show(runs).page
    page.focus(".stage")
    page.keyboard.press("End")
    tip = page.locator("section[data-part=curves] .tip")
    assert re.fullmatch(r"round 12\n[\d.]+  local\n[\d.]+  mh \(ended at round 7\)", tip.inner_text())
    assert re.fullmatch(r"round 12: local [\d.]+, mh [\d.]+ \(ended at round 7\)", page.text_content("#told"))
    page.select_option("#along", "megabytes")
    stroke = page.locator("section[data-part=curves] path.curve.reference")
    assert stroke.evaluate("path => [path.getBBox().width > 400, path.getBBox().height]") == [True, 0]
    page.select_option("#along", "rounds")
    assert page.locator("path.leader").count() == 2
    assert page.locator("path.leader.far").get_attribute("data-method") == "1"  # from its end to its name


def test_names_at_the_ends_of_curves_do_not_overlap(show: Open) -> None:
    for study in ("usual", "many"):
        page = show(STUDIES[study]).page
        boxes = page.eval_on_selector_all(
            "section[data-part=curves] text[data-method]",
            "all => all.map(e => e.getBBox()).map(b => [b.y, b.y + b.height])",
        )
        assert len(boxes) >= 4
        ordered = sorted(boxes)
        assert all(after[0] >= before[1] - 4 for before, after in itertools.pairwise(ordered))


def test_one_client_is_found_everywhere(show: Open) -> None:
    page = show(STUDY).page
    page.locator("circle.client[data-client='3']").first.hover()
    tip = page.locator("section[data-part=gains] .tip")
    assert tip.inner_text().startswith("client 3, ")
    for part, count in (("gains", 3), ("slope", 1), ("holdings", 1)):
        assert page.locator(f"section[data-part={part}] .followed[data-client='3']").count() == count
    page.mouse.move(5, 5)
    assert page.locator(".followed").count() == 0
    page.select_option("#follow", "5")
    assert page.locator("section[data-part=gains] .followed").count() == 3
    assert "client 5" in cells(page, "summary", "thead tr")[0]
    assert page.locator("table.worst tr.followed").count() == 1
    assert "client=5" in page.url
    page.select_option("#metric", "nll")  # it is still followed
    assert page.locator("section[data-part=slope] .followed").count() == 1
    again = show(STUDY, fragment="#" + page.url.partition("#")[2]).page
    assert again.input_value("#metric") == "nll"
    assert again.input_value("#follow") == "5"
    page.locator("section[data-part=holdings] .column[data-client='2'] rect").first.click()
    assert page.input_value("#follow") == "2"


def test_a_method_is_chosen_and_its_worst_clients_are_shown(show: Open) -> None:
    page = show(STUDY).page
    page.click("button.name:has-text('fedavg')")
    assert page.input_value("#slope-method") == "1"
    assert "fedavg" in cells(page, "worst", "thead tr")[0]
    entry = compare(STUDY).variants["fedavg"]
    worst = sorted(range(8), key=lambda c: entry.per_client[c])
    assert [row[0] for row in cells(page, "worst")] == [str(c) for c in worst]
    assert entry.wilson is not None
    low, high = entry.wilson[worst[0]]
    assert cells(page, "worst")[0][-1] == f"{low:.0f}\N{EN DASH}{high:.0f}"


def test_a_click_among_the_worst_clients_follows_one_and_another_click_leaves_it(show: Open) -> None:
    page = show(STUDY).page
    row = page.locator("table.worst tbody tr").first
    client = row.get_attribute("data-client")
    for redrawn in (False, True):
        if redrawn:  # by whatever else is chosen
            page.click("button.chip:has-text('fedavg')")
            page.select_option("#metric", "nll")
            page.select_option("#metric", "accuracy")
        for act in (
            row.locator("td").first.click,
            row.locator("button.name").click,
            lambda: (row.locator("button.name").focus(), page.keyboard.press("Enter")),
            lambda: (row.locator("button.name").focus(), page.keyboard.press("Space")),
        ):
            for followed in (client, ""):
                act()
                assert page.input_value("#follow") == followed
                assert row.locator("button.name").get_attribute("aria-pressed") == str(followed == client).lower()


def test_what_is_told_of_a_row_does_not_hide_it(show: Open) -> None:
    page = show(STUDY).page
    rows = page.locator("table.worst tbody tr")
    for k in (0, 4):
        rows.nth(k).hover()
        row, tip = rows.nth(k).bounding_box(), page.locator("section[data-part=worst] .tip").bounding_box()
        assert row["y"] + row["height"] < tip["y"] < row["y"] + row["height"] + 10


def test_costs_have_a_frontier(show: Open) -> None:
    page = show(STUDY).page
    assert page.locator("section[data-part=cost] .frontier").count() == 1
    label = page.get_attribute("section[data-part=cost] svg", "aria-label")
    assert "Best for the cost: ditto." in label  # all cost the same
    page.select_option("#cost", "seconds")
    assert "seconds of the run" in page.get_attribute("section[data-part=cost] svg", "aria-label")


def test_everything_can_be_read_as_a_table(show: Open) -> None:
    page = show(STUDY).page
    for name, rows in (("curve-table", 12), ("gain-table", 8), ("held-table", 8)):
        page.click(f"details[data-fold={name}] > summary")
        page.wait_for_selector(f"details[data-fold={name}] tbody tr")
        assert page.locator(f"details[data-fold={name}] tbody tr").count() == rows
    page.select_option("#metric", "nll")
    page.wait_for_selector("details[data-fold=curve-table] tbody tr")
    assert page.locator("details[data-fold=curve-table][open] tbody tr").count() == 12


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(show: Open, study: str, scheme: str) -> None:
    for script in (True, False):
        page = show(STUDIES[study], color_scheme=scheme, java_script_enabled=script, **PHONE).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        if script:
            page.locator("details[data-fold]").evaluate_all("all => all.forEach(each => each.open = true)")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_follows_the_system_and_the_button(show: Open) -> None:
    page = show(STUDY, color_scheme="dark").page
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 28)"
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.get_attribute("#theme", "aria-pressed") == "false"
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(20, 23, 28)"


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_motion_is_left_out_on_request(show: Open, motion: str) -> None:
    page = show(STUDY, reduced_motion=motion).page
    took = page.evaluate("getComputedStyle(document.querySelector('circle.client')).transitionDuration")
    assert (took == "0s") == (motion == "reduce")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_on_a4_as_vectors(show: Open, scheme: str) -> None:
    page = show(STUDY, color_scheme=scheme).page
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    assert b"/Subtype /Image" not in pdf  # nothing was turned into pixels
    sizes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([\d. ]+)\]", pdf)}
    assert all(size[2:] == pytest.approx((595, 842), abs=1) for size in sizes)
    assert 2 <= pdf.count(b"/Type /Page\n") <= 8
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#bar").is_hidden()


def test_one_seed_has_no_interval_and_says_so(show: Open) -> None:
    page = show(STUDIES["one seed"]).page
    assert "With one seed there are no intervals" in page.inner_text("section[data-part=sentences]")
    assert not any("[" in text for text in column(page, "minus local"))
    assert page.locator("path.band").count() == 0
    assert page.locator("table.summary line.range").count() == 0
    for part in ("gains", "cost", "curves"):
        words = page.inner_text(f"section[data-part={part}]")
        assert "interval" not in words
        assert "deviation" not in words
    assert page.locator("line.mean").count() == 0


def test_unequal_seeds(show: Open) -> None:
    page = show(STUDIES["unequal seeds"]).page
    assert "Seeds differ (" in page.inner_text("section[data-part=sentences]")
    assert dict(zip(column(page, "method"), column(page, "seeds"), strict=True)) == {
        "local": "3",
        "fedavg": "1",
        "mh": "2",
    }


def test_several_tasks(show: Open) -> None:
    page = show(STUDIES["tasks"]).page
    assert page.locator("table.overview tbody tr").count() == 3
    assert page.locator("article.task").filter(visible=True).count() == 1
    page.click("table.overview button.head:has-text('two')")
    assert page.locator("article.task").filter(visible=True).get_attribute("data-task") == "1"
    assert page.input_value("#task") == "1"
    first = cells(page, "overview")
    page.select_option("#average", "mean")
    assert cells(page, "overview") != first
    page.select_option("#average", "weighted")
    assert cells(page, "overview")[0][3] != "\N{EN DASH}"
    page.select_option("#task", "2")  # of one seed
    assert page.evaluate(TWICE) == []
    assert "With one seed" in page.inner_text("article:not([hidden]) section[data-part=sentences]")


@pytest.mark.parametrize("study", STUDIES)
def test_without_a_script(show: Open, study: str) -> None:
    page = show(STUDIES[study], java_script_enabled=False).page
    assert page.locator("#bar").is_hidden()
    assert page.locator("table.summary").count() == len(gather(STUDIES[study]).tasks)
    assert page.locator("p.said").count() > 0
    pictures = page.locator("svg.chart")
    assert pictures.count() >= 1
    for k in range(pictures.count()):
        assert pictures.nth(k).bounding_box()["height"] > 40
    assert page.locator("section").filter(visible=True).count() >= 5
