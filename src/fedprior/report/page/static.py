"""The page without a script: sentences, tables and pictures at the choice that it begins with, for every task."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedprior.analysis.evidence import is_share, wilson
from fedprior.analysis.paired import LEVEL
from fedprior.analysis.series import ROUNDS
from fedprior.records.schema import MetricInfo
from fedprior.records.thinning import KEY
from fedprior.report.page import pictures
from fedprior.report.page.about import about_html
from fedprior.report.page.gather import TaskNumbers
from fedprior.report.page.look import NONE, element, text
from fedprior.report.page.sentences import number_text, sentences
from fedprior.report.page.view import Choice, Line, View, per_client
from fedprior.report.words import AVERAGE_WORDS, counted, counted_seeds, format_count, format_number, metric_words

INFINITE = "\N{INFINITY}"
WORST = 8  # clients of which the worst are told one by one


def choice_words(choice: Choice, info: MetricInfo, is_curve: bool = False) -> str:
    """What is looked at, for a caption; a curve is of every round."""
    unit = " in percent" if info.unit == "%" else ""
    models = f"{choice.model} model{'' if choice.model == 'global' else 's'}"
    data = f"own test samples, {AVERAGE_WORDS[choice.average]}" if choice.data == "own" else "pooled test samples"
    when = "" if is_curve else f", {ROUNDS[choice.round]}"
    better = "" if info.higher_is_better else "; lower is better"
    return f"{metric_words(info)}{unit}, {models}, {data}{when}{better}"


def task_words(task: TaskNumbers) -> str:
    """How large a task is."""
    seeds = counted_seeds([len(method.runs) for method in task.methods.values()])
    rounds = sorted({method.spent.rounds for method in task.methods.values()})
    done = counted(rounds[0], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    of = {run.config["run"]["clients"] for method in task.methods.values() for run in method.runs if KEY in run.config}
    clients = counted(len(task.samples), "client")
    if of:  # not all are recorded
        clients = f"{len(task.samples):,} of {counted(max(of), 'client')} recorded one by one,"
    samples = counted(sum(task.samples.values()), "test sample")
    return f"{counted(len(task.methods), 'method')}, {seeds}, {done}, {clients} with {samples}"


def task_html(task: TaskNumbers, place: int, several: bool) -> str:
    """All sections of a task."""
    view = task.view(task.usual)
    what = choice_words(view.choice, view.info)
    level = "h3" if several else "h2"
    mean = "mean over seeds, " if _has_spread(view) else ""
    curves = f"{choice_words(view.choice, view.info, is_curve=True)}; {mean}the reference dashed"
    captions = {"sentences": what, "summary": what, "curves": curves}
    parts = [
        ("sentences", "What the numbers say", sentences_html(task, view)),
        ("summary", "Summary", summary_html(task, view)),
        ("curves", "Learning curves", pictures.curves_picture(task, view)),
        ("gains", "Who gains, who loses", pictures.gains_picture(task, view)),
        ("slope", "From the reference to the chosen method", ""),
        ("worst", "Worst clients", worst_html(task, view)),
        ("holdings", "Who holds what", pictures.holdings_picture(task) if task.holdings else ""),
        ("cost", "What it costs", pictures.cost_picture(task, view)),
        ("about", "Settings and provenance", lacks_html(task.lacks) + about_html(task)),
    ]
    sections = [
        section_html(f"{name}-{place}", name, level, heading, captions.get(name, ""), body)
        for name, heading, body in parts
    ]
    heading = element("h2", text(task.name)) + element("p", text(task_words(task)), class_="quiet") if several else ""
    return element("article", heading + "".join(sections), class_="task", data_task=place, id=f"task-{place}")


def section_html(ident: str, part: str, level: str, heading: str, caption: str, body: str) -> str:
    """A section with its heading, what is looked at, and the body, which the script draws anew; an empty one is hidden."""
    title = element(level, text(heading), id=ident)
    under = element("p", text(caption), class_="quiet caption")
    inside = title + under + element("div", body, class_="body")
    return element("section", inside, data_part=part, aria_labelledby=ident, hidden=None if body else "")


def sentences_html(task: TaskNumbers, view: View) -> str:
    """The sentences, each in a paragraph."""
    found = []
    for sentence in sentences(view, task.names):
        words = "".join(element("strong", text(p.text)) if p.is_name else text(p.text) for p in sentence.parts)
        found.append(element("p", words, class_=f"said {sentence.tone}"))
    return "".join(found)


def lacks_html(lacks: Iterable[str]) -> str:
    """What these records do not hold."""
    return "".join(element("p", text(sentence), class_="said plain") for sentence in lacks)


def summary_html(task: TaskNumbers, view: View) -> str:
    """The table of all methods."""
    reference = task.names[view.choice.against]
    head = (
        *("method", metric_words(view.info), f"minus {reference}", "better / equal / worse", "worst tenth (samples)"),
        *("gradients", "MB sent", "seconds", "seeds"),
    )
    ends = [
        end
        for line in view.lines
        if line.apart
        for end in (line.apart.interval.mean, line.apart.interval.low, line.apart.interval.high)
        if end is not None and math.isfinite(end)
    ]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    rows = []
    for line in view.lines:
        cells = _cells(task, view, line, (low, high))
        tds = "".join(element("td", cell, data_label=name) for name, cell in zip(head[1:], cells, strict=True))
        name = element("th", text(pictures.cut(task.names[line.variant], 20)), scope="row")
        rows.append(element("tr", name + tds, class_="reference" if line.variant == view.choice.against else None))
    heads = "".join(element("th", text(name), scope="col") for name in head)
    shown = table_html(heads, rows, "summary")
    region = element("div", shown, class_="wide", tabindex="0", role="region", aria_label="summary")
    return region + element("p", text(summary_hint(task, view)), class_="quiet hint")


def summary_hint(task: TaskNumbers, view: View) -> str:
    """What the signs in the summary mean."""
    parts = []
    if _has_spread(view):
        parts.append("± is one standard deviation over seeds.")
    if any(line.apart is not None and line.apart.interval.low is not None for line in view.lines):
        parts.append(
            "Brackets and bars are unadjusted 95 % intervals of the difference over paired seeds; a colour means that the "
            "difference can be told from 0 after Holm\N{RIGHT SINGLE QUOTATION MARK}s adjustment."
        )
    if view.choice.data == "own" and any(line.cell is not None and line.cell.tenth for line in view.lines):
        parts.append("In parentheses: the test samples behind the worst tenth of clients.")
    parts.append("Gradients, megabytes and seconds are of the whole run.")
    if any(method.spent.hvps for method in task.methods.values()):
        parts.append("A Hessian-vector product counts as two gradients.")
    return " ".join(parts)


def _has_spread(view: View) -> bool:
    return any(line.number is not None and line.number["std"] is not None for line in view.lines)


def table_html(heads: str, rows: Iterable[str], kind: str) -> str:
    """A table."""
    inside = element("thead", element("tr", heads)) + element("tbody", "".join(rows))
    return element("table", inside, class_=kind)


def _cells(task: TaskNumbers, view: View, line: Line, ends: tuple[float, float]) -> tuple[str, ...]:
    info, spent = view.info, task.methods[line.variant].spent
    if line.variant == view.choice.against:
        apart = "reference"
    elif line.apart is None:
        apart = NONE
    else:
        i = line.apart.interval
        bounds = (
            ""
            if i.low is None or i.high is None
            else (f" [{number_text(i.low, info, '+')}, {number_text(i.high, info, '+')}]")
        )
        shown = pictures.glyph(i, *ends, _kind(line, info)) if math.isfinite(i.mean) else ""
        words = element("span", text(number_text(i.mean, info, "+") + bounds), class_="figure")
        apart = element("div", shown + words, class_="apart")
    counts = NONE if line.counts is None else " / ".join(map(str, line.counts))
    return (
        INFINITE
        if line.infinite
        else text(format_number(line.number, info).replace("-", NONE if line.number is None else "\N{MINUS SIGN}")),
        apart,
        counts,
        text(tenth_words(line, info)),
        NONE if spent.gradients is None else format_count(spent.gradients),
        NONE if spent.megabytes is None else format_count(spent.megabytes),
        NONE if spent.seconds is None else format_count(spent.seconds),
        _count_seeds(line),
    )


def _count_seeds(line: Line) -> str:
    """How many seeds a number is over, be it an infinite one."""
    if line.number is not None:
        return str(len(line.number["seeds"]))
    return str(len(line.cell.rounds)) if line.cell is not None and line.infinite else NONE


def _kind(line: Line, info: MetricInfo) -> str:
    """The look of a difference: better or worse only if it can be told from 0 together with all others."""
    if line.apart is None or line.adjusted is None or line.adjusted >= LEVEL:
        return "same"
    return "better" if (line.apart.interval.mean > 0) == info.higher_is_better else "worse"


def tenth_words(line: Line, info: MetricInfo) -> str:
    """The mean over the worst tenth of clients, and how many test samples stand behind it."""
    if line.cell is None:
        return NONE
    values = [x for x in line.cell.averages.get("worst_decile", {}).values() if not math.isnan(x)]
    if not values:
        return NONE
    if any(map(math.isinf, values)):
        return INFINITE
    value = number_text(float(np.mean(values)), info)
    if line.cell.tenth is None:
        return value
    low, high = line.cell.tenth
    return f"{value} ({low if low == high else f'{low}{NONE}{high}'})"


def worst_line(view: View) -> Line | None:
    """The method of whose clients the worst are told, as the script chooses it: the best that is not the reference."""
    known = [line for line in view.lines if line.cell is not None and line.cell.clients and _seeds(line)]
    others = [line for line in known if line.variant != view.choice.against]
    best = [line for line in others if view.best is not None and line.variant in view.best.variants]
    return next(iter([*best, *others, *known]), None)


def _seeds(line: Line) -> list[int]:
    """The seeds over which a method's clients are averaged: those that the reference has, too."""
    return line.apart.seeds if line.apart is not None else line.number["seeds"] if line.number is not None else []


def worst_html(task: TaskNumbers, view: View) -> str:
    """The clients that fare worst with one method, and what so few samples can tell."""
    line = worst_line(view)
    if line is None or line.cell is None:
        return ""
    values = per_client(line.cell, _seeds(line))
    sign = 1 if view.info.higher_is_better else -1
    worst = sorted(values, key=lambda client: sign * values[client])[:WORST]
    share = is_share(view.info)
    head = ("client", "test samples", task.names[line.variant], *(["95 % from samples (Wilson)"] if share else []))
    rows = []
    for client in worst:
        cells = [str(task.samples[client]), number_text(values[client], view.info)]
        if share:
            low, high = wilson(values[client], task.samples[client])
            cells.append(f"{low:.0f}{NONE}{high:.0f}")
        tds = "".join(element("td", text(c), data_label=n) for n, c in zip(head[1:], cells, strict=True))
        rows.append(element("tr", element("th", text(client), scope="row") + tds))
    return table_html("".join(element("th", text(name), scope="col") for name in head), rows, "worst")
