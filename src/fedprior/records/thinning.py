"""Which clients' own values a run records: those of all clients, or, of a very large federation, those of a fixed sample.

Averages are always over all clients; only what is written client by client is thinned. The sample depends on nothing but
the clients' names, so that it is the same in every round, of every method and with every seed, and a smaller one is part of
a larger one.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from fedprior.records.schema import ClientId

ClientRows = int | Literal["all"]
KEY = "client_rows"  # in a configuration: how many clients are recorded one by one; absent: all of them
# Unless told otherwise, all of up to MANY clients are recorded, and SAMPLE of more: 200 rounds of MANY clients are a
# table of some 110 MB, which a resume reads in 15 seconds and 1 GB of memory.
MANY, SAMPLE = 2_000, 1_000


def automatic(clients: int) -> ClientRows:
    """How many of so many clients are recorded one by one, unless told otherwise."""
    return "all" if clients <= MANY else SAMPLE


@functools.lru_cache(maxsize=4)  # every round asks for the same
def recorded(ids: tuple[ClientId, ...], rows: ClientRows) -> np.ndarray:
    """The places of the clients that are recorded, in order: those whose names have the smallest hashes.

    >>> recorded(("ada", "bob", "eve"), "all").tolist(), recorded(("ada", "bob", "eve"), 2).tolist()
    ([0, 1, 2], [1, 2])
    """
    if rows == "all" or rows >= len(ids):
        return np.arange(len(ids))
    hashes = [hashlib.sha256(str(client).encode()).digest() for client in ids]
    return np.sort(sorted(range(len(ids)), key=hashes.__getitem__)[:rows])


def thinned_words(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is to be known of numbers from runs that record some of their clients; nothing where all record all of them.

    >>> thinned_words([{"client_rows": 1000, "run": {"clients": 100000}}, {"run": {"clients": 100000}}])[0][:63]
    '1,000 of 100,000 clients are recorded one by one, the same in e'
    """
    thinned = sorted({(config[KEY], config["run"]["clients"]) for config in configs if KEY in config})
    return [
        f"{kept:,} of {clients:,} clients are recorded one by one, the same in every run: averages are over "
        "all clients; everything reported client by client is about these"
        for kept, clients in thinned
    ]
