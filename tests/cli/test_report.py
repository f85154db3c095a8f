"""fedprior report: one page of runs that are already there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from program import Outcome, contents, fedprior, refused

from fedprior.records.schema import ACCURACY
from fedprior.report.page.page import unpacked
from fedprior.report.page.sentences import number_text

pytestmark = pytest.mark.xdist_group("cli")  # one worker makes the comparison that all of them look at

OLD = Path(__file__).parents[1] / "fixtures" / "format1" / "digits-mclr"


def test_the_page_of_real_runs_says_what_compare_says(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, _ = compared
    before, path = contents(runs), tmp_path / "new" / "report.html"
    outcome = fedprior("report", runs, "-o", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"report: {path.as_uri()}\n"
    text = path.read_text()
    comparison = json.loads(fedprior("compare", runs, "--json").out)
    for variant, entry in comparison["variants"].items():
        if (d := entry["difference"]) is not None:
            mean, low, high = (number_text(d["weighted"][key], ACCURACY, "+") for key in ("mean", "low", "high"))
            assert f"{mean} [{low}, {high}]" in text, variant
            assert f"{d['wins']} / {d['ties']} / {d['losses']}" in text
    assert "fedprior run digits-mclr -m fedavg -m mh --rounds 12" in text  # the command
    payload = unpacked(re.search(r'id="payload">([^<]*)<', text)[1])  # type: ignore[index]
    (task,) = payload["tasks"]
    assert len(task["holdings"]["clients"]) == 20
    assert contents(runs) == before
    assert path.stat().st_size < 400_000


def test_rows_title_and_confidential_labels(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, _ = compared
    path = tmp_path / "r.html"
    assert fedprior("report", runs, "-o", path, "--rows", "mh,local", "--title", "For <us>", "--no-partition").code == 0
    text = path.read_text()
    assert "<title>For &lt;us&gt;</title>" in text
    payload = unpacked(re.search(r'id="payload">([^<]*)<', text)[1])  # type: ignore[index]
    assert [method["id"] for method in payload["tasks"][0]["methods"]] == ["mh", "local"]
    assert payload["tasks"][0]["holdings"] is None


def test_what_cannot_be_reported_is_one_line_and_no_page(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, _ = compared
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out.html"
    refused(fedprior("report", tmp_path / "empty", "-o", out), "no runs at or below")
    refused(fedprior("report", tmp_path / "nowhere", "-o", out), "no runs at or below")
    damaged = shutil.copytree(runs / "mh", tmp_path / "damaged" / "digits-mclr" / "mh")
    table = damaged / "0" / "metrics.csv"
    table.write_text(table.read_text().replace(",personal,", ",persona1,", 1))
    refused(fedprior("report", tmp_path / "damaged", "-o", out), "metrics.csv, line ", ": its checksum is wrong; ")
    newer = shutil.copytree(runs / "mh", tmp_path / "newer" / "mh")
    config = json.loads((newer / "1" / "config.json").read_text())
    (newer / "1" / "config.json").write_text(json.dumps({**config, "format": 3}))
    refused(fedprior("report", tmp_path / "newer", "-o", out), "is of format 3, which a newer fedprior wrote")
    refused(fedprior("report", runs, runs, "-o", out), "two runs of digits-mclr", "folders that do not overlap")
    refused(fedprior("report", runs, "--rows", "mhh", "-o", out), "unknown row 'mhh'")
    assert not out.exists()
    refused(fedprior("report", runs, "-o", tmp_path), f"cannot write {tmp_path}", "choose a folder")
    refused(
        fedprior("report", runs, "-o", "/proc/nowhere/r.html"), "cannot write /proc/nowhere/r.html", "choose a folder"
    )
    assert not list(tmp_path.glob("*.tmp"))


def test_records_of_both_formats_share_a_page(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, _ = compared
    path = tmp_path / "r.html"
    outcome = fedprior("report", runs, OLD, "-o", path)
    assert outcome.code == 0
    assert "are not of one experiment" in outcome.err
    text = path.read_text()
    assert "<h1>3 tasks</h1>" in text  # the same task, with other clients and samples
    assert "These records do not hold how much is sent, which is left out." in text
