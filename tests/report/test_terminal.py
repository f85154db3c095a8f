"""Tables on terminals of any width: no number is cut, and no name is broken within a word."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from fedprior.report.tables import Column, Table, rich_table
from fedprior.report.terminal import wrapped

NAMES = ("local", "pfedme-released", "mh lam=0.0003 aggregated=50")
NUMBERS = tuple(f"{60 + k}.{k}{k} ± 0.{k}{k}" for k in range(5))
TABLE = Table(
    "a-task: test accuracy in percent, last round",
    "a note of some words about 12345.678 samples",
    ("method", "model", *(f"column {k}" for k in range(5)), "n"),
    tuple((name, model, *NUMBERS, "10") for name in NAMES for model in ("personal", "global")),
)


def shown(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(rich_table(table))
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written.splitlines()


@pytest.mark.parametrize("width", [24, 30, 40, 60, 80, 120, 200])
def test_no_number_is_cut_at_any_width(width: int) -> None:
    lines = shown(TABLE, width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for number in NUMBERS:
        assert text.replace(" ± ", "±").count(number.replace(" ± ", "±")) == 6
    words = {word for name in NAMES for word in name.split()}
    assert words <= set(re.split(r"[\s,]+", text))  # whole, each of them
    assert "12345.678" in text


def test_columns_fold_into_blocks_beside_the_names() -> None:
    lines = [line.split() for line in shown(TABLE, 48)]
    assert [line[2:] for line in lines if line[:1] == ["method"]] == [
        *([f"column {k}" for k in range(5)][k].split() for k in range(4)),
        ["column", "4", "n"],
    ]
    assert sum(line[:1] == ["local"] for line in lines) == 5
    wide = [line for line in shown(TABLE, 120) if line.startswith("method")]
    assert len(wide) == 1


def test_rows_become_blocks_where_nothing_fits_beside_a_name() -> None:
    lines = shown(TABLE, 24)
    begin = lines.index("local, personal")
    assert lines[begin + 1 : begin + 8] == [*(f"  column {k}: {n}" for k, n in _compact()), "  n: 10", ""]
    assert "mh lam=0.0003" in lines  # broken between its words


def _compact() -> list[tuple[int, str]]:
    return [(k, number.replace(" ± ", "±")) for k, number in enumerate(NUMBERS)]


def test_texts_at_the_end_wrap_until_they_cannot_be_read() -> None:
    about = "a remark of many words that says where it comes from"
    table = Table("", "", ("setting", "value", "source"), (("lam", "15", about),), left=1, remarks=2)
    assert [line.split() for line in shown(table, 40)][:2] == [["setting", "value", "source"], ["─" * 40]]
    assert " ".join(" ".join(shown(table, 40)[2:]).split()) == f"lam 15 {about}"
    assert shown(table, 25)[:3] == ["lam", "  value: 15", "  source: a remark of"]
    assert max(map(len, shown(table, 25))) <= 25


def test_a_word_longer_than_a_line_is_broken_behind_a_sign() -> None:
    assert wrapped("mh:lam=0.0003,aggregated=50 and", 14) == ["mh:lam=0.0003,", "aggregated=50", "and"]
    assert wrapped("one two", 20, "  ") == ["one two"]
    assert wrapped("one two three", 8, "  ") == ["one two", "  three"]
    assert wrapped("", 8) == [""]


def test_wide_letters_take_two_columns() -> None:
    rows = (("病院の名前", "93.60 ± 0.26", "91.20 ± 0.11"), ("local", "90.00 ± 0.10", "90.00 ± 0.10"))
    table = Table("", "", ("method", "mean", "worst"), rows, left=1)
    for width in (24, 34, 80):
        lines = shown(table, width)
        assert max(map(cell_len, lines)) <= width
        assert "\n".join(lines).count("±") == 4
        assert "病院の名前" in "\n".join(lines)


def test_a_table_without_names_or_rows() -> None:
    cells = Table("", "", ("lam", "validation", "n", ""), (("15", "96.06 ± 0.56", "3", "chosen"),), left=0, remarks=1)
    assert shown(cells, 40)[2].split() == ["15", "96.06±0.56", "3", "chosen"]
    assert "96.06±0.56" in " ".join(shown(cells, 14))
    assert shown(Table("t", "", ("a", "b", "c"), (), columns=tuple(map(Column, "abc"))), 40)[0] == "t"
