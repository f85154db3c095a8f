"""A card for each method, written from the registry: what it solves, a round, what is sent, cost, settings, BibTeX."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedprior
from pages import cell, table, write

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SOURCE = Path(fedprior.__file__).parent
READ = ("core", "engine", "methods", "priors", "wrappers")  # what a card depends on
ABOUT = """\
# Method cards

There is one card for each paper, written from the code when this site is built: the problem that the method solves, one
round of it, what travels between a client and the server, what it costs, and every setting with its default and where that
default comes from. [The methods side by side](../methods.md) says what to know before comparing them.

In the formulas $f_i$ is the loss of client $i$ on its own samples and $p_i$ its weight, its share of the samples. In a
round, $B$ is a batch of a client's own samples, fresh at each step, `grad` a gradient, and `<-` replaces the left side by
the right one. D is the number of parameters of a model.

"""


def papers() -> dict[str, list[str]]:
    """The names that each module of methods stands behind, in the order of the registry: ditto -> [ditto], ..."""
    from fedprior.methods import METHODS

    found: dict[str, list[str]] = {}
    for name, entry in METHODS.items():
        found.setdefault(entry.cls.__module__.rpartition(".")[2], []).append(name)
    return found


def card(names: list[str]) -> str:
    """The page of the methods of one paper."""
    from fedprior.methods import METHODS, make
    from fedprior.methods.references import bibtex, pseudocode

    classes = list(dict.fromkeys(METHODS.find(name).cls for name in names))
    module = inspect.getmodule(classes[0])
    about = " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())
    title, _, told = about.partition(": ")
    path = Path(inspect.getsourcefile(classes[0]) or "").relative_to(SOURCE.parent).as_posix()
    participation = make(names[0]).participation
    alternatives = f" `--set participation={participation[1]}` changes it." if len(participation) > 1 else ""
    trains = {"all": "Every client trains in a round", "sampled": "Only the sampled clients train in a round"}
    parts = [
        "---\nhtml_theme.sidebar_secondary.remove: true\n---",  # room for the tables
        f"# {title}",
        f"{told[:1].upper()}{told[1:].rstrip('.:')}.",
        *(" ".join(_summary(cls).split()) for cls in classes),
        "## What it solves",
        *(f"{_of(cls, classes)}$$\n{cls.objective}\n$$" for cls in classes),
        "## One round",
        f"```text\n{pseudocode(classes[0])}\n```",
        f"{trains[participation[0]]}, unless told otherwise.{alternatives} The code is in `src/{path}`.",
        "## What is sent, and what it costs",
        _costs(names),
        "## Settings",
        *(_settings(name, METHODS.find(name).preset) for name in _distinct(names)),
        "## Run it",
        f"```sh\nfedprior run digits-dnn {' '.join(f'-m {name}' for name in names if name != 'local')}\n```"
        if names != ["local"]
        else "```sh\nfedprior run digits-dnn -m fedavg    # Local is in every comparison\n```",
    ]
    if entry := bibtex(classes[0]):
        parts += ["## Cite", f"```bibtex\n{entry}\n```"]
    return "\n\n".join(parts) + "\n"


def _of(cls: type, classes: list[Any]) -> str:
    return f"{cls.__name__}:\n\n" if len(classes) > 1 else ""


def _summary(cls: type) -> str:
    """What a class says of itself, up to its example."""
    return (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("``", "`")


def _distinct(names: list[str]) -> list[str]:
    """One name for each class: names of one class differ in what they preset, which a line above its table says."""
    from fedprior.methods import METHODS

    return list({METHODS.find(name).cls: name for name in reversed(names)}.values())[::-1]


def _costs(names: list[str]) -> str:
    from fedprior.engine.cost import SAMPLES, measure, messages
    from fedprior.methods import make

    rows, size = [], 0
    for name in names:
        method = make(name)
        cost, parts = measure(method), messages(method.algorithm())
        size = parts.parameters
        sent = [", ".join(f"`{part}` {_in_d(n, size)}" for part, n in of.items()) or "nothing" for of in parts[:3]]
        work = f"{cost.gradients}" + (f" + {cost.hvps} Hessian-vector products" if cost.hvps else "")
        rows.append([f"`{name}`", *sent, work, str(cost.forward)])
    head = ["name", "a client receives", "sends", "keeps between rounds", "gradients", "other passes"]
    return table(head, rows, numbers=2) + (
        f"\nPer client and round, counted by running it at its defaults with a client of {SAMPLES} samples and batches of "
        f"{SAMPLES // 2}; sizes are those of the paper's DNN for MNIST with 100 clients, D = {size:,}."
    )


def _in_d(numbers: int, size: int) -> str:
    return f"{numbers / size:.3g} D" if numbers >= size / 100 else f"({numbers:,} numbers)"


def _settings(name: str, preset: Any) -> str:
    from fedprior.core.hyper import hypers
    from fedprior.methods import METHODS, make

    method: Any = make(name)
    rows, values = [], method.in_force()
    for key, about in hypers(method).items():
        tried = ", ".join(map(str, about.sweep))
        plain = next(field.default for field in dataclasses.fields(method) if field.name == key)
        source = "the method's name" if preset.get(key, plain) != plain else about.source
        rows.append([f"`{key}`", f"`{values[key]}`", cell(about.meaning), cell(source), cell(tried)])
    cls = METHODS.find(name).cls
    same = {other: entry.preset for other, entry in METHODS.items() if entry.cls is cls}
    lines = [
        f"- `{other}` stands for "
        + (", ".join(f"`{key}={value}`" for key, value in given.items()) or "the defaults")
        + "."
        for other, given in same.items()
    ]
    table_ = table(["setting", "default", "what it means", "where the default comes from", "a sweep tries"], rows)
    told = f"As `{name}` has them:\n\n" if len(same) > 1 else ""
    return ("\n".join(lines) + "\n\n" if len(same) > 1 else "") + told + table_


def generate(folder: Path) -> None:
    """Write all cards and their list into a folder, unless those that are there are newer than the code."""
    found = papers()
    newest = max(path.stat().st_mtime for room in READ for path in (SOURCE / room).rglob("*"))
    newest = max(newest, Path(__file__).stat().st_mtime)
    index = folder / "index.md"
    if index.exists() and index.stat().st_mtime > newest:
        return
    pages = {module: card(names) for module, names in found.items()}
    titles = {module: text.partition("\n# ")[2].partition("\n")[0] for module, text in pages.items()}
    rows = [[f"[{titles[module]}]({module}.md)", *_row(names)] for module, names in found.items()]
    listed = table(["card", "names", "paper", "trains"], rows)
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(found) + "\n```\n"
    for module, text in pages.items():
        write(folder / f"{module}.md", text)
    index.parent.mkdir(exist_ok=True)
    index.write_text(ABOUT + listed + "\n" + tree, encoding="utf-8")


def _row(names: list[str]) -> list[str]:
    from fedprior.methods import make

    method = make(names[0])
    return [", ".join(f"`{name}`" for name in names), cell(method.paper), method.participation[0]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx write the cards before it looks for pages."""
    app.connect("builder-inited", lambda app: generate(Path(app.srcdir) / "cards"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
