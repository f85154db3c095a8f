"""The page as a file: complete without a script, safe whatever names records hold, and written whole or not at all."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import evaluated, record, rows, written_below

from fedprior.errors import FedpriorError
from fedprior.records.schema import ClientId, LabelCounts, MetricInfo, RunRecord, Status
from fedprior.report.page.encode import encoded
from fedprior.report.page.gather import gather, thinned
from fedprior.report.page.holdings import holdings_of
from fedprior.report.page.page import page, unpacked, write_report
from report.page.made import made

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Parsed(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def payload_of(text: str) -> Any:
    found = re.search(r'id="payload">([^<]*)<', text)
    assert found is not None
    return unpacked(found[1])


def test_without_a_script_there_are_sentences_tables_and_pictures() -> None:
    text = page(gather(made()))
    parsed = Parsed(text)
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    for heading in ("What the numbers say", "Summary", "Learning curves", "Who gains, who loses", "Worst clients",
                    "Who holds what", "What it costs", "Settings and provenance"):  # fmt: skip
        assert f">{heading}</h2>" in body
    assert body.count('class="chart"') == 4
    assert all(attributes.get("aria-label") for attributes in parsed.of("svg") if attributes.get("role") == "img")
    assert "has the highest accuracy" in body
    assert "fedprior run toy -m mh" in body  # the command that made a run
    (task,) = gather(made()).tasks
    for line in task.view(task.usual).lines:
        assert line.number is not None
        assert f"{line.number['mean']:.2f}" in body
    assert len(parsed.of("h1")) == 1


def test_the_page_asks_nobody_for_anything() -> None:
    text = page(gather(made()))
    parsed = Parsed(text)
    (policy,) = [a["content"] for a in parsed.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy
    assert "unsafe" not in policy
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    for tag, attributes in parsed.tags:
        assert tag not in ("link", "img", "iframe", "object", "form")
        assert "style" not in attributes  # the policy would ignore it
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "connect-src 'self'" in page(gather(made()), live="1")


def test_names_are_data() -> None:
    records = made(("local", f"mh {EVIL}"), names=("a", EVIL, "c"), task=EVIL, seeds=2)
    text = page(gather(records))
    parsed = Parsed(text)
    assert EVIL not in text
    assert "<img" not in text
    assert len(parsed.of("script")) == 2  # the numbers and the script
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    (task,) = payload_of(text)["tasks"]
    assert task["clients"][1] == EVIL or EVIL in task["clients"]
    assert EVIL in "".join(parsed.text)  # as text


def test_control_characters_of_a_name_are_shown_and_not_obeyed() -> None:
    text = page(gather(made(("local", "mh \u202eevil\x07"), seeds=1)))
    assert "\u202e" not in text
    assert r"mh \u202eevil\x07" in text


def test_label_counts_are_left_out_on_request_and_where_they_do_not_fit() -> None:
    shown, hidden = page(gather(made())), page(gather(made(), partition=False))
    assert "Who holds what" in shown
    assert payload_of(shown)["tasks"][0]["holdings"]["classes"] == ["a", "b", "c", "d"]
    assert '<section data-part="holdings" aria-labelledby="holdings-0" hidden="">' in hidden
    assert 'class="held"' not in hidden
    assert payload_of(hidden)["tasks"][0]["holdings"] is None
    runs = made(("local",), seeds=2)
    samples: dict[ClientId, int] = dict.fromkeys(range(8), 1)
    assert holdings_of(runs, samples)[0] is None
    found, why = holdings_of(runs, samples)
    assert why is not None
    assert "do not fit its results (client 0 has" in why
    other = LabelCounts(("a",), {0: {"test": [1]}})
    odd = RunRecord(**{**vars(runs[1]), "read_labels": lambda: other})
    found, why = holdings_of([runs[0], odd], samples)
    assert found is None
    assert why == "The label counts of runs/local/0 and runs/local/1 differ, so that who holds what is left out."


def test_what_old_records_lack_is_left_out_by_name() -> None:
    folder = Path(__file__).parents[2] / "fixtures" / "format1" / "digits-mclr"
    from fedprior.analysis.grouping import read

    gathered = gather(read([folder]))
    text = page(gathered)
    assert len(gathered.tasks) == 2  # of two experiments
    for words in ("how much is sent", "the commands that made them", "label counts"):
        assert f"These records do not hold {words}" in text
    assert "Methods and tasks" in text
    assert "fedavg/0 is not finished; its last evaluation is reported" in text
    new = made(seeds=1)
    bare = [r for r in made(seeds=1, labels=False, cost=None) if r.variant == "mh"]
    (task,) = gather([*(r for r in new if r.variant != "mh"), *bare]).tasks
    assert "The records of mh do not hold what a round costs, which is left out." in task.lacks


def test_several_tasks_begin_with_all_of_them() -> None:
    text = page(gather([*made(task="one"), *made(task="two", gap=1.0)]))
    assert "<h1>2 tasks</h1>" in text
    assert text.index("Methods and tasks") < text.index("What the numbers say")
    assert '<a href="#task-1">two</a>' in text


def test_what_a_run_at_work_has_spent_is_of_the_rounds_that_it_has_done() -> None:
    (done,) = made(("mh",), 1, rounds=6)
    at_work = dataclasses.replace(done, status=Status.RUNNING, round=0)  # the status is as of its last change
    spent, so_far = (gather([each]).tasks[0].methods["mh"].spent for each in (done, at_work))
    assert spent.megabytes == pytest.approx(6 * 4e-6 * 1000 * (1.0 * 4 + 0.5 * 3))
    assert so_far == spent


def test_a_value_that_is_no_share_has_no_interval_of_one() -> None:
    distance = MetricInfo("distance", "", "lower")
    values = evaluated([{"distance": [500.0, 600.0]}], samples=[30, 40], metrics=[distance])
    text = page(gather([record("mh", 0, *values, metrics=[distance], protocol={"rounds": 1})]))
    assert "600.000</td>" in text
    assert "Wilson)" not in text


def test_a_large_study_is_thinned_and_has_every_method() -> None:
    records = made([f"m{k}" for k in range(25)], 1, rounds=120, gap=1.0, names=(0, 1, 2))
    (task,) = gather(records).tasks
    curve = task.curves["accuracy", "personal", "weighted"]["m3"]
    assert len(curve.rounds) == 101
    assert (curve.rounds[0], curve.rounds[-1]) == (1, 120)
    methods = encoded(task)["methods"]
    assert len(methods) == 25
    assert sorted(m["colour"] for m in methods if m["colour"] is not None) == [*range(8)]
    best = max(methods, key=lambda m: int(m["id"][1:]))
    assert best["colour"] is not None
    assert thinned([1, 2, 3]) == [1, 2, 3]


def test_numbers_that_are_none_do_not_break_a_page() -> None:
    broken = rows({1: float("inf"), 2: float("nan")}, metric="nll")
    text = page(gather([*made(("local",), 1), record("mh", 0, [*rows({1: 50.0, 2: 60.0}), *broken], clients=8)]))
    assert json.dumps(payload_of(text)["tasks"][0]["arrays"], allow_nan=False)


@pytest.mark.parametrize("records", [[], [record("mh", 0, [])]])
def test_nothing_to_show_is_an_error(records: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="nothing to show: no run has been evaluated"):
        write_report(records, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("the old one")
    monkeypatch.setattr("fedprior.files.os.replace", _refuse)
    with pytest.raises(FedpriorError, match=r"cannot write .*report.html: No space left"):
        write_report(made(seeds=1), path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "the old one"


def _refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_clients_that_do_not_fit_are_refused() -> None:
    records = made(("local",), 1)
    odd = made(("mh",), 1)[0]
    odd.clients.samples[0] += 1  # type: ignore[attr-defined]
    with pytest.raises(FedpriorError, match=r"client 0 of toy has \d+ test samples in some runs"):
        gather([*records, odd])


def test_sweeps_are_shown_by_validation(tmp_path: Path) -> None:
    cells = []
    for lam, end in ((1.0, 60.0), (15.0, 80.0)):
        made_rows = rows({1: 40.0, 2: end}, data="validation")
        cells.append(
            record(f"mh lam={lam:g}", 0, made_rows, where=f"/x/toy/sweep/mh/{lam:g}/0", numbers_as_data=["lam"])
        )
    (swept,) = gather(cells).sweeps
    assert [tried.name for tried in swept.tried] == ["mh lam=15", "mh lam=1"]
    assert swept.tried[0].validation == {"mean": 80.0, "std": None, "seeds": [0]}
    assert "Sweep of mh on toy" in page(gather(cells))


def test_the_library_writes_it_too(tmp_path: Path) -> None:
    from fedprior.study.results import Results

    for each in made(seeds=1, rounds=2):
        written_below(tmp_path / "runs", each)
    path = Results.read(tmp_path / "runs").report(tmp_path / "deep" / "report.html", title="Ours & theirs")
    assert "<h1>Ours &amp; theirs</h1>" in path.read_text()
