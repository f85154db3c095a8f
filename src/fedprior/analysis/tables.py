"""Records in, tables out: every number names its model, data, average, round and seeds."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table as RichTable

from fedprior.cost import work_text
from fedprior.errors import FedpriorError, unknown
from fedprior.evaluate import AVERAGES, NEWCOMERS
from fedprior.methods import METHODS
from fedprior.records import RunFolder, differences, find_runs

Series = dict[tuple[str, str, str], dict[int, float]]  # (model, data, average) -> round -> accuracy
MODELS, DATA = ("personal", "global"), ("own", "pooled")
ROUNDS = {
    "last": "last round",
    "last10": "mean of the last 10 evaluations",
    "validation": "round chosen on validation",
    "best": "best round on test (an optimistic number: the test chose it)",
}
OF_A_METHOD = ("method", "settings", "beta", "participation", "seed")  # in which runs of one experiment may differ
FORMATS = ("text", "markdown", "latex", "csv")
COST = ("gradients", "hvps", "forward", "down", "up", "state")  # in the csv, per client and round


def series_of(rows: Iterable[tuple[Any, ...]]) -> Series:
    """Accuracy by round from the rows of metrics.csv."""
    found: Series = defaultdict(dict)
    for t, model, data, average, accuracy, _ in rows:
        found[model, data, average][int(t)] = float(accuracy)
    return dict(found)


def read_series(folder: RunFolder) -> Series:
    """Accuracy by round from a run's folder."""
    return series_of(
        (r["round"], r["model"], r["data"], r["average"], r["accuracy"], r["loss"]) for r in folder.rows("metrics.csv")
    )


def chosen_rounds(series: Series, model: str, data: str, average: str) -> dict[str, list[int]]:
    """The rounds that count at each way of choosing them; none where it was not evaluated."""
    values = series.get((model, data, average), {})
    rounds = sorted(values)
    often = "personal" if model in NEWCOMERS else model
    watched = rounds == sorted(series.get((often, "own", average), {}))  # not only evaluated at the end
    validation = series.get((model, "validation", "weighted"), {})

    def first_best(of: dict[int, float]) -> list[int]:
        return [max(of, key=lambda t: (of[t], -t))] if of and watched else []

    return {
        "last": rounds[-1:],
        "last10": rounds[-10:] if watched else [],
        "validation": first_best(validation) if values else [],
        "best": first_best(values),
    }


def reported(series: Series, model: str, data: str, average: str) -> dict[str, float | None]:
    """One run's number at each way of choosing the round; None where it was not evaluated.

    >>> s = {("personal", "own", "mean"): {1: 50.0, 2: 70.0, 3: 60.0}}
    >>> reported(s, "personal", "own", "mean")["best"], reported(s, "personal", "own", "mean")["last"]
    (70.0, 60.0)
    """
    values = series.get((model, data, average), {})
    return {
        choice: float(np.mean([values[t] for t in rounds])) if rounds else None
        for choice, rounds in chosen_rounds(series, model, data, average).items()
    }


