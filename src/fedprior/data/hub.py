"""Data sets in the layout of the Hugging Face hub: finding their files, reading them, and keeping the decoded arrays.

They are read with Hugging Face `datasets`, from the folder `$FEDPRIOR_DATA/<name>` (parquet files in the hub's layout)
or, without that variable, from the hub itself. Pictures and texts are decoded once and kept as plain `.npy` arrays in
`$FEDPRIOR_CACHE` (default `~/.cache/fedprior`), one folder for each content and way to read it, so later loads import
nothing heavy. Files are known by their whole content; what came from the hub is kept until its cache folder is deleted.
GloVe vectors are sought in the folder `glove` beside the data or, for data from the hub, in the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data.decode import numbered, pixels, tokens
from fedprior.data.given import as_numbers
from fedprior.errors import FedpriorError, first_line
from fedprior.files import array_digest, cache_dir, digest, file_digest

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Digests = dict[str, str]

LAYOUT = 2  # part of every cache key: raise it when decoding changes
WORDS = "words"  # what the tokens of texts stand for


@dataclass(frozen=True)
class Spec:
    """What is known about a data set of the hub before it is read: pictures or texts, with labels."""

    about: str
    hub: str  # its name there
    n_classes: int
    normalize: str | None = None  # how pixels become numbers unless the user says otherwise; None: these are texts
    revision: str | None = None  # of the hub's files; None: the current ones
    splits: tuple[str, ...] = ("train", "test")  # those to read, as far as they are there
    content: str = "image"  # the columns
    label: str = "label"
    group: str | None = None  # who made the sample, where it is known
    shape: tuple[int, ...] = (28, 28)  # of a picture; grey ones become vectors
    white: int = 255  # the largest pixel value
    relabel: Mapping[int, int] = field(default_factory=dict)  # labels that are written otherwise in the files

    @property
    def is_text(self) -> bool:
        """Whether the samples are texts, which become tokens and need word vectors."""
        return self.normalize is None

    @property
    def way(self) -> str:
        """All that decides which arrays are decoded from the same files."""
        columns = self.content, self.label, self.group
        return repr((self.is_text, columns, self.splits, self.shape, sorted(self.relabel.items())))


def read(name: str, spec: Spec, root: Path | None) -> tuple[Arrays, Digests]:
    """The decoded arrays and their digests, from the cache where it has them for exactly these files, read in this way."""
    given = root if root is not None else os.environ.get("FEDPRIOR_DATA")
    folder = None if not given else _folder(Path(given), name, spec)
    files = [] if folder is None else _parquet(folder)
    cache = cache_dir()
    glove = _glove(cache if folder is None else folder.parent, name) if spec.is_text else None
    if folder is None:
        origin = [spec.hub, str(spec.revision)]
    else:  # their folders, too, say which are for testing
        origin = [f"{file.relative_to(folder).as_posix()}:{file_digest(file)}" for file in files]
    origin += [] if glove is None else [file_digest(glove)]
    entry = cache / f"{name}-{digest(str(LAYOUT), spec.way, *origin)[:20]}"
    if (kept := _read_entry(entry)) is not None:
        return kept
    with _tables(spec, folder, files) as tables:
        parts = {split: tables[split] for split in spec.splits if split in tables}
        if not sum(map(len, parts.values())):
            there = ", ".join(tables)
            wanted = " or ".join(spec.splits)
            raise FedpriorError(f"no sample in the splits of {folder or spec.hub}; wanted: {wanted}; found: {there}")
        arrays = _decode(parts, spec, glove, str(folder or spec.hub))
    digests = array_digests(arrays)
    _write_entry(entry, arrays, digests)
    return arrays, digests


def array_digests(arrays: Arrays) -> Digests:
    """The digest of each array."""
    return {name: array_digest(array) for name, array in arrays.items()}


def fingerprint(name: str, how: str | None, digests: Digests) -> str:
    """What tells a source's samples and their preparation from others.

    The words are left out: they add nothing to their vectors, and runs made before words were kept can still be resumed.
    """
    return digest(name, str(how), json.dumps({k: v for k, v in digests.items() if k != WORDS}, sort_keys=True))


# --- files ------------------------------------------------------------------------------------------------------------


def _folder(root: Path, name: str, spec: Spec) -> Path:
    folder = root / name
    if not folder.is_dir():
        there = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir())) if root.is_dir() else "no such folder"
        raise FedpriorError(
            f"no folder '{name}' in FEDPRIOR_DATA={root} (there: {there or 'nothing'}); "
            f"put the parquet files of {spec.hub} there, or unset the variable to ask the hub"
        )
    return folder


def _parquet(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        there = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise FedpriorError(f"no parquet file in {folder} (there: {there}); put the hub's parquet files there")
    return files


def _glove(root: Path, name: str) -> Path:
    files = sorted((root / "glove").glob("*.txt*"))
    if len(files) != 1:
        there = ", ".join(file.name for file in files) or "none"
        raise FedpriorError(
            f"{name} needs exactly one file of GloVe vectors in {root / 'glove'} (found: {there}); "
            "put glove.6B.100d.txt, or .txt.gz, there"
        )
    return files[0]


# --- reading ----------------------------------------------------------------------------------------------------------


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
                raise FedpriorError(f"cannot get {spec.hub} from the hub ({first_line(error)}); {fix}") from error
            broken = _first_broken(files) or folder
            raise FedpriorError(f"cannot read {broken} ({first_line(error)}); fetch it again") from error
        yield tables


def _first_broken(files: Sequence[Path]) -> str | None:
    """The first file that is not whole parquet, or has no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            if not len(pq.read_table(file)):
                return f"{file}, which has no rows"
        except (pa.ArrowException, OSError):
            return str(file)
    return None


