"""Who holds which samples: pure, seeded functions from labels to one list of sample indices per client.

Every function takes the labels first, returns a checked :class:`Partition` and draws from generators of its own, never
from the global ones, so that a partition is a function of its arguments alone. Samples are never copied, only indexed.

This file is the table of names. A task file gives the name as ``kind`` under ``[partition]`` and the function's other
arguments beside it; they are checked against the function's signature. A partition of your own is such a function, and
once it is registered its name works in task files too::

    def halves(y, *, test_fraction: float = 0.25) -> Partition:
        both = np.array_split(np.arange(len(y)), 2)
        return split_off_test(y, both, test_fraction, np.random.default_rng(0))

    PARTITIONS.register("halves", halves)
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedprior.data.partitions.base import Partition, check, hold_out, split_off_test, statistics
from fedprior.data.partitions.groups import grouped, grouped_counts, natural
from fedprior.data.partitions.labels import dirichlet, iid, pathological
from fedprior.data.partitions.lognormal import lognormal
from fedprior.errors import FedpriorError, one_line
from fedprior.registry import Registry

if TYPE_CHECKING:
    from fedprior.data.sources import Source

__all__ = [
    "FROM_SOURCE",
    "PARTITIONS",
    "Partition",
    "check",
    "check_options",
    "dirichlet",
    "grouped",
    "grouped_counts",
    "hold_out",
    "iid",
    "lognormal",
    "natural",
    "pathological",
    "split_off_test",
    "split_source",
    "statistics",
]

PARTITIONS: Registry[Callable[..., Partition]] = Registry(
    "partition kind",
    {
        "lognormal": lognormal,
        "pathological": pathological,
        "dirichlet": dirichlet,
        "natural": natural,
        "grouped": grouped,
        "iid": iid,
    },
)
# Arguments that come from the data; all others come from the settings.
FROM_SOURCE = ("x", "y", "group", "is_test", "group_names")
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_options(settings: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Check ``{"kind": ..., **options}`` against the signature of the kind's function, and return the options.

    ``what`` says whose settings they are, such as "task 'mine'".

    >>> check_options({"kind": "iid", "clients": 3}, "task 'mine'")
    {'clients': 3}
    >>> check_options({"kind": "iid", "client": 3}, "task 'mine'")
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: partition 'iid': 'clients' is missing
    """
    import pydantic

    options = dict(settings)
    kind = options.pop("kind", None)
    if kind is None:
        raise FedpriorError(f"{what}: 'partition.kind' is missing; valid: {', '.join(sorted(PARTITIONS))}")
    function = PARTITIONS.find(kind)
    types = typing.get_type_hints(function)
    fields: dict[str, Any] = {
        name: (types.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in FROM_SOURCE and parameter.kind not in _STARRED
    }
    model = pydantic.create_model("partition", __config__=pydantic.ConfigDict(extra="forbid", strict=True), **fields)
    try:
        model.model_validate(options)
    except pydantic.ValidationError as error:
        raise one_line(error, f"partition '{kind}'", fields) from None
    return options


def split_source(source: Source, settings: Mapping[str, Any]) -> Partition:
    """Partition a source as the settings ``{"kind": ..., **options}`` say.

    >>> from fedprior.data.sources import from_arrays
    >>> split_source(from_arrays([[0.0]] * 8, [0, 1] * 4), {"kind": "iid", "clients": 2}).clients
    2
    """
    options = check_options(settings, f"the partition of {source.name}")
    kind = settings["kind"]
    function = PARTITIONS.find(kind)
    parameters = inspect.signature(function).parameters
    given = {name: getattr(source, name) for name in parameters if name in FROM_SOURCE}
    if (clients := options.get("clients")) is not None and clients > len(source.y):
        raise FedpriorError(f"partition '{kind}': clients = {clients}, but {source.name} has {len(source.y)} samples")
    if "group" in given and source.group is None and parameters["group"].default is inspect.Parameter.empty:
        raise FedpriorError(f"partition '{kind}' needs writers or users, and {source.name} has none; try dirichlet")
    return check(function(**given, **options))
