"""Models made by hand, to be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedprior as fp
from fedprior import models
from fedprior.core.vectors import Vector
from fedprior.data.preparation import Preparation
from fedprior.models.classifier import Classifier
from fedprior.models.file import Built
from fedprior.models.saved import Predictor

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


def refusal(path: Path, model: Any = None) -> str:
    """Why a file is not loaded, in a form that an assertion compares."""
    try:
        return f"{fp.load(path, model=model)} is loaded"
    except fp.FedpriorError as error:
        return str(error)