def _decode(parts: Mapping[str, Any], spec: Spec, glove: Path | None, where: str) -> Arrays:
    """The arrays of all splits, one split after the other."""
    tables = list(parts.values())
    for table in tables:
        for column in filter(None, (spec.content, spec.label, spec.group)):
            if column not in table.column_names:
                raise FedpriorError(f"no column '{column}' in {where}; found: {', '.join(table.column_names)}")
    labels = _column(tables, spec.label, where)
    written = as_numbers(labels, f"column '{spec.label}' of {where}", np.int32)
    arrays: Arrays = {"y": written.copy()}
    for there, label in spec.relabel.items():
        arrays["y"][written == there] = label  # as they are written: labels may change places
    if glove is not None:
        arrays["x"], arrays["vectors"], arrays[WORDS] = tokens(_column(tables, spec.content, where).tolist(), glove)
    else:
        arrays["x"] = np.concatenate([pixels(t[spec.content], len(t), spec.shape, where) for t in tables])
    if len(tables) > 1:
        arrays["is_test"] = np.repeat([split == "test" for split in parts], [len(table) for table in tables])
    if spec.group:
        arrays["group"], _ = numbered(_column(tables, spec.group, where).tolist())
    return arrays


def _column(tables: Sequence[Any], column: str, where: str) -> Array:
    chunks = [table.with_format("arrow")[:][column] for table in tables]
    if gaps := sum(chunk.null_count for chunk in chunks):
        raise FedpriorError(f"column '{column}' of {where} has {gaps} empty entries; fetch the data again")
    return np.concatenate([chunk.to_numpy() for chunk in chunks])


# --- the cache --------------------------------------------------------------------------------------------------------


def _read_entry(entry: Path) -> tuple[Arrays, Digests] | None:
    """A cache entry, memory-mapped, or None where it is absent or not what was written."""
    try:
        written = json.loads((entry / "digests.json").read_text())
        kept = {name: np.load(entry / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in written}
    except (OSError, ValueError, EOFError):
        return None
    arrays = {name: np.asarray(array) for name, array in kept.items()}
    digests = array_digests(arrays)
    return (arrays, digests) if digests == written else None


def _write_entry(entry: Path, arrays: Arrays, digests: Digests) -> None:
    """Write an entry beside its place, then move it there: a reader takes an entry only if it is whole."""
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
                f"cannot keep decoded data in {entry.parent} ({first_line(error)}), so it is decoded anew each time; "
                "name a writable folder with FEDPRIOR_CACHE",
                stacklevel=4,
            )
    finally:
        shutil.rmtree(beside, ignore_errors=True)
