"""One site's samples: what its owner's function gives, checked against what all sites must have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.data.federation import Samples
from fedprior.data.given import as_flags, as_numbers, require_finite
from fedprior.data.own_file import from_file
from fedprior.data.partitions import natural
from fedprior.errors import FedpriorError, first_line
from fedprior.files import array_digest, digest
from fedprior.flower.messages import Shareable
from fedprior.flower.spec import SiteSettings


class Site(NamedTuple):
    """A site's training and test samples, each as one client's."""

    train: Samples
    test: Samples
    fingerprint: str

    @property
    def sizes(self) -> tuple[int, int]:
        """How many samples there are to train and to test."""
        return int(self.train.size[0]), int(self.test.size[0])


def samples_from_file(
    path: Path | str, *, label: str, features: Sequence[str], split: str | None = None
) -> tuple[np.ndarray, ...]:
    """A site's samples from its own CSV, Parquet or NPZ file, by the names of its columns: (x, y) or (x, y, is_test).

    Numbers are taken as they are: scale them alike on all sites, or leave them.
    """
    source = from_file(Path(path).expanduser(), label=label, split=split, features=features, everyones=False)
    labels = np.array(source.class_names or range(source.n_classes), object)[source.y]
    return (source.x, labels) if source.is_test is None else (source.x, labels, source.is_test)


def load_site(load: Callable[[], Any], settings: SiteSettings) -> Site:
    """A site from its owner's code; whatever that raises is told in one line."""
    try:
        given = load()
    except FedpriorError:
        raise
    except Exception as error:
        raise FedpriorError(f"this site's data cannot be loaded: {first_line(error)}") from error
    return open_site(given, settings)


def open_site(given: Any, settings: SiteSettings) -> Site:
    """A site from (x, y) or (x, y, is_test); without ``is_test``, a seeded quarter of the samples is the test."""
    try:
        x, y, *rest = given
        (own,) = rest or (None,)
    except (TypeError, ValueError) as error:
        raise FedpriorError(
            f"this site's data must be (x, y) or (x, y, is_test), not {type(given).__name__}"
        ) from error
    samples = as_numbers(x, "x", np.float32)
    if samples.shape[1:] != (shape := tuple(settings.shape)):
        raise Shareable(f"this site's samples are of shape {samples.shape[1:]}, and the federation's of {shape}")
    require_finite(samples, " of this site")
    labels = _numbered(_column(y, "y"), settings)
    if len(labels) != len(samples) or len(samples) < 2:
        raise Shareable(
            f"this site has {len(samples)} samples and {len(labels)} labels; give one for each, and two or more"
        )
    if own is not None:
        own = as_flags(_column(own, "is_test"), "is_test")
        if len(own) == len(labels) and len(set(own.tolist())) < 2:
            marked, lacks = ("testing", "training") if own[0] else ("training", "testing")
            raise Shareable(f"all {len(own)} samples of this site are marked for {marked}; mark some for {lacks} too")
    parts = natural(labels, np.zeros(len(labels), np.int32), is_test=own, test_fraction=0.25)
    train, test = (_padded(samples[index], labels[index]) for index in (parts.train[0], parts.test[0]))
    arrays = (samples, labels, parts.train[0], parts.test[0])
    return Site(train, test, digest(*map(array_digest, arrays)))


def _column(given: Any, what: str) -> np.ndarray:
    """One value for each sample."""
    try:
        column = np.asarray(given)
    except ValueError as error:
        raise FedpriorError(f"this site's {what} must be one value for each sample ({first_line(error)})") from error
    if column.ndim != 1:
        raise Shareable(f"this site's {what} must be one value for each sample, and is of shape {column.shape}")
    return column


def _numbered(y: np.ndarray, settings: SiteSettings) -> np.ndarray:
    number: dict[Any, int] = {name: k for k, name in enumerate(settings.classes)}
    # By their texts, too, which differ: a site whose labels all look like numbers reads 1 where the federation says "1".
    by_text = {str(name): k for name, k in number.items()}
    labels: list[Any] = y.tolist()
    found: list[Any] = [
        number.get(label, by_text.get(str(label))) if isinstance(label, str | int | float) else None for label in labels
    ]
    if None in found:
        raise FedpriorError(
            f"this site has a label {repr(labels[found.index(None)])[:80]}; the federation's are "
            f"{', '.join(map(repr, number))}"
        )
    return np.array(found, np.int32)


def _padded(x: np.ndarray, y: np.ndarray) -> Samples:
    """One client's samples, filled up to a power of two: sites of similar size then share compiled programs."""
    n = len(y)
    filling = (1 << max(n - 1, 0).bit_length()) - n
    zeros = np.zeros((filling, *x.shape[1:]), x.dtype)
    return Samples(
        np.concatenate([x, zeros]),
        np.concatenate([y, np.zeros(filling, np.int32)]),
        np.zeros(1, np.int32),
        np.array([n], np.int32),
    )
