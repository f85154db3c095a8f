"""One small table in every format."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fedprior.errors import FedpriorError
from fedprior.report.tables import FORMATS, Column, Table, render, rich_table

PLAIN = Table(
    "a title",
    "a note",
    ("method", "model", "mean"),
    (("mh", "personal", "93.60 ± 0.26"), ("mh", "global", "7.00"), ("local", "personal", "-")),
)
NASTY = Table(
    "<script>alert('x')</script> & more",
    "5 % of a_b",
    ("method", "a_b & 10%", "#1 $"),
    (("[bold]a_b[/bold] | <b>", r"x\y~z^2 {}", "1.00 ± 0.50"),),
)


def test_text_leaves_out_what_repeats_the_line_above() -> None:
    lines = [line.rstrip() for line in render(PLAIN, "text").splitlines()]
    assert lines[0] == "a title"
    assert lines[1].split() == ["method", "model", "mean"]
    assert [line.split() for line in lines[3:6]] == [
        ["mh", "personal", "93.60±0.26"],
        ["global", "7.00"],
        ["local", "personal", "-"],
    ]
    assert lines[4].index("7.00") + 4 == len(lines[3])  # numbers to the right
    assert lines[6] == "a note"
    two = Table(
        "", "", ("a", "b", "c", "n"), (("x", "y", "1", "5"), ("x", "y", "2", "5"), ("z", "y", "2", "5")), left=3
    )
    assert [line.split() for line in render(two, "text").splitlines()[2:]] == [
        ["x", "y", "1", "5"],
        ["2", "5"],
        ["z", "y", "2", "5"],
    ]


def test_text_takes_nothing_for_markup() -> None:
    text = render(NASTY, "text")
    assert "[bold]a_b[/bold] | <b>" in text
    assert "<script>alert('x')</script> & more" in text
    assert ":warning:" in render(Table("", "", ("a",), ((":warning:",),)), "text")


def test_text_has_no_line_for_what_is_empty_and_lets_remarks_wrap() -> None:
    long = "a remark of many words " * 8
    table = Table("", "", ("lam", "validation", ""), (("15", "90.00", "chosen"), ("1", "diverged", long)), 0, 1)
    lines = render(table, "text").splitlines()
    assert lines[0].split() == ["lam", "validation"]
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[3:]).split()) == f"1 diverged {long.strip()}"


def test_a_table_with_many_numbers_folds_rather_than_be_cut() -> None:
    head = ("method", "model", *(f"task{k}" for k in range(10)))
    table = Table("wide", "", head, (("a-method-with-a-long-name", "personal", *["93.60 ± 0.26"] * 10),))
    text = render(table, "text")
    assert text.count("93.60±0.26") == 10
    assert "a-method-with-a-long-name" in text


def test_markdown() -> None:
    assert render(PLAIN, "markdown").splitlines() == [
        "a title.",
        "",
        "| method | model | mean |",
        "|---|---|---:|",
        "| mh | personal | 93.60 ± 0.26 |",
        "| mh | global | 7.00 |",
        "| local | personal | - |",
        "",
        "a note.",
    ]
    assert r"| \[bold\]a_b\[/bold\] \| \<b\> |" in render(NASTY, "markdown")


def test_latex_escapes_what_means_something_there() -> None:
    lines = render(NASTY, "latex").splitlines()
    assert (
        lines[4]
        == r"\caption{\textless{}script\textgreater{}alert('x')\textless{}/script\textgreater{} \& more; 5 \% of a\_b.}"
    )
    assert lines[9] == r"method & a\_b \& 10\% & \#1 \$ \\"
    assert lines[11] == (
        r"{[}bold]a\_b[/bold] \textbar{} \textless{}b\textgreater{} & "
        r"x\textbackslash{}y\textasciitilde{}z\textasciicircum{}2 \{\} & 1.00 $\pm$ 0.50 \\"
    )


def test_html_is_escaped() -> None:
    html = NASTY._repr_html_()
    assert html == render(NASTY, "html")
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; more" in html
    assert '<td style="text-align: right">1.00 ± 0.50</td>' in html
    tree = ElementTree.fromstring(f"<div>{html}</div>")
    assert [cell.text for cell in tree.iter("th")] == list(NASTY.head)
    assert [cell.text for cell in tree.iter("td")] == list(NASTY.body[0])
    assert [cell.text for cell in tree.iter("p")] == [NASTY.note]


def test_csv_holds_the_numbers_under_one_heading() -> None:
    assert list(csv.reader(io.StringIO(render(NASTY, "csv")))) == [list(NASTY.head), list(NASTY.body[0])]
    one, two = (Table("", "", ("a",), (("x",),), numbers=(("task", "std"), (t, None))) for t in ("one", "two"))
    assert render([one, two], "csv") == "task,std\none,\ntwo,"
    assert render([one, PLAIN], "csv").splitlines()[:3] == ["task,std", "one,", "method,model,mean"]


def test_several_tables_follow_one_another() -> None:
    assert render([PLAIN, PLAIN], "markdown") == "\n\n".join([render(PLAIN, "markdown")] * 2)
    assert render([PLAIN, PLAIN], "text") == "\n\n".join([render(PLAIN, "text")] * 2)
    for format in FORMATS:
        assert render([PLAIN], format) == render(PLAIN, format)
        assert not render(PLAIN, format).endswith("\n")


def test_a_terminal_gets_the_short_words() -> None:
    columns = (Column("m", words={"personal": "p"}), Column("a", about="a: what it is"), Column("b", wide=True))
    table = Table("t", "n", ("method", "a long heading", "more"), (("personal", "1", "2"),), left=1, columns=columns)
    assert [line.split() for line in render(table, "text").splitlines()] == [
        ["t"],
        ["m", "a"],
        ["────"],
        ["p", "1"],
        ["a:", "what", "it", "is;", "n"],
    ]
    assert "a long heading" in render(table, "html")
    assert "personal" in render(table, "html")


def test_columns_are_chosen() -> None:
    columns = (Column("method"), Column("mean"), Column("worst 10%"), Column("more", wide=True))
    table = Table("t", "", ("method", "long mean", "long worst", "more"), (("mh", "1", "2", "3"),), 1, columns=columns)
    few = table.choose(["more", "worst", "method"])
    assert few.head == ("method", "more", "long worst")  # names come first
    assert [line.split() for line in render(few, "text").splitlines()[1:]] == [
        ["method", "more", "worst", "10%"],
        ["───────────────────────"],
        ["mh", "3", "2"],
    ]
    for wrong in ("wrost", "m", ""):
        with pytest.raises(FedpriorError, match=f"unknown column '{wrong}'.* valid: mean, method, more, worst 10%"):
            table.choose([wrong])
    assert PLAIN.choose(["mean"]).body == (("93.60 ± 0.26",), ("7.00",), ("-",))


def test_an_unknown_format() -> None:
    with pytest.raises(FedpriorError, match=r"unknown format 'htm' \(did you mean 'html'\?\); valid: csv, html, latex"):
        render(PLAIN, "htm")


def test_control_characters_reach_no_terminal_and_no_file() -> None:
    """Names come from records, and records may come from elsewhere."""
    nasty = "a\x1b[2J\x9b31m\u202e\ud800\rb\x07"
    table = Table(
        nasty,
        nasty,
        ("row", "n"),
        ((nasty, "1"),),
        left=1,
        columns=(Column(nasty), Column("n")),
        numbers=(("row",), (f"two\nlines{nasty}",)),
    )
    for format in FORMATS:
        text = render(table, format)
        assert not set(nasty) & set(text) - set("a[2J31mb"), format
        assert "\\x1b" in text or "textbackslash{}x1b" in text, format
        text.encode()
    assert '"two\nlines' in render(table, "csv")
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system=None, width=200).print(rich_table(table))
    assert not set(nasty) - {"\x1b"} & set(out.getvalue()) - set("a[2J31mb")
    assert "\x1b[2J" not in out.getvalue()


def test_markup_and_emoji_in_names_are_shown_as_they_are() -> None:
    table = Table(
        "[red]t[/red] :bomb:", "[/nothing] :key:\\", ("[bold]row", "n"), (("[link=x]y[/link]\\", "1"),), left=1
    )
    text = render(table, "text")
    for part in ("[red]t[/red] :bomb:", "[/nothing] :key:\\", "[bold]row", "[link=x]y[/link]\\"):
        assert part in text
    markdown = render(Table("", "", ("n",), (("`a` *b* _c_ d_e [f](g) \\|",),)), "markdown")
    assert r"| \`a\` \*b\* \_c\_ d_e \[f\](g) \\\| |" in markdown
