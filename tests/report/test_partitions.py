"""A picture of a partition which is a picture, for any size and wherever it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedprior.data.partitions import Partition, iid
from fedprior.errors import FedpriorError
from fedprior.report.partitions import picture


def by_hand() -> Partition:
    """Client 0 holds labels 0 0 0 1, client 1 holds 1 1."""
    y = np.array([0, 0, 0, 1, 1, 1])
    return Partition((np.array([0, 1, 3]), np.array([4])), (np.array([2]), np.array([5])), y)


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (2, 1), (3, 4), (100, 62), (250, 2)])
def test_picture_is_written_for_any_size(tmp_path: Path, clients: int, classes: int) -> None:
    import matplotlib as mpl
    from PIL import Image

    before = mpl.get_backend(auto_select=False)
    y = np.tile(np.arange(classes), 4 * clients)
    picture(iid(y, clients=clients), classes, tmp_path / "p.png", "a title")
    with Image.open(tmp_path / "p.png") as image:
        assert image.size == (1350, 930)
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert mpl.get_backend(auto_select=False) == before


def test_picture_says_the_numbers_of_the_partition(tmp_path: Path) -> None:
    picture(by_hand(), 2, tmp_path / "p.svg", "a title")
    drawn = (tmp_path / "p.svg").read_text()
    for text in ("a title", "train, 4 in all", "test, 2 in all", "median client, 3"):
        assert f"<!-- {text} -->" in drawn


def test_picture_may_be_written_beside_and_moved(tmp_path: Path) -> None:
    picture(by_hand(), 2, tmp_path / "p.svg.tmp", "a title")
    assert b"<svg" in (tmp_path / "p.svg.tmp").read_bytes()


@pytest.mark.parametrize("path", ["absent/p.png", "p.unknown"])
def test_picture_tells_where_it_cannot_write(tmp_path: Path, path: str) -> None:
    with pytest.raises(FedpriorError, match="cannot write the picture"):
        picture(by_hand(), 2, tmp_path / path, "a title")


def test_too_few_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="n_classes=1, but there is a label 1; valid: 2 and above"):
        picture(by_hand(), 1, tmp_path / "p.png", "a title")
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_loaded_when_a_picture_is_drawn() -> None:
    code = "import sys, fedprior.report.partitions; assert not {'matplotlib', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
