"""Statistics against hand-counted ones, and a picture which is a picture."""

from __future__ import annotations

import numpy as np
import pytest

from fedprior.analysis.partitions import picture, statistics
from fedprior.data import partition as parts
from fedprior.data.partition import Partition
from fedprior.errors import FedpriorError


def by_hand() -> Partition:
    """Client 0 holds labels 0 0 0 1, client 1 holds 1 1."""
    y = np.array([0, 0, 0, 1, 1, 1])
    return Partition((np.array([0, 1, 3]), np.array([4])), (np.array([2]), np.array([5])), y)


def test_statistics_by_hand():
    assert statistics(by_hand(), 2) == {
        "clients": 2,
        "train": 4,
        "test": 2,
        "size_min": 2,
        "size_median": 3.0,
        "size_max": 4,
        "classes_per_client": 1.5,
        "majority_share": pytest.approx(5 / 6),
        "label_distance": pytest.approx((1 / 4 + 1 / 2) / 2),
    }


def test_iid_is_near_and_one_class_each_is_far():
    y = np.repeat(np.arange(5), 400)
    near = statistics(parts.iid(y, clients=4), 5)
    far = statistics(parts.pathological(y, clients=5, classes_per_client=1), 5)
    assert near["label_distance"] < 0.05
    assert far["label_distance"] == pytest.approx(0.8)


def test_the_mnist_partition_has_its_known_majority_share():
    digits = np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])
    s = statistics(parts.lognormal(digits, clients=100, labels_per_client=3), 10)
    assert round(s["majority_share"], 2) == 0.62
    assert (s["size_min"], s["size_median"], s["size_max"]) == (74, 435, 4017)


def test_too_few_classes_are_refused():
    with pytest.raises(FedpriorError, match="n_classes=1, but there is a label 1; valid: 2 and above"):
        statistics(by_hand(), 1)


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (3, 4), (100, 62), (250, 2)])
def test_picture_is_written_for_any_size(tmp_path, clients, classes):
    import matplotlib as mpl
    from PIL import Image

    before = mpl.get_backend(auto_select=False)
    y = np.tile(np.arange(classes), 4 * clients)
    picture(parts.iid(y, clients=clients), classes, tmp_path / "p.png", "a title")
    with Image.open(tmp_path / "p.png") as image:
        assert image.size == (1350, 930)
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert mpl.get_backend(auto_select=False) == before


def test_picture_may_be_written_beside_and_moved(tmp_path):
    picture(by_hand(), 2, tmp_path / "p.svg.tmp", "a title")
    assert b"<svg" in (tmp_path / "p.svg.tmp").read_bytes()


@pytest.mark.parametrize("path", ["absent/p.png", "p.unknown"])
def test_picture_tells_where_it_cannot_write(tmp_path, path):
    with pytest.raises(FedpriorError, match="cannot write the picture"):
        picture(by_hand(), 2, tmp_path / path, "a title")
