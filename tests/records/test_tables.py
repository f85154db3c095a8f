"""The tables, line by line: exact numbers, any name of a client, and damage that is noticed."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprior.records.schema import ClientRow, Row, Times
from fedprior.records.tables import TABLES, AnyRow, columns, encode, header, rows_of, scan

METRICS = ["accuracy", "nll", "class_accuracy[0]"]
OLD = Path(__file__).parent.parent / "fixtures" / "format1"
ROWS: dict[str, list[AnyRow]] = {
    "metrics.csv": [
        Row(t, "personal", data, "mean", {"accuracy": 50.0 / t, "nll": 1 / 3})
        for t in (1, 2)
        for data in ("own", "pooled")
    ],
    "clients.csv": [
        ClientRow(t, "global", "own", client, 4, {"nll": 0.1 * t}) for t in (1, 2) for client in (0, 'a,\n"b')
    ],
    "times.csv": [Times(t, 0.25 * t, 1e-6) for t in (1, 2, 3)],
}


def decode(table: str, text: str) -> list[AnyRow]:
    return scan(table, text).rows


def text_of(table: str) -> str:
    return header(table, METRICS) + encode(table, ROWS[table], METRICS)


@pytest.mark.parametrize("rounds", [{1}, {2, 12}, {12}, {3, 20}, {99}, {1, 2, 3, 12, 20}, set()])
def test_the_rows_of_some_rounds(rounds: set[int]) -> None:
    rows = [
        ClientRow(t, model, "own", client, 4, {"nll": 0.1 * t})
        for t in (1, 2, 3, 12, 20)
        for model in ("global", "personal")
        for client in (0, 'a,\n"b', "two\n2,lines")
    ]
    text = header("clients.csv", METRICS) + encode("clients.csv", rows, METRICS)
    assert rows_of(text, rounds) == [row for row in rows if row.round in rounds]


def test_a_name_may_look_like_rows_of_other_rounds() -> None:
    names: list[int | str] = ["x\n2,personal,own,", "y\n1,global,own,z", 7]
    rows = [ClientRow(t, "personal", "own", client, 4, {"nll": 0.1 * t}) for t in (1, 2, 3) for client in names]
    text = header("clients.csv", METRICS) + encode("clients.csv", rows, METRICS)
    for rounds in ({1}, {2}, {3}, {1, 2}, {2, 3}):
        assert rows_of(text, rounds, names) == [row for row in rows if row.round in rounds]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,personal,own,mean,50.0,1.0", "it has 7 entries where the heading names 8"),
        ("1,personal,own,mean,50.0,1.0,,9", "it has 9 entries where the heading names 8"),
        ("one,personal,own,mean,50.0,1.0,", "it holds something else where a number belongs"),
        ("1,personal,own,mean,fifty,1.0,", "it holds something else where a number belongs"),
    ],
)
def test_what_is_wrong_with_a_line_is_told_in_plain_words(line: str, reason: str) -> None:
    text = header("metrics.csv", METRICS) + f"{line},{zlib.crc32(line.encode()):08x}\n"
    assert scan("metrics.csv", text).damage == [(2, reason)]


def test_the_rows_of_some_rounds_without_checksums() -> None:
    """Those of the first format: every row of a round, also of one in the middle, and no more than a whole last one."""
    lines = [f"{t},personal,own,{client},5,50.0,0.5\n" for t in (1, 2, 12) for client in (0, 1, 2)]
    text = "".join(["round,model,data,client,samples,accuracy,loss\n", *lines])
    for rounds in ({1}, {2}, {12}, {1, 12}, {1, 2, 12}):
        assert [(row.round, row.client) for row in rows_of(text, rounds)] == [
            (t, client) for t in sorted(rounds) for client in (0, 1, 2)
        ]
    assert [row.client for row in rows_of(text[:-3], {12})] == [0, 1]


@pytest.mark.parametrize("table", TABLES)
def test_rows_survive(table: str) -> None:
    assert decode(table, text_of(table)) == ROWS[table]
    assert decode(table, header(table, METRICS)) == []
    assert columns(table, METRICS)[0] == "round"


def test_numbers_are_read_with_the_bits_they_were_written_with() -> None:
    values = [*np.random.default_rng(0).normal(size=100).tolist(), 1e-310, 1e300, -0.0, 100.0, 2.0**-52]
    rows = [Row(1, "personal", "own", "mean", {"accuracy": value, "nll": value / 3}) for value in values]
    back = decode("metrics.csv", header("metrics.csv", METRICS) + encode("metrics.csv", rows, METRICS))
    assert [repr(row.values) for row in back if isinstance(row, Row)] == [repr(row.values) for row in rows]


def test_a_metric_that_was_not_measured_is_empty() -> None:
    row = Row(1, "personal", "own", "mean", {"accuracy": 50.0})
    line = encode("metrics.csv", [row], METRICS)
    assert line.startswith("1,personal,own,mean,50.0,,,")
    assert decode("metrics.csv", header("metrics.csv", METRICS) + line) == [row]


@given(st.one_of(st.integers(), st.text()))
def test_any_name_of_a_client_survives(client: int | str) -> None:
    try:
        str(client).encode()
    except UnicodeEncodeError:
        return  # half a character, which no file can hold
    rows = [ClientRow(1, "personal", "own", who, 4, {"accuracy": 0.5}) for who in (client, 0, client)]
    back = decode("clients.csv", header("clients.csv", METRICS) + encode("clients.csv", rows, METRICS))
    assert [str(row.client) for row in back if isinstance(row, ClientRow)] == [str(row.client) for row in rows]


@pytest.mark.parametrize(
    "client", ["a,b", 'say "a"', "two\nlines", "\r", "\r\n", "", "007", " ", "-0", "1.0", "٣", 0, -3, 12]
)
def test_names_and_numbers_stay_what_they_are(client: int | str) -> None:
    row = ClientRow(1, "personal", "own", client, 4, {"accuracy": 0.5})
    (back,) = decode("clients.csv", header("clients.csv", METRICS) + encode("clients.csv", [row], METRICS))
    assert back == row
    assert isinstance(back, ClientRow)
    assert type(back.client) is type(client)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_was_cut_anywhere_keeps_its_whole_records(table: str) -> None:
    text, whole = text_of(table), ROWS[table]
    ends = [len(header(table, METRICS) + encode(table, whole[:k], METRICS)) for k in range(len(whole) + 1)]
    for length in range(len(text)):
        kept = decode(table, text[:length])
        expected = sum(length >= end - 1 for end in ends[1:])  # the line break itself may be missing
        assert kept == whole[:expected], text[:length]
        assert decode(table, text[:length] + "\0" * 7) in (kept, whole[: expected - 1])  # what a crash leaves of a page


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_record_is_cut_and_no_other(table: str) -> None:
    text, whole, start = text_of(table), ROWS[table], len(header(table, METRICS))
    lines = [encode(table, [row], METRICS) for row in whole]
    owner = [k for k, line in enumerate(lines) for _ in line]
    for place in range(start, len(text) - 1):
        hurt = owner[place - start]
        for other in ("#", '"', ",", "0"):
            if text[place] in (other, "\n"):
                continue
            kept = decode(table, text[:place] + other + text[place + 1 :])
            assert whole[hurt] not in kept or whole.count(whole[hurt]) > 1
            # After damage, a record of several lines is not told from its remains; one of a single line always is.
            assert [row for k, row in enumerate(whole) if k != hurt and "\n" not in lines[k][:-1]] == [
                row for row in kept if "\n" not in encode(table, [row], METRICS)[:-1]
            ]


@pytest.mark.parametrize(
    "tail", ["5,perso", "5,personal,own,mean,1", "\0\0\0\0\n", "\n", "junk,a,b,c,d,e,f,g,h\n", '"', "\r\n"]
)
def test_what_is_no_record_is_left_out(tail: str) -> None:
    for table in TABLES:
        assert decode(table, text_of(table) + tail) == ROWS[table]
        assert decode(table, text_of(table) + tail + "\n" + encode(table, ROWS[table][:1], METRICS)) == [
            *ROWS[table],
            ROWS[table][0],
        ]


def test_a_metric_called_loss_is_not_the_loss_of_the_first_format() -> None:
    row, names = (
        Row(1, "personal", "own", "mean", {"accuracy": 50.0, "nll": 0.5, "loss": 7.0}),
        ["accuracy", "nll", "loss"],
    )
    assert decode("metrics.csv", header("metrics.csv", names) + encode("metrics.csv", [row], names)) == [row]


def test_without_its_head_a_table_says_nothing() -> None:
    for table in TABLES:
        assert decode(table, "") == []
        assert decode(table, encode(table, ROWS[table], METRICS)) == []


def test_tables_of_the_first_format_are_read() -> None:
    folder = OLD / "digits-mclr" / "mh" / "0"
    rows = decode("metrics.csv", (folder / "metrics.csv").read_text())
    assert rows[0] == Row(
        *(1, "global", "own", "weighted"), {"accuracy": 14.790996784565916, "nll": 2.2882798614992588}
    )
    clients = decode("clients.csv", (folder / "clients.csv").read_text())
    assert clients[0] == ClientRow(
        1, "global", "own", 0, 90, {"accuracy": 17.77777777777778, "nll": 2.1589057074652778}
    )
    assert [row.round for row in decode("times.csv", (folder / "times.csv").read_text())] == [1, 2]
    text = (folder / "metrics.csv").read_text()
    for tail in ("2,perso", "2,personal,own,mean,1,2", "\0\0\n", "junk,a,b,c,d,e\n", "2,personal,own,mean,1\n"):
        assert decode("metrics.csv", text + tail) == rows
