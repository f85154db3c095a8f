"""Tables in text files as they really are: what is read, and what is told by line and column."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pytest

from fedprior.data.columns import Columns, Table
from fedprior.data.csv_file import ROWS_AT_ONCE, read_csv
from fedprior.data.table_file import read_table
from fedprior.errors import FedpriorError

SITE = Columns(named=("site",))


def table(folder: Path, text: str | bytes, wanted: Columns = SITE, name: str = "visits.csv") -> Table:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_table(path, wanted)


def refused(folder: Path, text: str | bytes, wanted: Columns = SITE, name: str = "visits.csv") -> str:
    with pytest.raises(FedpriorError) as error:
        table(folder, text, wanted, name)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "site,age,dose\nA,1,0.5\nB,2,-1e3\n",
        "\ufeffsite,age,dose\r\nA,1,0.5\r\nB,2,-1e3\r\n",  # as Excel writes it
        "site;age;dose\nA;1;0.5\nB;2;-1e3",
        "\n \nsite;age;dose\nA;1;0.5\nB;2;-1e3\n",  # the separator is that of the first line that is not empty
        "\n site , age,dose \n\nA, 1 ,0.5\n , ,\n,,\nB, 2,-1000\n\n",  # spaces and empty lines
        '"site","\nage\n","dose"\n"A","1","0.5"\n"B",2,-1000.0\n',
    ],
)
def test_what_is_read(text: str, tmp_path: Path) -> None:
    read = table(tmp_path, text)
    assert (read.columns, read.others) == (("age", "dose"), {"site": ["A", "B"]})
    assert read.x.dtype == np.float32
    assert read.x.tolist() == [[1.0, 0.5], [2.0, -1000.0]]


def test_packed_files_and_tabs(tmp_path: Path) -> None:
    text = "site\tage\nA,1\t3\n"
    packed = table(tmp_path, gzip.compress(text.encode()), name="visits.tsv.gz")
    assert packed.others == table(tmp_path, text, name="visits.tsv").others == {"site": ["A,1"]}
    for name, content in (("VISITS.TSV", text.encode()), ("VISITS.TSV.GZ", gzip.compress(text.encode()))):
        assert table(tmp_path, content, name=name).others == packed.others
    assert "cannot unpack" in refused(tmp_path, gzip.compress(text.encode())[:-9], name="visits.tsv.gz")
    assert "cannot unpack" in refused(tmp_path, text, name="visits.csv.gz")


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    text = 'site,age\n"two\nlines, and ""quotes""",1\n\nB,x\n'
    assert "'x' in line 5;" in refused(tmp_path, text)
    assert table(tmp_path, text.replace("x", "2")).others["site"][0] == 'two\nlines, and "quotes"'
    many = "site,age\n" + "A,1\n" * (ROWS_AT_ONCE + 5) + "A,\n" + "A,1\n" * 10 + "A,nan\n"
    assert f"2 missing values in column 'age' of visits.csv, the first in line {ROWS_AT_ONCE + 7};" in refused(
        tmp_path, many
    )


@pytest.mark.parametrize("word", ["", "NA", "nan", "NULL", " n/a "])
def test_missing_values(word: str, tmp_path: Path) -> None:
    message = refused(tmp_path, f"site,age,dose\nA,1,{word}\nA,1,2\nA,1,{word}\n")
    assert message == (
        "2 missing values in column 'dose' of visits.csv, the first in line 2; "
        "remove these rows, fill them in, or list it under data.ignore"
    )


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["ICU", "", "3"],
            "column 'age' of visits.csv holds text ('ICU' in line 2; 1 such entry); encode it as numbers, or",
        ),
        (
            ["1.5", "1,5", "2,5"],
            "has '1,5' in line 3, which is no number as it is written (2 such entries); write 1234.5",
        ),
        (["1", "1,234,567.5", "2"], "has '1,234,567.5' in line 3"),
        (["1", "1 234", "2"], "has '1 234' in line 3, which is no number as it is written"),
        (["1_000", "2", "3"], "has '1_000' in line 2, which is no number as it is written"),
        (["1", "inf", "2"], "has 'inf' in line 3, which is infinite or too large"),
        (["1", "1e39", "2"], "has '1e39' in line 3, which is infinite or too large"),
        (["12.03.2024", "2", "2"], "has '12.03.2024' in line 2, which is no number as it is written"),
    ],
)
def test_what_is_no_number(cells: list[str], message: str, tmp_path: Path) -> None:
    text = "site,age\n" + "".join(f'A,"{cell}"\n' for cell in cells)
    assert message in refused(tmp_path, text)


