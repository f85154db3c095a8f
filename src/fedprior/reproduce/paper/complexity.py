"""The paper's table of complexity (655), measured: time and memory of a round against N, R, K and M.

All settings of a method are timed in turn, round after round in one process, and each time (the fastest of three rounds) is
divided by that of the smallest setting in the same turn: machines are noisy, and their speed is no property of a method. The
slope of the logarithm of that ratio is the exponent that the paper's orders claim; its interval is a bootstrap over turns. A
slope below 1 means that a fixed part of a round is not small yet. T is not measured: rounds are alike. All clients train and
are aggregated, as the orders count them. Memory is what is kept between rounds (states of clients and server) and what
clients upload, in bytes: an exact number, without noise.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprior.errors import unknown
from fedprior.report.canvas import new_figure
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.drawing import WIDTH, dress, legend_below, refuse, styles, write_captioned, write_values
from fedprior.reproduce.paper.generators import generators
from fedprior.reproduce.paper.writing import write_tables
from fedprior.reproduce.theorems.slopes import Slope, slope_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedprior.study.program import Program
    from fedprior.study.results import Results
    from fedprior.study.study import Study

FLOAT = 4  # bytes
ROUNDS = 3  # of each setting in a turn, of which the fastest counts: what slows a round down is not of its own doing


class Order(NamedTuple):
    """A column of the paper's table: the method here, and the exponents of its orders by factor."""

    method: str
    memory: Mapping[str, int]
    time: Mapping[str, int]


_PROXIMAL = {"N": 1, "R": 1, "K": 1}
ORDERS = {
    "FedEM": Order("fedem", {"N": 1, "M": 1}, {"N": 1, "R": 1, "M": 1}),
    "FedAvg": Order("fedavg", {"N": 1}, {"N": 1, "R": 1}),
    "pFedMe": Order("pfedme-released", {"N": 1}, _PROXIMAL),
    "Per-FedAvg": Order("perfedavg", {"N": 1}, {"N": 1, "R": 1}),
    "FedAMP": Order("fedamp", {"N": 1}, _PROXIMAL),
    "mh": Order("mh-released", {"N": 1}, _PROXIMAL),
}


@dataclass(frozen=True)
class Plan:
    """What is tried of each method: the values of each factor while the others stay at their base."""

    base: Mapping[str, int]
    values: Mapping[str, tuple[int, ...]]
    turns: int
    model: str
    features: int
    samples: int = 40  # of a client
    tried: Mapping[str, str] = field(default_factory=lambda: {label: "".join(ORDERS[label].time) for label in ORDERS})

    @property
    def rounds(self) -> int:
        """Of every setting; the first compiles."""
        return 1 + self.turns * ROUNDS


FULL = Plan(
    {"N": 20, "R": 10, "K": 5, "M": 2},
    {"N": (10, 20, 40, 80), "R": (5, 10, 20, 40), "K": (1, 2, 5, 10, 20), "M": (1, 2, 4, 8)},
    turns=12,
    model="dnn",
    features=784,
)
QUICK = Plan(
    {"N": 4, "R": 20, "K": 4, "M": 2},
    {"N": (4, 8, 16), "R": (10, 20, 40), "K": (2, 4, 8), "M": (1, 2, 4)},
    turns=3,
    model="mclr",
    features=784,
    tried={"FedEM": "M", "mh": "NRK"},
)


@dataclass
class Setting:
    """A program at one setting, and how long its rounds took."""

    program: Program
    state: Any = None
    seconds: list[float] = field(default_factory=list)

    def step(self) -> None:
        """One round, timed."""
        import jax

        if self.state is None:
            self.state = self.program.engine.init(0)
        begun = time.perf_counter()
        self.state, _ = self.program.engine.step(self.state)
        jax.block_until_ready(self.state)
        self.seconds.append(time.perf_counter() - begun)

    def memory(self) -> float:
        """Bytes kept between rounds and uploaded."""
        import jax

        from fedprior.engine.cost import messages

        clients = self.program.task.federation.n_clients
        template = self.program.engine.host_template()  # without idle slots
        kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((template.server, template.clients)))
        sent = messages(self.program.algorithm_at({}), self.program.task.problem, self.program.task.federation).up
        return float(kept + FLOAT * clients * sum(sent.values()))


