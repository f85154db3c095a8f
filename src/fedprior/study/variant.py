"""A variant is a row of a table: a method, the wrappers around it, and what it changes of the protocol.

-m mh                        the method as it is
-m mh:beta=2                 with server relaxation: the row is called "mh beta=2"
-m mh:aggregated=50,lam=30   with another protocol and another hyper-parameter
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.errors import FedpriorError, unknown
from fedprior.records.schema import plain
from fedprior.study.assignment import assign, current_key, format_value, native, parse_assignment
from fedprior.study.settings import LENGTHS, Protocol, is_long

if TYPE_CHECKING:
    from fedprior.core.method import Method

_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f]|^[. ]|[. ]$')  # in the name of a folder, on some system
_TAKEN = {"sweep", "curves.png", "summary.json", "con", "prn", "aux", "nul"}


@dataclass(frozen=True)
class Variant:
    """A named row: a registered method (or a Method of the user's own) and what it changes.

    >>> Variant.of("mh", beta=2, aggregated=50)
    Variant('mh beta=2 aggregated=50')
    >>> Variant.of("mh", {"beta": 2}, name="mh+AM").wrappers
    {'beta': 2.0}
    """

    name: str
    method: str | Method
    settings: dict[str, Any] = field(default_factory=dict)  # hyper-parameters of the method
    wrappers: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        method: str | Method, changes: Mapping[str, Any] | None = None, name: str | None = None, **more: Any
    ) -> Variant:
        """Sort changes into the method's own, the wrappers' and the protocol's; the row is named by what it changes."""
        from fedprior import methods
        from fedprior.core.method import Method
        from fedprior.wrappers import WRAPPERS, checked

        if not isinstance(method, str | Method):
            raise FedpriorError(
                f"{reprlib.repr(method)} is no method; give the name of one, such as 'mh', or a Method object"
            )
        given = {current_key(key): native(value) for key, value in {**(changes or {}), **more}.items()}
        if isinstance(method, str):
            called, own = method, methods.keys(method)
        else:
            called, own = name_of(method), {}
        parts: dict[str, dict[str, Any]] = {"settings": {}, "wrappers": {}, "protocol": {}}
        for key, value in given.items():
            if key in own:
                parts["settings"][key] = value
            elif key in WRAPPERS:
                parts["wrappers"][key] = checked(key, value)
            elif key.partition(".")[0] in Protocol.model_fields:
                parts["protocol"] = assign(parts["protocol"], key, value)
            else:
                raise unknown(f"key of {called}", key, [*own, *WRAPPERS, *Protocol.model_fields])
        if name is None:
            changed = (f"{key}={_written(value)}" for key, value in given.items())
            name = _UNSAFE.sub("_", " ".join([called, *changed]).replace('"', "'"))
        return Variant(check_name(name), method, **parts)

    @staticmethod
    def parse(text: str) -> Variant:
        """Read ``mh:beta=2,lam=30``."""
        method, colon, changes = text.partition(":")
        if colon and not changes.strip():
            raise FedpriorError(f"'{text}' is not of the form METHOD:key=value,...")
        pairs = re.split(r",(?=\s*[\w.]+\s*=)", changes) if changes else []
        assignments = [parse_assignment(pair) for pair in pairs]
        if twice := [key for k, (key, _) in enumerate(assignments) if key in dict(assignments[:k])]:
            raise FedpriorError(f"'{text}' sets '{twice[0]}' twice")
        return Variant.of(method.strip(), dict(assignments))

    @property
    def method_name(self) -> str:
        """The registered name, or that of the class of a method of the user's own (see `name_of`)."""
        return self.method if isinstance(self.method, str) else name_of(self.method)

    def plain(self) -> dict[str, Any]:
        """The variant as plain data, from which another process makes the same."""
        if not isinstance(self.method, str):
            raise FedpriorError(
                f"the row '{self.name}' holds a method object, which no other process can build; "
                "register its class (fp.register) and give its name"
            )
        parts = {"settings": self.settings, "wrappers": self.wrappers, "protocol": self.protocol}
        try:
            return {"name": self.name, "method": self.method, **plain(parts)}
        except TypeError as error:
            raise FedpriorError(
                f"the row '{self.name}' holds a setting that no other process can build ({error}); "
                "use names, numbers and lists"
            ) from error

    def changed(self, settings: Mapping[str, Any], wrappers: Mapping[str, Any]) -> Variant:
        """The variant with further settings; its own take precedence, and its name stays."""
        own, around = {**settings, **self.settings}, {**wrappers, **self.wrappers}
        return Variant(self.name, self.method, own, around, self.protocol)

    def __repr__(self) -> str:
        return f"Variant({self.name!r})"


def name_of(method: Method) -> str:
    """The registered name that stands for a method object, or else that of its class.

    A class of the user's own whose name belongs to another method is told from that by its module: "__main__.FedProx".

    >>> from fedprior.methods import make
    >>> name_of(make("mh", lam=5.0)), name_of(make("fedavg"))
    ('mh', 'fedavg')
    """
    from fedprior.methods import METHODS

    cls = type(method)
    alike = {
        name: len(entry.preset)
        for name, entry in METHODS.items()
        if entry.cls is cls and not any(differ(getattr(method, key), value) for key, value in entry.preset.items())
    }
    if alike:
        return max(alike, key=lambda name: alike[name])
    name = cls.__name__.lower()
    return name if name not in METHODS or METHODS.find(name).cls is cls else f"{cls.__module__}.{cls.__name__}"


def differ(a: Any, b: Any) -> bool:
    """Whether two values of a setting differ; they may be arrays.

    >>> differ(np.ones(2), np.ones(2)), differ(np.ones(2), np.ones(3)), differ(np.ones(2), 1.0), differ("w", "w")
    (False, True, True, False)
    """
    if a is b:
        return False
    try:
        return np.shape(a) != np.shape(b) or not np.all(a == b)
    except (TypeError, ValueError):  # they cannot be compared
        return True


def _written(value: Any) -> str:
    return format_value(value) if isinstance(value, str | int | float | list | None) else type(value).__name__


def check_name(name: str) -> str:
    """Refuse a name that cannot be a folder's."""
    if not name or is_long(name) or _UNSAFE.search(name) or name.lower() in _TAKEN:
        raise FedpriorError(
            f"{name!r} cannot name a row, since it also names a folder: use {LENGTHS}, without any of "
            '/ \\ : * ? " < > |, no dot or space at either end, and none of ' + ", ".join(sorted(_TAKEN))
        )
    return name


def check_names(variants: Iterable[Variant]) -> list[Variant]:
    """Refuse two rows of one name, capital letters aside."""
    by_name: dict[str, Variant] = {}
    for variant in variants:
        if (key := variant.name.casefold()) in by_name:
            raise FedpriorError(f"two rows are called '{variant.name}'; give one of them another name")
        by_name[key] = variant
    return list(by_name.values())


Variants = Mapping[str, Mapping[str, Any]] | Iterable["str | Variant | Method"]


def rows_of(variants: Variants) -> list[Variant]:
    """The rows that names, variants and methods stand for, or a dictionary from names to what each row changes."""
    from fedprior.core.method import Method

    if isinstance(variants, Mapping):
        return [_named(name, changes) for name, changes in variants.items()]
    one = isinstance(variants, str | Variant | Method) or not isinstance(variants, Iterable)
    given: list[Any] = [variants] if one else [*variants]
    return [v if isinstance(v, Variant) else Variant.parse(v) if isinstance(v, str) else Variant.of(v) for v in given]


def _named(name: str, changes: Mapping[str, Any]) -> Variant:
    if not isinstance(changes, Mapping):
        raise FedpriorError(
            f"row '{name}': give a dictionary of what it changes, such as {{'beta': 2}}, not {changes!r}"
        )
    rest = {key: value for key, value in changes.items() if key != "method"}
    return Variant.of(changes.get("method", name), rest, name=name)
