"""A picture of a partition which is a picture, for any size and wherever it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedprior.data.partitions import Partition, iid, statistics
from fedprior.errors import FedpriorError
from fedprior.report.partitions import draw, picture
from report.drawings import inside_page, overlapping, panels_of, texts_of


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
        assert image.size == (1350, 1549 if classes == 62 else 930)
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert mpl.get_backend(auto_select=False) == before


def test_picture_says_the_numbers_of_the_partition(tmp_path: Path) -> None:
    picture(by_hand(), 2, tmp_path / "p.svg", "a title")
    drawn = (tmp_path / "p.svg").read_text()
    for text in ("a title: 2 clients, 6 samples", "train, 4 in all", "test, 2 in all", "median client, 3"):
        assert f"<!-- {text} -->" in drawn
    y = np.array([0] * 5)
    odd = Partition((np.array([0]), np.array([2, 3])), (np.array([1]), np.array([4])), y)
    texts = texts_of(draw(odd, 1, "a title"))
    assert "median client, 2.5" in texts  # and not 2, as rounding would have it
    assert statistics(odd, 1)["size_median"] == 2.5


def small_first() -> Partition:
    """Client "a" holds labels 1 1, client "b" 0 0 0 1, client "$c^2$" 0 1 1."""
    y = np.array([1, 1, 0, 0, 0, 1, 0, 1, 1])
    train, test = (np.array([0]), np.array([2, 3, 4]), np.array([6, 7])), (np.array([1]), np.array([5]), np.array([8]))
    return Partition(train, test, y, ("a", "b", "$c^2$"))


def test_both_panels_have_the_clients_in_one_order() -> None:
    figure = draw(small_first(), 2, "$t_1$", ("no", "$yes$"))
    above, below, *_ = panels_of(figure)
    assert below.get_shared_x_axes().joined(above, below)
    assert {"$c^2$", "a", "b", "no", "$yes$", "$t_1$: 3 clients, 9 samples"} <= set(texts_of(figure))
    assert [label.get_text() for label in below.get_xticklabels()] == ["b", r"\$c^2\$", "a"]  # the largest first
    counts = above.collections[0].get_array().filled(0)
    assert counts.tolist() == [[3, 1, 0], [1, 2, 2]]
    train, all_ = (patch.get_data().values for patch in below.patches)
    assert train.tolist() == [3, 2, 1]
    assert all_.tolist() == counts.sum(0).tolist()
    assert above.get_position().x0 == pytest.approx(below.get_position().x0)
    assert above.get_position().x1 == pytest.approx(below.get_position().x1)


def test_many_clients_and_classes_can_be_read() -> None:
    y = np.tile(np.arange(62), 400)
    figure = draw(iid(y, clients=100), 62, "a title")
    figure.draw_without_rendering()
    above, below, *_ = panels_of(figure)
    assert len(below.get_xticklabels()) == 100
    assert len(above.get_yticklabels()) == 62
    assert overlapping(below.get_xticklabels()) == overlapping(above.get_yticklabels()) == 0
    assert inside_page(figure)
    _, below, *_ = panels_of(draw(iid(y, clients=200), 62, "a title"))
    assert not below.get_xticklabels()
    assert below.get_xlabel() == "clients, largest first"


def test_picture_is_of_the_kind_that_its_name_says(tmp_path: Path) -> None:
    picture(by_hand(), 2, tmp_path / "new" / "p.svg", "a title")
    assert b"<svg" in (tmp_path / "new" / "p.svg").read_bytes()
    with pytest.raises(FedpriorError, match=r"unknown kind 'unknown' of picture \(p.unknown\)"):
        picture(by_hand(), 2, tmp_path / "p.unknown", "a title")


def test_picture_tells_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FedpriorError, match=r"cannot write .*p\.png"):
        picture(by_hand(), 2, tmp_path / "file" / "p.png", "a title")


def test_too_few_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="n_classes=1, but there is a label 1; valid: 2 and above"):
        picture(by_hand(), 1, tmp_path / "p.png", "a title")
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_loaded_when_a_picture_is_drawn() -> None:
    code = "import sys, fedprior.report.partitions; assert not {'matplotlib', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
