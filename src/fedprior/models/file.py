"""The file of a saved model: safetensors with a small JSON in its header and a checksum of both."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic

from fedprior.errors import FedpriorError, one_line
from fedprior.files import array_digest, digest
from fedprior.records import checkpoint

FORMAT = 1
_ABOUT, _CHECK = "fedprior_model", "sha256"  # the one entry of the file's header, and the checksum in it
Name = int | str


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Built(_Strict):
    """What a registered model is built from."""

    name: str
    options: dict[str, Any]
    vectors: list[pydantic.PositiveInt] | None  # the shape of the word vectors


class _Prepared(_Strict):
    flatten: bool
    columns: list[str] | None
    shape: list[int] | None
    vectors: int | None


class Header(_Strict):
    """What is known of a saved model besides its arrays."""

    format: Literal[1]
    kind: str  # the model's class
    built: Built | None  # None: a class of the user's own
    x_shape: list[pydantic.PositiveInt]
    n_classes: pydantic.PositiveInt
    classes: list[Name]
    client: Name | None
    preparation: _Prepared
    about: dict[str, Any]


def write(path: Path, header: Header, arrays: dict[str, np.ndarray], mode: int | None = None) -> None:
    """Replace the file, whole or not at all."""
    plain = header.model_dump()
    text = json.dumps({**plain, _CHECK: _digest(plain, arrays)}, sort_keys=True)
    checkpoint.write_arrays(path, arrays, {_ABOUT: text}, mode)  # several entries would stand in any order


def read(path: Path) -> tuple[Header, dict[str, np.ndarray]]:
    """What a file holds, checked."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FedpriorError(f"cannot read the model {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise FedpriorError(f"{path} is {what}; give the file of a model that was saved")
    content = checkpoint.read_arrays(path)
    if content is None:
        raise FedpriorError(
            f"{path} is not a saved model, or is truncated; save it again (result.save, or `fedprior export`)"
        )
    arrays, texts = content
    if _ABOUT not in texts:
        raise FedpriorError(
            f"{path} holds arrays, but no model that fedprior saved; `fedprior export` makes one of a run"
        )
    try:
        plain = json.loads(texts[_ABOUT])
        number, mark = plain["format"], plain.pop(_CHECK, None)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FedpriorError(f"{path} is damaged: its header is no description of a model; save it again") from error
    if isinstance(number, int) and number > FORMAT:
        raise FedpriorError(f"{path} is of format {number}, which a newer fedprior wrote; this one reads {FORMAT}")
    if mark != _digest(plain, arrays):
        raise FedpriorError(f"{path} is damaged: its content is not what was written; save it again")
    try:
        header = Header.model_validate(plain)
    except pydantic.ValidationError as error:
        raise one_line(error, f"the header of {path}", Header.model_fields) from error
    if not {"weights", "probe"} <= arrays.keys():
        raise FedpriorError(f"{path} is damaged: it holds no weights; save it again")
    return header, arrays


def _digest(plain: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    each = {name: array_digest(array) for name, array in arrays.items()}
    return digest(json.dumps(plain, sort_keys=True), json.dumps(each, sort_keys=True))
