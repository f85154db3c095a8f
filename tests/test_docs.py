"""The README's and the docs' code runs, as it is written."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fedprior.cli import app
from fedprior.data.partitions import PARTITIONS
from fedprior.data.sources import SOURCES
from fedprior.engine.metrics import METRICS
from fedprior.engine.selection import SELECTIONS
from fedprior.methods import METHODS
from fedprior.models import MODELS
from fedprior.priors import PRIORS
from fedprior.priors.means import MEANS
from fedprior.registry import Registry
from fedprior.study.assignment import parse_assignment
from fedprior.study.file import read_study
from fedprior.study.grid import check_grid, read_grid
from fedprior.study.settings import is_task_key, read, task_names
from fedprior.study.study import Study
from fedprior.study.variant import Variant
from fedprior.wrappers import WRAPPERS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = ("cards", "reference/commands.md", "reference/changelog.md")  # written when the site is built
TABLES = "reproduction/*/**/*.md"  # written by `fedprior reproduce`, beside the page that tells of them
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted({*DOCS.rglob("*.md")} - {*DOCS.glob(TABLES)})
        if not page.relative_to(DOCS).as_posix().startswith(GENERATED)
    ),
]
NOTEBOOKS = sorted([*DOCS.glob("which-method.py"), *DOCS.glob("ideas/*.py"), *DOCS.glob("gallery/*.py")])
REGISTRIES: list[Registry[Any]] = [
    *(METHODS, WRAPPERS, METRICS, MODELS, SOURCES, PARTITIONS, PRIORS, MEANS, SELECTIONS),
]


def blocks(language: str) -> Iterator[tuple[Path, int, str]]:
    """A page, which of its blocks of a language it is, and the block's text."""
    for page in PAGES:
        for k, code in enumerate(re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)):
            yield page, k, code


def parameters(language: str) -> list[Any]:
    cases = []
    for page, k, code in blocks(language):
        if page.name == "your-data.md":  # test_your_data.py follows it from beginning to end
            continue
        # A page's Python trains: but for one page, it runs with the slow tests.
        slow = language == "python" and page.name != "add-a-method.md"
        marks = [pytest.mark.slow] if slow else []
        cases.append(pytest.param(code, id=f"{page.name}-{k}", marks=marks))
    return cases


@pytest.fixture
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers stays on that page."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("code", parameters("python"))
def test_python_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.py").write_text(code)
    runpy.run_path(str(tmp_path / "page.py"))


# The table that pages speak of.
HOSPITALS = "\n".join(
    ["patient_id,hospital,age,bp,diagnosis", *(f"p{k},{'AB'[k % 2]},{40 + k},{120 - k},{k % 3}" for k in range(24))]
)


@pytest.mark.parametrize("code", parameters("toml"))
def test_toml_blocks_are_valid(code: str, tmp_path: Path) -> None:
    """A study's block has variants; any other block is a task."""
    path = tmp_path / "mine.toml"
    path.write_text(code)
    (tmp_path / "hospitals.csv").write_text(HOSPITALS)
    study = read_study(path) if "variants" in tomllib.loads(code) else Study(str(path), ["mh"])
    assert study.programs


COMMANDS = sorted(
    {
        line.strip()
        for page, _, code in blocks("sh")
        if page.name != "deploy.md"  # flower/test_loopback.py follows it from beginning to end
        for line in code.splitlines()
        if "fedprior " in line
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_things_that_exist(command: str) -> None:
    """Tasks, methods, options and settings in the docs' commands are real (running them all would take hours)."""
    words = shlex.split(command.split("#")[0])
    words = words[next(i for i, word in enumerate(words) if word.endswith("fedprior")) :]
    group: Any = typer.main.get_command(app)
    values = group.commands[words[1]].make_context(words[1], list(words[2:]), resilient_parsing=False).params
    METRICS.find(values.get("metric") or "accuracy")
    settings = dict(parse_assignment(text) for text in values.get("settings") or [])
    for name in (values.get("task"), str(values["file"]) if "file" in values else None):
        assert name in (None, *task_names()) or str(name).endswith(".toml"), name
    if (task := values.get("task")) in task_names():
        read(task, {key: value for key, value in settings.items() if is_task_key(key)})
    if values.get("method"):
        names = list(METHODS) if "all" in values["method"] else values["method"]
        study = Study("digits-mclr", [Variant.parse(name) for name in names], **settings)
        assert study.rows
        check_grid([row.method_name for row in study.variants], read_grid(values.get("grid") or []), settings)


def prose(page: Path) -> str:
    """What a page says outside of its code."""
    text = page.read_text()
    if page.suffix == ".py":
        cells = re.findall(r"^# %% \[markdown\]\n((?:#.*\n)+)", text, re.M)
        return re.sub(r"^# ?", "", "\n".join(cells), flags=re.M)
    return re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.M | re.S)


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(page)):
        if "://" not in target:
            path = (page.parent / target).resolve()
            generated = path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix().startswith(GENERATED)
            assert generated or path.exists(), f"{page.name}: {target}"


def test_every_page_is_listed_in_one_above_it() -> None:
    listed = {DOCS / "index"}
    for page in PAGES[1:]:
        for tree in re.findall(r"^```\{(?:toctree|gallery)\}\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in tree.splitlines():
                if line and not line.startswith(":"):
                    listed.add(page.parent / re.sub(r"^.*<(.*)>$", r"\1", line.strip()))
    assert {page.with_suffix("") for page in [*PAGES[1:], *NOTEBOOKS]} <= listed
    generated = {path for path in listed if path.relative_to(DOCS).as_posix().startswith(("cards", "reference/c"))}
    assert {path for path in listed - generated if not list(path.parent.glob(f"{path.name}.*"))} == set()


PICTURES = ("figure", "results.curves()", "draw(", "client_differences(", "sweep_picture(")


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.name)
def test_pictures_say_in_words_what_they_show(page: Path) -> None:
    for words in re.findall(r"!\[([^\]]*)\]\(", prose(page)):
        assert len(words.split()) >= 4, words
    for cell in re.split(r"^(?=# %%)", page.read_text(), flags=re.M)[1:] if page in NOTEBOOKS else []:
        *_, last = cell.strip().splitlines()
        if last.startswith(PICTURES):
            head = cell.partition("\n")[0]
            words = re.search(r'"alt": "([^"]+)"', head)
            assert words, f"no alternative: {head}"
            assert len(words[1].split()) >= 8


@pytest.mark.slow
@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebooks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(page.parent)
    runpy.run_path(str(page))
