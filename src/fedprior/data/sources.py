"""Names to arrays: where the samples come from, before anybody decides which client holds them.

`load("digits")` needs nothing but scikit-learn. The other names are read with Hugging Face `datasets`, from the folder
`$FEDPRIOR_DATA/<name>` (parquet files in the hub's layout) or, without that variable, from the hub itself. Pictures
and texts are decoded once and kept as plain `.npy` arrays in `$FEDPRIOR_CACHE` (default `~/.cache/fedprior`), one
folder for each content, so later loads import nothing heavy. Files are known by their whole content; what came from the
hub is kept until its cache folder is deleted. GloVe vectors are sought in the folder `glove` beside the data or, for
data from the hub, in the cache.

Normalisation follows the generators released with the paper (BDeMo/pFedBreD_public). There, `pixel` and `scalar` use
the mean and deviation of *all* samples, those for testing included. This leaks a little of the test data into training
and is kept for comparison with published numbers; `half` and `unit` do not leak.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError, unknown

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Digests = dict[str, str]

LAYOUT = 1  # part of every cache key: raise it when decoding changes
TOKENS = 25  # tokens kept of a text [LEAF's Sent140, Caldas et al. 2018, arXiv:1812.01097]


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


@dataclass(frozen=True)
class Spec:
    """What is known about a named source before it is read."""

    about: str
    n_classes: int
    normalize: str | None  # the default
    hub: str | None = None
    revision: str | None = None  # of the hub's files; None: the current ones
    content: str = "image"  # the columns
    label: str = "label"
    group: str | None = None
    shape: tuple[int, ...] = (28, 28)  # of a picture; grey ones become vectors
    white: int = 255  # the largest pixel value


SOURCES: dict[str, Spec] = {
    "digits": Spec("1,797 handwritten digits of 8x8 pixels, part of scikit-learn", 10, "unit", shape=(8, 8), white=16),
    "mnist": Spec("70,000 handwritten digits of 28x28 pixels", 10, "pixel", hub="ylecun/mnist"),
    "fashion_mnist": Spec(
        "70,000 pictures of clothes of 28x28 pixels", 10, "scalar", hub="zalando-datasets/fashion_mnist"
    ),
    "cifar10": Spec(
        "60,000 colour pictures of 32x32 pixels", 10, "half", hub="uoft-cs/cifar10", content="img", shape=(32, 32, 3)
    ),
    "femnist": Spec(
        "handwritten characters of 28x28 pixels with their writers (LEAF)",
        62,
        "unit",
        hub="flwrlabs/femnist",
        label="character",
        group="writer_id",
    ),
    "sent140": Spec(
        "tweets with their users and mood (LEAF), as GloVe tokens",
        2,
        None,
        hub="stanfordnlp/sentiment140",
        revision="refs/convert/parquet",  # the main branch holds a script, which datasets >= 4 refuses to run
        content="text",
        label="sentiment",
        group="user",
    ),
}


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
    if name not in SOURCES:
        raise unknown("data source", name, SOURCES)
    spec = SOURCES[name]
    how = normalize if normalize is not None else spec.normalize
    if how is not None and how not in _NORMALIZE:
        raise unknown("normalization", how, _NORMALIZE)
    if how is not None and spec.normalize is None:
        raise FedpriorError(f"normalize='{how}' for {name}, which has tokens and no pixels; leave it out")
    raw, digests = _digits() if spec.hub is None else _cached(name, spec, root)
    _check_labels(raw["y"], spec.n_classes, len(raw["x"]))
    x = raw["x"]
    if how is not None:
        x = _NORMALIZE[how](x, spec.white)
        x = x.reshape(len(x), -1) if len(spec.shape) == 2 else x
    return Source(
        name=name,
        x=x,
        y=raw["y"],
        n_classes=spec.n_classes,
        fingerprint=_digest(name, str(how), json.dumps(digests, sort_keys=True)),
        group=raw.get("group"),
        is_test=raw.get("is_test"),
        vectors=raw.get("vectors"),
    )


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

    `client_id` (numbers or strings) says who holds each sample, `is_test` which samples are for testing.

    >>> from_arrays([[0.0], [1.0]], [0, 1], client_id=["b", "a"]).group
    array([0, 1], dtype=int32)
    >>> from_arrays([[0.0], [float("nan")]], [0, 1])
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: sample 1 of arrays has a value that is not finite; remove or repair it
    """
    table = None if vectors is None else _numbers(vectors, "vectors", np.float32)
    samples = _numbers(x, "x", np.float32 if table is None else np.int32)
    labels = _numbers(y, "y", np.int32)
    if not len(samples):
        raise FedpriorError("x is empty; a source needs at least one sample")
    classes = int(labels.max(initial=0)) + 1 if n_classes is None else n_classes
    _check_labels(labels, classes, len(samples))
    for what, array in ((name, samples), ("the word vectors", table)):
        if array is not None and not (finite := np.isfinite(array.reshape(len(array), -1)).all(1)).all():
            bad = int(np.flatnonzero(~finite)[0])
            raise FedpriorError(f"sample {bad} of {what} has a value that is not finite; remove or repair it")
    if table is not None and (table.ndim != 2 or samples.min() < 0 or samples.max() >= len(table)):
        span = f"ids {samples.min()} to {samples.max()}"
        raise FedpriorError(f"{span} with word vectors of shape {table.shape}; valid: 0 to the number of rows - 1")
    who = None if client_id is None else np.asarray(client_id)
    own = None if is_test is None else np.asarray(is_test, bool)
    for what, other in (("client_id", who), ("is_test", own)):
        if other is not None and other.shape != (len(samples),):
            raise FedpriorError(f"{what} has shape {other.shape} for {len(samples)} samples; give one entry for each")
    if who is not None and len(odd := np.flatnonzero(who != who)):  # NaN is the one value unlike itself
        raise FedpriorError(f"client_id of sample {odd[0]} is not a number; say who holds the sample or leave it out")
    group = None if who is None else _numbered(who.tolist())
    parts = [a for a in (samples, labels, group, own, table) if a is not None]
    return Source(
        name=name,
        x=samples,
        y=labels,
        n_classes=classes,
        fingerprint=_digest(name, str(classes), *map(_array_digest, parts)),
        group=group,
        is_test=own,
        vectors=table,
    )


