"""Files of models that are not what they should be: each is told in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import fedprior as fp
from fedprior.models import file
from fedprior.records import checkpoint
from models.made import predictor, refusal


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> None:
    """Another description or other arrays, with a checksum that is right."""
    content = checkpoint.read_arrays(path)
    assert content is not None
    arrays, about = content[0], json.loads(content[1]["fedprior_model"])
    del about["sha256"]
    change(about, arrays)
    text = json.dumps({**about, "sha256": file._digest(about, arrays)})
    checkpoint.write_arrays(path, arrays, {"fedprior_model": text})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about, _: about.update(format=2), "is of format 2, which a newer fedprior wrote; this one reads 1"),
        (lambda about, _: about.update(format="x"), "the header of .*: format: "),
        (lambda about, _: about.update(more=1), "unknown key 'more' in the header of .*"),
        (lambda about, _: about.pop("classes"), "'classes' is missing"),
        (lambda about, _: about.update(x_shape=[0]), "x_shape"),
        (lambda about, _: about["built"].update(name="mine"), "a model 'mine', which is not registered here"),
        (lambda about, _: about["built"]["options"].update(hidden=10**9), r"hidden.weight is float32\[5, 6\], but"),
        (lambda about, _: about["built"]["options"].update(depth=2), "unknown option 'depth' of model 'dnn'"),
        (lambda _, arrays: arrays.pop("weights"), "is damaged: it holds no weights"),
        (lambda _, arrays: arrays.update(weights=np.ones((0,), np.float32)), "the weights of its mixture are of shape"),
        (lambda _, arrays: arrays.pop("model.head.bias"), r"differs at head.bias"),
        (
            lambda _, arrays: arrays.update({"preparation.words": np.array([255], np.uint8)}),
            "is damaged: its preparation",
        ),
        (lambda about, _: about["classes"].pop(), "is damaged: 2 names for 3 outputs"),
    ],
)
def test_descriptions_that_do_not_fit_are_told(tmp_path: Path, change: Any, message: str) -> None:
    path = predictor().save(tmp_path / "m")
    rewritten(path, change)
    with pytest.raises(fp.FedpriorError, match=message) as error:
        fp.load(path)
    assert "\n" not in str(error.value)


def test_a_changed_bit_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = predictor().save(tmp_path / "m")
    whole = path.read_bytes()
    for place in (9, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "m is " in refusal(path)
    for cut in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(fp.FedpriorError, match="is not a saved model, or is truncated"):
            fp.load(path)


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "state", {"w": np.zeros(2)})
    (tmp_path / "text").write_text("no model")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    deep = "[" * 100_000
    safetensors.numpy.save_file({"w": np.zeros(1)}, tmp_path / "deep", metadata={"fedprior_model": deep})
    for name, message in {
        "none": "cannot read the model .*none: No such file",
        "state": "holds arrays, but no model that fedprior saved; `fedprior export` makes one",
        "text": "is not a saved model, or is truncated",
        "fifo": "is no regular file",
        ".": "is a folder",
        "dangling": "No such file",
        "circle": "cannot read the model",
        "deep": "its header is no description of a model",
    }.items():
        with pytest.raises(fp.FedpriorError, match=message) as error:
            fp.load(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_model_is_written_to_a_file_only_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = predictor()
    os.mkfifo(tmp_path / "fifo")
    for name in (".", "fifo"):
        with pytest.raises(fp.FedpriorError, match="which is no regular file; give the name of a file"):
            saved.save(tmp_path / name)
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    saved.save(tmp_path / "link")
    assert target.read_text() == "mine"  # the link is replaced, not what it leads to
    path = saved.save(tmp_path / "m")
    before = path.read_bytes()

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(fp.FedpriorError, match=r"cannot write .*m: No space left"):
            predictor(classes=(0, 1, 2)).save(path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))
