"""The values that the paper prints, from published.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Printed:
    """A row of one of the paper's tables."""

    line: int  # of paper.tex
    values: Mapping[str, float]  # by column; blanks are left out
    statistics: Mapping[str, float]
    plus_minus: Mapping[str, float]  # the largest deviation of a run from the mean
    arrows: Mapping[str, str]  # up or down, by column and statistic: where the row lies against another one
    more: Mapping[str, Any]  # what only this table has: cost, model


@functools.cache
def published(table: str) -> dict[str, Printed]:
    """The rows of a table that the paper prints; none for what it shows as a figure.

    >>> published("table1")["mh+AM"].values["cifar10-cnn"], published("table1")["pFedBayes"].statistics
    (80.6, {})
    """
    text = (resources.files("fedprior.reproduce.paper") / "published.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text).get(table)
    if content is None:
        return {}

    def numbers(names: list[str], given: list[Any]) -> dict[str, float]:
        return {name: float(x) for name, x in zip(names, given, strict=True) if x != "-"} if given else {}

    columns, statistics = content["columns"], content["statistics"]
    known = ("line", "values", "statistics", "plus_minus", "arrows")
    return {
        name: Printed(
            row["line"],
            numbers(columns, row["values"]),
            numbers(statistics, row["statistics"]),
            numbers(columns, row.get("plus_minus", [])),
            dict(zip([*columns, *statistics], row["arrows"], strict=True)) if "arrows" in row else {},
            {key: value for key, value in row.items() if key not in known},
        )
        for name, row in content["rows"].items()
    }
