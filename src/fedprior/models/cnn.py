"""CifarNet, with convolution and pooling as one matrix product, which is what the CPU is fast at."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.errors import FedpriorError
from fedprior.models.base import Linear, Model, refuse_words, uniform


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
        self.weight = uniform(w_key, (out_channels, in_channels, size, size), fan_in)
        self.bias = uniform(b_key, (out_channels,), fan_in)

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
    and maximum pooling. ``image`` is (height, width, channels), as the data are stored.

    >>> def features(key, x):
    ...     return CNN((32, 32, 3), 10, key=key).features(x)
    >>> jax.eval_shape(features, jax.random.key(0), jnp.ones((5, 32, 32, 3))).shape
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

    @classmethod
    def for_data(
        cls, x_shape: tuple[int, ...], n_classes: int, vectors: np.ndarray | None, *, key: Array, **options: Any
    ) -> Self:
        """Make the model for images of shape (height, width, channels)."""
        refuse_words(cls, vectors)
        if len(x_shape) != 3:
            raise FedpriorError(
                f"model 'cnn' takes images (height, width, channels), such as (32, 32, 3), not {x_shape}"
            )
        return cls((x_shape[0], x_shape[1], x_shape[2]), n_classes, key=key, **options)
