"""What the numbers say, in sentences: who is best, who cannot be told from whom, and what stands behind it.

A variant is called better or worse than another only if Student's t test on paired seeds says so after Holm's adjustment for
the number of comparisons: with the reference, those with it; of the best one, which was chosen by the same numbers, those of
all pairs. The page's own script writes the same sentences at other choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fedprior.analysis.evidence import FEW
from fedprior.analysis.paired import LEVEL
from fedprior.records.schema import MetricInfo
from fedprior.report.page.view import ROUNDED, Best, Line, View
from fedprior.report.words import format_value, metric_words

MOST = 6  # variants that a sentence tells of one by one
ALONE = "*"  # marks a difference that could be told if it were the only one
ONLY_ALONE = (
    "This interval excludes 0 on its own; after adjustment for the number of comparisons the difference cannot be told "
    "from 0."
)


class Part(NamedTuple):
    """A piece of a sentence."""

    text: str
    is_name: bool = False


class Sentence(NamedTuple):
    """A sentence, and how it is meant: good, bad or plain."""

    tone: str
    parts: list[Part]

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(part.text for part in self.parts)


Names = Mapping[str, str]  # what readers see of a variant


def number_text(value: float, info: MetricInfo, sign: str = "") -> str:
    """A number as the page writes it; what rounds to nothing has no sign."""
    shown = format_value(value, info, sign).replace("-", "\N{MINUS SIGN}")
    return shown if any(digit in shown for digit in "123456789") else shown.lstrip("+\N{MINUS SIGN}")


def sentences(view: View, names: Names) -> list[Sentence]:
    """All that is to be said at a choice."""
    return [sentence for each in (_best, _against, _alike, _seeds, _rounds, _samples) for sentence in each(view, names)]


def _best(view: View, names: Names) -> Iterator[Sentence]:
    lines = [line for line in view.lines if line.number is not None]
    if view.best is None:
        if not any(line.infinite for line in view.lines):
            yield Sentence("plain", [Part("There is no such number in these records.")])
        return
    best, count = view.best, len(view.best.variants)
    others, are_several = len(lines) - count, count > 1
    (number, *_) = [line.number for line in lines if line.variant == best.variants[0]]
    assert number is not None
    unit = " %" if view.info.unit == "%" else ""
    words, value = metric_words(view.info), number_text(number["mean"], view.info) + unit
    which = "the same" if not others else "the highest" if view.info.higher_is_better else "the lowest"
    parts = [*_listed(best.variants, names, " and ")]
    if len(lines) == 1:
        yield Sentence("plain", [*parts, Part(f" has {words} {value}, and there is nothing to compare it with.")])
        return
    parts.append(Part(f" {'have' if are_several else 'has'} {which} {words}, {value}."))
    if max(len(line.number["seeds"]) for line in lines if line.number) == 1:
        may = "tell them apart" if are_several else "reverse this"
        parts.append(Part(f" With one seed there are no intervals: another seed may {may}."))
    else:
        if best.ahead:
            one = "one of them" if are_several else "it"
            parts += [
                Part(f" Over the seeds that both have, {one} is worse than "),
                *_listed(best.ahead, names, " and "),
                Part("."),
            ]
        them = "all of them" if are_several else "it"
        if len(best.untold) == others > MOST:
            parts.append(Part(f"{_among(best, 'the')} seeds cannot tell {them} from any of the {others} others."))
        elif best.untold:
            untold = _listed(best.untold, names, " or ")
            parts += [Part(f"{_among(best, 'the')} seeds cannot tell {them} from "), *untold, Part(".")]
        if len(best.beaten) == others > 0:
            rest = "the other method" if others == 1 else f"each of the {others} others"
            parts.append(Part(f"{_among(best, 'they' if are_several else 'it')} can be told from {rest}."))
    yield Sentence("plain", parts)


def _among(best: Best, word: str) -> str:
    """How a sentence begins that is told from comparisons of pairs."""
    return f" With {best.pairs} pairs judged together, {word}" if best.pairs > 1 else f" {word.title()}"


def _against(view: View, names: Names) -> Iterator[Sentence]:
    """Who is better and who worse than the reference, and who can be told neither."""
    compared = [line for line in view.lines if line.apart is not None and line.number is not None]
    sign = 1 if view.info.higher_is_better else -1

    def gain(line: Line) -> float:
        return sign * line.apart.interval.mean if line.apart else 0.0

    told = [line for line in compared if line.adjusted is not None and line.adjusted < LEVEL]
    without = [line for line in compared if line.adjusted is None]
    single = [line for line in without if line.apart and len(line.apart.seeds) == 1]
    agreeing = [line for line in without if line not in single]
    open_ = [line for line in compared if line.adjusted is not None and line.adjusted >= LEVEL]
    tested = len(told) + len(open_)
    together = (f" ({tested} comparisons judged together)" if tested > 1 else "") + "; differences"
    groups: tuple[tuple[str, str, str, list[Line]], ...] = (
        ("good", "Better than ", together, [line for line in told if gain(line) > 0]),
        ("bad", "Worse than ", together, [line for line in told if gain(line) <= 0]),
        ("plain", "Cannot be told apart from ", together, open_),
        ("plain", "One seed says nothing about other seeds; differences from ", "", single),
        ("plain", "All seeds have the very same difference, so there is no interval; differences from ", "", agreeing),
    )
    unit = "points" if view.info.unit == "%" else metric_words(view.info)
    for tone, before, after, lines in groups:
        if lines:
            ordered = sorted(lines, key=lambda line: round(gain(line), ROUNDED), reverse=tone != "bad")
            rest = len(ordered) - MOST
            parts = [Part(before), Part(names[view.choice.against], True), Part(f"{after} in {unit}: ")]
            for k, line in enumerate(ordered[:MOST]):
                parts += [Part("; ")] * (k > 0) + [
                    Part(names[line.variant], True),
                    Part(" " + _difference(line, view.info)),
                ]
            parts.append(Part(f"; and {rest} more, in the table below." if rest > 0 else "."))
            if any(map(_only_alone, ordered[:MOST])):
                parts.append(Part(f" {ALONE} {ONLY_ALONE}"))
            yield Sentence(tone, parts)


def _only_alone(line: Line) -> bool:
    """Whether a difference could be told if it were the only one."""
    p = line.apart.p if line.apart else None
    return line.adjusted is not None and line.adjusted >= LEVEL and p is not None and p < LEVEL


def _difference(line: Line, info: MetricInfo) -> str:
    assert line.apart is not None
    interval = line.apart.interval
    texts = []
    if interval.low is not None and interval.high is not None:
        low, high = (number_text(end, info, "+") for end in (interval.low, interval.high))
        texts.append(f"95 % interval {low} to {high}")
    if line.counts is not None:
        clients = sum(line.counts)
        texts.append(f"better for {line.counts.wins} of {clients} clients, worse for {line.counts.losses}")
    mark = ALONE if _only_alone(line) else ""
    return number_text(interval.mean, info, "+") + mark + (f" ({'; '.join(texts)})" if texts else "")


def _alike(view: View, names: Names) -> Iterator[Sentence]:
    for group in view.equal:
        yield Sentence("plain", [Part("The same value for every client: "), *_listed(group, names, " and "), Part(".")])


def _seeds(view: View, names: Names) -> Iterator[Sentence]:
    """Where not all have the same seeds, or some have no number at all."""
    lines = [line for line in view.lines if line.number is not None]
    numbers = {line.variant: line.number["seeds"] for line in lines if line.number is not None}
    if len({tuple(seeds) for seeds in numbers.values()}) > 1:
        parts = [Part("Seeds differ ("), *_joined([(names[v], f" {len(s)}") for v, s in numbers.items()])]
        parts.append(Part("): differences are over those that both sides have."))
        yield Sentence("plain", parts)
    lost = [line.variant for line in lines if line.apart is None and line.variant != view.choice.against]
    if lost and view.choice.against in numbers:
        yield Sentence(
            "plain", [Part("No seed in common with the reference: "), *_listed(lost, names, " and "), Part(".")]
        )
    if missing := [line.variant for line in view.lines if line.number is None and not line.infinite]:
        yield Sentence("plain", [Part("Not measured for: "), *_listed(missing, names, " and "), Part(".")])
    if infinite := [line for line in view.lines if line.infinite]:
        told = [(names[line.variant], _infinite_seeds(line)) for line in infinite[:MOST]]
        rest = f" and {len(infinite) - MOST} more" if len(infinite) > MOST else ""
        yield Sentence("plain", [Part("Infinite, and so not compared: "), *_joined(told), Part(f"{rest}.")])
    other = [line.variant for line in lines if line.cell is not None and line.cell.model != view.choice.model]
    if other:
        parts = [Part("Without a global model, so that the personal ones stand in: "), *_listed(other, names, " and ")]
        yield Sentence("plain", [*parts, Part(".")])


def _infinite_seeds(line: Line) -> str:
    """With which seeds a variant is infinite, in parentheses."""
    assert line.cell is not None
    if len(line.infinite) == len(line.cell.rounds) > 1:
        return " (all seeds)"
    return f" ({'seed' if len(line.infinite) == 1 else 'seeds'} {', '.join(map(str, line.infinite))})"


def _rounds(view: View, names: Names) -> Iterator[Sentence]:
    """Where some have done fewer rounds than others: they may not be finished, or have spent their budget."""
    ends = {
        line.variant: sorted({rounds[-1] for rounds in line.cell.rounds.values()})
        for line in view.lines
        if line.number is not None and line.cell is not None
    }
    if view.choice.round in ("last", "last10") and len({t for each in ends.values() for t in each}) > 1:
        told = [(names[v], f" {each[0]}" + (f" to {each[-1]}" if len(each) > 1 else "")) for v, each in ends.items()]
        yield Sentence("plain", [Part("Rounds differ ("), *_joined(told), Part(").")])


def _samples(view: View, names: Names) -> Iterator[Sentence]:
    if view.few and view.choice.data == "own":
        verb = "has" if view.few == 1 else "have"
        few = f"{view.few} of {view.clients} clients {verb} fewer than {FEW} test samples"
        text = f"{few}: for these, one sample is worth more than 5 points."
        yield Sentence("plain", [Part(text)])
    if any(line.apart is not None and line.apart.interval.low is not None for line in view.lines):
        text = "Intervals are over seeds, with the clients as they are: they do not say what other clients would show."
        yield Sentence("plain", [Part(text)])


def _listed(variants: Sequence[str], names: Names, last: str) -> list[Part]:
    """Names in a row, of which only the first are told if there are many."""
    if len(variants) > MOST:
        return [*_joined([(names[v], "") for v in variants[:MOST]]), Part(f"{last}{len(variants) - MOST} more")]
    return _joined([(names[v], "") for v in variants], last)


def _joined(names: Sequence[tuple[str, str]], last: str = ", ") -> list[Part]:
    parts: list[Part] = []
    for k, (name, after) in enumerate(names):
        between = [] if k == 0 else [Part(last if k == len(names) - 1 else ", ")]
        parts += [*between, Part(name, True), *([Part(after)] if after else [])]
    return parts