def summarize(runs: dict[str, dict[int, Series]], about: Mapping[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """All numbers of a comparison: method -> model -> data -> average -> round choice -> {mean, std, seeds}.

    None stands where nothing was evaluated, such as the global model of a method that has none. What is known ``about`` a
    method (see `facts`) stands beside its models.
    """
    results: dict[str, Any] = {}
    for method, by_seed in runs.items():
        seeds = sorted(by_seed)
        results[method] = dict((about or {}).get(method, {}))
        joined = {model for series in by_seed.values() for model, _, _ in series if model in NEWCOMERS}
        for model in (*MODELS, *(name for name in NEWCOMERS if name in joined)):
            results[method][model] = {
                data: {
                    average: _by_choice([reported(by_seed[s], model, data, average) for s in seeds], seeds)
                    for average in AVERAGES
                }
                for data in DATA
            }
    return results


def facts(config: dict[str, Any]) -> dict[str, Any]:
    """From a run's config.json, what a table says about its method: its cost, its rounds, and the budget where it had one.

    The cost of a run from before it was recorded is None.
    """
    budget = {"budget": config["run"]["budget"]} if config["run"].get("budget") else {}
    return {"cost": config.get("cost"), "rounds": config["run"]["rounds"], **budget}


def _by_choice(numbers: list[dict[str, float | None]], seeds: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for choice in ROUNDS:
        kept = {seed: v for n, seed in zip(numbers, seeds, strict=True) if (v := n[choice]) is not None}
        if choice == "validation" and not kept:
            continue
        found[choice] = over_seeds(kept) if kept else None
    return found


def over_seeds(values: dict[int, float]) -> dict[str, Any]:
    """A number over seeds: its mean, its standard deviation (None of a single one) and the seeds."""
    numbers = list(values.values())
    return {
        "mean": float(np.mean(numbers)),
        "std": float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None,
        "seeds": list(values),
    }


class Run(NamedTuple):
    """A run's folder and its accuracies."""

    folder: RunFolder
    series: Series


def collect_runs(
    folders: Iterable[Path], warn: Callable[[str], None] = lambda text: None, *, one_experiment: bool = False
) -> dict[str, dict[str, dict[int, Run]]]:
    """All runs at or below the folders: task -> method -> seed -> run. Diverged ones have no place among them.

    Runs of one task that differ in more than their method are warned about, or refused where ``one_experiment`` is needed.
    """
    found: dict[str, dict[str, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    firsts: dict[tuple[str, ...], dict[str, Any]] = {}
    for folder in folders:
        runs = find_runs(Path(folder))
        if not runs:
            raise FedpriorError(f"no runs at or below {folder}; a run's folder holds config.json and metrics.csv")
        for run in runs:
            config, status, series = run.config["run"], run.status, read_series(run)
            task, method, seed = config["name"], config["method"], int(config["seed"])
            if status["status"] == "diverged":
                warn(f"{run.path} diverged in round {status['round']} and is left out")
                continue
            if status["status"] != "finished":
                warn(f"{run.path} is not finished; its last evaluation is reported")
            if not series:
                continue
            if seed in found[task][method]:
                raise FedpriorError(f"two runs of {task}, {method}, seed {seed}; give folders that do not overlap")
            found[task][method][seed] = Run(run, series)
            own = OF_A_METHOD + (("rounds",) if config.get("budget") else ())  # a budget gives each method its own
            shared = {k: v for k, v in config.items() if k not in own}
            if apart := differences(firsts.setdefault((task,), shared), shared):
                mixed = f"runs of {task} are not of one experiment ({apart[0]}, in {run.path})"
                if one_experiment:
                    raise FedpriorError(f"{mixed}; give the folders of one")
                warn(mixed)
            alike = {k: v for k, v in config.items() if k != "seed"}
            if apart := differences(firsts.setdefault((task, method), alike), alike):
                raise FedpriorError(f"seeds of {task}, {method} differ in their settings ({apart[0]}, in {run.path})")
    order = list(METHODS)
    return {
        task: dict(sorted(by_method.items(), key=lambda kv: order.index(kv[0]) if kv[0] in order else len(order)))
        for task, by_method in found.items()
    }


def collect(
    folders: Iterable[Path], warn: Callable[[str], None] = lambda text: None
) -> dict[str, dict[str, dict[int, Series]]]:
    """The accuracies of all runs at or below the folders: task -> method -> seed -> series."""
    return {task: series_by_seed(by_method) for task, by_method in collect_runs(folders, warn).items()}


def series_by_seed(runs: dict[str, dict[int, Run]]) -> dict[str, dict[int, Series]]:
    """The accuracies of runs: method -> seed -> series."""
    return {method: {seed: run.series for seed, run in by_seed.items()} for method, by_seed in runs.items()}


# -- layout ------------------------------------------------------------------------------------------------------------

HEAD = (
    *("method", "model", "own test, weighted", "own test, mean", "own test, worst decile", "pooled test"),
    *("gradients per client and round", "rounds", "seeds"),
)
SHORT = ("method", "model", "weighted", "mean", "worst 10%", "pooled", "grads", "rounds", "n")  # for 80 columns
TERMINAL = 80  # columns


def shown(number: dict[str, Any] | None) -> str:
    """A number over seeds as text."""
    if number is None:
        return "-"
    return f"{number['mean']:.2f}" + ("" if number["std"] is None else f" ± {number['std']:.2f}")


def _budgets(results: dict[str, Any]) -> set[int]:
    """The gradients that the methods could spend, where they were compared at equal cost."""
    return {about["budget"]["gradients"] for about in results.values() if about.get("budget")}


def headings(results: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the table's columns: rounds are one only where a budget made them differ."""
    return tuple(name for name in names if name != "rounds" or _budgets(results))


def rows(results: dict[str, Any], choice: str = "last") -> list[tuple[str, ...]]:
    """The table's body at one way of choosing the round."""
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    body = []
    for method, found in results.items():
        cost = found.get("cost")
        grads = work_text(cost["gradients"], cost["hvps"]) if cost else "-"
        rounds = (str(found.get("rounds", "-")),) if _budgets(results) else ()
        for model, by_data in _models(found):
            own = [by_data["own"][average].get(choice) for average in AVERAGES]
            if not any(by_data["own"]["weighted"].values()):
                continue  # the method has no such model
            pooled = by_data["pooled"]["weighted"].get(choice)
            seeds = max(len(n["seeds"]) if n else 0 for n in own)
            body.append((method, model, *map(shown, own), shown(pooled), grads, *rounds, str(seeds)))
    return body


def _models(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The models among what is known of a method."""
    return [(name, found[name]) for name in (*MODELS, *NEWCOMERS) if name in found]


def title(task: str, results: dict[str, Any], choice: str) -> str:
    """What the numbers are."""
    spent = " or ".join(f"{gradients:,}" for gradients in sorted(_budgets(results)))
    budget = f", at {spent} gradients for a client that trains every round" if spent else ""
    return f"{task}: test accuracy in percent, {ROUNDS[choice]}{budget}"


def notes(body: list[tuple[str, ...]]) -> list[str]:
    """What of the table's body needs to be said only where it occurs."""
    models, costs = {line[1] for line in body}, [line[6] for line in body]
    found = ["h: Hessian-vector products"] if any("h" in cost for cost in costs) else []
    if models & set(NEWCOMERS):
        found.append("newcomer: clients held out of training, after they joined (global: the global model on theirs)")
    return found


def terminal_table(title: str, note: str, head: tuple[str, ...], body: list[tuple[str, ...]]) -> RichTable:
    """A table for a terminal: method and model to the left, numbers to the right, a method's name only once."""
    body = [tuple(text.replace(" ± ", "±") for text in line) for line in body]
    width = sum(max(map(len, column)) + 2 for column in zip(head, *body, strict=True)) - 2
    table = RichTable(
        title=title,
        title_style="bold",
        title_justify="left",
        caption=note,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 1) if width <= TERMINAL else 0,
    )
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=i > 0, overflow="fold")
    before = None
    for method, *line in body:
        table.add_row("" if method == before else method, *line)
        before = method
    return table


def markdown_table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    """The lines of a table in markdown, with method and model to the left and numbers to the right."""
    ruler = "|---|---" + "|---:" * (len(head) - 2) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(line)} |" for line in body)]


def rich_table(task: str, results: dict[str, Any], choice: str = "last") -> RichTable:
    """The table for a terminal."""
    body = rows(results, choice)
    said = [
        "weighted (by samples), mean and worst 10% (of clients): on own test samples",
        "pooled: on all",
        "grads: gradients per client and round",
        *notes(body),
        "mean±standard deviation over n seeds",
    ]
    narrow = [(method, model.replace("newcomer-", "new "), *line) for method, model, *line in body]
    return terminal_table(title(task, results, choice), "; ".join(said), headings(results, SHORT), narrow)


def render(task: str, results: dict[str, Any], choice: str, format: str) -> str:
    """The table as markdown, LaTeX or CSV."""
    body, head = rows(results, choice), headings(results, HEAD)
    caption = "; ".join([title(task, results, choice), "mean ± standard deviation over seeds", *notes(body)])
    if format == "markdown":
        return "\n".join([f"{caption}.", "", *markdown_table(head, body)])
    if format == "latex":
        tex = [
            [cell.replace(" ± ", r" $\pm$ ").replace("_", r"\_").replace("%", r"\%") for cell in line] for line in body
        ]
        lines = [f"% {caption}", r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}", r"\hline"]
        lines += [" & ".join(head) + r" \\", r"\hline", *(" & ".join(line) + r" \\" for line in tex), r"\hline"]
        return "\n".join([*lines, r"\end{tabular}"])
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["task", "method", "model", "data", "average", "round", "mean", "std", "seeds", *COST, "rounds"]
        )
        for method, found in results.items():
            about = [*((found.get("cost") or {}).get(name, "") for name in COST), found.get("rounds", "")]
            for model, by_data in _models(found):
                for data, by_average in by_data.items():
                    for average, by_round in by_average.items():
                        for chosen, n in by_round.items():
                            if n is not None:
                                seeds = " ".join(map(str, n["seeds"]))
                                std = "" if n["std"] is None else n["std"]
                                where = (task, method, model, data, average, chosen)
                                writer.writerow([*where, n["mean"], std, seeds, *about])
        return text.getvalue().rstrip("\n")
    raise unknown("format", format, FORMATS)
