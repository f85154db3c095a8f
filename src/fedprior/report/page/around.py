"""What stands around the tasks of a page: methods against tasks, sweeps, and notes on the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.analysis.changes import common_changes
from fedprior.report.page import pictures
from fedprior.report.page.gather import Gathered, TaskNumbers
from fedprior.report.page.look import NONE, element, text
from fedprior.report.page.sentences import number_text
from fedprior.report.page.static import choice_words, section_html, table_html
from fedprior.report.page.sweeps import Swept
from fedprior.report.words import apart_words, counted, format_number, row_name


def overview_html(tasks: Sequence[TaskNumbers]) -> str:
    """Methods in rows and tasks in columns, with the average and the deviation over tasks.

    All numbers are of what the caption says; a task without such has none.
    """
    first = tasks[0].usual
    views = [
        task.view(task.usual) if task.usual[:-1] == first[:-1] else None for task in tasks
    ]  # whatever is the reference
    info = tasks[0].infos[first.metric]
    rows = []
    for variant, name in row_names(tasks).items():
        numbers = [next((line.number for line in view.lines if line.variant == variant), None) if view else None
                   for view in views]  # fmt: skip
        means = [number["mean"] for number in numbers if number is not None]
        whole = len(means) == len(tasks)
        cells = [
            *(format_number(number, info) for number in numbers),
            number_text(float(np.mean(means)), info) if whole else "-",
            number_text(float(np.std(means, ddof=1)), info) if whole else "-",
        ]
        labels = (*(task.name for task in tasks), "average", "deviation over tasks")
        tds = "".join(
            element("td", text(NONE if c == "-" else c.replace("-", "\N{MINUS SIGN}")), data_label=n)
            for n, c in zip(labels, cells, strict=True)
        )
        rows.append(element("tr", element("th", text(name), scope="row") + tds))
    links = [element("th", element("a", text(t.name), href=f"#task-{k}"), scope="col") for k, t in enumerate(tasks)]
    more = [element("th", text(name), scope="col") for name in ("average", "deviation over tasks")]
    table = table_html("".join([element("th", "method", scope="col"), *links, *more]), rows, "overview")
    table = element("div", table, class_="wide", tabindex="0", role="region", aria_label="methods and tasks")
    notes = "".join(element("p", text(note), class_="quiet hint") for note in row_notes(tasks))
    return section_html("overview", "overview", "h2", "Methods and tasks", choice_words(first, info), table + notes)


def row_names(tasks: Sequence[TaskNumbers]) -> dict[str, str]:
    """What a row over tasks is called, by variant: with those settings that it has on all of them."""
    return {variant: row_name(variant, common_changes(by_task)[0]) for variant, by_task in _rows(tasks).items()}


def row_notes(tasks: Sequence[TaskNumbers]) -> list[str]:
    """The settings in which rows differ between tasks."""
    return [
        note
        for variant, by_task in _rows(tasks).items()
        for note in apart_words(variant, common_changes(by_task)[1], list(by_task))
    ]


def _rows(tasks: Sequence[TaskNumbers]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """What each variant is and changes, by task."""
    variants = dict.fromkeys(variant for task in tasks for variant in task.methods)
    return {v: {task.name: task.methods[v].about for task in tasks if v in task.methods} for v in variants}


def sweeps_html(sweeps: Sequence[Swept]) -> str:
    """What sweeps have tried so far."""
    found = []
    for k, sweep in enumerate(sweeps):
        rows = []
        for tried in sweep.tried:
            status = f"{tried.status}, {tried.done} of {tried.rounds} rounds"
            number = NONE if tried.validation is None else format_number(tried.validation)
            cells = element("td", text(number), data_label="on validation") + element("td", _spark(tried.curve))
            cells += element("td", text(status), data_label="status")
            rows.append(element("tr", element("th", text(tried.name), scope="row") + cells))
        heads = "".join(
            element("th", n, scope="col") for n in ("setting", "accuracy on validation, %", "rounds", "status")
        )
        title = f"Sweep of {sweep.method} on {sweep.task}"
        caption = "personal models on own validation samples, weighted, last evaluation; sweeps do not look at the test"
        found.append(section_html(f"sweep-{k}", "sweep", "h2", title, caption, table_html(heads, rows, "sweep")))
    return "".join(found)


def _spark(curve: Sequence[float]) -> str:
    if len(curve) < 2:
        return ""
    low, high = min(curve), max(curve)
    x, y = pictures.scale(0, len(curve) - 1, 1, 99), pictures.scale(low, high, 15, 2)
    every = range(0, len(curve), max(1, len(curve) // 60))
    points = " ".join(f"{x(k):.1f},{y(curve[k]):.1f}" for k in [*every, len(curve) - 1])
    about = f"from {curve[0]:.1f} to {curve[-1]:.1f}"
    return element("svg", element("polyline", points=points, class_="spark"), viewbox="0 0 100 17", class_="glyph",
                   role="img", aria_label=about)  # fmt: skip


def notes_html(gathered: Gathered) -> str:
    """What is to be known of the runs."""
    if not gathered.notes:
        return ""
    items = "".join(element("li", text(note)) for note in gathered.notes)
    title = f"{counted(len(gathered.notes), 'note')} on these runs"
    return element(
        "details", element("summary", text(title)) + element("ul", items), class_="folded notes", data_fold="notes"
    )
