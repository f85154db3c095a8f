"""The data of a task: a source by its name, or a file of the user's own by the names of its columns. Imports no JAX."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.data.own_file import from_file
from fedprior.data.partitions import PARTITIONS
from fedprior.data.sources import Source, load
from fedprior.errors import FedpriorError, unknown

if TYPE_CHECKING:
    from fedprior.study.settings import DataSettings

SCALINGS = ("standard", "none")  # of files and arrays, whose numbers have units of their own
NATURAL = {"kind": "natural", "test_fraction": 0.25}  # where a file names clients and nothing else is said
OF_A_FILE = ("label", "client", "split", "features", "ignore")


def with_path(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A task's content with the whole path of its file, if it has one."""
    data = content.get("data")
    if not isinstance(data, Mapping) or not isinstance(data.get("file"), str) or not data["file"]:
        return dict(content)
    path = folder.expanduser() / Path(data["file"]).expanduser()
    return {**content, "data": {**data, "file": str(path.absolute())}}


def with_partition(content: Mapping[str, Any]) -> dict[str, Any]:
    """A task's content with the partition that the columns of its file suggest; call it once all columns are known."""
    data, partition = content.get("data"), content.get("partition", {})
    if not isinstance(data, Mapping) or not isinstance(data.get("file"), str) or not data["file"]:
        return dict(content)
    if (
        data.get("client") is None
        or not isinstance(partition, Mapping)
        or partition.get("kind", "natural") != "natural"
    ):
        return {"partition": {}, **content}
    default = {key: value for key, value in NATURAL.items() if key == "kind" or data.get("split") is None}
    return {**content, "partition": {**default, **partition}}


def check_data(data: DataSettings, partition: Mapping[str, Any], what: str) -> None:
    """Refuse what contradicts itself, as far as it can be told without opening the file."""
    if data.file is None:
        if data.source is None:
            raise FedpriorError(f"{what}: 'data.source' is missing; name a source, or a file of your own as data.file")
        given = [f"data.{key}" for key in OF_A_FILE if getattr(data, key) is not None]
        if given:
            raise FedpriorError(f"{what}: {', '.join(given)}: these name columns of a file, but data.file is not set")
        return
    if data.source is not None:
        raise FedpriorError(f"{what}: data.source and data.file both say which data; choose one of them")
    if data.label is None:
        raise FedpriorError(f"{what}: 'data.label' is missing; name the column of {data.file} that holds the classes")
    if data.normalize not in (None, *SCALINGS):
        raise unknown("normalization of a file", data.normalize, SCALINGS)
    _check_columns(data, what)
    kind = partition.get("kind")
    if kind is None and data.client is None:
        raise FedpriorError(
            f'{what}: name the column of clients as data.client, or say how to deal the rows out, as partition.kind = "iid"'
        )
    if kind == "natural" and data.client is None:
        raise FedpriorError(f'{what}: partition.kind = "natural" needs data.client, the column of clients')
    if data.split is not None and kind in PARTITIONS:
        if "is_test" not in inspect.signature(PARTITIONS.find(str(kind))).parameters:
            raise FedpriorError(f'{what}: partition.kind = "{kind}" ignores data.split; leave one of them out')
        if "test_fraction" in partition:
            raise FedpriorError(
                f"{what}: data.split and partition.test_fraction both say what is for testing; choose one of them"
            )


def _check_columns(data: DataSettings, what: str) -> None:
    """Refuse a column that is to be two things."""
    uses = [(name, f"data.{key}") for key in ("label", "client", "split") if (name := getattr(data, key)) is not None]
    uses += [(name, f"data.{key}") for key in ("features", "ignore") for name in getattr(data, key) or ()]
    seen: dict[str, str] = {}
    for name, use in uses:
        if (before := seen.setdefault(name, use)) != use or sum(other == (name, use) for other in uses) > 1:
            twice = f"twice in {use}" if before == use else f"{before} and {use}"
            raise FedpriorError(f"{what}: column '{name}' is {twice}; name each column only once")


def open_source(data: DataSettings) -> Source:
    """The samples of a task."""
    if data.file is None:
        assert data.source is not None
        return load(data.source, normalize=data.normalize)
    assert data.label is not None
    return from_file(
        Path(data.file),
        label=data.label,
        client=data.client,
        split=data.split,
        features=data.features,
        ignore=data.ignore or (),
    )


def is_scaled(data: DataSettings) -> bool:
    """Whether numbers are scaled by what the training samples tell: of files unless told otherwise, of arrays if told."""
    if data.file is not None:
        return data.normalize != "none"
    return data.source == "arrays" and data.normalize == "standard"
