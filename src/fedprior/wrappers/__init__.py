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
    """A wrapper and the setting that switches it on, or a further setting of one."""

    kind: type  # of the setting's values
    default: Any  # the value at which nothing is wrapped; None: a further setting that is not given
    about: Hyper  # where the setting comes from, and which of its values are valid
    # From the algorithm, the settings of all wrappers, and the method with its own settings; None: a further setting.
    apply: Callable[[Algorithm, Mapping[str, Any], Method], Algorithm] | None
    needs_global_model: bool = False
    part_of: str | None = None  # the wrapper without which a further setting does nothing
    revision: int = 1  # raised when what it does changes, as of a method


# By the setting that switches it on, in the order in which wrappers are applied: the last is the outermost.
WRAPPERS: Registry[Wrapper] = Registry(
    "wrapper",
    {
        "beta": "fedprior.wrappers.relaxation:RELAXATION",
        "fine_tune": "fedprior.wrappers.fine_tuning:FINE_TUNING",
        "fine_tune_step": "fedprior.wrappers.fine_tuning:STEP",
    },
)


def in_force(settings: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The settings of wrappers that do something; a method may have defaults of its own for them.

    >>> from fedprior.methods import make
    >>> in_force({"beta": 1.0, "fine_tune": 1}, make("pfedbayes")), in_force({"fine_tune_step": 0.1}, make("fedavg"))
    ({'fine_tune': 1, 'fine_tune_step': 0.01}, {})
    """
    given = {**method.wrapper_defaults, **settings}
    on = {
        name: given[name] for name, wrapper in WRAPPERS.items() if given.get(name, wrapper.default) != wrapper.default
    }
    return {name: value for name, value in on.items() if (whole := WRAPPERS.find(name).part_of) is None or whole in on}


def wrap(algorithm: Algorithm, settings: Mapping[str, Any], method: Method) -> Algorithm:
    """The algorithm of a method inside all wrappers that the settings switch on; other settings are not looked at.

    >>> from fedprior.methods import make
    >>> fedavg = make("fedavg")
    >>> plain, relaxed = fedavg.algorithm(), wrap(fedavg.algorithm(), {"beta": 2.0, "fine_tune": 0}, fedavg)
    >>> relaxed.local == plain.local, relaxed.merge == plain.merge
    (True, False)
    """
    on = in_force(settings, method)
    for name in on:
        if (apply := WRAPPERS.find(name).apply) is not None:
            algorithm = apply(algorithm, on, method)
    return algorithm


def checked(name: str, value: Any) -> Any:
    """A wrapper's setting, of its type; refused if it is not valid. A whole number may stand for a float.

    >>> checked("beta", 2)
    2.0
    """
    from fedprior.core.kinds import standing_for

    wrapper = WRAPPERS.find(name)
    value = standing_for(wrapper.kind, value)
    if (wrong := wrapper.about.wrong(value, wrapper.kind)) is not None:
        raise FedpriorError(f"{name} = {value!r} {wrong}")
    return value
