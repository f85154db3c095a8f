"""Loss deviation by hand, and against what a run recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprior.reproduce.paper.deviation import class_losses, deviations

from .quick import made


def test_by_hand() -> None:
    """Two clients and three classes: the first lacks the second class, and nobody has the third."""
    own = np.array([[2.0, np.nan, np.nan], [4.0, 1.0, np.nan]])
    samples = np.array([[3, 0, 0], [1, 5, 0]])
    pooled = np.array([[1.0, 6.0, np.nan], [3.0, 2.0, np.nan]])
    found = deviations(own, samples, pooled)
    # L-bar of class 0 is (3 * 2 + 1 * 4) / 4 = 2.5, of class 1 it is 1; the first client's loss there counts as 0.
    np.testing.assert_allclose(found.on_local, [2.0 - 2.5, 0.0 - 1.0, np.nan])
    # G-bar is the plain mean: 2 and 4.
    np.testing.assert_allclose(found.on_global, [1.0 - 2.0, 6.0 - 4.0, np.nan])
    second = deviations(own, samples, pooled, client=1)
    np.testing.assert_allclose(second.on_local, [4.0 - 2.5, 0.0, np.nan])


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    files, results = made("deviation", tmp_path, methods=("mh-released",), seeds=1, rounds=2)
    endings = (".csv", ".md", ".tex", ".png", ".pdf", ".txt", "-classes.csv")
    assert set(files) == {f"deviation-digits-mclr{ending}" for ending in endings}
    record = next(record for record in results.records if record.variant == "mh-released")
    losses = class_losses(record)
    total = losses.samples.sum(0)
    for data, values, samples in (("own", losses.own, losses.samples), ("pooled", losses.pooled, total[None])):
        mean = np.nansum(values * samples, axis=1) / samples.sum(1)
        rows = [row for row in record.clients if (row.round, row.model, row.data) == (2, "personal", data)]
        assert [row.values["nll"] for row in rows] == pytest.approx(mean.tolist(), rel=1e-5)
