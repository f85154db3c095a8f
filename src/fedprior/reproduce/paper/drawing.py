"""What the figures have in common: their look, the colours of methods, and a caption beside each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.errors import FedpriorError
from fedprior.files import write_text
from fedprior.report.canvas import COLORS, INK, MARKERS, literal
from fedprior.report.tables import Table, render
from fedprior.reproduce.paper.artefact import Request
from fedprior.reproduce.paper.writing import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 6.9  # inches: the text of a page; letters are large enough for a column
SMALL = 8


def styles(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each row; Local, the reference, is grey."""
    others = [label for label in labels if label != "Local"]
    own = {label: (COLORS[k % len(COLORS)], MARKERS[k % len(MARKERS)]) for k, label in enumerate(dict.fromkeys(others))}
    return {"Local": ("#777777", "."), **own}


def dress(axes: Axes, title: str, x: str, y: str) -> None:
    """A panel's title and labels, without the frame that says nothing."""
    axes.set_title(literal(title, 80), loc="left", fontsize=SMALL + 1)
    axes.set_xlabel(x, fontsize=SMALL)
    axes.set_ylabel(y, fontsize=SMALL)
    axes.tick_params(labelsize=SMALL, colors=INK)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend_below(figure: Figure, columns: int = 5) -> None:
    """One legend for all panels."""
    drawn = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes]
    by_label = {label: handle for panel in drawn for handle, label in panel}
    ncols = min(columns, len(by_label))
    figure.legend(
        [*by_label.values()], [*by_label], loc="outside lower center", ncols=ncols, frameon=False, fontsize=SMALL
    )


def command_of(name: str, request: Request) -> str:
    """The command that makes an artefact.

    >>> command_of("gce", Request(tasks=("mnist-dnn",), quick=False, rounds=50))
    'fedprior reproduce gce --tasks mnist-dnn --rounds 50'
    """
    given = [("--tasks", request.tasks), ("--methods", request.methods)]
    words = [word for option, names in given if names is not None for word in (option, ",".join(names))]
    numbers = [("--seeds", request.seeds), ("--rounds", request.rounds)]
    words += [word for option, number in numbers if number is not None for word in (option, str(number))]
    switches = [f"--{name}" for name in ("tuned", "quick") if getattr(request, name)]
    return shlex.join(["fedprior", "reproduce", name, *words, *switches])


def refuse(name: str, request: Request, *options: str) -> None:
    """Refuse options that an artefact for which nothing is trained has no use for."""
    if given := [option for option in options if getattr(request, option) is not None]:
        raise FedpriorError(f"{name} has no use for --{given[0]}: nothing is trained for it; leave it out")


def write_captioned(folder: Path, stem: str, figure: Figure, caption: str, name: str, request: Request) -> list[Path]:
    """A figure, and beside it in words what it shows and which command made it."""
    paths = write_figure(folder, stem, figure)
    write_text(text := folder / f"{stem}.txt", f"{caption}\n\nMade by: {command_of(name, request)}\n")
    return [*paths, text]


def write_values(folder: Path, stem: str, head: Sequence[str], lines: Sequence[Sequence[object]]) -> Path:
    """Plain values behind a figure, as CSV."""
    table = Table("", "", tuple(head), (), numbers=(tuple(head), *map(tuple, lines)))
    write_text(path := folder / f"{stem}.csv", render(table, "csv") + "\n")
    return path
