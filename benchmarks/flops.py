"""Flops of matrix products: those that a compiled function executes, and those that a model's gradient needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np
import torch
import torch_reference as reference
from torch.utils.flop_counter import FlopCounterMode


def executed(function: Callable[..., Any], *arguments: Any) -> int:
    """The flops of all matrix products of a function, loops counted as often as they run."""
    return _of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of(jaxpr: Any) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name = equation.primitive.name
    if name == "dot_general":
        ((contracted, _), _), left = equation.params["dimension_numbers"], equation.invars[0].aval.shape
        return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        raise SystemExit("a convolution: count its flops here before trusting the share")
    inner = sum(_of(part) for part in jax.extend.core.jaxprs_in_params(equation.params))
    if name == "while" and inner:
        raise SystemExit("a matrix product in a loop of unknown length: count it here before trusting the share")
    return inner * equation.params.get("length", 1)


def of_gradient(name: str, params: Sequence[np.ndarray], x: np.ndarray, vectors: np.ndarray | None) -> int:
    """What one gradient of the PyTorch model needs on a batch.

    PyTorch's counter passes over its LSTM. There each weight is used forward, for its own gradient and for that of what it
    is multiplied with, except that nobody needs the gradient of the word vectors.
    """
    if name == "lstm":
        gates = [p.size for p in params if p.ndim == 2 and p.shape[0] == params[0].shape[0]]
        return 2 * x.size * (3 * sum(gates) - gates[0])
    tensors = [t.requires_grad_() for t in reference.to_torch(name, list(params))]
    with FlopCounterMode(display=False) as counter:
        out = reference.forward(name, vectors)(tensors, reference.inputs(name, x))
        torch.autograd.grad(out.sum(), tensors)
    return counter.get_total_flops()