@dataclass(frozen=True)
class Scaling:
    """How a method's rounds grow with one factor: ratios to the smallest value."""

    label: str
    factor: str
    values: tuple[int, ...]
    times: np.ndarray  # [turns, values]
    memory: np.ndarray  # [values]
    paper_time: int
    paper_memory: int

    @property
    def time_slope(self) -> Slope:
        """The exponent of time."""
        return slope_of(np.array(self.values), self.times)

    @property
    def memory_slope(self) -> float:
        """The exponent of memory."""
        return slope_of(np.array(self.values), self.memory[None]).value


def open_program(plan: Plan, method: str, setting: Mapping[str, int]) -> Program:
    """A method at one setting, on samples of noise: how long a round takes does not depend on what they are."""
    from fedprior import methods, models
    from fedprior.study.program import Program
    from fedprior.study.task import task_from_arrays
    from fedprior.study.variant import Variant

    rng, n = np.random.default_rng(0), setting["N"]
    x = rng.normal(size=(n * plan.samples, plan.features)).astype(np.float32)
    y = np.arange(len(x)) % 10
    task = task_from_arrays(
        x,
        y,
        np.repeat(np.arange(n), plan.samples),
        lambda key: models.build(plan.model, {}, x.shape[1:], 10, None, key),
    )
    own = {key: value for key, value in setting.items() if key in methods.keys(method)}
    return Program(task, Variant.of(method, {**own, "participation": "all"}))


def measure(plan: Plan, label: str, turned: Callable[[str], None]) -> list[Scaling]:
    """All settings of a method, timed turn by turn, each told to ``turned``; the first compiles and does not count."""
    order = ORDERS[label]
    settings: dict[tuple[tuple[str, int], ...], Setting] = {}

    def at(factor: str, value: int) -> Setting:
        whole = {key: base for key, base in plan.base.items() if key in order.time} | {factor: value}
        key = tuple(sorted(whole.items()))
        if key not in settings:
            settings[key] = Setting(open_program(plan, order.method, whole))
        return settings[key]

    table = {
        factor: [at(factor, value) for value in plan.values[factor]] for factor in plan.tried.get(label, order.time)
    }
    for _ in range(plan.rounds):
        for setting in settings.values():
            setting.step()
        turned(label)
    found = []
    for factor, row in table.items():
        seconds = np.array([setting.seconds[1:] for setting in row]).reshape(len(row), plan.turns, ROUNDS).min(2).T
        memory = np.array([setting.memory() for setting in row])
        paper = order.time[factor], order.memory.get(factor, 0)
        ratios = seconds / seconds[:, :1], memory / memory[0]
        found.append(Scaling(label, factor, plan.values[factor], *ratios, *paper))
    return found


