"""A grid of settings as parallel coordinates, as the paper draws it, and as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprior.records.schema import ACCURACY
from fedprior.report.canvas import INK, literal, new_figure
from fedprior.report.sweeps import parallel_panel
from fedprior.reproduce.paper.drawing import SMALL, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Tried(Protocol):
    """A setting, and the accuracy that it gave."""

    @property
    def setting(self) -> dict[str, float]:
        """Names and values."""

    def accuracy(self, model: str) -> float | None:
        """In percent; None where it diverged."""


NAMES = {"lam": "lambda", "eta": "eta"}
TITLES = {"global": "G, global model", "personal": "P, personal models"}


def parallel_coordinates(title: str, tried: Sequence[Tried], models: Sequence[str]) -> Figure:
    """A line for each setting, through its values to its accuracy; a panel for each model, each with its own scale."""
    figure = new_figure(WIDTH, 3.0)
    for axes, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        cells = []
        for one in tried:
            value = one.accuracy(model)
            named = {NAMES[key]: number for key, number in one.setting.items()}
            cells.append({"setting": named, "validation": None if value is None else {"mean": value}})
        parallel_panel(axes, {"cells": cells, "chosen": None}, ACCURACY, "test")
        axes.tick_params(labelsize=SMALL)
        axes.set_title(f"{literal(title)}: {TITLES[model]}", loc="left", fontsize=SMALL + 1, pad=8)
    return figure


def heat_maps(title: str, tried: Sequence[Tried], models: Sequence[str]) -> Figure:
    """eta along x, lambda along y where it was varied; a panel for each model, each with its own scale."""
    lams: list[float | None] = [*sorted({one.setting["lam"] for one in tried if "lam" in one.setting})] or [None]
    etas = sorted({one.setting["eta"] for one in tried})
    figure = new_figure(WIDTH, 1.2 + 0.42 * max(2, len(lams)))
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        values = np.full((len(lams), len(etas)), np.nan)
        for one in tried:
            if (value := one.accuracy(model)) is not None:
                values[lams.index(one.setting.get("lam")), etas.index(one.setting["eta"])] = value
        _map(axes, values)
        axes.set_title(f"{literal(title)}: {TITLES[model]}", loc="left", fontsize=SMALL + 1)
        axes.set_xticks(range(len(etas)), [f"{eta:g}" for eta in etas])
        axes.set_yticks(range(len(lams)), ["task's" if lam is None else f"{lam:g}" for lam in lams])
        axes.set_xlabel("eta", fontsize=SMALL)
        axes.set_ylabel("lambda", fontsize=SMALL)
        axes.tick_params(labelsize=SMALL, length=0, colors=INK)
    return figure


def _map(axes: Axes, values: np.ndarray) -> None:
    """Accuracies in colours and in numbers, in ink that can be read on them; what diverged is named."""
    from matplotlib import colormaps

    low, high = (np.nanmin(values), np.nanmax(values)) if np.isfinite(values).any() else (0.0, 1.0)
    colours = colormaps["viridis_r"]  # dark for the best, as the lines are
    axes.imshow(values, cmap=colours, vmin=low, vmax=max(high, low + 1e-9), aspect="auto", origin="lower")
    axes.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        light = not np.isfinite(value) or (value - low) / max(high - low, 1e-9) < 0.4
        text = f"{value:.1f}" if np.isfinite(value) else "diverged"
        axes.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=INK if light else "white")
