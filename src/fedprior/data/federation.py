"""What the clients of a federation hold: the samples of all of them in flat arrays, one client after the other.

Client sizes are heavy-tailed, so nothing is padded to the longest client: a client is a range of the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprior.data.partitions.base import Partition, check, hold_out
from fedprior.data.preparation import Preparation
from fedprior.data.sources import Source
from fedprior.errors import FedpriorError
from fedprior.files import digest

if TYPE_CHECKING:
    import jax


class Samples(NamedTuple):
    """Samples of all clients, one client after the other."""

    x: np.ndarray | jax.Array  # [n, ...]
    y: np.ndarray | jax.Array  # [n]
    start: np.ndarray | jax.Array  # [N] first sample of each client
    size: np.ndarray | jax.Array  # [N] number of samples of each client


@dataclass(frozen=True)
class Federation:
    """The samples that N clients hold for training, testing and validation, and what a model must know about them."""

    train: Samples
    test: Samples
    validation: Samples | None
    n_classes: int
    fingerprint: str  # of the source
    vectors: np.ndarray | None = None  # [V, d] word vectors, for models of text
    clients: np.ndarray | None = None  # [N] the clients' numbers in the partition; None: 0, 1, ..., all of them
    names: tuple[int | str, ...] | None = None  # [N] what their owners call them; None: by their numbers
    class_names: tuple[int | str, ...] | None = None  # [C] what the labels are called; None: 0, 1, ...
    split: str = ""  # fingerprint of who holds which sample for training, validation or test
    preparation: Preparation = field(default_factory=Preparation)  # how a sample as its owner has it becomes one of x
    _placed: dict[Any, Samples] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.train.size)

    @property
    def numbers(self) -> np.ndarray:
        """The clients' numbers in the partition [N]; newcomers' random keys are made with them."""
        return np.arange(self.n_clients) if self.clients is None else self.clients

    @property
    def ids(self) -> tuple[int | str, ...]:
        """What the clients are called [N], in records and by users. Randomness depends on their numbers, not on this."""
        return tuple(self.numbers.tolist()) if self.names is None else self.names

    @property
    def is_tested(self) -> bool:
        """Whether any client has test samples."""
        return bool(np.sum(self.test.size))

    @property
    def classes(self) -> tuple[int | str, ...]:
        """What the classes are called [C]."""
        return tuple(range(self.n_classes)) if self.class_names is None else self.class_names

    def placed(self, part: str, sharding: jax.sharding.Sharding) -> Samples:
        """The samples of a part ("train", "test", "validation") on devices: one copy for all engines that ask."""
        import jax
        import jax.numpy as jnp

        key = (part, sharding, jnp.result_type(float))  # what is copied depends on whether JAX is in double precision
        if key not in self._placed:
            self._placed[key] = jax.device_put(Samples(*getattr(self, part)), sharding)
        return self._placed[key]


def federate(
    source: Source,
    partition: Partition,
    validation: float = 0.0,
    seed: int = 0,
    clients: np.ndarray | None = None,
) -> Federation:
    """Lay a source out client by client, with an optional validation part of each client's training samples.

    ``clients`` takes only these of the partition's clients, by number; each has the samples that it has among all.

    >>> from fedprior.data.partitions.labels import iid
    >>> from fedprior.data.sources import from_arrays
    >>> source = from_arrays([[0.0]] * 12, [0, 1] * 6)
    >>> federation = federate(source, iid(source.y, clients=3), clients=np.array([0, 2]))
    >>> federation.n_clients, federation.ids, federation.train.size
    (2, (0, 2), array([3, 3], dtype=int32))
    """
    check(partition)
    train, held_out = hold_out(partition, fraction=validation, seed=seed) if validation else (partition.train, None)

    def lay_out(parts: tuple[np.ndarray, ...]) -> Samples:
        return _lay_out(source.x, partition.y, parts if clients is None else tuple(parts[i] for i in clients))

    return Federation(
        train=lay_out(train),
        test=lay_out(partition.test),
        validation=lay_out(held_out) if held_out is not None else None,
        n_classes=source.n_classes,
        fingerprint=source.fingerprint,
        vectors=source.vectors,
        clients=clients,
        names=_named(partition, clients),
        class_names=source.class_names,
        split=digest(partition.fingerprint, repr((validation, seed) if validation else None)),
        preparation=source.preparation,
    )


def _named(partition: Partition, clients: np.ndarray | None) -> tuple[int | str, ...] | None:
    if partition.names is None or clients is None:
        return partition.names
    return tuple(partition.names[i] for i in clients)


def part_newcomers(n_clients: int, fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the clients that train, and those of the ``fraction`` (at least one, never all) that join later.

    >>> [part.tolist() for part in part_newcomers(5, 0.4)]
    [[0, 1, 3], [2, 4]]
    """
    if n_clients < 2:
        raise FedpriorError(f"new_clients = {fraction:g} holds clients out of training, but there is only one client")
    held = min(max(round(fraction * n_clients), 1), n_clients - 1)
    order = np.random.default_rng(seed).permutation(n_clients)
    return np.sort(order[held:]), np.sort(order[:held])


def _lay_out(x: np.ndarray, y: np.ndarray, parts: tuple[np.ndarray, ...]) -> Samples:
    size = np.array([len(part) for part in parts], np.int32)
    order = np.concatenate(parts)
    return Samples(x[order], y[order].astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)
