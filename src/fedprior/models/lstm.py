"""A stacked LSTM over frozen word vectors, with the recurrence's derivative written out."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.errors import FedpriorError
from fedprior.models.base import Frozen, Linear, Model, uniform


class LSTMLayer(eqx.Module):
    """The parameters of one LSTM layer in one direction, gates in PyTorch's order i, f, g, o.

    As in PyTorch there are two biases, of which only the sum matters to the output. They are kept apart because the sum
    of two steps is not one step: merged into one, the bias would learn half as fast, and would start from a uniform
    distribution where PyTorch's sum is triangular.
    """

    input_weight: Array  # [4 H, d]
    hidden_weight: Array  # [4 H, H]
    input_bias: Array  # [4 H]
    hidden_bias: Array  # [4 H]

    def __init__(self, in_size: int, hidden: int, *, key: Array) -> None:
        shapes = ((4 * hidden, in_size), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,))
        keys = jax.random.split(key, 4)
        self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias = (
            uniform(k, shape, hidden) for k, shape in zip(keys, shapes, strict=True)
        )

    def __call__(self, x: Array) -> Array:
        """Run over time from a zero state: [T, B, d] to the outputs [T, B, H]."""
        steps, batch, size = x.shape
        # The input's part of the gates is one product over all time steps, outside the recurrence.
        gates = x.reshape(steps * batch, size) @ self.input_weight.T + (self.input_bias + self.hidden_bias)
        return _recur(gates.reshape(steps, batch, -1), self.hidden_weight)


@jax.custom_jvp
def _recur(gates: Array, weight: Array) -> Array:
    """The LSTM recurrence: the input's part of the gates [T, B, 4 H] and the hidden weight [4 H, H] to [T, B, H].

    The derivative is written out because JAX's own adds up the weight's gradient within the loop; here that is one
    product after it, and the gradient of the LSTM takes 0.9 times the time. It is a forward rule, so that forward,
    reverse and higher derivatives all work.
    """
    return _trace(gates, weight)[0]


def _trace(gates: Array, weight: Array) -> tuple[Array, ...]:
    """Outputs h, states c, the activated gates i, f, g, o, and tanh(c), each [T, B, H]."""

    def step(state: tuple[Array, Array], gates: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ weight.T, 4, axis=1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * c + i * g
        tanh_c = jnp.tanh(c)
        h = o * tanh_c
        return (h, c), (h, c, i, f, g, o, tanh_c)

    zero = jnp.zeros((gates.shape[1], weight.shape[1]), gates.dtype)
    trace: tuple[Array, ...] = jax.lax.scan(step, (zero, zero), gates)[1]
    return trace


@_recur.defjvp
def _recur_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (gates, weight), (d_gates, d_weight) = primals, tangents
    h, c, i, f, g, o, tanh_c = _trace(gates, weight)
    steps, batch, hidden = h.shape
    h_before, c_before = (jnp.pad(a[:-1], ((1, 0), (0, 0), (0, 0))) for a in (h, c))
    d_gates += (h_before.reshape(-1, hidden) @ d_weight.T).reshape(steps, batch, -1)
    # dc = f dc + by_i di + by_f df + by_g dg and dh = by_c dc + by_o do, with all factors known before the loop
    factors = (f, g * i * (1 - i), c_before * f * (1 - f), i * (1 - g**2), tanh_c * o * (1 - o), o * (1 - tanh_c**2))

    def step(state: tuple[Array, Array], inputs: tuple[Array, tuple[Array, ...]]) -> tuple[tuple[Array, Array], Array]:
        (dh, dc), (d_gates, (f, by_i, by_f, by_g, by_o, by_c)) = state, inputs
        di, df, dg, do = jnp.split(d_gates + dh @ weight.T, 4, axis=1)
        dc = f * dc + by_i * di + by_f * df + by_g * dg
        dh = by_c * dc + by_o * do
        return (dh, dc), dh

    zero = jnp.zeros((batch, hidden), h.dtype)
    return h, jax.lax.scan(step, (zero, zero), (d_gates, factors))[1]


class LSTM(Model):
    """A stacked LSTM over frozen word vectors, then one hidden layer of leaky rectifiers (slope 0.1).

    As the pFedBreD paper describes it (the default): one direction, 100 units above the last output of the top
    layer, [B, H]. As its released code has it (``bidirectional=True, head_width=5000``): the hidden layer reads the top
    layer's forward and backward output at the last word, then its final backward and forward states, [B, 4 H]. In
    one direction the last output *is* the final state, so it enters once. Padding is read like any word, as there.

    Words are indices into ``vectors`` [V, d]; the memory is that of S. Hochreiter and J. Schmidhuber, "Long short-term
    memory" (1997).

    >>> def logits(key, words):
    ...     return LSTM(np.zeros((7, 50), np.float32), key=key).logits(words)
    >>> jax.eval_shape(logits, jax.random.key(0), jnp.zeros((5, 25), int)).shape
    (5, 2)
    """

    # What a slice leaves behind for its gradient stays in a core's cache: 0.7 times the time at a batch of 400.
    samples_per_slice: ClassVar[int | None] = 64

    vectors: Frozen  # [V, d]
    cells: tuple[tuple[LSTMLayer, ...], ...]  # [layers][directions]
    hidden: Linear
    head: Linear
    slope: float = eqx.field(static=True)

    def __init__(
        self,
        vectors: np.ndarray | Array,
        n_classes: int = 2,
        *,
        hidden: int = 50,
        layers: int = 2,
        head_width: int = 100,
        bidirectional: bool = False,
        slope: float = 0.1,
        key: Array,
    ) -> None:
        directions = 2 if bidirectional else 1
        sizes = [vectors.shape[1]] + [directions * hidden] * (layers - 1)
        cell_key, hidden_key, head_key = jax.random.split(key, 3)
        keys = jax.random.split(cell_key, (layers, directions))
        self.vectors = Frozen(jnp.asarray(vectors))
        self.cells = tuple(
            tuple(LSTMLayer(size, hidden, key=k) for k in layer_keys)
            for size, layer_keys in zip(sizes, keys, strict=True)
        )
        self.hidden = Linear((4 if bidirectional else 1) * hidden, head_width, key=hidden_key)
        self.head = Linear(head_width, n_classes, key=head_key)
        self.slope = slope

    def features(self, x: Array) -> Array:
        """Map word indices [B, T] to [B, head_width]."""
        sequence = jax.lax.stop_gradient(self.vectors.array)[x.T]  # [T, B, d]
        for forward, *backward in self.cells:
            outputs = [forward(sequence)] + [cell(sequence[::-1])[::-1] for cell in backward]
            sequence = jnp.concatenate(outputs, axis=-1)
        if len(outputs) == 1:
            read = sequence[-1]
        else:
            ahead, back = outputs
            read = jnp.concatenate([ahead[-1], back[-1], back[0], ahead[-1]], axis=-1)
        return jax.nn.leaky_relu(self.hidden(read), self.slope)

    @classmethod
    def for_data(
        cls, x_shape: tuple[int, ...], n_classes: int, vectors: np.ndarray | None, *, key: Array, **options: Any
    ) -> Self:
        """Make the model for samples of T word indices and their word vectors [V, d]."""
        if vectors is None:
            raise FedpriorError(
                "model 'lstm' needs word vectors, and this data set has none; use 'mclr', 'dnn' or 'cnn'"
            )
        if vectors.ndim != 2 or len(x_shape) != 1:
            raise FedpriorError(
                f"model 'lstm' takes word indices [T] and word vectors [V, d]; given: {x_shape} and {vectors.shape}"
            )
        return cls(vectors, n_classes, **options, key=key)
