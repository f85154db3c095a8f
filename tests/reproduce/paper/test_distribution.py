"""Who holds what: counts against the source, and a quick one from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedprior.errors import FedpriorError
from fedprior.reproduce.paper import heterogeneity
from fedprior.reproduce.paper.distribution import draw, holdings
from fedprior.reproduce.paper.tasks import TASKS

from .quick import made


def test_counts_are_those_of_the_source() -> None:
    held = holdings(TASKS.find("digits-mclr"), "digits")
    assert held.statistics["train"] == held.counts["train"].sum()
    assert held.statistics["test"] == held.counts["test"].sum()
    everyone = sum(held.counts[part].sum(0) for part in ("train", "test"))
    np.testing.assert_array_equal(everyone, np.bincount(load_digits().target))


def test_a_dirichlet_setting_has_equal_sizes_and_less_skew_with_a_larger_alpha() -> None:
    data = [holdings(task, task.column) for task in heterogeneity.QUICK]
    assert all(held.statistics["size_min"] == held.statistics["size_max"] for held in data)
    distances = [held.statistics["label_distance"] for held in data]
    assert distances == sorted(distances, reverse=True)
    shown = [axes.get_title(loc="left") for axes in draw(data[:2], across=1).axes]
    assert shown[:4] == ["alpha 0.01, test", "alpha 0.01, train", "alpha 1, test", "alpha 1, train"]


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    files, results = made("distribution", tmp_path)
    assert not results.records
    assert {"distribution.md", "distribution-digits-mclr.pdf", "distribution-dirichlet.png"} <= set(files)
    counted = [line.split(",") for line in files["distribution-counts.csv"].read_text().splitlines()[1:]]
    assert sum(int(line[-1]) for line in counted if line[0] == "digits-mclr") == len(load_digits().target)


@pytest.mark.parametrize(
    ("name", "option"), [("distribution", {"rounds": 3}), ("complexity", {"tasks": ("digits-mclr",)})]
)
def test_options_without_a_use_are_refused(name: str, option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match=f"{name} has no use for --{next(iter(option))}"):
        made(name, tmp_path, **option)
