"""Grids of settings: what is tried, how far accuracy varies, and a quick one from end to end."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedprior.methods import make
from fedprior.methods.pfedbred import PFedBreD
from fedprior.reproduce.paper import ablation
from fedprior.reproduce.paper.grid_pictures import heat_maps
from fedprior.reproduce.paper.hyperparameters import (
    DOUBLED,
    GRIDS,
    LINEAR,
    NETWORK,
    Grid,
    Tried,
    _caption,
    widest_range,
)
from fedprior.reproduce.paper.rows import LG, MEG, MH
from fedprior.reproduce.paper.tasks import TASKS

from .quick import made


class Made:
    """A setting with an accuracy for both models."""

    def __init__(self, lam: float, eta: float, accuracy: float | None):
        self.setting, self._accuracy = {"lam": lam, "eta": eta}, accuracy

    def accuracy(self, model: str) -> float | None:
        return self._accuracy


def test_the_grids_reach_the_ends_of_the_papers_ranges() -> None:
    assert (len(list(LINEAR.settings())), len(list(NETWORK.settings()))) == (25, 9)
    assert all(grid.eta[0] == 0 for grid in GRIDS.values())
    assert all(grid.lam[0] == 0 for grid in GRIDS.values() if grid.lam)
    assert (LINEAR.eta[-1], LINEAR.lam[-1], GRIDS["cifar10-cnn"].eta[-1], GRIDS["sent140-lstm"].eta[-1]) == (
        1,
        100,
        0.5,
        0.4,
    )
    assert list(Grid(5, (0.0, 0.1)).settings()) == [{"eta": 0.0}, {"eta": 0.1}]


def test_doubled_is_twice_what_is_in_force() -> None:
    released, meg = make(LG.method), make(MEG.method)
    assert isinstance(released, PFedBreD)
    assert isinstance(meg, PFedBreD)
    tried = {row.variant: dict(row.changes) for row in DOUBLED}
    steps = [tried[name].get("eta_alpha", released.order_in_force.eta_alpha) for name in tried if name.startswith("lg")]
    assert steps == [0.01, 0.02, 0.05, 0.1]  # the paper's and twice that, the released code's and twice that
    assert tried["meg-released eta=0.1"]["eta"] == 2 * meg.eta


def test_a_row_of_one_name_is_one_setting_in_the_ablation_too() -> None:
    rows = {row.variant: (row.method, dict(row.changes)) for row in ablation.RELEASED.rows}
    assert all(rows[row.variant] == (row.method, dict(row.changes)) for row in DOUBLED if row.variant in rows)
    assert "lg-released eta_alpha=0.01" in rows


def test_what_the_papers_figure_varies_and_ours_does_not_is_told() -> None:
    rows = [Tried({"eta": eta}, {"global": None, "personal": None}) for eta in (0.0, 0.1)]
    told = [_caption(TASKS.find(name), MH, rows) for name in ("sent140-lstm", "cifar10-cnn", "mnist-mclr")]
    assert "settings of eta, where the paper varies lambda too" in told[0]
    assert "settings of eta:" in told[1]
    assert "settings of lambda (lam) and eta:" in told[2]


def test_a_setting_that_is_alone_has_no_range() -> None:
    assert widest_range({(("eta", 0.0),): 50.0, (("eta", 1.0),): 47.5}, "eta") == 2.5
    assert widest_range({(("eta", 0.0),): 50.0}, "eta") is None
    assert widest_range({(("eta", 0.0),): 50.0, (("eta", 1.0),): 47.5}, "lam") is None


def test_a_heat_map_says_what_diverged() -> None:
    tried = [Made(1, 0, 50.0), Made(1, 1, 62.5), Made(30, 0, None), Made(30, 1, 71.25)]
    figure = heat_maps("digits", tried, ("global", "personal"))
    for axes in figure.axes:
        at = {text.get_position(): text.get_text() for text in axes.texts}
        assert at == {(0, 0): "50.0", (1, 0): "62.5", (0, 1): "diverged", (1, 1): "71.2"}
        assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "30"]


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    files, _ = made("hyperparameters", tmp_path, methods=("mh-released", "mh"), rounds=2)
    assert {"hyperparameters-heat-digits-mclr.png", "hyperparameters-parallel-digits-mclr.pdf"} <= set(files)
    assert "hyperparameters-heat-digits-mclr-paper-order.png" in files
    cells = [line for line in csv.DictReader(files["cells.csv"].read_text().splitlines()) if line["round"] == "last"]
    by_row = {order: [line for line in cells if line["row"].startswith(order)] for order in ("mh, lam", "mh, paper's")}
    for lines in by_row.values():
        assert len(lines) == 8  # two by two settings, two models
        assert len({line["mean"] for line in lines if line["model"] == "personal"}) > 1
    # At lambda = 0 the paper's global model stays where it began; the released code moves it along the loss gradient.
    still = [
        {line["mean"] for line in lines if line["model"] == "global" and "lam=0 " in line["row"]}
        for lines in by_row.values()
    ]
    assert [len(means) for means in still] == [1, 1]  # and eta does nothing, since it moves only the prior's mean
    assert still[0] != still[1]
    assert files["hyperparameters.md"].read_text().count("how far accuracy") == 2
