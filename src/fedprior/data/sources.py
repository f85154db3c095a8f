"""Names to arrays: where the samples come from, before anybody decides which client holds them.

`load("digits")` needs nothing but scikit-learn. The other names are data sets of the hub, read by `fedprior.data.hub`
from a folder or from the hub itself.

A data set of your own becomes a name that task files can use with one line: register either a `Spec`, for pictures or
texts in the hub's layout, or a function that returns a `Source`::

    SOURCES.register("letters", Spec("grey pictures of letters", "owner/letters", n_classes=26, normalize="unit"))

    def mine() -> Source:
        table = np.load("mine.npz")
        return from_arrays(table["x"], table["y"], client_id=table["who"])

    SOURCES.register("mine", mine)

A function that takes the argument `normalize` is given the task's `data.normalize` where that is set.

Normalisation follows the generators released with the paper (BDeMo/pFedBreD_public). There, `pixel` and `scalar` use
the mean and deviation of *all* samples, those for testing included. This leaks a little of the test data into training
and is kept for comparison with published numbers; `half` and `unit` do not leak.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data import hub
from fedprior.data.decode import numbered
from fedprior.data.given import as_array, as_flags, as_numbers, client_ids, named_labels, require_finite
from fedprior.data.hub import Array, Arrays, Digests, Spec
from fedprior.data.preparation import Preparation, Stage
from fedprior.errors import FedpriorError
from fedprior.files import array_digest, digest
from fedprior.registry import Registry

__all__ = ["NORMALIZATIONS", "SOURCES", "Source", "Spec", "from_arrays", "load"]


@dataclass(frozen=True)
class Source:
    """Samples and what is known about them; made by `load` and `from_arrays`."""

    name: str
    x: Array  # [n, ...] float32 or, where there are word vectors, [n, L] int32 token ids
    y: npt.NDArray[np.int32]  # [n]
    n_classes: int
    fingerprint: str  # sha256 of the content and its preprocessing
    group: npt.NDArray[np.int32] | None = None  # [n] writer or user, numbered from 0 by first appearance
    is_test: npt.NDArray[np.bool_] | None = None  # [n] the data's own test split, where it has one
    vectors: npt.NDArray[np.float32] | None = None  # [V, d] word vectors; rows 0 (padding) and 1 (unknown) are zero
    group_names: tuple[int | str, ...] | None = None  # what the groups 0, 1, ... are called, where it is known
    class_names: tuple[int | str, ...] | None = None  # what the labels 0, 1, ... are called; None: just that
    preparation: Preparation = field(default_factory=Preparation)  # how a sample as its owner has it becomes one of x


# --- pixels to numbers ------------------------------------------------------------------------------------------------


def _standardize(raw: Array, axis: int | None) -> tuple[Stage, ...]:
    n = raw.shape[0] if axis == 0 else raw.size
    total = raw.sum(axis, dtype=np.int64)
    flat = raw.reshape(len(raw), -1)
    squares = np.einsum("ij,ij->j", flat, flat, dtype=np.int64)  # exact, and without a copy of all in float64
    square = squares.reshape(raw.shape[1:]) if axis == 0 else squares.sum()
    mean = total / n
    std = np.sqrt(np.maximum(square / n - mean**2, 0.0))
    return ((np.asarray(mean, np.float32), np.asarray(std + 0.001, np.float32)),)


def _unit(white: int) -> Stage:
    return np.asarray(0, np.float32), np.asarray(white, np.float32)


_HALF = np.asarray(0.5, np.float32)

# From the raw pixels and the value of white, what is subtracted from pixels and what they are divided by.
NORMALIZATIONS: Registry[Callable[[Array, int], tuple[Stage, ...]]] = Registry(
    "normalization",
    {
        "pixel": lambda raw, _: _standardize(raw, 0),
        "scalar": lambda raw, _: _standardize(raw, None),
        "half": lambda _, white: (_unit(white), (_HALF, _HALF)),
        "unit": lambda _, white: (_unit(white),),
    },
)


# --- the names --------------------------------------------------------------------------------------------------------


def _digit_rows() -> Array:
    """scikit-learn's digits, 64 pixels and a label in a row; importing it would take a hundred times as long."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder, "datasets", "data", "digits.csv.gz")).is_file():
            return np.loadtxt(file, np.uint8, delimiter=",")
    from sklearn.datasets import load_digits  # a version that keeps them elsewhere

    images, y = load_digits(return_X_y=True)
    return np.column_stack([images, y]).astype(np.uint8)


