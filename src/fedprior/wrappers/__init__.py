"""What composes with any method: functions from one Algorithm to another, each switched on by a setting of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprior.errors import FedpriorError
from fedprior.registry import Registry

if TYPE_CHECKING:
    from fedprior.core.hyper import Hyper
    from fedprior.core.method import Algorithm, Method


class Wrapper(NamedTuple):
    """A wrapper and the setting that switches it on."""

    kind: type  # of the setting's values
    default: Any  # the value at which nothing is wrapped
    about: Hyper  # where the setting comes from, and which of its values are valid
    apply: Callable[[Algorithm, Any, Method], Algorithm]  # the method tells the wrapper of its own settings
    needs_global_model: bool = False


# By the setting that switches it on, in the order in which wrappers are applied: the last is the outermost.
WRAPPERS: Registry[Wrapper] = Registry(
    "wrapper",
    {
        "beta": "fedprior.wrappers.relaxation:RELAXATION",
        "fine_tune": "fedprior.wrappers.fine_tuning:FINE_TUNING",
    },
)


def wrap(algorithm: Algorithm, settings: Mapping[str, Any], method: Method) -> Algorithm:
    """The algorithm of a method inside all wrappers that the settings switch on; other settings are not looked at.

    >>> from fedprior.methods import make
    >>> fedavg = make("fedavg")
    >>> plain, relaxed = fedavg.algorithm(), wrap(fedavg.algorithm(), {"beta": 2.0, "fine_tune": 0}, fedavg)
    >>> relaxed.local == plain.local, relaxed.merge == plain.merge
    (True, False)
    """
    for name, wrapper in WRAPPERS.items():
        value = settings.get(name, wrapper.default)
        if value != wrapper.default:
            algorithm = wrapper.apply(algorithm, value, method)
    return algorithm


def checked(name: str, value: Any) -> Any:
    """A wrapper's setting, of its type; refused if it is not valid. A whole number may stand for a float.

    >>> checked("beta", 2)
    2.0
    """
    wrapper = WRAPPERS.find(name)
    if wrapper.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, wrapper.kind) or (isinstance(value, bool) and wrapper.kind is not bool):
        raise FedpriorError(f"{name} = {value!r} has the wrong type; it must be {wrapper.kind.__name__}")
    if (valid := wrapper.about.valid(value)) is not None:
        raise FedpriorError(f"{name} = {value!r} is not valid; {valid}")
    return value
