"""Settings and provenance: everything that was recorded of how the runs of a task were made, folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprior.records.schema import RunRecord
from fedprior.records.standing import standing
from fedprior.report.page.gather import Method, TaskNumbers
from fedprior.report.page.look import element, text
from fedprior.report.words import format_setting

OF_SEEDS = ("run.seed", "start.scores")  # differ between seeds as they must; the first is in the list of runs
OF_ROWS = ("run.variant.name",)  # what the rows are called


def about_html(task: TaskNumbers) -> str:
    """The three folded parts: what all runs share, what the methods differ in, and each run with its command."""
    flat = {variant: _of_seeds(method.runs) for variant, method in task.methods.items()}
    keys = [key for key in dict.fromkeys(k for each in flat.values() for k in each) if key not in (*OF_SEEDS, *OF_ROWS)]
    common = {key: next(iter(flat.values()))[key] for key in keys if _is_common(key, flat.values())}
    own = {variant: {k: each[k] for k in keys if k in each and k not in common} for variant, each in flat.items()}
    rows = [
        (task.methods[v].name, "\n".join(f"{_short(k)} = {value}" for k, value in of.items())) for v, of in own.items()
    ]
    return "".join(
        [
            _folded("settings", "Settings of the methods", _settings(rows)),
            _folded("task", "Task, protocol, data and environment", _pairs(common)),
            _folded("runs", "Runs, and the commands that made them", _runs(task.methods.values())),
        ]
    )


def _is_common(key: str, every: Iterable[Mapping[str, str]]) -> bool:
    values = [each.get(key) for each in every]
    return values[0] is not None and all(value == values[0] for value in values) and not key.startswith("run.variant.")


def _of_seeds(runs: Sequence[RunRecord]) -> dict[str, str]:
    """What was recorded of a method's runs; where they differ, of each of its seeds."""
    flat = {run.seed: _flat(run.config) for run in runs}
    found = {}
    for key in dict.fromkeys(key for each in flat.values() for key in each):
        values = {seed: each.get(key, "not recorded") for seed, each in flat.items()}
        alike = len(set(values.values())) == 1
        by_seed = "; ".join(f"seed {seed}: {value}" for seed, value in values.items())
        found[key] = next(iter(values.values())) if alike else by_seed
    return found


def _flat(settings: Mapping[str, Any], within: str = "") -> dict[str, str]:
    """Nested settings by dotted keys, as text."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{within}{key}.")
        elif within + key == "metrics":
            flat["metrics"] = ", ".join(str(each["name"]) for each in value)
        else:
            flat[within + key] = format_setting(value)
    return flat


def _short(key: str) -> str:
    return key.removeprefix("run.variant.").removeprefix("run.").removeprefix("settings.")


def _folded(name: str, heading: str, content: str) -> str:
    return element("details", element("summary", text(heading)) + content, class_="folded", data_fold=name)


def _settings(rows: Iterable[tuple[str, str]]) -> str:
    lines = "".join(
        element("tr", element("th", text(name), scope="row") + element("td", element("pre", text_lines(settings))))
        for name, settings in rows
    )
    head = element("thead", element("tr", _heads(("method", "its settings, and what else only it has"))))
    return _table(head + element("tbody", lines))


def _pairs(pairs: Mapping[str, str]) -> str:
    lines = "".join(
        element("tr", element("th", text(_short(key)), scope="row") + element("td", text(value)))
        for key, value in pairs.items()
    )
    return _table(element("thead", element("tr", _heads(("setting", "value")))) + element("tbody", lines))


def _runs(methods: Iterable[Method]) -> str:
    head = ("method", "seed", "status", "rounds", "seconds", "begun (UTC)", "ended", "version", "command", "folder")
    lines = "".join(
        element("tr", "".join(element("td", cell, data_label=name) for name, cell in zip(head, row, strict=True)))
        for method in methods
        for run in method.runs
        for row in [_run(method.name, run)]
    )
    return _table(element("thead", element("tr", _heads(head))) + element("tbody", lines), "runs")


def _run(name: str, run: RunRecord) -> tuple[str, ...]:
    sessions = run.provenance or ()
    done = max([run.round, *(row.round for row in run.rows)])
    seconds = "not recorded" if run.seconds is None else f"{run.seconds:.1f}"
    commands = "<br>".join(element("code", text(s.command)) if s.command else "from Python" for s in sessions)
    return (
        *(text(name), str(run.seed), text(standing(run.status, Path(run.where))[0])),
        f"{done} of {text(run.config['run']['protocol']['rounds'])}",
        seconds,
        "<br>".join(text(s.begun[:19].replace("T", " ")) for s in sessions) or "not recorded",
        "<br>".join(text(s.ended[:19].replace("T", " ") if s.ended else "unknown") for s in sessions) or "not recorded",
        text(", ".join(dict.fromkeys(s.fedprior for s in sessions)) or run.config["environment"].get("fedprior", "?")),
        commands or "not recorded",
        element("code", text(run.where)),
    )


def _heads(names: Iterable[str]) -> str:
    return "".join(element("th", text(name), scope="col") for name in names)


def _table(content: str, kind: str = "plain") -> str:
    return element(
        "div",
        element("table", content, class_=f"about {kind}"),
        class_="wide",
        tabindex="0",
        role="region",
        aria_label="table",
    )


def text_lines(lines: str) -> str:
    """Several lines as text."""
    return "\n".join(text(line) for line in lines.split("\n"))
