"""Numbers laid out as tables: the runs of a task, several tasks, a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedprior.analysis.evidence import Evidence
from fedprior.analysis.series import ROUNDS, metric_name
from fedprior.analysis.summary import BOTH, OverTasks, measured_columns, models_of, number_of
from fedprior.errors import unknown
from fedprior.records.schema import ACCURACY, AVERAGES, FINE_TUNED, NEWCOMERS, MetricInfo
from fedprior.records.spending import BUDGETS
from fedprior.report.tables import Column, Line, Table
from fedprior.report.words import (
    AVERAGE_WORDS,
    DEVIATION,
    apart_words,
    direction,
    equal_words,
    format_count,
    format_number,
    format_setting,
    format_value,
    in_unit,
    metric_words,
    row_name,
    support_words,
    untold,
    work_text,
)

COST = ("gradients", "hvps", "forward", "down", "up", "state")  # in the CSV, per client and round
TAKES = ("clients", "gradients", "hvps", "numbers")  # in the CSV, of the whole federation in a round


# -- the runs of a task ------------------------------------------------------------------------------------------------

MODEL = Column("model", words={"newcomer-global": "new global", "newcomer-both": "new both"})
OWN = "weighted (by samples), mean and worst 10% (of clients): on own test samples"
WORK = {
    "clients trained per round": Column("trained", wide=True),
    "gradients per round": Column("grads/round", wide=True),
    "gradients in the run": Column("grads", about="grads: of the federation in the run"),
    "numbers sent in the run": Column("sent", wide=True),
}


def run_table(
    task: str,
    results: Mapping[str, Any],
    choice: str = "last",
    metric: str = "accuracy",
    evidence: Evidence | None = None,
) -> Table:
    """The table of a task's variants, from their summary; a metric with a value per class has a row for each class."""
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    measured = measured_columns(results, metric)
    info = MetricInfo(metric, *_kind(next(iter(measured.values()))))
    of_classes, spent = metric not in measured, _budgets(results)
    columns = {
        "method": Column("method"),
        "model": MODEL,
        **({"class": Column("class")} if of_classes else {}),
        "own test, weighted": Column("weighted", info.better, about=OWN),
        "own test, mean": Column("mean", info.better, about=OWN),
        "own test, worst decile": Column("worst 10%", info.better, about=OWN),
        "pooled test": Column("pooled", info.better, about="pooled: on all"),
        **WORK,
        **({"rounds": Column("rounds")} if spent else {}),
        "seeds": Column("n"),
    }
    rows = list(_run_rows(results, choice, measured, of_classes))
    body = tuple(cells for cells, _ in rows)
    place = list(columns).index("own test, weighted")
    values = tuple((None,) * place + means + (None,) * (len(columns) - place - len(means)) for _, means in rows)
    budget = f", at {' or '.join(spent)}" if spent else ""
    names = {variant: row_name(variant, about) for variant, about in results.items()}
    notes = [
        *([DEVIATION] if any("±" in cell for line in body for cell in line) else []),
        *footnotes(body, grads=list(columns).index("gradients in the run")),
        *direction(info),
        *_changed(results),
        *(support_words(evidence.support) if evidence else []),
        *(equal_words([names[v] for v in group] for group in evidence.equal) if evidence else []),
        *(evidence.lacks if evidence else []),
    ]
    return Table(
        title=f"{task}: test {metric_words(info)}{in_unit(info)}, {ROUNDS[choice]}{budget}",
        note="; ".join(notes),
        head=tuple(columns),
        body=body,
        left=place,
        columns=tuple(columns.values()),
        values=values,
        kinds=tuple(_kinds(line[1], line[2 : 3 if of_classes else 2]) for line in body),
        label=f"{task}-{metric}",
        numbers=tuple(_run_numbers(task, results)),
    )


def _kind(info: MetricInfo) -> tuple[str, str, str]:
    return info.unit, info.better, info.about


def _kinds(model: str, within: Line = ()) -> frozenset[str]:
    """Among which rows the best is looked for: a model that is both competes as either."""
    models = {both: pair for pair, both in BOTH.items()}.get(model, (model,))
    return frozenset(" ".join([each, *within]) for each in models)


def _budgets(results: Mapping[str, Any]) -> list[str]:
    """What the variants could spend, where they were compared at equal cost."""
    given = [about["budget"] for about in results.values() if about.get("budget")]
    return list(dict.fromkeys(f"{most:,} {BUDGETS[kind]}" for budget in given for kind, most in budget.items()))


def _work(about: Mapping[str, Any]) -> Line:
    """Clients trained, gradients in a round and in the run, and numbers sent in the run, of the whole federation."""
    if (takes := about.get("round_takes")) is None:  # from before it was recorded
        return ("-",) * 4
    rounds, sent = about["rounds"], takes["numbers"]
    each, whole = (work_text(takes["gradients"] * n, takes["hvps"] * n) for n in (1, rounds))
    return str(takes["clients"]), each, whole, "-" if sent is None else format_count(sent * rounds)


def _run_rows(
    results: Mapping[str, Any], choice: str, columns: Mapping[str, MetricInfo], of_classes: bool
) -> Iterator[tuple[Line, tuple[float | None, ...]]]:
    """The cells of each row, and the means behind its numbers."""
    for variant, about in results.items():
        rounds = (str(about.get("rounds", "-")),) if _budgets(results) else ()
        for name, model in models_of(about).items():
            for column, info in columns.items():
                own = [number_of(about, column, model, "own", average, choice) for average in AVERAGES]
                numbers = [*own, number_of(about, column, model, "pooled", "weighted", choice)]
                label = (column[len(metric_name(column)) + 1 : -1],) if of_classes else ()
                seeds = max(len(number["seeds"]) if number else 0 for number in own)
                cells = (format_number(number, info) for number in numbers)
                line = (row_name(variant, about), name, *label, *cells, *_work(about), *rounds, str(seeds))
                yield line, tuple(None if number is None else number["mean"] for number in numbers)


