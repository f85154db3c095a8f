"""A file of the user's own: a table as .csv, .tsv (either may be compressed: .csv.gz) or .parquet, or arrays as .npz.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "visits.csv"
...     _ = file.write_text("id,age,dose\\n007,61,0.5\\n008,48,0.2\\n")
...     table = read_features(file, ["dose", "age"], keep=["id"])
>>> table.x, table.others
(array([[ 0.5, 61. ],
       [ 0.2, 48. ]], dtype=float32), {'id': ['007', '008']})
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.cells import Faults, array_numbers
from fedprior.data.columns import Columns, Table
from fedprior.data.csv_file import read_csv
from fedprior.errors import FedpriorError, first_line


def read_table(path: Path, wanted: Columns) -> Table:
    """Read the wanted columns of a file; what the features hold besides finite numbers is an error by row and column."""
    kind = next((suffix for suffix in _READERS if path.name.lower().endswith(suffix)), None)
    if kind is None:
        raise FedpriorError(f"{path.name} is of no kind that can be read; valid: {', '.join(_READERS)}")
    try:
        return _READERS[kind](path, wanted)
    except OSError as error:
        raise FedpriorError(f"cannot read the data file {path}: {error.strerror or first_line(error)}") from error


def read_features(path: Path | str, columns: Sequence[str], keep: Sequence[str] | None = ()) -> Table:
    """The samples of a file by the columns that a model reads, in that order; nothing else need be in the file.

    ``keep``: other columns to be read as they are, such as the client's, where the file has them; None: all others.
    """
    optional = None if keep is None else tuple(keep)
    return read_table(Path(path), Columns(tuple(columns), optional=optional, drop="use a model that does without it"))


# -- arrays ------------------------------------------------------------------------------------------------------------


def _read_npz(path: Path, wanted: Columns) -> Table:
    """Arrays by their names: the samples are one array [n, ...], or several of one number for each sample."""
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise FedpriorError(f"{path.name} holds a single array; save named arrays with numpy.savez")
        with file:
            names = list(file.files)
            features, kept = wanted.choose(names, path.name)
            arrays = {name: file[name] for name in (*features, *kept)}
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # also what is encrypted
        if isinstance(error, FedpriorError):
            raise
        raise FedpriorError(
            f"cannot read {path.name} ({first_line(error)}); save arrays of numbers or texts with numpy.savez"
        ) from error
    rows = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    n = rows[features[0]]
    for name, length in rows.items():
        if length is None or length != n or (name in kept and arrays[name].ndim != 1):
            raise FedpriorError(
                f"array '{name}' of {path.name} has shape {arrays[name].shape} where '{features[0]}' has "
                f"{arrays[features[0]].shape}; give one entry for each sample, or {wanted.drop}"
            )
    if len(features) > 1 and any(arrays[name].ndim > 1 for name in features):
        shapes = ", ".join(f"'{name}' {arrays[name].shape}" for name in features)
        raise FedpriorError(
            f'several arrays of {path.name} could be the samples ({shapes}); name one: data.features = ["{features[0]}"]'
        )
    whole = arrays[features[0]].ndim > 1
    others = {name: _entries(arrays[name], name, path.name) for name in kept}
    return _checked(path.name, names, features, [arrays[name] for name in features], others, wanted, "sample", whole)


def _entries(array: np.ndarray, name: str, where: str) -> list[Any]:
    """What stands in an array, bytes as texts."""
    try:
        return list((np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).tolist())
    except UnicodeDecodeError as error:
        raise FedpriorError(
            f"array '{name}' of {where} holds bytes that are no UTF-8 ({error.object[:40]!r}); save texts in place of bytes"
        ) from error


# -- Parquet -----------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, wanted: Columns) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise FedpriorError(
            f"reading {path.name} needs pyarrow; pip install 'fedprior[hub]', or save it as CSV"
        ) from error
    if path.is_dir():
        raise IsADirectoryError(21, "Is a directory")
    try:
        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            features, kept = wanted.choose(names, path.name, _index_columns(file.schema_arrow))
            table = file.read(columns=[*features, *kept])
    except pa.ArrowException as error:
        raise FedpriorError(f"cannot read {path.name} ({first_line(error)}); is it a whole Parquet file?") from error
    columns = [_values(table.column(name), pa) for name in features]
    others = {name: table.column(name).to_pylist() for name in kept}
    return _checked(path.name, names, features, columns, others, wanted, "row", False)


def _index_columns(schema: Any) -> set[str]:
    """The columns that hold the index of a pandas data frame, which often only numbers its rows."""
    try:
        about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        return {name for name in about["index_columns"] if isinstance(name, str)}
    except (ValueError, TypeError, KeyError):  # not written by pandas
        return set()


def _values(column: Any, pa: Any) -> np.ndarray:
    """A column as an array, its gaps as NaN; what holds no numbers comes as texts."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.array([str(value) for value in column.to_pylist()], object)
    values: np.ndarray = column.to_numpy()
    return values


def _checked(
    where: str,
    names: Sequence[str],
    features: Sequence[str],
    arrays: Sequence[np.ndarray],
    others: dict[str, list[Any]],
    wanted: Columns,
    row: str,
    whole: bool,
) -> Table:
    """A table of arrays, one for each feature, or one ``whole`` array of samples."""
    faults = Faults()
    columns = [array_numbers(array, name, faults) for name, array in zip(features, arrays, strict=True)]
    if not len(columns[0]):
        raise FedpriorError(f"{where} holds no samples")

    def place(k: int) -> str:
        return f"{row} {k} (counted from 0)"

    faults.check(where, place, wanted.drop)
    x = columns[0] if whole else np.stack(columns, axis=1)
    return Table(where, tuple(names), tuple(features), x, others, place)


_READERS: dict[str, Callable[[Path, Columns], Table]] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), read_csv),
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
