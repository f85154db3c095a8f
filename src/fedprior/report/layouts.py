"""Numbers laid out as tables: the runs of a task, several tasks, a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedprior.analysis.series import ROUNDS, metric_name
from fedprior.analysis.summary import OverTasks, measured_columns, models_of, number_of
from fedprior.errors import unknown
from fedprior.records.schema import ACCURACY, AVERAGES, NEWCOMERS, MetricInfo
from fedprior.records.spending import BUDGETS
from fedprior.report.tables import Line, Table
from fedprior.report.words import (
    direction,
    format_count,
    format_number,
    format_setting,
    format_value,
    in_unit,
    metric_words,
    work_text,
)

COST = ("gradients", "hvps", "forward", "down", "up", "state")  # in the CSV, per client and round
TAKES = ("clients", "gradients", "hvps", "numbers")  # in the CSV, of the whole federation in a round


# -- the runs of a task ------------------------------------------------------------------------------------------------

HEAD = (
    *("own test, weighted", "own test, mean", "own test, worst decile", "pooled test"),
    *("clients trained per round", "gradients per round", "gradients in the run", "numbers sent in the run"),
    *("rounds", "seeds"),
)
SHORT_HEAD = ("weighted", "mean", "worst 10%", "pooled", "grads", "rounds", "n")  # for 80 columns


def run_table(task: str, results: Mapping[str, Any], choice: str = "last", metric: str = "accuracy") -> Table:
    """The table of a task's variants, from their summary; a metric with a value per class has a row for each class."""
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    columns = measured_columns(results, metric)
    info = MetricInfo(metric, *_kind(next(iter(columns.values()))))
    of_classes = metric not in columns
    spent = _budgets(results)
    body = _run_rows(results, choice, columns, of_classes)
    left = ("method", "model", "class") if of_classes else ("method", "model")
    head, short_head = ((*left, *(name for name in names if name != "rounds" or spent)) for names in (HEAD, SHORT_HEAD))
    budget = f", at {' or '.join(spent)}" if spent else ""
    title = f"{task}: test {metric_words(info)}{in_unit(info)}, {ROUNDS[choice]}{budget}"
    in_the_run = head.index("gradients in the run")
    notes = [*footnotes(body, grads=in_the_run), *direction(info), *_changed(results)]
    how_to_read = [
        "weighted (by samples), mean and worst 10% (of clients): on own test samples",
        "pooled: on all",
        "grads: of the whole federation in the run",
        *notes,
        "mean±standard deviation over n seeds",
    ]
    only_wide = {
        head.index(name) for name in ("clients trained per round", "gradients per round", "numbers sent in the run")
    }
    narrow = tuple(
        (
            line[0],
            line[1].replace("newcomer-", "new "),
            *(c for k, c in enumerate(line) if k > 1 and k not in only_wide),
        )
        for line in body
    )
    return Table(
        title="; ".join([title, "mean ± standard deviation over seeds", *notes]),
        note="",
        head=head,
        body=body,
        left=len(left),
        terminal=Table(title, "; ".join(how_to_read), short_head, narrow, len(left)),
        numbers=tuple(_run_numbers(task, results)),
    )


def _kind(info: MetricInfo) -> tuple[str, str, str]:
    return info.unit, info.better, info.about


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
) -> tuple[Line, ...]:
    body = []
    for variant, about in results.items():
        rounds = (str(about.get("rounds", "-")),) if _budgets(results) else ()
        for model in models_of(about):
            for column, info in columns.items():
                own = [number_of(about, column, model, "own", average, choice) for average in AVERAGES]
                numbers = [*own, number_of(about, column, model, "pooled", "weighted", choice)]
                label = (column[len(metric_name(column)) + 1 : -1],) if of_classes else ()
                seeds = max(len(number["seeds"]) if number else 0 for number in own)
                cells = (format_number(number, info) for number in numbers)
                body.append((variant, model, *label, *cells, *_work(about), *rounds, str(seeds)))
    return tuple(body)


def footnotes(body: Iterable[Line], grads: int) -> list[str]:
    """Footnotes for the rows shown; ``grads`` is the column of what a round costs."""
    rows = list(body)
    notes = ["h: Hessian-vector products"] if any("h" in line[grads] for line in rows) else []
    if {line[1] for line in rows} & set(NEWCOMERS):
        notes.append("newcomer: clients held out of training, after they joined (global: the global model on theirs)")
    return notes


def _changed(results: Mapping[str, Any]) -> list[str]:
    """The settings that were changed, and for which rows, where a row's own name does not say so."""
    rows: dict[str, list[str]] = {}
    for variant, about in results.items():
        for key, value in about.get("changed", {}).items():
            if f"{key}={format_setting(value)}" not in variant.split():
                rows.setdefault(f"{key} = {format_setting(value)}", []).append(variant)
    return [f"{setting} in {', '.join(sorted(names))}" for setting, names in rows.items()]


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

AVERAGE_WORDS = {"weighted": "weighted by samples", "mean": "mean of clients", "worst_decile": "worst tenth of clients"}


def task_table(over: OverTasks) -> Table:
    """Variants in rows and tasks in columns, then the average and the standard deviation over tasks."""
    info = over.metric
    body = tuple(
        (
            *(row.variant, row.model, *(format_number(row.numbers[task], info) for task in over.tasks)),
            *(format_value(row.average, info), format_value(row.std, info)),
        )
        for row in over.rows
    )
    data = "own test samples" if over.data == "own" else "pooled test samples"
    title = f"test {metric_words(info)}{in_unit(info)} on {data}, {AVERAGE_WORDS[over.average]}, {ROUNDS[over.choice]}"
    notes = [
        "mean ± standard deviation over seeds",
        "Avg and Std: average and standard deviation over tasks, where a row has all of them",
        *direction(info),
    ]
    numbers: list[tuple[Any, ...]] = [
        ("variant", "model", "metric", "data", "average", "round", "task", "mean", "std", "seeds")
    ]
    for row in over.rows:
        where = (row.variant, row.model, info.name, over.data, over.average, over.choice)
        numbers += [(*where, task, n["mean"], n["std"], listed(n["seeds"])) for task, n in row.numbers.items() if n]
        numbers += [(*where, "all tasks", row.average, row.std, None)] if row.average is not None else []
    head = ("method", "model", *over.tasks, "Avg", "Std")
    return Table(title, "; ".join(notes), head, body, numbers=tuple(numbers))


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
    head = (*sweep["cells"][0]["setting"], "validation", "seeds", "")
    return Table(title, "", head, tuple(body), left=0, remarks=1)
