"""How numbers, settings and the names of metrics are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedprior.analysis.changes import Apart
from fedprior.analysis.compare import Interval
from fedprior.analysis.evidence import FEW, Support
from fedprior.analysis.summary import Number
from fedprior.records.schema import ACCURACY, MetricInfo


def format_number(number: Number | None, info: MetricInfo = ACCURACY) -> str:
    """A number over seeds as text.

    >>> format_number({"mean": 93.604, "std": 0.262, "seeds": [0, 1]}), format_number(None)
    ('93.60 ± 0.26', '-')
    """
    if number is None:
        return "-"
    return format_value(number["mean"], info) + (
        "" if number["std"] is None else f" ± {format_value(number['std'], info)}"
    )


def format_value(value: float | None, info: MetricInfo, sign: str = "") -> str:
    """A value as text: percentages with two digits after the point, other numbers, which are smaller, with three.

    >>> format_value(-0.0004, ACCURACY, "+"), format_value(-0.0, ACCURACY)  # zero has no minus sign
    ('+0.00', '0.00')
    """
    return "-" if value is None else f"{value:{sign}z.{2 if info.unit == '%' else 3}f}"


def format_setting(value: Any) -> str:
    """The value of a setting as text.

    >>> format_setting(15.0), format_setting(0.1), format_setting(True), format_setting("w")
    ('15', '0.1', 'true', 'w')
    """
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else json.dumps(value)


def format_count(count: float) -> str:
    """A large number with three digits and a letter for its size.

    >>> [format_count(n) for n in (20, 1999, 480_000, 2_800_000, 188_400_000_000)]
    ['20', '2k', '480k', '2.8M', '188G']
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{float(f'{count / size:.3g}'):g}{letter}"
    return f"{count:.3g}"


def work_text(gradients: int, hvps: int = 0) -> str:
    """Gradients, and Hessian-vector products where there are any.

    >>> work_text(2000), work_text(12000, 2000)
    ('2k', '12k+2kh')
    """
    return f"{format_count(gradients)}+{format_count(hvps)}h" if hvps else format_count(gradients)


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(1200, "sample")
    ('1 seed', '1,200 samples')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def counted_seeds(numbers: Sequence[int]) -> str:
    """Over how many seeds the rows of a picture are, which need not be the same for all.

    >>> counted_seeds([3, 3]), counted_seeds([1, 3])
    ('3 seeds', '1 to 3 seeds')
    """
    low, high = min(numbers), max(numbers)
    return counted(high, "seed") if low == high else f"{low} to {high} seeds"


def metric_words(info: MetricInfo) -> str:
    """A metric's name in a sentence."""
    return info.name.replace("_", " ")


def in_unit(info: MetricInfo, percent: str = "percent") -> str:
    """The unit at the end of a phrase, if there is one."""
    return f" in {percent if info.unit == '%' else info.unit}" if info.unit else ""


def format_interval(interval: Interval, info: MetricInfo = ACCURACY) -> str:
    """A mean difference and its interval.

    >>> format_interval(Interval(2.0, -0.48, 4.48)), format_interval(Interval(2.0, None, None))
    ('+2.00 [-0.48, +4.48]', '+2.00')
    """
    mean, low, high = (format_value(value, info, "+") for value in (interval.mean, interval.low, interval.high))
    return mean if interval.low is None else f"{mean} [{low}, {high}]"


def row_name(variant: str, about: Mapping[str, Any]) -> str:
    """What a row is called where people read it: with the settings that were changed (``--set``), unless it says so or has
    a name of its own.

    >>> row_name("mh", {"method": "mh", "changed": {"lam": 30.0}, "wrappers": {"beta": 2.0}})
    'mh lam=30 beta=2'
    >>> row_name("mh lam=30", {"method": "mh", "changed": {"lam": 30.0}, "wrappers": {}})
    'mh lam=30'
    """
    more = untold(variant, about)
    return " ".join([variant, *more]) if variant.split()[0] == about["method"] else variant


def untold(variant: str, about: Mapping[str, Any]) -> list[str]:
    """The settings that were changed for a row, of which its name says nothing."""
    changed = {**about.get("changed", {}), **about.get("wrappers", {})}
    texts = [f"{key}={format_setting(value)}" for key, value in changed.items()]
    return [text for text in texts if text not in variant.split()]


def apart_words(variant: str, apart: Apart, tasks: Sequence[str]) -> list[str]:
    """The settings in which a row differs between tasks.

    >>> apart_words("mh", {"lam": {"one": 15.0, "two": 30.0}}, ["one", "two", "three"])
    ['mh: lam = 15 on one, 30 on two, unchanged on three']
    """
    return [
        f"{variant}: {name} = "
        + ", ".join(f"{format_setting(of[t]) if t in of else 'unchanged'} on {t}" for t in tasks)
        for name, of in apart.items()
    ]


def direction(info: MetricInfo) -> list[str]:
    """A note where a smaller value is the better one."""
    return [] if info.higher_is_better else [f"{metric_words(info)}: lower is better"]


AVERAGE_WORDS = {"weighted": "weighted by samples", "mean": "mean of clients", "worst_decile": "worst tenth of clients"}
DEVIATION = "± standard deviation over n seeds"  # the one meaning of the sign


def support_words(support: Support | None) -> list[str]:
    """How many test samples stand behind the worst tenth of clients, and behind a client.

    >>> for text in support_words(Support([15, 16, *[30] * 18], 2, (31, 31), 3.333)):
    ...     print(text)
    worst 10%: 2 of 20 clients, 31 test samples, one of them up to 3.3 points
    2 clients have under 20: for these, one sample is worth more than 5 points
    >>> support_words(Support([15, *[30] * 9], 1, (15, 15), 6.667))[1]
    '1 client has fewer than 20 test samples: for it, one sample is worth more than 5 points'
    """
    if support is None:
        return []
    low, high = support.worst_samples
    samples = f"{low} test samples" if low == high else f"{low} to {high} test samples"
    one = "" if support.one_sample is None else f", one of them up to {support.one_sample:.1f} points"
    texts = [f"worst 10%: {support.worst} of {len(support.samples)} clients, {samples}{one}"]
    if support.few and support.one_sample is not None:
        several = f"{support.few} clients have under {FEW}: for these"
        few = several if support.few > 1 else f"1 client has fewer than {FEW} test samples: for it"
        texts.append(f"{few}, one sample is worth more than 5 points")
    return texts


def equal_words(equal: Iterable[Iterable[str]]) -> list[str]:
    """Which rows are the same for every client."""
    return [f"equal for every client: {', '.join(names)}" for names in equal]


def chosen_by(info: MetricInfo = ACCURACY) -> str:
    """What a sweep chooses a setting by.

    >>> chosen_by()
    'accuracy in percent of the personal models on own validation samples, weighted, last round, mean over seeds'
    """
    what = "of the personal models on own validation samples, weighted, last round, mean over seeds"
    return f"{metric_words(info)}{in_unit(info)} {what}"
