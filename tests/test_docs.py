"""The README's and the docs' code runs, as it is written."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from fedprior import methods
from fedprior.experiment import configure, parse_assignment, task_names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[object]:
    found = []
    for page in PAGES:
        for k, code in enumerate(re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)):
            # a page's Python trains: but for the first two pages, with the slow tests
            slow = language == "python" and page.name not in ("README.md", "add-a-method.md")
            found.append(pytest.param(code, id=f"{page.name}-{k}", marks=[pytest.mark.slow] if slow else []))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))  # what a page registers stays on that page
    (tmp_path / "page.py").write_text(code)
    runpy.run_path(str(tmp_path / "page.py"))


@pytest.mark.parametrize("code", blocks("toml"))
def test_toml_blocks_are_valid_tasks(code: str, tmp_path: Path) -> None:
    path = tmp_path / "my-task.toml"
    path.write_text(code)
    configure(str(path), ["mh"])


COMMANDS = sorted(
    {line.strip() for b in blocks("sh") for line in b.values[0].splitlines() if "fedprior " in line}  # type: ignore[attr-defined]
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_things_that_exist(command: str) -> None:
    """Tasks, methods, options and settings in the docs' commands are real (running them all would take hours)."""
    from fedprior.cli import app

    words = shlex.split(command.split("#")[0])
    words = words[next(i for i, word in enumerate(words) if word.endswith("fedprior")) :]
    import typer.main

    group = typer.main.get_command(app)
    sub = group.commands[words[1]]  # type: ignore[attr-defined]
    context = sub.make_context(words[1], list(words[2:]), resilient_parsing=False)
    values = context.params
    task = values.get("task")
    names = values.get("method") or ["mh"]
    names = list(methods.METHODS) if "all" in names else names
    if task in task_names():
        configure(
            task,
            [*names, "local"] if values.get("local", True) else names,
            dict(parse_assignment(s) for s in values.get("settings") or []),
        )
    elif task is not None:
        assert task.endswith(".toml"), task
