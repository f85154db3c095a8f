"""Which columns of a file are wanted, and what was read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data.cells import Place
from fedprior.errors import FedpriorError, unknown


@dataclass(frozen=True)
class Table:
    """What was read of a file."""

    where: str  # the file's name
    names: tuple[str, ...]  # of all columns that the file has
    columns: tuple[str, ...]  # of the features, in the order in which a sample has them
    x: npt.NDArray[np.float32]  # [n, d], or [n, ...] of a single array
    others: dict[str, list[Any]]  # columns that are no features, as they stand in the file: texts, or numbers too
    place: Place  # what the k-th row is called


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read, by their names."""

    features: tuple[str, ...] | None = None  # in this order; None: all that are named nowhere else
    named: tuple[str, ...] = ()  # read as they are: names of classes, clients and parts
    optional: tuple[str, ...] | None = ()  # read as they are where the file has them; None: all the others
    ignore: tuple[str, ...] = ()
    drop: str = "list it under data.ignore"  # in an error: how to do without a column

    def choose(self, names: Sequence[str], where: str, hidden: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """The names of the features and of what is read besides, among the columns that a file has; ``hidden`` ones are
        no features unless they are named.

        >>> Columns(named=("site",), ignore=("id",)).choose(["id", "site", "age", "dose"], "a.csv")
        (['age', 'dose'], ['site'])
        """
        for k, name in enumerate(names, start=1):
            if not name.isprintable():
                raise FedpriorError(
                    f"the name of column {k} of {where}, {name!r}, holds what cannot be printed; rename it"
                )
        for name, times in Counter((*(self.features or ()), *dict.fromkeys(self.named), *self.ignore)).items():
            if times > 1:  # a label among the features would be learnt by heart
                raise FedpriorError(
                    f"column '{name}' of {where} is asked for twice (as a feature, label, client or split, or to be "
                    "ignored); a column can be one of them, once"
                )
        taken, left_out = {*self.named, *self.ignore}, {*self.named, *self.ignore, *hidden}
        for name in (*(self.features or ()), *self.named, *self.ignore):
            if name not in names:
                raise unknown(f"column of {where}", name, dict.fromkeys(names))
        features = (
            list(self.features) if self.features is not None else [name for name in names if name not in left_out]
        )
        if not features:
            raise FedpriorError(
                f"no column of {where} is left to learn from; it has {', '.join(map(repr, names))}; all of "
                "them are the label, the client, the split or a data frame's index, or are ignored"
            )
        rest = [name for name in names if name not in features and name not in taken]
        more = rest if self.optional is None else [name for name in rest if name in self.optional]
        kept = [*dict.fromkeys(self.named), *dict.fromkeys(more)]
        count = Counter(names)
        for name in (*features, *kept):
            if count[name] > 1 or (not name and name not in more):  # what is only kept beside may go without
                at = [str(k) for k, other in enumerate(names, start=1) if other == name]
                raise FedpriorError(
                    f"columns {' and '.join(at)} of {where} are all called '{name}'; rename them, or {self.drop}"
                    if name
                    else f'column {at[0]} of {where} has no name; name it in the first line, or {self.drop} (as "")'
                )
        return features, kept
