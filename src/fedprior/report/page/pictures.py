"""The pictures of a page where no script runs: plain SVG, drawn once, at the choice that the page begins with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedprior.analysis.compare import Interval
from fedprior.analysis.paired import EQUAL
from fedprior.records.schema import ClientId
from fedprior.report.canvas import pushed_apart
from fedprior.report.page.gather import TaskNumbers
from fedprior.report.page.look import colours, element, log_ticks, text, ticks
from fedprior.report.page.sentences import number_text
from fedprior.report.page.view import View, differences
from fedprior.report.words import format_count

WIDTH, LEFT, RIGHT = 720, 46, 130
TOP = 12.0  # of learning curves
MOST_CLIENTS = 300  # of whom it is drawn what they hold, as by the script
Scale = Callable[[float], float]


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """A straight line through two points."""
    span = (high - low) or 1.0
    return lambda x: start + (x - low) / span * (end - start)


def mark(name: str, **attributes: str | float | None) -> str:
    """An element of a picture, its numbers with one digit after the point."""
    short = {k: f"{v:.1f}".removesuffix(".0") if isinstance(v, float) else v for k, v in attributes.items()}
    return element(name, "", **short)


def label(x: float, y: float, words: str, anchor: str = "start", class_: str = "label") -> str:
    """Words in a picture."""
    return element("text", text(words), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def picture(height: float, about: str, content: str) -> str:
    """A picture and what it says to those who do not see it."""
    return element("svg", content, viewbox=f"0 0 {WIDTH} {height:.0f}", class_="chart", role="img", aria_label=about)


def glyph(interval: Interval, low: float, high: float, colour: str) -> str:
    """An interval on a line of its own, with a mark at 0."""
    x = scale(low, high, 3, 107)
    line = (
        ""
        if interval.low is None or interval.high is None
        else mark(
            "line", x1=x(max(interval.low, low)), x2=x(min(interval.high, high)), y1=8, y2=8, class_=f"range {colour}"
        )
    )
    zero = mark("line", x1=x(0), x2=x(0), y1=1, y2=15, class_="zero")
    dot = mark("circle", cx=x(min(max(interval.mean, low), high)), cy=8, r=3.2, class_=f"dot {colour}")
    return element("svg", zero + line + dot, viewbox="0 0 110 16", class_="glyph", aria_hidden="true")


def curves_picture(task: TaskNumbers, view: View) -> str:
    """Learning curves with names at their ends."""
    choice, look = view.choice, colours(task)
    curves = task.curves.get((choice.metric, choice.model, choice.average), {})
    ends = {v: c.mean[-1] for v, c in curves.items() if c.mean and math.isfinite(c.mean[-1])}
    if not ends:
        return ""
    height, bottom = 330, 300.0
    late = [x for c in curves.values() for x in c.mean[len(c.mean) // 4 :] if math.isfinite(x)]
    low, high = min([*late, *ends.values()]), max([*late, *ends.values()])
    pad = 0.06 * (high - low) or 1.0
    last = max(c.rounds[-1] for c in curves.values())
    x, y = scale(0, last, LEFT, WIDTH - RIGHT), scale(low - pad, high + pad, bottom, TOP)
    parts = [_grid(ticks(low - pad, high + pad), y), _rounds(last, x, bottom)]
    for variant, curve in curves.items():
        points = [(x(t), y(v)) for t, v in zip(curve.rounds, curve.mean, strict=True) if math.isfinite(v)]
        path = " ".join(f"{a:.1f},{min(max(b, TOP), bottom):.1f}" for a, b in points)
        kind = "reference" if variant == choice.against else ""
        parts.append(element("polyline", points=path, class_=f"curve {_colour(look[variant])} {kind}"))
    places = pushed_apart([-y(end) for end in ends.values()], [11.5] * len(ends), -bottom, -8)
    for (variant, _), place in zip(ends.items(), places, strict=True):
        at = WIDTH - RIGHT + 8
        parts.append(mark("rect", x=at, y=float(-place) - 4, width=7, height=7, class_=f"dot {_colour(look[variant])}"))
        parts.append(label(at + 11, -place + 3.5, cut(task.names[variant], 20)))
    words = ", ".join(f"{task.names[v]} {number_text(end, view.info)}" for v, end in ends.items())
    return picture(height, f"Learning curves over {last} rounds; where they end: {words}.", "".join(parts))


def _colour(place: int | None) -> str:
    return "rest" if place is None else f"c{place}"


def cut(words: str, most: int) -> str:
    """Words of a bounded length: what is left out is in the middle, since long names often differ at their ends."""
    end = (most - 1) // 2
    return words if len(words) <= most else f"{words[: most - 1 - end]}…{words[-end:]}"


def _grid(levels: Sequence[float], y: Scale) -> str:
    lines = (mark("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(t), y2=y(t), class_="grid") for t in levels)
    return "".join([*lines, *(label(LEFT - 6, y(t) + 4, f"{t:g}", "end") for t in levels)])


def _rounds(last: int, x: Scale, bottom: float) -> str:
    marks = "".join(label(x(t), bottom + 16, f"{t:g}", "middle") for t in ticks(0, last, 6) if t == int(t))
    return marks + label(WIDTH - RIGHT, bottom + 28, "round", "end", "label quiet")


def gains_picture(task: TaskNumbers, view: View) -> str:
    """Every client's difference from the reference, a row for each method."""
    theirs = next(line.cell for line in view.lines if line.variant == view.choice.against)
    rows: dict[str, dict[ClientId, float]] = {}
    for line in view.lines:
        if line.cell and theirs and line.apart and line.counts:
            rows[line.variant] = differences(line.cell, theirs, line.apart.seeds)
    finite = [d for row in rows.values() for d in row.values() if math.isfinite(d)]
    if not finite:
        return ""
    most, height = max(map(abs, finite)) or 1.0, 24 * len(rows) + 34
    x = scale(-most, most, 150, WIDTH - RIGHT)
    levels = ticks(-most, most, 6)
    parts = [mark("line", x1=x(t), x2=x(t), y1=4, y2=height - 26, class_="zero" if t == 0 else "grid") for t in levels]
    parts += [
        label(x(t), height - 12, f"{t:+g}".replace("-", "\N{MINUS SIGN}") if t else "0", "middle") for t in levels
    ]
    sign = 1 if view.info.higher_is_better else -1
    for k, (variant, row) in enumerate(rows.items()):
        middle = 18 + 24 * k
        parts.append(label(140, middle + 4, cut(task.names[variant], 20), "end"))
        for kind in ("same", "worse", "better"):
            # A dot is a line of no length with round ends, which is short to write.
            dots = [f"M{x(d):.1f} {middle}h0" for d in row.values() if math.isfinite(d) and _kind(sign * d) == kind]
            parts += [element("path", d="".join(dots), class_=f"clients {kind}")] if dots else []
        counts = next(line.counts for line in view.lines if line.variant == variant)
        if counts:
            parts.append(label(WIDTH - RIGHT + 12, middle + 4, f"{counts.wins} better, {counts.losses} worse"))
    about = f"Every client's difference from {task.names[view.choice.against]}, a row for each method."
    return picture(height, f"{about} The summary has the counts.", "".join(parts))


