"""The table of models: sizes, options, errors, and that a model added to it is the model that is built."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedprior import models
from fedprior.errors import FedpriorError
from fedprior.models.base import Linear, Model, Shift, uniform
from fedprior.registry import Registry

from .support import KEY, OTHER_KEY, leaves

VECTORS = np.zeros((30, 50), np.float32)
RELEASED = {"bidirectional": True, "head_width": 5000}


def built(
    name: str, options: dict[str, Any], shape: tuple[int, ...], classes: int, vectors: np.ndarray | None = None
) -> Any:
    """The model without its numbers, so that nothing is compiled."""
    return eqx.filter_eval_shape(lambda: models.build(name, options, shape, classes, vectors, KEY))


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "vectors", "count"),
    [
        ("mclr", {}, (784,), 10, None, 7_850),
        ("mclr", {}, (28, 28), 62, None, 48_670),
        ("dnn", {}, (784,), 10, None, 79_510),
        ("dnn", {}, (28, 28, 1), 62, None, 84_762),
        ("cnn", {}, (32, 32, 3), 10, None, 62_006),
        ("lstm", RELEASED, (25,), 2, VECTORS, 1_116_602),
        ("lstm", {}, (25,), 2, VECTORS, 46_102),
    ],
)
def test_parameter_counts(name: str, options: Any, shape: Any, classes: int, vectors: Any, count: int) -> None:
    model = built(name, options, shape, classes, vectors)
    assert type(model) is models.MODELS.find(name)
    parameters = eqx.filter(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    frozen = 0 if vectors is None else vectors.size
    assert sum(leaf.size for leaf in jax.tree.leaves(parameters)) == count + frozen


def test_leaf_names_are_those_of_checkpoints() -> None:
    def names(*given: Any) -> list[str]:
        return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(built(*given))]

    def linear(*fields: str) -> list[str]:
        return [f".{field}.{array}" for field in fields for array in ("weight", "bias")]

    def layer(i: int, j: int) -> list[str]:
        return [f".cells[{i}][{j}].{part}_{array}" for array in ("weight", "bias") for part in ("input", "hidden")]

    assert names("mclr", {}, (5,), 2) == linear("head")
    assert names("dnn", {}, (5,), 2) == linear("hidden", "head")
    assert names("cnn", {}, (16, 16, 1), 2) == linear("conv1", "conv2", "fc1", "fc2", "head")
    cells = [name for i in (0, 1) for j in (0, 1) for name in layer(i, j)]
    options = {"bidirectional": True}
    assert names("lstm", options, (25,), 2, VECTORS) == [".vectors.array", *cells, *linear("hidden", "head")]


def test_options_and_their_defaults() -> None:
    assert models.default_options("mclr") == models.default_options("cnn") == {}
    assert models.default_options("lstm") == {
        "hidden": 50, "layers": 2, "head_width": 100, "bidirectional": False, "slope": 0.1,
    }  # fmt: skip
    model = built("lstm", {"layers": 3, "hidden": 7, "slope": 0}, (25,), 4, VECTORS)
    assert len(model.cells) == 3
    assert model.slope == 0
    assert jax.eval_shape(lambda m, x: m.logits(x), model, jnp.zeros((2, 25), jnp.int32)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "vectors", "message"),
    [
        ("dnnn", {}, (784,), 10, None, "unknown model 'dnnn' .did you mean 'dnn'"),
        ("dnn", {"hiden": 3}, (784,), 10, None, "unknown option 'hiden' of model 'dnn' .did you mean 'hidden'"),
        ("mclr", {"hidden": 3}, (784,), 10, None, "'mclr' has no options; given: hidden"),
        ("dnn", {"hidden": 0}, (784,), 10, None, "at least 1, not 0"),
        ("dnn", {"hidden": 3.5}, (784,), 10, None, "whole number .default 100., not 3.5"),
        ("dnn", {"slope": "steep"}, (784,), 10, None, "a number .default 0.1., not 'steep'"),
        ("lstm", {"bidirectional": 1}, (25,), 2, VECTORS, "true or false, not 1"),
        ("cnn", {}, (784,), 10, None, r"takes images .*not \(784,\)"),
        ("cnn", {}, (30, 30, 3), 10, None, "multiples of 4, at least 16, not 30 x 30"),
        ("cnn", {}, (12, 12, 3), 10, None, "multiples of 4, at least 16, not 12 x 12"),
        ("lstm", {}, (25,), 2, None, "needs word vectors"),
        ("lstm", {}, (25, 3), 2, VECTORS, r"word indices \[T\]"),
        ("mclr", {}, (25,), 2, VECTORS, "'mclr' takes numbers, and this data set is made of word indices; use 'lstm'"),
        ("cnn", {}, (25,), 2, VECTORS, "'cnn' takes numbers, and this data set is made of word indices; use 'lstm'"),
        ("mclr", {}, (), 10, None, "needs inputs"),
        ("mclr", {}, (784,), 1, None, "at least two classes"),
    ],
)
def test_bad_input_is_named(name: str, options: Any, shape: Any, classes: int, vectors: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        models.build(name, options, shape, classes, vectors, KEY)
    if options:  # what is wrong with options is known before there are data
        with pytest.raises(FedpriorError, match=message):
            models.check_options(name, options)


# -- models of a user's own ------------------------------------------------------------------------------------------------


class Half(Model):
    """Reads every second number."""

    head: Linear
    hidden: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def __init__(self, in_size: int, n_classes: int, *, hidden: int = 0, kind: str = "plain", key: Array) -> None:
        self.head, self.hidden, self.kind = Linear(in_size // 2, n_classes, key=key), hidden, kind

    def features(self, x: Array) -> Array:
        return x.reshape(len(x), -1)[:, ::2]


class Rows(Half):
    """Made from the shape of a sample, by a class method of its own."""

    def __init__(self, in_size: int, n_classes: int, *, key: Array) -> None:
        super().__init__(in_size, n_classes, key=key)

    @classmethod
    def for_data(cls, x_shape: Any, n_classes: int, vectors: Any, *, key: Array, **options: Any) -> Rows:
        return cls(x_shape[-1], n_classes, key=key, **options)


class Demanding(Half):
    def __init__(self, in_size: int, n_classes: int, *, width: int, key: Array) -> None:
        super().__init__(in_size, n_classes, hidden=width, key=key)


class OnlyAKey(Half):
    def __init__(self, key: Array) -> None:
        super().__init__(4, 2, key=key)


class Plain(eqx.Module):
    weight: Array

    def __init__(self, in_size: int, n_classes: int, *, key: Array) -> None:
        self.weight = jnp.ones((n_classes, in_size))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[type[Model]]:
    """A copy of the table, so that what a test registers is forgotten."""
    copy = Registry("model", dict(models.MODELS.items()))
    monkeypatch.setattr(models, "MODELS", copy)
    return copy


def test_a_registered_model_is_the_one_that_is_built(registry: Registry[type[Model]]) -> None:
    registry.register("half", Half)
    registry.register("rows", Rows)
    half, rows = built("half", {"hidden": 3}, (2, 6), 4), built("rows", {}, (2, 6), 4)
    assert (type(half), half.hidden, half.head.weight.shape) == (Half, 3, (4, 6))
    assert (type(rows), rows.hidden, rows.head.weight.shape) == (Rows, 0, (4, 3))


def test_a_taken_name_is_refused(registry: Registry[type[Model]]) -> None:
    with pytest.raises(FedpriorError, match="there is a model 'dnn' already"):
        registry.register("dnn", Half)
    assert type(built("dnn", {}, (6,), 4)).__name__ == "DNN"


@pytest.mark.parametrize(
    ("entry", "options", "message"),
    [
        (Plain, {}, "registered as 'Plain', which is not a subclass of fedprior.models.base.Model"),
        (lambda key: Half(4, 2, key=key), {}, "registered as '<lambda>', which is not a subclass"),
        (OnlyAKey, {}, r"cannot be made from OnlyAKey\(in_size, n_classes, key=key, .*for_data of its own"),
        (Demanding, {}, "'mine' needs a value for its option width, which has no default"),
        (Half, {"kind": 3}, "option kind of model 'mine' is a text .default 'plain'., not 3"),
        (Half, {"hidden": -1}, "option hidden of model 'mine' must be at least 0, not -1"),
    ],
)
def test_what_cannot_be_built_is_told(
    registry: Registry[type[Model]], entry: Any, options: dict[str, Any], message: str
) -> None:
    registry.register("mine", entry)
    with pytest.raises(FedpriorError, match=message):
        models.build("mine", options, (4,), 2, None, KEY)


def test_a_required_option_may_be_of_any_kind(registry: Registry[type[Model]]) -> None:
    registry.register("demanding", Demanding)
    assert built("demanding", {"width": 5}, (4,), 2).hidden == 5


def test_the_table_is_read_without_jax() -> None:
    code = "import sys, fedprior.models as m; assert 'dnn' in m.MODELS; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- parts -----------------------------------------------------------------------------------------------------------------


def test_uniform_has_the_bound_of_its_fan_in() -> None:
    values = np.asarray(uniform(KEY, (4000,), 25))
    assert 0.19 < values.max() <= 0.2
    assert -0.2 <= values.min() < -0.19
    assert values.var() == pytest.approx(0.04 / 3, rel=0.07)
    assert not np.array_equal(values, uniform(OTHER_KEY, (4000,), 25))


def test_linear_and_shift_by_hand() -> None:
    x, weight, bias = np.arange(6.0).reshape(2, 3), np.array([[1.0, 0, 2], [0, 1, -1]]), np.array([10.0, 20])
    layer = eqx.tree_at(lambda m: (m.weight, m.bias), built("mclr", {}, (3,), 2).head, (weight, bias))
    np.testing.assert_array_equal(layer(x), [[14, 19], [23, 19]])
    np.testing.assert_array_equal(Shift(jnp.asarray(bias))(x @ weight.T), layer(x))
    assert len(leaves(layer)) == 2