def test_further_columns_that_hold_no_numbers_are_named(tmp_path: Path) -> None:
    message = refused(tmp_path, "site,age,ward,sex\nA,,ICU,f\n")
    assert message.startswith("1 missing value in column 'age' of visits.csv, the first in line 2; ")
    assert message.endswith("(and see to columns 'ward', 'sex')")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "visits.csv is empty; its first line must name the columns"),
        ("\n\n", "visits.csv is empty"),
        ("site,age\n", "visits.csv names 2 columns and has no rows below them"),
        ("site,age\nA,1\nB\n", "line 3 of visits.csv has 1 entries where the first line names 2 columns"),
        ("site,age\nA,1\nB,2,3\n", "line 3 of visits.csv has 3 entries"),
        ("sites,age\nA,1\n", "unknown column 'site' of visits.csv (did you mean 'sites'?); valid: age, sites"),
        ("site\nA\n", "no column of visits.csv is left to learn from; it has 'site'"),
        ("site,\x1b[31mage\nA,1\n", "the name of column 2 of visits.csv, '\\x1b[31mage', holds what cannot be printed"),
        ("site,,age\nA,1,2\n", "column 2 of visits.csv has no name; name it in the first line"),
        ("site,age,age\nA,1,2\n", "columns 2 and 3 of visits.csv are all called 'age'; rename them"),
        (
            'site,age\n"A,1\nB,2\n',
            "cannot read visits.csv near line 3 (unexpected end of data); look for a quotation mark",
        ),
        (
            "site,age\nÄ,1\n".encode("latin-1"),
            "visits.csv is not in UTF-8 (byte 0xc4 in line 2; perhaps it is in Latin-1",
        ),
        ("site,age\nA,1\n".encode("utf-16"), "visits.csv is not in UTF-8 (byte 0xff in line 1"),
    ],
)
def test_what_is_no_table(text: str | bytes, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Dose, mg;Age\n1;2\n", ("Dose, mg", "Age")),
        ('"Dose, mg";"Age, years"\n1;2\n', ("Dose, mg", "Age, years")),
        ('"a;b",c\n1,2\n', ("a;b", "c")),
        ("a;b,c,d\n1,2,3\n", ("a;b", "c", "d")),
        ("alone\n1\n", ("alone",)),
    ],
)
def test_names_of_columns_may_hold_what_separates_others(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    assert table(tmp_path, text, Columns()).names == names


def test_no_column_is_two_things(tmp_path: Path) -> None:
    for wanted in (Columns(("a", "y"), ("y",)), Columns(("a", "a")), Columns(("a",), ignore=("a",))):
        with pytest.raises(FedpriorError, match=r"column '[ay]' of visits.csv is asked for twice"):
            table(tmp_path, "a,y\n1,2\n", wanted)


def test_columns_without_a_name_or_of_one_name_can_be_ignored(tmp_path: Path) -> None:
    """As of pandas, which writes its index into a first column without a name."""
    wanted = Columns(named=("site",), ignore=("", "id"))
    read = table(tmp_path, ",id,site,age,id\n0,a,A,1,b\n", wanted)
    assert (read.columns, read.x.tolist()) == (("age",), [[1.0]])


def test_features_come_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    read = table(tmp_path, "a,b,c\n1,2,x\n", Columns(("b", "a")))
    assert read.x.tolist() == [[2.0, 1.0]]
    assert (read.names, read.others) == (("a", "b", "c"), {})


@pytest.mark.slow
def test_a_large_file_takes_seconds_and_little_memory(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "large.csv"
    row = "A," + ",".join(f"{k}.25" for k in range(100)) + "\n"
    path.write_text("site," + ",".join(f"f{k}" for k in range(100)) + "\n" + row * 100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    read = read_csv(path, SITE)
    assert time.process_time() - begun < 20  # 4 seconds, where nothing else runs
    assert read.x.shape == (100_000, 100)
    assert read.x[-1, :3].tolist() == [0.25, 1.25, 2.25]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB; the array itself has 40,000