class Complexity(Artefact):
    """Time and memory against the paper's orders."""

    name = "complexity"
    about = "measured time and memory of a round against N, R, K and M, and the table of Bregman generators"
    where = "appendix, tables of complexity and of generators"

    def studies(self, request: Request) -> list[Study]:
        """Nothing is trained to an end."""
        refuse(self.name, request, "tasks", "seeds", "rounds")
        return []

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The exponents, the measured ratios as a figure and as values, and the generators."""
        plan = QUICK if request.quick else FULL
        labels, scalings, turns = self._labels(request, plan), list[Scaling](), itertools.count(1)
        for label in labels:
            scalings += measure(plan, label, lambda what: self.steps(next(turns), len(labels) * plan.rounds, what))
        paths = write_tables(folder, self.name, [_table(plan, scalings)])
        paths += write_tables(folder, "generators", [generators()])
        paths += write_captioned(folder, self.name, draw(scalings), _caption(plan, scalings), self.name, request)
        return [*paths, write_values(folder, f"{self.name}-ratios", VALUES, _lines(scalings))]

    def _labels(self, request: Request, plan: Plan) -> list[str]:
        if request.methods is None:
            return list(plan.tried)
        known = {order.method: label for label, order in ORDERS.items()}
        for name in request.methods:
            if name not in known:
                raise unknown("method", name, known)
        return [known[name] for name in request.methods]


def _table(plan: Plan, scalings: list[Scaling]) -> Table:
    body = []
    for s in scalings:
        slope = s.time_slope
        tried = f"{s.values[0]} to {s.values[-1]}"
        interval = f"[{slope.low:.2f}, {slope.high:.2f}]"
        time_of = (f"{slope.value:.2f}", interval, str(s.paper_time))
        body.append((s.label, s.factor, tried, *time_of, f"{s.memory_slope:.2f}", str(s.paper_memory)))
    base = ", ".join(f"{key} = {value}" for key, value in plan.base.items())
    return Table(
        "exponents of time and memory of a round",
        f"slope of log ratio against log factor, the others at {base}; 95 % interval: bootstrap over {plan.turns} turns; "
        "memory: bytes kept between rounds and uploaded, exact",
        ("method", "factor", "values", "time", "interval", "paper", "memory", "paper"),
        tuple(body),
        left=3,
    )


VALUES = ("method", "factor", "value", "time_ratio_mean", "time_ratio_min", "time_ratio_max", "memory_ratio")


def _lines(scalings: list[Scaling]) -> list[tuple[object, ...]]:
    return [
        (s.label, s.factor, value, *map(float, (t.mean(), t.min(), t.max())), float(m))
        for s in scalings
        for value, t, m in zip(s.values, s.times.T, s.memory, strict=True)
    ]


def draw(scalings: list[Scaling]) -> Figure:
    """Time against each factor on logarithmic scales; dashed: proportional to the factor."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    factors = sorted({s.factor for s in scalings}, key=list(FULL.base).index)
    figure = new_figure(WIDTH, 2.8)
    panels = figure.subplots(1, len(factors), squeeze=False)[0]
    look = styles([s.label for s in scalings])
    names = {"N": "clients N", "R": "local steps R", "K": "proximal steps K", "M": "components M"}
    for axes, factor in zip(panels, factors, strict=True):
        dress(axes, "", names[factor], "time of a round, ratio" if factor == factors[0] else "")
        here = [s for s in scalings if s.factor == factor]
        for s in here:
            color, marker = look[s.label]
            mean, low, high = s.times.mean(0), s.times.min(0), s.times.max(0)
            axes.errorbar(s.values, mean, yerr=[mean - low, high - mean], color=color, label=s.label, capsize=2)
            axes.lines[-1].set(linewidth=1)
            axes.plot(s.values, mean, marker, color=color, markersize=4)
        ends = np.array([here[0].values[0], here[0].values[-1]], float)
        axes.plot(ends, ends / ends[0], "--", color="#777777", linewidth=1, zorder=1, label="proportional")
        axes.set_xscale("log")
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xticks(here[0].values, [str(value) for value in here[0].values])
        axes.xaxis.set_minor_formatter(NullFormatter())
    legend_below(figure, columns=7)
    return figure


def _caption(plan: Plan, scalings: list[Scaling]) -> str:
    told = "; ".join(f"{s.label} in {s.factor} {s.time_slope.value:.2f} (paper {s.paper_time})" for s in scalings)
    return (
        f"Time of a round against N, R, K and M as a ratio to the smallest value, means over {plan.turns} turns with the "
        f"least and the most, on logarithmic scales; dashed: proportional. {plan.model} on {plan.features} features, "
        f"batches of 20, all clients train. Exponents: {told}."
    )