# --- checks -----------------------------------------------------------------------------------------------------------


def _numbers(values: npt.ArrayLike, what: str, kind: type[np.float32] | type[np.int32]) -> Array:
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise FedpriorError(f"{what} must be an array of numbers, all rows of one length ({_line(error)})") from error
    if given.ndim == 0 or given.dtype.kind not in "biuf":
        raise FedpriorError(f"{what} must be an array of numbers; got shape {given.shape}, type {given.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is reported by the caller, or below
        array = given.astype(kind)
    if kind is np.int32 and not np.array_equal(array, given):
        bad = given[array != given][0]
        raise FedpriorError(f"{what} must hold whole numbers of at most 32 bits; got {bad}")
    return array


def _check_labels(y: Array, n_classes: int, samples: int) -> None:
    if y.ndim != 1 or len(y) != samples:
        raise FedpriorError(f"labels of shape {y.shape} for {samples} samples; give one for each")
    if not samples:
        raise FedpriorError("the data is empty; a source needs at least one sample")
    wrong = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(wrong):
        raise FedpriorError(f"label {y[wrong[0]]} of sample {wrong[0]} is out of range; valid: 0 to {n_classes - 1}")


def _numbered(names: Iterable[Any]) -> npt.NDArray[np.int32]:
    ids: dict[Any, int] = {}
    return np.array([ids.setdefault(name, len(ids)) for name in names], np.int32)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _array_digest(array: Array) -> str:
    content = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return _digest(array.dtype.str, str(array.shape), content)


# --- pixels to numbers ------------------------------------------------------------------------------------------------


def _standardize(raw: Array, axis: int | None) -> npt.NDArray[np.float32]:
    n = raw.shape[0] if axis == 0 else raw.size
    total = raw.sum(axis, dtype=np.int64)
    flat = raw.reshape(len(raw), -1)
    squares = np.einsum("ij,ij->j", flat, flat, dtype=np.int64)  # exact, and without a copy of all in float64
    square = squares.reshape(raw.shape[1:]) if axis == 0 else squares.sum()
    mean = total / n
    std = np.sqrt(np.maximum(square / n - mean**2, 0.0))
    x: npt.NDArray[np.float32] = np.subtract(raw, mean, dtype=np.float32)
    x /= np.asarray(std + 0.001, np.float32)
    return x


def _unit(raw: Array, white: int) -> npt.NDArray[np.float32]:
    return np.divide(raw, np.float32(white), dtype=np.float32)


def _half(raw: Array, white: int) -> npt.NDArray[np.float32]:
    x = _unit(raw, white)
    x -= 0.5
    x /= 0.5
    return x


_NORMALIZE: dict[str, Callable[[Array, int], npt.NDArray[np.float32]]] = {
    "pixel": lambda raw, _: _standardize(raw, 0),
    "scalar": lambda raw, _: _standardize(raw, None),
    "half": _half,
    "unit": _unit,
}


def _digits() -> tuple[Arrays, Digests]:
    from sklearn.datasets import load_digits

    images, y = load_digits(return_X_y=True)
    return _digested({"x": images.astype(np.uint8), "y": y.astype(np.int32)})


def _digested(arrays: Arrays) -> tuple[Arrays, Digests]:
    return arrays, {name: _array_digest(array) for name, array in arrays.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


def _cached(name: str, spec: Spec, root: Path | None) -> tuple[Arrays, Digests]:
    """The decoded arrays and their digests, from the cache where it has them for exactly these files."""
    given = root if root is not None else os.environ.get("FEDPRIOR_DATA")
    folder = None if not given else _folder(Path(given), name)
    files = [] if folder is None else _parquet(folder)
    cache = Path(os.environ.get("FEDPRIOR_CACHE") or Path.home() / ".cache" / "fedprior")
    glove = [_glove(cache if folder is None else folder.parent)] if spec.content == "text" else []
    origin = [str(spec.hub)] if folder is None else [f"{file.name}:{_file_digest(file)}" for file in files]
    origin += [_file_digest(file) for file in glove]
    entry = cache / f"{name}-{_digest(str(LAYOUT), *origin)[:20]}"
    kept = _read_entry(entry)
    if kept is not None:
        return kept
    splits = ("train",) if spec.content == "text" else ("train", "test")  # the hub's Sent140 test has other moods
    with _tables(spec, folder, files) as tables:
        parts = [tables[split] for split in splits if split in tables]
        if not sum(map(len, parts)):
            found = ", ".join(tables)
            raise FedpriorError(f"no sample in the train and test splits of {folder or spec.hub}; found: {found}")
        arrays, digests = _digested(_decode(parts, spec, glove, str(folder or spec.hub)))
    _write_entry(entry, arrays, digests)
    return arrays, digests


def _folder(root: Path, name: str) -> Path:
    folder = root / name
    if not folder.is_dir():
        there = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir())) if root.is_dir() else "no such folder"
        raise FedpriorError(
            f"no folder '{name}' in FEDPRIOR_DATA={root} (there: {there or 'nothing'}); "
            f"put the parquet files of {SOURCES[name].hub} there, or unset the variable to ask the hub"
        )
    return folder


