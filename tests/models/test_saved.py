"""A saved model predicts elsewhere as it did here; what is not whole, or not a model, is told in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior as fp
from fedprior.core.vectors import Vector
from fedprior.models.classifier import Classifier
from fedprior.models.saved import Predictor, load, output_names
from models.made import X, predictor, refusal

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


@pytest.mark.bits
def test_weights_of_half_precision_come_back(tmp_path: Path) -> None:
    def build(key: jax.Array) -> Any:
        return jax.tree.map(lambda a: a.astype(jnp.bfloat16), eqx.nn.Linear(6, 3, key=key))

    problem = Classifier(build, 3)
    w = Vector(jax.tree.map(lambda x: x[None], problem.init(jax.random.key(5)).tree))
    saved = predictor(problem=problem, mixture=(jnp.ones(1), w), built=None)
    loaded = fp.load(saved.save(tmp_path / "half"), model=build)
    assert loaded.models[0].weight.dtype == jnp.bfloat16
    assert loaded.log_probabilities(X).tobytes() == saved.log_probabilities(X).tobytes()


@pytest.mark.bits
def test_what_builds_a_model_may_look_at_values(tmp_path: Path) -> None:
    def build(key: jax.Array) -> Own:
        return Own(key, outputs=3 if jax.random.uniform(key) < 2 else 4)

    saved, path = own(tmp_path)
    assert fp.load(path, model=build).log_probabilities(X).tobytes() == saved.log_probabilities(X).tobytes()


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
    said = refusal(own(tmp_path)[1], model)
    assert re.search(message, said)
    assert "\n" not in said


def test_a_torch_module_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(
        fp.FedpriorError, match=r"the model is a torch.nn.modules.linear.Linear; give an Equinox module"
    ):
        fp.load(own(tmp_path)[1], model=torch.nn.Linear(6, 3))
