"""A model that predicts without the data it was trained on: saved as one file, loaded in another process.

The file is safetensors: the arrays of the model, what its samples are normalised with and the words that it knows; a small
JSON in its header says which model it is, what its classes and its client are called, and how it was trained. There is no
pickle, and loading runs no code but that of models that are registered, or given to `load`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedprior import models
from fedprior.core.batch import SAMPLES_PER_STEP
from fedprior.core.compiling import preferred_options
from fedprior.core.method import Mixture
from fedprior.core.vectors import Vector, row
from fedprior.data.preparation import Preparation
from fedprior.errors import FedpriorError, first_line
from fedprior.models import file
from fedprior.models.classifier import Classifier, ModelBuilder, check_model, log_probabilities, outline
from fedprior.models.file import Built, Header, Name
from fedprior.records import checkpoint

PROBED = 4  # made-up samples on which a model is tried when it is loaded


@functools.cache
def _compiled() -> Any:
    """Compiled once for all clients' models of a run, as an evaluation is."""
    return cast(Any, eqx.filter_jit)(log_probabilities, compiler_options=dict(preferred_options()))


def _ask(problem: Classifier, mixture: Mixture, x: jax.Array) -> jax.Array:
    return cast(jax.Array, _compiled()(problem, mixture, x))


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model with all that it takes to use it: made by `Result.predictor`, or by `load` from a file."""

    problem: Classifier
    mixture: Mixture  # weights [M] and models [M, ...]
    preparation: Preparation  # from a sample as its owner has it to what the model reads
    x_shape: tuple[int, ...]  # of a sample as the model reads it
    classes: tuple[Name, ...]  # what the outputs are called
    client: Name | None  # whose personal model it is; None: the global model
    about: dict[str, Any]  # how it was trained, and what it scored
    built: Built | None = None  # what a registered model is built from; None: a class of the user's own

    def predict(self, x: npt.ArrayLike | Sequence[str]) -> npt.NDArray[Any]:
        """The most probable class of each sample, by the name that its owner gave it [n]."""
        return self._names[np.argmax(self.log_probabilities(x), axis=1)]

    def predict_proba(self, x: npt.ArrayLike | Sequence[str]) -> npt.NDArray[np.float32]:
        """The probability of each class [n, C], in the order of `classes` and in the precision of the model (float32)."""
        return np.exp(self.log_probabilities(x))

    def log_probabilities(self, x: npt.ArrayLike | Sequence[str]) -> npt.NDArray[np.float32]:
        """The logarithm of `predict_proba`, with the bits that an evaluation computes: it asks in the same chunks."""
        prepared = self.preparation(x)
        parts = []
        for start in range(0, len(prepared), SAMPLES_PER_STEP):
            part = prepared[start : start + SAMPLES_PER_STEP]
            filled = np.zeros((SAMPLES_PER_STEP, *part.shape[1:]), part.dtype)
            filled[: len(part)] = part
            parts.append(np.asarray(_ask(self.problem, self.mixture, jnp.asarray(filled)))[: len(part)])
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes)), np.float32)

    @property
    def weights(self) -> npt.NDArray[Any]:
        """The weights of the mixture [M]; a single 1 for most methods."""
        return np.asarray(self.mixture[0])

    @property
    def models(self) -> list[Any]:
        """The M models of the mixture as Equinox modules, which read prepared samples."""
        return [self.problem.model(row(self.mixture[1], m)) for m in range(len(self.weights))]

    def save(self, path: Path | str, mode: int | None = None) -> Path:
        """Write the model to a file, whole or not at all; a file that is there is replaced.

        ``mode``: who may read it (0o600: its owner alone); None: as of any new file.
        """
        path = Path(path)
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise FedpriorError(f"cannot write a model to {path}, which is no regular file; give the name of a file")
        arrays = self._arrays()
        file.write(path, self._header(path), arrays, mode)
        return path

    def __repr__(self) -> str:
        whose = "the global model" if self.client is None else f"client {self.client!r}"
        task, at = self.about.get("row", type(self.problem.rest).__name__), self.about.get("round", "?")
        return f"Predictor({task}, {whose}, round {at}: {len(self.classes)} classes)"

    def probe(self) -> npt.NDArray[np.float32]:
        """The model's outputs on made-up samples, which expose a model with the same arrays but another activation."""
        count = SAMPLES_PER_STEP * math.prod(self.x_shape)
        x = np.arange(count).reshape(SAMPLES_PER_STEP, *self.x_shape)
        if self.preparation.vectors is not None:
            made_up = jnp.asarray(7919 * x % self.preparation.vectors, jnp.int32)
        else:
            made_up = jnp.asarray(2 * np.sin(x), jnp.float32)
        return np.asarray(_ask(self.problem, self.mixture, made_up))[:PROBED]

    @property
    def _names(self) -> npt.NDArray[Any]:
        mixed = len({type(name) for name in self.classes}) > 1
        return np.array(self.classes, object if mixed else None)

    def _arrays(self) -> dict[str, np.ndarray]:
        weights, trained = self.mixture
        parts = {
            "model": checkpoint.pack(trained.tree),
            "fixed": checkpoint.pack(eqx.filter(self.problem.rest, _is_array)),
            "preparation": self.preparation.arrays(),
        }
        named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {"weights": np.asarray(weights), "probe": self.probe(), **named}

    def _header(self, path: Path) -> Header:
        try:
            content = {
                "format": file.FORMAT,
                "kind": type(self.problem.rest).__name__,
                "built": None if self.built is None else self.built.model_dump(),
                "x_shape": list(self.x_shape),
                "n_classes": self.problem.n_classes,
                "classes": list(self.classes),
                "client": self.client,
                "preparation": self.preparation.plain(),
                "about": self.about,
            }
            return Header.model_validate(json.loads(json.dumps(content)))
        except (TypeError, ValueError) as error:
            raise FedpriorError(
                f"cannot write {path}: the model is described by more than plain data ({error})"
            ) from error