def _parquet(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        there = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise FedpriorError(f"no parquet file in {folder} (there: {there}); put the hub's parquet files there")
    return files


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _tables(spec: Spec, folder: Path | None, files: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    """The splits as `datasets` gives them, from the folder or the hub."""
    fresh = "datasets" not in sys.modules and "HF_DATASETS_DISABLE_PROGRESS_BARS" not in os.environ
    try:
        import datasets
    except ImportError as error:
        raise FedpriorError(
            f"reading {spec.hub} or a copy of it needs Hugging Face datasets; pip install 'fedprior[hub]'"
        ) from error
    if fresh:  # nobody has asked for progress bars yet; who does so later keeps them
        datasets.disable_progress_bars()
    # We keep decoded arrays ourselves: the library's own copy of a folder would only be a second cache.
    with tempfile.TemporaryDirectory(prefix="fedprior-") as scratch:
        try:
            if folder is not None:
                tables = datasets.load_dataset(str(folder), cache_dir=scratch)
            else:
                tables = datasets.load_dataset(spec.hub, revision=spec.revision)
        except Exception as error:  # whatever the libraries below raise, the user needs to know which file it was
            if folder is None:
                fix = "check the network, or put the files in a folder and name it with FEDPRIOR_DATA"
                raise FedpriorError(f"cannot get {spec.hub} from the hub ({_line(error)}); {fix}") from error
            raise FedpriorError(f"cannot read {_culprit(files) or folder} ({_line(error)}); fetch it again") from error
        yield tables


def _culprit(files: Sequence[Path]) -> str | None:
    """The first file which is not whole parquet, or has no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            if not len(pq.read_table(file)):
                return f"{file}, which has no rows"
        except (pa.ArrowException, OSError):
            return str(file)
    return None


def _line(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause).splitlines()[0][:200] if str(cause) else 'no message'}"


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decode(parts: Sequence[Any], spec: Spec, glove: Sequence[Path], where: str) -> Arrays:
    for part in parts:
        for column in filter(None, (spec.content, spec.label, spec.group)):
            if column not in part.column_names:
                raise FedpriorError(f"no column '{column}' in {where}; found: {', '.join(part.column_names)}")
    arrays: Arrays = {"y": _column(parts, spec.label, where).astype(np.int32)}
    if spec.content == "text":
        arrays["y"] = np.where(arrays["y"] == 4, 1, arrays["y"])  # the hub writes 0 and 4 where LEAF has 0 and 1
        arrays["x"], arrays["vectors"] = _tokens(_column(parts, spec.content, where).tolist(), glove[0])
    else:
        arrays["x"] = np.concatenate([_pictures(part, spec, where) for part in parts])
        if len(parts) > 1:
            arrays["is_test"] = np.repeat([False, True], [len(part) for part in parts])
    if spec.group:
        arrays["group"] = _numbered(_column(parts, spec.group, where).tolist())
    return arrays


def _column(parts: Sequence[Any], column: str, where: str) -> Array:
    chunks = [part.with_format("arrow")[:][column] for part in parts]
    if gaps := sum(chunk.null_count for chunk in chunks):
        raise FedpriorError(f"column '{column}' of {where} has {gaps} empty entries; fetch the data again")
    return np.concatenate([chunk.to_numpy() for chunk in chunks])


def _pictures(part: Any, spec: Spec, where: str) -> npt.NDArray[np.uint8]:
    out = np.empty((len(part), *spec.shape), np.uint8)
    i = 0
    try:
        for i, picture in enumerate(map(np.asarray, part[spec.content])):
            if picture.shape != spec.shape or picture.dtype != np.uint8:
                kind = f"{picture.shape} of {picture.dtype}"
                raise FedpriorError(f"picture {i} of {where} is {kind}; expected {spec.shape} of uint8")
            out[i] = picture
    except (OSError, SyntaxError) as error:  # PIL's ways to say that a picture is broken
        raise FedpriorError(
            f"cannot read picture {i} or the next of {where} ({_line(error)}); fetch it again"
        ) from error
    return out


def _glove(root: Path) -> Path:
    files = sorted((root / "glove").glob("*.txt*"))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise FedpriorError(
            f"sent140 needs exactly one file of GloVe vectors in {root / 'glove'} (found: {found}); "
            "put glove.6B.100d.txt, or .txt.gz, there"
        )
    return files[0]


def _words(text: str) -> list[str]:
    """LEAF's tokens, in lower case.

    >>> _words("Awww, that's GREAT!")
    ['awww', ',', "that's", 'great', '!']
    """
    return re.findall(r"[\w']+|[.,!?;]", text.lower())


def _tokens(texts: Sequence[str], glove: Path) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Texts to ids [n, TOKENS], from 2 on with the most frequent word first, and the vectors [V, d] of these words."""
    vectors = _read_glove(glove)
    texts_words = [_words(text) for text in texts]
    counts = Counter(word for words in texts_words for word in words if word in vectors)
    known = sorted(counts, key=lambda word: (-counts[word], word))
    ids = {word: i for i, word in enumerate(known, start=2)}
    x = np.zeros((len(texts), TOKENS), np.int32)
    for row, words in zip(x, texts_words, strict=True):
        row[: len(words)] = [ids.get(word, 1) for word in words[:TOKENS]]
    width = len(next(iter(vectors.values())))
    return x, np.stack([np.zeros(width, np.float32)] * 2 + [vectors[word] for word in known])


def _read_glove(file: Path) -> dict[str, npt.NDArray[np.float32]]:
    opener = gzip.open if file.suffix == ".gz" else open
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    try:
        with opener(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                word, *numbers = line.rstrip().split(" ")
                vectors[word] = np.array(numbers, np.float32)
    except (OSError, EOFError, ValueError) as error:
        raise FedpriorError(
            f"cannot read line {len(vectors) + 1} of {file} ({_line(error)}); fetch it again"
        ) from error
    widths = {len(vector) for vector in vectors.values()}
    if len(widths) != 1 or not all(np.isfinite(vector).all() for vector in vectors.values()):
        raise FedpriorError(f"{file} is not a list of words with equally many finite numbers each; fetch it again")
    return vectors


# --- the cache --------------------------------------------------------------------------------------------------------


def _read_entry(entry: Path) -> tuple[Arrays, Digests] | None:
    """A cache entry, memory-mapped, or None where it is absent or not what was written."""
    try:
        digests = json.loads((entry / "digests.json").read_text())
        kept = {name: np.load(entry / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in digests}
    except (OSError, ValueError, EOFError):
        return None
    arrays, found = _digested({name: np.asarray(array) for name, array in kept.items()})
    return (arrays, found) if found == digests else None


def _write_entry(entry: Path, arrays: Arrays, digests: Digests) -> None:
    """Write beside, then move: a reader sees all of an entry or nothing, whoever else is writing."""
    beside = entry.with_name(f".{entry.name}-{uuid.uuid4().hex}")
    try:
        beside.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(beside / f"{name}.npy", array, allow_pickle=False)
        (beside / "digests.json").write_text(json.dumps(digests))
        shutil.rmtree(entry, ignore_errors=True)  # it was looked at, and was not usable
        os.replace(beside, entry)
    except OSError as error:
        if _read_entry(entry) is None:  # else another process was faster
            warnings.warn(
                f"cannot keep decoded data in {entry.parent} ({_line(error)}), so it is decoded anew each time; "
                "name a writable folder with FEDPRIOR_CACHE",
                stacklevel=4,
            )
    finally:
        shutil.rmtree(beside, ignore_errors=True)