def _digits(normalize: str = "unit") -> Source:
    """1,797 handwritten digits of 8x8 pixels, part of scikit-learn."""
    rows = _digit_rows()
    raw = {"x": rows[:, :-1], "y": rows[:, -1].astype(np.int32)}
    return _normalized("digits", raw, hub.array_digests(raw), normalize, n_classes=10, white=16)


SOURCES: Registry[Spec | Callable[..., Source]] = Registry(
    "data source",
    {
        "digits": _digits,
        "mnist": Spec("70,000 handwritten digits of 28x28 pixels", "ylecun/mnist", 10, "pixel"),
        "fashion_mnist": Spec(
            "70,000 pictures of clothes of 28x28 pixels", "zalando-datasets/fashion_mnist", 10, "scalar"
        ),
        "cifar10": Spec(
            "60,000 colour pictures of 32x32 pixels", "uoft-cs/cifar10", 10, "half", content="img", shape=(32, 32, 3)
        ),
        "femnist": Spec(
            "handwritten characters of 28x28 pixels with their writers (LEAF)",
            "flwrlabs/femnist",
            62,
            "unit",
            label="character",
            group="writer_id",
        ),
        "sent140": Spec(
            "tweets with their users and mood (LEAF), as GloVe tokens",
            "stanfordnlp/sentiment140",
            2,
            revision="refs/convert/parquet",  # the main branch holds a script, which datasets >= 4 refuses to run
            splits=("train",),  # the hub's test split has other moods
            content="text",
            label="sentiment",
            group="user",
            relabel={4: 1},  # the hub writes 0 and 4 where LEAF has 0 and 1
        ),
    },
)


def load(name: str, *, normalize: str | None = None, root: Path | None = None) -> Source:
    """Read a named source; `root` stands for `$FEDPRIOR_DATA`, None for that variable or else the hub.

    All splits are pooled in their original order (train, then test). `normalize` changes how raw pixels become x:

    - `pixel`: each pixel's own (raw - mean) / (std + 0.001) over all samples; the default of mnist, as released. A
      pixel lit in a single one of 70,000 pictures reaches 264 deviations.
    - `scalar`: the same with one mean and deviation for all pixels; the default of fashion_mnist, as released.
    - `half`: (raw/255 - 0.5) / 0.5; the default of cifar10, as released.
    - `unit`: raw/255 (digits: raw/16); the default of femnist, as LEAF has it: white background near 1, not centred.

    The first two see the test samples (see the top of this module).

    >>> digits = load("digits")
    >>> digits.x.shape, digits.x.dtype, float(digits.x.max()), digits.n_classes
    ((1797, 64), dtype('float32'), 1.0, 10)
    """
    entry = SOURCES.find(name)
    if not isinstance(entry, Spec):
        return _from_function(name, entry, normalize)
    how = normalize if normalize is not None else entry.normalize
    if how is not None:
        NORMALIZATIONS.find(how)  # before anything is read
    if how is not None and entry.is_text:
        raise FedpriorError(f"normalize='{how}' for {name}, which has tokens and no pixels; leave it out")
    raw, digests = hub.read(name, entry, root)
    return _normalized(name, raw, digests, how, entry.n_classes, entry.white)


def _normalized(name: str, raw: Arrays, digests: Digests, how: str | None, n_classes: int, white: int) -> Source:
    _check_labels(raw["y"], n_classes, len(raw["x"]))
    x, shape = raw["x"], raw["x"].shape[1:]
    if how is not None:
        stages = NORMALIZATIONS.find(how)(x, white)
        preparation = Preparation(stages, flatten=x.ndim == 3, shape=shape)  # grey pictures become vectors
        x = preparation(x)
    else:
        words = tuple(raw[hub.WORDS].tolist())
        preparation = Preparation(words=words, shape=shape, vectors=len(raw["vectors"]))
    return Source(
        name=name,
        x=x,
        y=raw["y"],
        n_classes=n_classes,
        fingerprint=hub.fingerprint(name, how, digests),
        group=raw.get("group"),
        is_test=raw.get("is_test"),
        vectors=raw.get("vectors"),
        preparation=preparation,
    )