def footnotes(body: Iterable[Line], grads: int) -> list[str]:
    """Footnotes for the rows shown; ``grads`` is the column of gradients."""
    rows = list(body)
    models = {line[1] for line in rows}
    notes = ["h: Hessian-vector products"] if any("h" in line[grads] for line in rows) else []
    if models & set(BOTH.values()):
        notes.append("both: the personal models are the global one")
    if FINE_TUNED in models:
        notes.append("fine-tuned: the personal models after further steps before the test")
    if models & {*NEWCOMERS, *BOTH.values()} - {"both"}:
        notes.append("newcomer: clients held out of training, after they joined (global: the global model on theirs)")
    return notes


def _changed(results: Mapping[str, Any]) -> list[str]:
    """The settings that were changed for rows which have a name of their own, and keep it."""
    own = {v: untold(v, about) for v, about in results.items() if row_name(v, about) == v}
    return [f"{variant}: {' '.join(texts)}" for variant, texts in own.items() if texts]


def _run_numbers(task: str, results: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Every number of every metric, one a line."""
    yield (
        *("task", "variant", "method", "metric", "model", "data", "average", "round", "mean", "std", "seeds"),
        *(*COST, *(f"federation_{name}" for name in TAKES), "rounds"),
    )
    for variant, about in results.items():
        parts = ((about.get("cost") or {}, COST), (about.get("round_takes") or {}, TAKES))
        facts = [*(part.get(name) for part, names in parts for name in names), about.get("rounds")]
        for metric, by_model in about["metrics"].items():
            for model, by_data in by_model.items():
                for data, by_average in by_data.items():
                    for average, by_choice in by_average.items():
                        for choice, n in by_choice.items():
                            if n is not None:
                                where = (task, variant, about["method"], metric, model, data, average, choice)
                                yield *where, n["mean"], n["std"], listed(n["seeds"]), *facts


def listed(seeds: Iterable[int]) -> str:
    """Seeds as one cell of a CSV file."""
    return " ".join(map(str, seeds))


# -- several tasks -----------------------------------------------------------------------------------------------------


def task_table(over: OverTasks) -> Table:
    """Variants in rows and tasks in columns, then the average and the standard deviation over tasks."""
    info = over.metric
    body = tuple(
        (
            *(row_name(row.variant, row.about), row.model),
            *(format_number(row.numbers[task], info) for task in over.tasks),
            *(format_value(row.average, info), format_value(row.std, info)),
        )
        for row in over.rows
    )
    means = [[None if (n := row.numbers[task]) is None else n["mean"] for task in over.tasks] for row in over.rows]
    data = "own test samples" if over.data == "own" else "pooled test samples"
    title = f"test {metric_words(info)}{in_unit(info)} on {data}, {AVERAGE_WORDS[over.average]}, {ROUNDS[over.choice]}"
    notes = [
        "± standard deviation over seeds",
        "Avg and Std: average and standard deviation over tasks, where a row has all of them",
        *direction(info),
        *dict.fromkeys(text for row in over.rows for text in apart_words(row.variant, row.apart, over.tasks)),
    ]
    numbers: list[tuple[Any, ...]] = [
        ("variant", "model", "metric", "data", "average", "round", "task", "mean", "std", "seeds")
    ]
    for row in over.rows:
        where = (row.variant, row.model, info.name, over.data, over.average, over.choice)
        numbers += [(*where, task, n["mean"], n["std"], listed(n["seeds"])) for task, n in row.numbers.items() if n]
        numbers += [(*where, "all tasks", row.average, row.std, None)] if row.average is not None else []
    head = ("method", "model", *over.tasks, "Avg", "Std")
    better = ("", "", *[info.better] * (len(over.tasks) + 1), "")
    return Table(
        title,
        "; ".join(notes),
        head,
        body,
        columns=tuple(Column(name, of) for name, of in zip(head, better, strict=True)),
        values=tuple((None, None, *m, row.average, None) for m, row in zip(means, over.rows, strict=True)),
        kinds=tuple(_kinds(row.model) for row in over.rows),
        label=f"tasks-{info.name}",
        numbers=tuple(numbers),
    )


# -- a sweep -----------------------------------------------------------------------------------------------------------


def sweep_table(sweep: Mapping[str, Any], info: MetricInfo = ACCURACY, title: str = "") -> Table:
    """All settings of a method that a sweep tried (as of ``choice.summarize_sweep``), the chosen one marked."""
    body = []
    for cell in sweep["cells"]:
        row = [format_setting(value) for value in cell["setting"].values()]
        if (number := cell["validation"]) is None:
            body.append((*row, "diverged", "", cell["diverged"]))
        else:
            mark = "chosen" if cell["setting"] == sweep["chosen"] else ""
            body.append((*row, format_number(number, info), str(len(number["seeds"])), mark))
    head = (*sweep["cells"][0]["setting"], "validation", "n", "")
    notes = [DEVIATION] if any("±" in cell for line in body for cell in line) else []
    notes += [
        f"{key} = {format_setting(sweep['chosen'][key])} is the {end} that was tried: beyond it may lie a better one"
        for key, end in sweep.get("at_end", {}).items()
    ]
    return Table(title, "; ".join(notes), head, tuple(body), left=0, remarks=1)
