"""docs/your-data.md, followed from beginning to end as a person would: its files, its commands and its Python."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "your-data.md"


@pytest.mark.slow
def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    said: list[str] = []
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        if language == "toml":
            (tmp_path / "tumours.toml").write_text(code)
            continue
        for words in _commands(language, code):
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (words, done.stderr)
            said.append(done.stdout)
    everything = "\n".join(said)
    assert "St. C" in everything
    for picture in ("tumours.png", "whom-it-helps.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
    with open(tmp_path / "predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 569
    assert {row["prediction"] for row in rows} == {"benign", "malignant"}
    own = [row for row in rows if row["hospital"] == "St. C"]
    right = sum(row["prediction"] == row["diagnosis"] for row in own)
    assert right / len(own) > 0.8
    assert all(abs(float(row["p(benign)"]) + float(row["p(malignant)"]) - 1) < 1e-5 for row in rows)
    assert rows[0]["patient"] == "0000"  # what is no feature stays as it is


def _commands(language: str, code: str) -> list[list[str]]:
    if language == "python":
        return [[sys.executable, "-c", code]]
    program = [sys.executable, "-c", "from fedprior.cli import main; main()"]
    return [program + shlex.split(line)[1:] for line in code.splitlines() if line.strip()]
