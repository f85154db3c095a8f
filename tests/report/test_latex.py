"""Tables for papers: they compile, and the best of each kind stands out."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from analysis.handmade import evaluated, record, rows

from fedprior.analysis.compare import compare
from fedprior.analysis.summary import over_tasks, summarize
from fedprior.report.comparison import comparison_tables
from fedprior.report.layouts import run_table, task_table
from fedprior.report.tables import Column, Table, ranks, render

ACCURACIES = {"local": (90.0, None), "fedavg": (80.0, 80.0), "pfedme": (92.0, 85.0), "mh_a": (92.001, 70.0)}


def tables() -> list[Table]:
    runs = {
        name: {0: record(name, 0, [*rows({1: own}), *(rows({1: common}, "global") if common else [])])}
        for name, (own, common) in ACCURACIES.items()
    }
    results = summarize(runs)
    samples = (20,) * 10
    compared = compare(
        record(name, seed, *evaluated([{"accuracy": [own * (1 - seed / 100) - k for k in range(10)]}], samples))
        for name, (own, _) in ACCURACIES.items()
        for seed in (0, 1)
    )
    return [run_table("a_task & more", results), task_table(over_tasks({"a": results})), *comparison_tables(compared)]


def cells(latex: str, name: str, model: str) -> list[str]:
    line = next(line for line in latex.splitlines() if line.startswith(f"{name} & {model} &"))
    return line.removesuffix(r" \\").split(" & ")


def test_the_best_of_a_kind_is_bold_and_the_second_underlined() -> None:
    latex = render(tables()[0], "latex")
    assert cells(latex, "pfedme", "personal")[2] == r"\textbf{92.00}"
    assert cells(latex, r"mh\_a", "personal")[2] == r"\textbf{92.00}"  # in print they are equal
    assert cells(latex, "local", "personal")[2] == r"\underline{90.00}"
    assert cells(latex, "pfedme", "global")[2] == r"\textbf{85.00}"
    assert cells(latex, "fedavg", "both")[2] == r"\underline{80.00}"  # second among global models
    assert cells(latex, r"mh\_a", "global")[2] == "70.00"
    assert cells(latex, "pfedme", "personal")[-2:] == ["560", "1"]  # what it costs is not ranked
    assert "best in bold, second best underlined" in latex


def test_lower_may_be_better() -> None:
    columns = (Column("m"), Column("k"), Column("loss", "lower"), Column("acc", "higher"))
    body = tuple((name, "x", f"{v:.3f}", f"{v:.3f}") for name, v in (("a", 0.1), ("b", 0.2), ("c", 0.3)))
    values = tuple((None, None, v, v) for v in (0.1, 0.2, 0.3))
    kinds = (frozenset({"x"}),) * 3
    latex = render(Table("t", "", ("m", "k", "l", "a"), body, columns=columns, values=values, kinds=kinds), "latex")
    assert cells(latex, "a", "x")[2:] == [r"\textbf{0.100}", "0.100"]
    assert cells(latex, "b", "x")[2:] == [r"\underline{0.200}", r"\underline{0.200}"]
    assert cells(latex, "c", "x")[2:] == ["0.300", r"\textbf{0.300}"]


def test_a_row_alone_is_not_the_best() -> None:
    alone = summarize({"mh": {0: record("mh", 0, rows({1: 50.0}))}})
    assert r"\textbf" not in render(run_table("t", alone), "latex")


def test_a_comparison_is_marked_too() -> None:
    _, _, differences, spread = tables()
    latex = render(differences, "latex")
    assert r"pfedme & \textbf{+1.99 [+1.86, +2.12]}" in latex
    assert r"local & \underline{reference}" in latex  # of differences, the reference's is 0
    assert r"pfedme & \textbf{87.04" in render(spread, "latex")


def test_rows_that_equal_the_reference_share_its_rank() -> None:
    of = {"local": (60.0, 70.0), "fedavg": (60.0, 70.0), "mh": (59.999, 70.0), "pfedme": (50.0, 60.0)}
    runs = [record(name, 0, *evaluated([{"accuracy": values}], (10, 10))) for name, values in of.items()]
    differences, _ = comparison_tables(compare(runs))
    latex = render(differences, "latex")
    for name, cell in (("local", "reference"), ("fedavg", "+0.00"), ("mh", "+0.00")):
        assert rf"{name} & \textbf{{{cell}}}" in latex
    assert r"pfedme & \underline{-10.00}" in latex


def test_what_is_no_number_has_no_rank() -> None:
    columns = (Column("m"), Column("k"), Column("acc", "higher"))
    body, values = (("a", "x", "nan"), ("b", "x", "1.00"), ("c", "x", "0.50")), (math.nan, 1.0, 0.5)
    kinds = (frozenset({"x"}),) * 3
    table = Table(
        "t", "", ("m", "k", "a"), body, columns=columns, values=tuple((None, None, v) for v in values), kinds=kinds
    )
    assert ranks(table) == {(1, 2): 1, (2, 2): 2}


def test_structure() -> None:
    """What a compiler would complain about: braces, environments, and cells in a line."""
    latex = render(tables(), "latex")
    assert latex.startswith("% needs \\usepackage{booktabs}\n")
    plain = re.sub(r"\\[{}]", "", latex)
    assert plain.count("{") == plain.count("}")
    for one in latex.split("\n\n")[1:]:
        assert re.findall(r"\\(begin|end)\{(\w+)", one) == [
            *(("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table"))
        ]
        align = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", one)[0]
        lines = [line for line in one.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(align) - 1}
        rules = [line for line in one.splitlines() if line.endswith("rule")]
        assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]
        assert one.count(r"\caption{") == one.count(r"\label{tab:") == 1
    labels = re.findall(r"\\label\{(.*?)\}", latex)
    assert labels[0] == "tab:a-task-more-accuracy"
    assert len(set(labels)) == len(labels)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX here")
def test_it_compiles(tmp_path: Path) -> None:
    body = render(tables(), "latex")
    start = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "t.tex").write_text("\n".join([start, body, r"\end{document}"]))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
