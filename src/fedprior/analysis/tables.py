"""Records in, tables out: every number names its model, data, average, round and seeds."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table as RichTable

from fedprior.errors import FedpriorError, unknown
from fedprior.evaluate import AVERAGES
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


def reported(series: Series, model: str, data: str, average: str) -> dict[str, float | None]:
    """One run's number at each way of choosing the round; None where it was not evaluated.

    >>> s = {("personal", "own", "mean"): {1: 50.0, 2: 70.0, 3: 60.0}}
    >>> reported(s, "personal", "own", "mean")["best"], reported(s, "personal", "own", "mean")["last"]
    (70.0, 60.0)
    """
    values = series.get((model, data, average))
    if not values:
        return dict.fromkeys(ROUNDS)
    rounds = sorted(values)
    watched = rounds == sorted(series.get((model, "own", average), {}))  # not only evaluated at the end
    chosen = None
    validation = series.get((model, "validation", "weighted"))
    if validation and watched:
        chosen = values[max(validation, key=lambda t: (validation[t], -t))]
    return {
        "last": values[rounds[-1]],
        "last10": float(np.mean([values[t] for t in rounds[-10:]])) if watched else None,
        "validation": chosen,
        "best": max(values.values()) if watched else None,
    }


def summarize(runs: dict[str, dict[int, Series]]) -> dict[str, Any]:
    """All numbers of a comparison: method -> model -> data -> average -> round choice -> {mean, std, seeds}.

    None stands where nothing was evaluated, such as the global model of a method that has none.
    """
    results: dict[str, Any] = {}
    for method, by_seed in runs.items():
        seeds = sorted(by_seed)
        results[method] = {}
        for model in MODELS:
            results[method][model] = {
                data: {
                    average: _over_seeds([reported(by_seed[s], model, data, average) for s in seeds], seeds)
                    for average in AVERAGES
                }
                for data in DATA
            }
    return results


def _over_seeds(numbers: list[dict[str, float | None]], seeds: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for choice in ROUNDS:
        kept = [(n[choice], seed) for n, seed in zip(numbers, seeds, strict=True) if n[choice] is not None]
        if choice == "validation" and not kept:
            continue
        values = [value for value, _ in kept if value is not None]
        found[choice] = (
            {
                "mean": float(np.mean(values)),
                "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                "seeds": [seed for _, seed in kept],
            }
            if values
            else None
        )
    return found


def collect(
    folders: Iterable[Path], warn: Callable[[str], None] = lambda text: None
) -> dict[str, dict[str, dict[int, Series]]]:
    """All runs at or below the folders: task -> method -> seed -> series. Diverged ones have no place among them."""
    found: dict[str, dict[str, dict[int, Series]]] = defaultdict(lambda: defaultdict(dict))
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
            found[task][method][seed] = series
            shared = {k: v for k, v in config.items() if k not in OF_A_METHOD}
            if apart := differences(firsts.setdefault((task,), shared), shared):
                warn(f"runs of {task} are not of one experiment ({apart[0]}, in {run.path})")
            alike = {k: v for k, v in config.items() if k != "seed"}
            if apart := differences(firsts.setdefault((task, method), alike), alike):
                raise FedpriorError(f"seeds of {task}, {method} differ in their settings ({apart[0]}, in {run.path})")
    order = list(METHODS)
    return {
        task: dict(sorted(by_method.items(), key=lambda kv: order.index(kv[0]) if kv[0] in order else len(order)))
        for task, by_method in found.items()
    }


# -- layout ------------------------------------------------------------------------------------------------------------

HEAD = ("method", "model", "own test, weighted", "own test, mean", "own test, worst decile", "pooled test", "seeds")
SHORT = ("method", "model", "weighted", "mean", "worst 10%", "pooled", "n")  # for 80 columns


def _cell(number: dict[str, Any] | None) -> str:
    if number is None:
        return "-"
    return f"{number['mean']:.2f}" + ("" if number["std"] is None else f" ± {number['std']:.2f}")


def rows(results: dict[str, Any], choice: str = "last") -> list[tuple[str, ...]]:
    """The table's body at one way of choosing the round."""
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    body = []
    for method, by_model in results.items():
        for model, by_data in by_model.items():
            own = [by_data["own"][average].get(choice) for average in AVERAGES]
            if not any(by_data["own"]["weighted"].values()):
                continue  # the method has no such model
            pooled = by_data["pooled"]["weighted"].get(choice)
            seeds = max(len(n["seeds"]) if n else 0 for n in own)
            body.append((method, model, *map(_cell, own), _cell(pooled), str(seeds)))
    return body


def caption(task: str, choice: str) -> str:
    """What the numbers are."""
    return f"{task}: test accuracy in percent, {ROUNDS[choice]}; mean ± standard deviation over seeds"


def rich_table(task: str, results: dict[str, Any], choice: str = "last") -> RichTable:
    """The table for a terminal."""
    table = RichTable(
        title=f"{task}: test accuracy in percent, {ROUNDS[choice]}",
        title_style="bold",
        title_justify="left",
        caption="weighted (by samples), mean and worst 10% (of clients): on own test samples; pooled: on all; "
        "mean±standard deviation over n seeds",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for i, name in enumerate(SHORT):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=i > 0, overflow="fold")
    before = None
    for method, *line in rows(results, choice):
        table.add_row("" if method == before else method, *(cell.replace(" ± ", "±") for cell in line))
        before = method
    return table


def render(task: str, results: dict[str, Any], choice: str, format: str) -> str:
    """The table as markdown, LaTeX or CSV."""
    body = rows(results, choice)
    if format == "markdown":
        lines = [
            f"{caption(task, choice)}.",
            "",
            f"| {' | '.join(HEAD)} |",
            "|---|---" + "|---:" * (len(HEAD) - 2) + "|",
        ]
        return "\n".join(lines + [f"| {' | '.join(line)} |" for line in body])
    if format == "latex":
        tex = [
            [cell.replace(" ± ", r" $\pm$ ").replace("_", r"\_").replace("%", r"\%") for cell in line] for line in body
        ]
        lines = [f"% {caption(task, choice)}", r"\begin{tabular}{ll" + "r" * (len(HEAD) - 2) + "}", r"\hline"]
        lines += [" & ".join(HEAD) + r" \\", r"\hline", *(" & ".join(line) + r" \\" for line in tex), r"\hline"]
        return "\n".join([*lines, r"\end{tabular}"])
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["task", "method", "model", "data", "average", "round", "mean", "std", "seeds"])
        for method, by_model in results.items():
            for model, by_data in by_model.items():
                for data, by_average in by_data.items():
                    for average, by_round in by_average.items():
                        for chosen, n in by_round.items():
                            if n is not None:
                                seeds = " ".join(map(str, n["seeds"]))
                                std = "" if n["std"] is None else n["std"]
                                writer.writerow([task, method, model, data, average, chosen, n["mean"], std, seeds])
        return text.getvalue().rstrip("\n")
    raise unknown("format", format, FORMATS)