def _from_function(name: str, function: Callable[..., Source], normalize: str | None) -> Source:
    options = {} if normalize is None else {"normalize": normalize}
    if options and "normalize" not in inspect.signature(function).parameters:
        raise FedpriorError(f"normalize='{normalize}' for {name}, whose function has no such argument; leave it out")
    source: Any = function(**options)
    if not isinstance(source, Source):
        kind = type(source).__name__
        raise FedpriorError(f"the function of data source '{name}' gave a {kind}; let it return from_arrays(x, y)")
    _check_labels(source.y, source.n_classes, len(source.x))
    return dataclasses.replace(source, name=name)


# --- arrays of one's own ----------------------------------------------------------------------------------------------


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    client_id: npt.ArrayLike | None = None,
    n_classes: int | None = None,
    name: str = "arrays",
    *,
    is_test: npt.ArrayLike | None = None,
    vectors: npt.ArrayLike | None = None,
) -> Source:
    """Make a source of your own arrays: x [n, ...] becomes float32, or int32 token ids where word vectors are given.

    `client_id` (whole numbers or strings) says who holds each sample, `is_test` which samples are for testing. Labels that
    are strings, or whole numbers that do not begin at 0, keep their names; labels from 0 are their own names.

    >>> source = from_arrays([[0.0], [1.0]], [0, 1], client_id=["b", "a"])
    >>> source.group, source.group_names
    (array([0, 1], dtype=int32), ('b', 'a'))
    >>> from_arrays([[0.0], [float("nan")]], [0, 1])
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: sample 1 of arrays has a value that is not finite; remove or repair it
    """
    table = None if vectors is None else as_numbers(vectors, "vectors", np.float32)
    samples = as_numbers(x, "x", np.float32 if table is None else np.int32)
    if not samples.size:
        raise FedpriorError(f"x is empty (of shape {samples.shape}); a source needs at least one sample, with features")
    if n_classes is not None and (not _is_whole(n_classes) or n_classes < 1):
        raise FedpriorError(f"n_classes={n_classes!r}; valid: a whole number from 1, or leave it out")
    labels, called = named_labels(y, n_classes)
    classes = n_classes or (int(labels.max(initial=0)) + 1 if called is None else len(called))
    _check_labels(labels, classes, len(samples))
    for what, array in ((name, samples), ("the word vectors", table)):
        if array is not None:
            require_finite(array, f" of {what}")
    if table is not None and (table.ndim != 2 or samples.min() < 0 or samples.max() >= len(table)):
        span = f"ids {samples.min()} to {samples.max()}"
        raise FedpriorError(f"{span} with word vectors of shape {table.shape}; valid: 0 to the number of rows - 1")
    who = None if client_id is None else as_array(client_id, "client_id")
    own_test = None if is_test is None else as_flags(is_test, "is_test")
    for what, other in (("client_id", who), ("is_test", own_test)):
        if other is not None and other.shape != (len(samples),):
            raise FedpriorError(f"{what} has shape {other.shape} for {len(samples)} samples; give one entry for each")
    group, names = (None, None) if who is None else numbered(client_ids(who))
    parts = [a for a in (samples, labels, group, own_test, table) if a is not None]
    said = [] if called is None else [json.dumps(called)]
    return Source(
        name=name,
        x=samples,
        y=labels,
        n_classes=classes,
        fingerprint=digest(name, str(classes), *said, *map(array_digest, parts)),
        group=group,
        is_test=own_test,
        vectors=table,
        group_names=names,
        class_names=called,
        preparation=Preparation(shape=samples.shape[1:], vectors=None if table is None else len(table)),
    )


def _is_whole(given: object) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def _check_labels(y: Array, n_classes: int, samples: int) -> None:
    if y.ndim != 1 or len(y) != samples:
        raise FedpriorError(f"labels of shape {y.shape} for {samples} samples; give one for each")
    if not samples:
        raise FedpriorError("the data is empty; a source needs at least one sample")
    wrong = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(wrong):
        raise FedpriorError(f"label {y[wrong[0]]} of sample {wrong[0]} is out of range; valid: 0 to {n_classes - 1}")
