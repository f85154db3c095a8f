"""Progress where there is no terminal: lines now and then, so that a log shows life and is not flooded."""

from __future__ import annotations

import io
import json
import shlex
import threading
from pathlib import Path

import pytest
from program import fedprior
from rich.console import Console

from cli.commands import ONE
from fedprior.cli import progress
from fedprior.cli.progress import Lines
from fedprior.records.runs import RunFolder

pytestmark = pytest.mark.xdist_group("cli")


def test_lines_come_by_the_clock_and_not_by_the_round() -> None:
    told, said = list[str](), threading.Event()

    def write(text: str) -> None:
        told.append(text)
        said.set()

    with Lines(write, parts=25, interval=0.01) as lines:
        parts = [lines.add_task(f"row {k}, seed 0", total=200, remark="") for k in range(25)]
        lines.update(parts[0], completed=200, remark="90.00 %")
        lines.update(parts[3], completed=40, remark="93.10 %")
        said.clear()
        assert said.wait(10)  # though nothing moved since
    assert told[-1] == "[0:00:00] row 3, seed 0: 40 of 200, 93.10 %, 1 of 25 done"


def test_within_the_interval_there_is_one_line_at_the_end() -> None:
    told: list[str] = []
    with Lines(told.append, parts=25) as lines:
        for k in range(25):
            part = lines.add_task(f"row {k}", total=3, remark="")
            for t in (1, 2, 3):
                lines.update(part, completed=t, remark="")
    assert told == ["[0:00:00] row 24: 3 of 3, 25 of 25 done"]
    told.clear()
    with Lines(told.append) as lines:
        lines.remove_task(lines.add_task("what failed", total=3, remark=""))
    assert told == []


def test_a_log_shows_life_and_stdout_stays_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    done = fedprior(*ONE, "--json", "--out", tmp_path)
    assert done.code == 0
    json.loads(done.out)
    lines = done.err.splitlines()
    assert len(lines) > 1
    assert all("fedavg, seed 0: " in line for line in lines)
    assert "fedavg, seed 0: 2 of 2" in lines[-1]
    assert "%" in lines[-1]
    monkeypatch.setattr(progress, "INTERVAL", 30.0)
    silent = (*ONE, "--set", "record_labels=false", "--json", "--out", tmp_path / "other")
    assert len(fedprior(*silent).err.splitlines()) == 1

    record, other = (RunFolder(out / "digits-mclr" / "fedavg" / "0").record() for out in (tmp_path, tmp_path / "other"))
    assert [session.command for session in record.provenance or ()] == [
        shlex.join(["fedprior", *ONE, "--json", "--out", str(tmp_path)])
    ]
    about = json.loads(done.out)["results"]["fedavg"]
    assert about["seconds"]["mean"] == record.seconds
    assert about["megabytes_sent"] == 2 * about["round_takes"]["numbers"] * 4 / 1e6
    assert record.label_counts is not None
    assert sum(sum(part) for of in record.label_counts.clients.values() for part in of.values()) == 1797
    assert (other.label_counts, other.config["run"]) == (None, record.config["run"])


def test_on_a_terminal_there_are_bars_whose_names_are_only_names(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=shown, force_terminal=True, width=100, color_system=None))
    with progress.progress(2) as bars:
        part = bars.add_task("[red]a[/red]\x1b]0;x", total=3, remark="")
        bars.update(part, completed=2, remark="[b]93 %\x1b]0;y")
    assert "[red]a[/red]\\x1b]0;x" in shown.getvalue()
    assert "2/3" in shown.getvalue()
    assert "[b]93 %" in shown.getvalue()
    assert "\x1b]0;" not in shown.getvalue()
