"""The four models of the pFedBreD experiments, initialised as PyTorch does and shaped for a fast CPU gradient.

All of them map a *batch*: `features(x)` is the input of the last linear layer, `logits(x) = head(features(x))`. Weights
keep PyTorch's layout (`[out, in]`, `[out, in, k, k]`, LSTM gates in the order i, f, g, o), so that the leaves of a
model, in their order, are the parameters of the same PyTorch module. The layout is also the faster one here: with
`[in, out]` a step of MCLR inside a scanned SGD loop takes 1.7 times the time (the other models: the same time).

Initial values: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases (K. He et al., "Delving deep into rectifiers",
ICCV 2015, with the gain PyTorch gives its layers), U(-1/sqrt(hidden), 1/sqrt(hidden)) for the LSTM.
"""

from __future__ import annotations

import abc
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedprior.errors import FedpriorError, unknown

Array = jax.Array


def _uniform(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    """Draw from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Frozen(eqx.Module):
    """An array that belongs to a model but is not trained.

    The rest of the library splits models with `is_leaf=lambda x: isinstance(x, Frozen)`, which keeps the array out of
    the parameters.
    """

    array: Array


class Linear(eqx.Module):
    """`x -> x W^T + b`.

    >>> layer = Linear(3, 2, key=jax.random.key(0))
    >>> layer(jnp.ones((5, 3))).shape
    (5, 2)
    """

    weight: Array  # [out, in]
    bias: Array  # [out]

    def __init__(self, in_size: int, out_size: int, *, key: Array) -> None:
        w_key, b_key = jax.random.split(key)
        self.weight = _uniform(w_key, (out_size, in_size), in_size)
        self.bias = _uniform(b_key, (out_size,), in_size)

    def __call__(self, x: Array) -> Array:
        """Map [B, in] to [B, out]."""
        # x W^T + b, transposed twice, and kept apart from what follows: the CPU program's two matrix products are
        # faster so, above all that of the gradient (MCLR: 0.65 times the time; DNN: no difference).
        return jax.lax.optimization_barrier(self.weight @ x.T + self.bias[:, None]).T


class Shift(eqx.Module):
    """`z -> z + b`: a Linear whose product x W^T is given."""

    bias: Array  # [out]

    def __call__(self, z: Array) -> Array:
        """Map [B, out] to [B, out]."""
        return z + self.bias


class Model(eqx.Module):
    """What every model offers: a last linear layer, the features it reads, and the logits it makes of them."""

    if TYPE_CHECKING:  # a field of this class would come first among the leaves of every model
        head: Linear
    reads_input: ClassVar[str | None] = None  # the Linear that does, flattened, where there is one

    @abc.abstractmethod
    def features(self, x: Array) -> Array:
        """Map inputs [B, ...] to the input of the last linear layer [B, d]."""

    def logits(self, x: Array) -> Array:
        """Map inputs [B, ...] to unnormalised log-probabilities [B, C]."""
        return self.head(self.features(x))


class MCLR(Model):
    """Multinomial logistic regression; the features are the (flattened) input itself.

    >>> MCLR(784, 10, key=jax.random.key(0)).logits(jnp.ones((5, 28, 28))).shape
    (5, 10)
    """

    head: Linear
    reads_input: ClassVar[str] = "head"

    def __init__(self, in_size: int, n_classes: int, *, key: Array) -> None:
        self.head = Linear(in_size, n_classes, key=key)

    def features(self, x: Array) -> Array:
        """Flatten [B, ...] to [B, in_size]."""
        return x.reshape(len(x), -1)


class DNN(Model):
    """One hidden layer of 100 leaky rectifiers with slope 0.1 (T. Dinh et al., "pFedMe", NeurIPS 2020).

    >>> DNN(784, 10, key=jax.random.key(0)).features(jnp.ones((5, 784))).shape
    (5, 100)
    """

    hidden: Linear
    head: Linear
    slope: float = eqx.field(static=True)
    reads_input: ClassVar[str] = "hidden"

    def __init__(self, in_size: int, n_classes: int, *, hidden: int = 100, slope: float = 0.1, key: Array) -> None:
        hidden_key, head_key = jax.random.split(key)
        self.hidden = Linear(in_size, hidden, key=hidden_key)
        self.head = Linear(hidden, n_classes, key=head_key)
        self.slope = slope

    def features(self, x: Array) -> Array:
        """Map [B, ...] to [B, hidden]."""
        return jax.nn.leaky_relu(self.hidden(x.reshape(len(x), -1)), self.slope)


class ConvPool(eqx.Module):
    """A valid k x k convolution, maximum over 2 x 2 windows, bias and ReLU, as one matrix product on the CPU.

    The window of k + 1 pixels under a pooled pixel is one column of the patch matrix, and the four outputs pooled there
    are four groups of rows of the product, with the kernel shifted by one pixel between them. Against plain im2col
    this needs (k + 1)^2 / k^2 = 1.44 times the flops and a third of the memory traffic, and pooling becomes a maximum
    over a leading axis. The batch is the last axis, so that everything copied is contiguous. Inside a scanned
    SGD loop the CNN's gradient takes half the time of plain channel-first im2col.

    Bias and ReLU follow the maximum (both are monotone: the same values), so that the zeros ReLU makes are no ties.
    Where ties remain, which takes equal patches, PyTorch gives the gradient to the first of them and this to all in
    equal parts: the kernel's gradient is the same.
    """

    weight: Array  # [out, in, k, k]
    bias: Array  # [out]

    def __init__(self, in_channels: int, out_channels: int, size: int, *, key: Array) -> None:
        w_key, b_key = jax.random.split(key)
        fan_in = in_channels * size * size
        self.weight = _uniform(w_key, (out_channels, in_channels, size, size), fan_in)
        self.bias = _uniform(b_key, (out_channels,), fan_in)

    def __call__(self, x: Array) -> Array:
        """Map [in, H, W, B] to [out, (H - k + 1) / 2, (W - k + 1) / 2, B]."""
        out, k = self.weight.shape[0], self.weight.shape[-1]
        height, width, batch = (x.shape[1] - k + 1) // 2, (x.shape[2] - k + 1) // 2, x.shape[3]
        # First along the width, then along the height: a third of the slices of both at once.
        columns = jnp.stack([x[:, :, j : j + 2 * width : 2] for j in range(k + 1)])  # [k+1, in, H, width, B]
        patches = jnp.stack([columns[:, :, i : i + 2 * height : 2] for i in range(k + 1)])
        shifted = [
            jnp.pad(self.weight, ((0, 0), (0, 0), (i, 1 - i), (j, 1 - j))) for i in (0, 1) for j in (0, 1)
        ]  # 4 x [out, in, k+1, k+1]
        kernel = jnp.stack(shifted).transpose(0, 1, 3, 4, 2).reshape(4 * out, -1)  # [4 out, (k+1)(k+1) in]
        y = kernel @ patches.reshape(kernel.shape[1], -1)
        pooled = y.reshape(4, out, height, width, batch).max(axis=0)
        return jax.nn.relu(pooled + self.bias[:, None, None, None])


class CNN(Model):
    """CifarNet: two 5 x 5 convolutions (6 and 16 channels) with 2 x 2 pooling, then 120, 84 and the classes, all ReLU.

    The LeNet-5 of Y. LeCun et al., "Gradient-based learning applied to document recognition" (1998), with rectifiers
    and maximum pooling. `image` is (height, width, channels), as the data are stored.

    >>> CNN((32, 32, 3), 10, key=jax.random.key(0)).features(jnp.ones((5, 32, 32, 3))).shape
    (5, 84)
    """

    conv1: ConvPool
    conv2: ConvPool
    fc1: Linear
    fc2: Linear
    head: Linear

    def __init__(self, image: tuple[int, int, int] = (32, 32, 3), n_classes: int = 10, *, key: Array) -> None:
        height, width, channels = image
        if any(side < 16 or side % 4 for side in (height, width)):
            raise FedpriorError(
                f"model 'cnn' pools twice: height and width must be multiples of 4, at least 16, not {height} x {width}"
            )
        keys = jax.random.split(key, 5)
        self.conv1 = ConvPool(channels, 6, 5, key=keys[0])
        self.conv2 = ConvPool(6, 16, 5, key=keys[1])
        self.fc1 = Linear(16 * (height // 4 - 3) * (width // 4 - 3), 120, key=keys[2])
        self.fc2 = Linear(120, 84, key=keys[3])
        self.head = Linear(84, n_classes, key=keys[4])

    def features(self, x: Array) -> Array:
        """Map [B, H, W, C] to [B, 84]."""
        maps = self.conv2(self.conv1(x.transpose(3, 1, 2, 0)))  # [16, 5, 5, B]
        flat = maps.reshape(-1, len(x)).T  # [B, 400], in PyTorch's order: channel, row, column
        return jax.nn.relu(self.fc2(jax.nn.relu(self.fc1(flat))))


class Cell(eqx.Module):
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
            _uniform(k, shape, hidden) for k, shape in zip(keys, shapes, strict=True)
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
    layer, [B, H]. As its released code has it (`bidirectional=True, head_width=5000`): the hidden layer reads the top
    layer's forward and backward output at the last word, then its final backward and forward states, [B, 4 H]. In
    one direction the last output *is* the final state, so it enters once. Padding is read like any word, as there.

    Words are indices into `vectors` [V, d]; the memory is that of S. Hochreiter and J. Schmidhuber, "Long short-term
    memory" (1997).

    >>> LSTM(np.zeros((7, 50), np.float32), key=jax.random.key(0)).logits(jnp.zeros((5, 25), int)).shape
    (5, 2)
    """

    vectors: Frozen  # [V, d]
    cells: tuple[tuple[Cell, ...], ...]  # [layers][directions]
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
            tuple(Cell(size, hidden, key=k) for k in layer_keys) for size, layer_keys in zip(sizes, keys, strict=True)
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


MODELS: dict[str, type[Model]] = {"mclr": MCLR, "dnn": DNN, "cnn": CNN, "lstm": LSTM}


def options(name: str) -> dict[str, Any]:
    """The options of a model and their defaults.

    >>> options("dnn")
    {'hidden': 100, 'slope': 0.1}
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "key"}


def _check_options(name: str, given: Mapping[str, Any]) -> None:
    defaults = options(name)
    for option, value in given.items():
        if option not in defaults:
            if not defaults:
                raise FedpriorError(f"model '{name}' has no options; given: {option}")
            raise unknown(f"option of model '{name}'", option, defaults)
        default = defaults[option]
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise FedpriorError(f"option {option} of model '{name}' is true or false, not {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int if isinstance(default, int) else (int, float)):
            kind = "a whole number" if isinstance(default, int) else "a number"
            raise FedpriorError(f"option {option} of model '{name}' is {kind} (default {default}), not {value!r}")
        elif isinstance(default, int) and value < 1:
            raise FedpriorError(f"option {option} of model '{name}' must be at least 1, not {value}")


def build(
    name: str,
    options: Mapping[str, Any],
    x_shape: tuple[int, ...],
    n_classes: int,
    vectors: np.ndarray | None,
    key: Array,
) -> Model:
    """Make the named model for inputs of shape `x_shape` (one sample's, without the batch).

    `vectors` [V, d] are the word vectors of data made of word indices, and None for all other data.

    >>> build("mclr", {}, (28, 28), 10, None, jax.random.key(0)).head.weight.shape
    (10, 784)
    """
    _check_options(name, options)
    if not x_shape or min(x_shape) < 1 or n_classes < 2:
        raise FedpriorError(
            f"a model needs inputs and at least two classes; given: shape {x_shape}, {n_classes} classes"
        )
    if name == "lstm":
        if vectors is None:
            raise FedpriorError(
                "model 'lstm' needs word vectors, and this data set has none; use 'mclr', 'dnn' or 'cnn'"
            )
        if vectors.ndim != 2 or len(x_shape) != 1:
            raise FedpriorError(
                f"model 'lstm' takes word indices [T] and word vectors [V, d]; given: {x_shape} and {vectors.shape}"
            )
        return LSTM(vectors, n_classes, **options, key=key)
    if vectors is not None:
        raise FedpriorError(f"model '{name}' takes numbers, and this data set is made of word indices; use 'lstm'")
    if name == "cnn":
        if len(x_shape) != 3:
            raise FedpriorError(
                f"model 'cnn' takes images (height, width, channels), such as (32, 32, 3), not {x_shape}"
            )
        return CNN((x_shape[0], x_shape[1], x_shape[2]), n_classes, key=key)
    return (MCLR if name == "mclr" else DNN)(math.prod(x_shape), n_classes, **options, key=key)