def load(path: Path | str, model: ModelBuilder | eqx.Module | None = None) -> Predictor:
    """Read a model that was saved by `Result.save` or by ``fedprior export``.

    ``model`` is needed for a model of a class of your own: a function of a key that builds it, or a ready one, whose weights
    are replaced.
    """
    path = Path(path)
    header, arrays = file.read(path)
    build = _builder(path, header, model, arrays)
    try:
        like = outline(build)
    except FedpriorError as error:
        raise FedpriorError(f"cannot build the model of {path}: {error}") from error
    except Exception as error:  # whatever a model's own code raises
        raise FedpriorError(f"cannot build the model of {path} ({first_line(error)})") from error
    misfit = f"{path} does not fit the model {'that was given' if model is not None else header.kind}"
    trained, fixed, prepared = (
        {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
        for part in ("model.", "fixed.", "preparation.")
    )
    weights = arrays["weights"]
    if weights.ndim != 1 or not len(weights) or any(a.ndim < 1 or len(a) != len(weights) for a in trained.values()):
        raise FedpriorError(f"{path} is damaged: the weights of its mixture are of shape {weights.shape}")
    shapes, static = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    one = {**fixed, **{name: array[0] for name, array in trained.items()}}
    whole = jax.tree.map(jnp.asarray, checkpoint.unpack(one, shapes, misfit, "give what built it"))
    problem = Classifier(eqx.combine(whole, static), header.n_classes)
    assert problem.start is not None
    stacked = problem.start.map(lambda x: jax.ShapeDtypeStruct((len(weights), *x.shape), x.dtype))
    mixture = jnp.asarray(weights), Vector(jax.tree.map(jnp.asarray, checkpoint.unpack(trained, stacked.tree, misfit)))
    try:
        preparation = Preparation.of(header.preparation.model_dump(), prepared)
    except (KeyError, ValueError) as error:
        raise FedpriorError(f"{path} is damaged: its preparation is not whole ({first_line(error)})") from error
    names, shape = tuple(header.classes), tuple(header.x_shape)
    predictor = Predictor(problem, mixture, preparation, shape, names, header.client, header.about, header.built)
    said, says = arrays["probe"], predictor.probe()
    if says.shape[1] != len(names):
        raise FedpriorError(f"{path} is damaged: {len(names)} names for {says.shape[1]} outputs; save it again")
    if said.shape != says.shape or not np.allclose(said, says, 1e-3, 1e-4, equal_nan=True):
        raise FedpriorError(f"{misfit}: it has the same arrays and gives other outputs; was it of another activation?")
    return predictor


def output_names(names: Iterable[Name], outputs: int) -> tuple[Name, ...]:
    """What a model's outputs are called; it may have more of them than there are classes.

    >>> output_names((0, 1), 3), output_names(("ill", "well"), 3)
    ((0, 1, 2), ('ill', 'well', 'output 2'))
    """
    known = tuple(names)
    plain = known == tuple(range(len(known)))
    return known + tuple(k if plain else f"output {k}" for k in range(len(known), outputs))


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _builder(
    path: Path, header: Header, model: ModelBuilder | eqx.Module | None, arrays: Mapping[str, np.ndarray]
) -> ModelBuilder:
    """What builds the model whose arrays are read; they alone matter, so that its own are never computed."""
    if model is not None:
        check_model(model)
        return (lambda key: model) if isinstance(model, eqx.Module) else model
    built = header.built
    if built is None:
        raise FedpriorError(
            f"{path} holds a {header.kind}, a model of your own; give what builds it, a function of a key: "
            "fp.load(path, model=build)"
        )
    if built.name not in models.MODELS:
        known = ", ".join(models.MODELS)
        raise FedpriorError(
            f"{path} holds a model '{built.name}', which is not registered here (there are {known}); import what registers "
            "it, or give fp.load(path, model=build)"
        )
    vectors = None
    if built.vectors is not None:
        wanted = tuple(built.vectors)
        alike = (array for array in arrays.values() if array.shape == wanted)
        vectors = next(alike, np.broadcast_to(np.float32(0), wanted))
    shape = tuple(header.x_shape)
    return lambda key: models.build(built.name, built.options, shape, header.n_classes, vectors, key)