def _overlap(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < 12


def _kind(gain: float) -> str:
    return "better" if gain > EQUAL else "worse" if gain < -EQUAL else "same"


def holdings_picture(task: TaskNumbers) -> str:
    """Clients across, classes down; the more samples, the stronger."""
    assert task.holdings is not None
    totals = task.holdings.totals()
    classes, every = task.holdings.classes, list(dict.fromkeys([*task.samples, *totals]))  # as the script has them
    clients = every[:MOST_CLIENTS]
    most = max((n for client in clients for n in totals[client]), default=1) or 1
    width, row = (WIDTH - LEFT - 20) / len(clients), 14
    parts = []
    for i, client in enumerate(clients):
        for j, count in enumerate(totals[client]):
            if count:
                strength = 0.18 + 0.82 * math.log1p(count) / math.log1p(most)
                parts.append(
                    mark(
                        "rect",
                        x=LEFT + i * width,
                        y=4 + j * row,
                        width=max(width - 0.6, 0.5),
                        height=row - 1,
                        class_="held",
                        fill_opacity=f"{strength:.2f}",
                    )
                )
    parts += [label(LEFT - 5, 4 + j * row + 10, cut(str(name), 6), "end") for j, name in enumerate(classes)]
    bottom = 4 + row * len(classes) + 14
    few = len(clients) <= 40 and max(len(str(c)) for c in clients) * 6 < width + 2
    parts += [label(LEFT + (i + 0.5) * width, bottom, str(c), "middle") for i, c in enumerate(clients)] if few else []
    about = f"{len(every)} clients and {len(classes)} classes; no client has more than {most} samples of a class."
    if len(every) == len(clients):
        return picture(bottom + 8, about, "".join(parts))
    less = f"The first {len(clients)} of {len(every)} clients are shown."
    about = f"{less} There are {len(classes)} classes; none of these clients has more than {most} samples of a class."
    return element("p", text(less), class_="quiet hint") + picture(bottom + 8, about, "".join(parts))


COSTS = {
    "gradients": "gradients of the federation in the run",
    "megabytes": "megabytes sent in the run",
    "seconds": "seconds of the run",
}


def cost_picture(task: TaskNumbers, view: View) -> str:
    """The metric against what the runs took: gradients, or the first of the other costs that was recorded."""
    look = colours(task)
    known = (kind for kind in COSTS if any(getattr(method.spent, kind) for method in task.methods.values()))
    if (kind := next(known, None)) is None:
        return ""
    points = {
        line.variant: (float(spent), line.number["mean"])
        for line in view.lines
        if line.number
        and (spent := getattr(task.methods[line.variant].spent, kind))
        and math.isfinite(line.number["mean"])
    }
    if not points:
        return ""
    height, bottom = 260, 220
    costs, values = [p[0] for p in points.values()], [p[1] for p in points.values()]
    left, right, pad = min(costs) / 1.3, max(costs) * 1.3, 0.1 * (max(values) - min(values)) or 1.0
    x = scale(math.log(left), math.log(right), LEFT, WIDTH - RIGHT)
    y = scale(min(values) - pad, max(values) + pad, bottom, 10)
    parts = [_grid(ticks(min(values) - pad, max(values) + pad, 5), y)]
    parts += [
        label(x(math.log(t)), bottom + 16, format_count(t), "middle") for t in log_ticks(left, right) or costs[:1]
    ]
    parts.append(label(WIDTH - RIGHT, bottom + 32, f"{COSTS[kind]} (log scale)", "end", "label quiet"))
    named: list[tuple[float, float, float]] = []  # from where to where labels are, and at which height
    for variant, (cost, value) in points.items():
        at, height_of, name = x(math.log(cost)), y(value), cut(task.names[variant], 18)
        parts.append(mark("circle", cx=at, cy=height_of, r=4.5, class_=f"dot {_colour(look[variant])}"))
        wide = 7.0 * len(name)
        places = ((at + 8, at + 8 + wide, height_of), (at - 8 - wide, at - 8, height_of))  # right of the dot, or left
        free = [place for place in places if not any(_overlap(place, other) for other in named)]
        if free:  # the table has the names of all
            named.append(free[0])
            parts.append(label(free[0][0], height_of + 4, name))
    words = ", ".join(
        f"{task.names[v]} {number_text(m, view.info)} at {format_count(c)}" for v, (c, m) in points.items()
    )
    return picture(height, f"What it costs, in {COSTS[kind]}: {words}.", "".join(parts))
