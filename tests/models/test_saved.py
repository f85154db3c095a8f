"""A saved model predicts elsewhere as it did here; what is not whole, or not a model, is told in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import fedprior as fp
from fedprior import models
from fedprior.core.vectors import Vector
from fedprior.data.preparation import Preparation
from fedprior.models.classifier import Classifier
from fedprior.models.file import Built
from fedprior.models.saved import Predictor, load, output_names
from fedprior.records import checkpoint

X = np.random.default_rng(0).normal(size=(150, 6)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)


def predictor(
    name: str = "dnn", parts: int = 1, classes: tuple[int | str, ...] = ("ill", "well", "?"), **changes: Any
) -> Predictor:
    """A registered model with weights of its own, or a mixture of several."""
    options: dict[str, Any] = {"dnn": {"hidden": 5}, "lstm": {"hidden": 3, "head_width": 4}}.get(name, {})
    words, shape = (VECTORS, (7,)) if name == "lstm" else (None, (28, 28, 1) if name == "cnn" else (6,))
    problem = Classifier(
        lambda key: models.build(name, options, shape, len(classes), words, key), n_classes=len(classes)
    )
    w = [problem.init(jax.random.key(m)).tree for m in range(parts)]
    prepared = Preparation(
        stages=() if name == "lstm" else ((np.full(shape, 0.5, np.float32), np.asarray(2, np.float32)),),
        words=tuple("abcdefg") if name == "lstm" else None,
        shape=shape,
        vectors=None if words is None else len(words),
    )
    whole: dict[str, Any] = {
        "problem": problem,
        "mixture": (
            jnp.arange(1.0, parts + 1) / sum(range(1, parts + 1)),
            Vector(jax.tree.map(lambda *a: jnp.stack(a), *w)),
        ),
        "preparation": prepared,
        "x_shape": shape,
        "classes": classes,
        "client": "St. C",
        "about": {"task": "t", "row": "mh", "round": 3},
        "built": Built(name=name, options=options, vectors=None if words is None else list(words.shape)),
        **changes,
    }
    return Predictor(**whole)


SAMPLES: dict[str, Any] = {
    "mclr": X,
    "dnn": X,
    "cnn": np.random.default_rng(2).normal(size=(3, 28, 28, 1)),
    "lstm": np.random.default_rng(3).integers(0, 9, (5, 7)),
}


@pytest.mark.bits
@pytest.mark.parametrize(("name", "parts"), [("mclr", 1), ("dnn", 3), ("cnn", 1), ("lstm", 2)])
def test_every_registered_model_comes_back(tmp_path: Path, name: str, parts: int) -> None:
    saved = predictor(name, parts)
    assert saved.save(tmp_path / "model") == tmp_path / "model"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    loaded = fp.load(str(tmp_path / "model"))
    x = SAMPLES[name]
    assert loaded.log_probabilities(x).tobytes() == saved.log_probabilities(x).tobytes()
    assert loaded.predict(x).tolist() == saved.predict(x).tolist()
    assert (loaded.classes, loaded.client, loaded.about) == (("ill", "well", "?"), "St. C", saved.about)
    assert loaded.weights.tolist() == saved.weights.tolist()
    assert repr(loaded) == "Predictor(mh, client 'St. C', round 3: 3 classes)"
    again = loaded.save(tmp_path / "again")
    assert again.read_bytes() == (tmp_path / "model").read_bytes()


@pytest.mark.bits
def test_texts_are_read_in_words(tmp_path: Path) -> None:
    loaded = load(predictor("lstm").save(tmp_path / "m"))
    ids = np.array([[2, 4, 1, 0, 0, 0, 0]])
    assert loaded.preparation.words == tuple("abcdefg")
    long = np.pad(ids, ((0, 0), (0, 18)))  # texts have a length of their own
    assert loaded.preparation(["A c zzz"]).tolist() == long.tolist()
    assert load(tmp_path / "m").predict(ids).dtype.kind == "U"


def test_probabilities_are_those_of_the_mixture() -> None:
    mixed = predictor("mclr", 3)
    z = (X - 0.5) / 2
    parts = []
    for model in mixed.models:
        logits = z @ np.asarray(model.head.weight).T + np.asarray(model.head.bias)
        parts.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    expected = np.tensordot(np.array([1, 2, 3]) / 6, np.array(parts), 1)
    found = mixed.predict_proba(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert mixed.predict(X).tolist() == [("ill", "well", "?")[k] for k in expected.argmax(1)]
    assert mixed.predict_proba(X[:0]).shape == (0, 3)
    assert mixed.predict(X[:0]).tolist() == []


def test_a_sample_is_judged_alike_among_any_others() -> None:
    dnn = predictor("dnn")
    together = dnn.log_probabilities(X)
    for part in (slice(0, 1), slice(100, 140), slice(128, 129)):
        assert np.array_equal(dnn.log_probabilities(X[part]), together[part])


def test_labels_keep_their_names_and_kinds() -> None:
    assert predictor(classes=(7, 8, 9)).predict(X).dtype.kind == "i"
    assert set(predictor(classes=(7, 8, 9)).predict(X).tolist()) <= {7, 8, 9}
    mixed = predictor(classes=output_names((7, 8), 3))
    assert mixed.classes == (7, 8, "output 2")
    assert set(map(type, mixed.predict(X).tolist())) <= {int, str}


# -- models of one's own -----------------------------------------------------------------------------------------------


class Own(eqx.Module):
    """A class that no registry knows, with an array that is not trained and an activation."""

    linear: eqx.nn.Linear
    order: jax.Array
    activation: Callable[[jax.Array], jax.Array]

    def __init__(self, key: jax.Array, outputs: int = 3, activation: Any = jax.nn.tanh):
        self.linear = eqx.nn.Linear(6, outputs, key=key)
        self.order, self.activation = jnp.arange(6)[::-1], activation

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.linear(x[self.order]))


def own(tmp_path: Path) -> tuple[Predictor, Path]:
    problem = Classifier(Own, 3)
    w = Vector(jax.tree.map(lambda x: x[None], problem.init(jax.random.key(5)).tree))
    saved = predictor(problem=problem, mixture=(jnp.ones(1), w), built=None)
    return saved, saved.save(tmp_path / "own")


@pytest.mark.bits
def test_a_model_of_one_s_own_is_loaded_with_what_builds_it(tmp_path: Path) -> None:
    saved, path = own(tmp_path)
    for build in (Own, Own(jax.random.key(9))):
        loaded = fp.load(path, model=build)
        assert loaded.log_probabilities(X).tobytes() == saved.log_probabilities(X).tobytes()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            None,
            r"holds a Own, a model of your own; give what builds it, a function of a key: fp.load\(path, model=build\)",
        ),
        (
            lambda key: Own(key, outputs=4),
            r"does not fit the model that was given: linear.weight is float32\[3, 6\], but",
        ),
        (lambda key: eqx.nn.Linear(6, 3, key=key), r"does not fit the model that was given \(differs at bias\)"),
        (lambda key: Own(key, activation=jax.nn.sigmoid), "gives other outputs; was it of another activation"),
        (lambda key: 1 / 0, r"cannot build the model of .* \(ZeroDivisionError: division by zero\)"),
        ("mclr", "the model is a builtins.str; give an Equinox module"),
    ],
    ids=["none", "outputs", "other", "activation", "raises", "text"],
)
def test_another_model_is_refused(tmp_path: Path, model: Any, message: str) -> None:
    with pytest.raises(fp.FedpriorError, match=message) as error:
        fp.load(own(tmp_path)[1], model=model)
    assert "\n" not in str(error.value)


def test_a_torch_module_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(
        fp.FedpriorError, match=r"the model is a torch.nn.modules.linear.Linear; give an Equinox module"
    ):
        fp.load(own(tmp_path)[1], model=torch.nn.Linear(6, 3))


# -- files that are not what they should be ----------------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> None:
    """Another description or other arrays, with a checksum that is right."""
    from fedprior.models import file

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
        (lambda about, _: about.update(more=1), "unknown key in the header of .* 'more'"),
        (lambda about, _: about.pop("classes"), "'classes' is missing"),
        (lambda about, _: about.update(x_shape=[0]), "x_shape"),
        (lambda about, _: about["built"].update(name="mine"), "a model 'mine', which is not registered here"),
        (lambda about, _: about["built"]["options"].update(hidden=10**9), r"hidden.weight is float32\[5, 6\], but"),
        (lambda about, _: about["built"]["options"].update(depth=2), "unknown option of model 'dnn' 'depth'"),
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
        with pytest.raises(fp.FedpriorError):
            fp.load(path)
    for cut in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(fp.FedpriorError, match="is no saved model, or is cut"):
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
        "text": "is no saved model, or is cut",
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
