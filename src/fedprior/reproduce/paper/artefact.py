"""What an artefact of the paper is, how one is asked for, and the table of their names.

Numbers in parentheses, such as (365), are lines of the paper's LaTeX source, here and in the files beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedprior.errors import FedpriorError, unknown
from fedprior.registry import Registry
from fedprior.reproduce.paper.rows import COHERENT, Row, chosen, trained
from fedprior.reproduce.paper.tasks import QUICK, QUICK_ROUNDS, QUICK_SEEDS, TASKS, PaperTask

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study


@dataclass(frozen=True)
class Request:
    """What is asked for; None stands for the artefact's own. ``quick``: on the embedded digits, in a minute or two.
    ``tuned``: not at published settings, but at those that do best on validation samples.
    """

    tasks: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    rounds: int | None = None
    quick: bool = False
    tuned: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rounds", self.rounds), ("seeds", self.seeds)):
            if value is not None and value < 1:
                raise FedpriorError(f"{name} = {value}: there is nothing to train; give at least 1")
        for name, given in (("tasks", self.tasks), ("methods", self.methods)):
            if given is not None and not given:
                raise FedpriorError(f"--{name} names nothing; leave it out for all of them")
        if self.quick and (other := [name for name in self.tasks or () if not name.startswith("digits")]):
            raise FedpriorError(f"--quick runs on the digits ({', '.join(QUICK)}), not on {other[0]}; leave one out")

    def tasks_of(self, own: Iterable[str], quick: Iterable[str] = QUICK) -> list[PaperTask]:
        """The tasks that are asked for, or else the artefact's own."""
        names = self.tasks if self.tasks is not None else (quick if self.quick else own)
        return [TASKS.find(name) for name in dict.fromkeys(names)]

    def among(self, own: Sequence[PaperTask], quick: Sequence[PaperTask]) -> list[PaperTask]:
        """The tasks that are asked for, of an artefact whose tasks are its own alone."""
        known = {task.name: task for task in (quick if self.quick else own)}
        for name in self.tasks or ():
            if name not in known:
                raise unknown("task of this artefact", name, known)
        return [known[name] for name in self.tasks or known]

    def rows_of(self, own: Iterable[Row]) -> list[Row]:
        """The rows that are asked for, or else the artefact's own."""
        return chosen(own, self.methods)

    def rounds_on(self, task: PaperTask) -> int:
        """T."""
        return self.rounds or (QUICK_ROUNDS if self.quick else task.rounds)

    def seeds_on(self, task: PaperTask, method: str) -> int:
        """The number of seeds."""
        own = min(task.seeds, task.fewer_seeds.get(method, task.seeds))
        return self.seeds or (QUICK_SEEDS if self.quick else own)

    def studies(self, task: PaperTask, rows: Iterable[Row], *, all_rows: bool = False) -> list[Study]:
        """What trains these rows on a task: a study for each number of seeds.

        ``all_rows``: whether to train even those that are left out where time is short.
        """
        from fedprior.study.study import Study

        named = all_rows or self.methods is not None
        by_seeds: dict[int, dict[str, dict[str, Any]]] = {}
        for row in trained(rows, task, named):
            variants = by_seeds.setdefault(self.seeds_on(task, row.method), {})
            variants[row.variant] = {"method": row.method, **row.changes, **_recorded(task, row)}
        # The best round on test, which the paper reports, is looked for among all rounds, as in the released code.
        shared = {"rounds": self.rounds_on(task), "eval_every": 1, "metrics": [], "name": task.name, **task.settings}
        return [
            Study(task.base, variants, seeds=seeds, local=False, optional=variants, **shared)
            for seeds, variants in by_seeds.items()
        ]


def _recorded(task: PaperTask, row: Row) -> dict[str, Any]:
    """What a cell records besides, for another artefact; it changes no bit of the run, but must be there from its start."""
    return {"gce": True} if task.coherence and row.variant in {one.variant for one in COHERENT} else {}


Steps = Callable[[int, int, str], None]  # how many are done, of how many, and what was done last


class Artefact(ABC):
    """A table or figure of the paper: what must be trained for it, and how it is made of that.

    ``steps`` is told how far the making is, by artefacts that take long over it.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    where: ClassVar[str]  # in the paper
    models: ClassVar[bool] = False  # whether the models are needed, and not only what was recorded of them

    def __init__(self, steps: Steps = lambda done, of, what: None) -> None:
        self.steps = steps

    @abstractmethod
    def studies(self, request: Request) -> list[Study]:
        """What must be trained; it may be nothing. Nothing is opened yet."""

    @abstractmethod
    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """Write the tables, the figures and the numbers in them into a folder, from what was trained."""


_HERE = "fedprior.reproduce.paper"
ARTEFACTS: Registry[type[Artefact]] = Registry(
    "artefact",
    {
        "table1": f"{_HERE}.table1:Table1",
        "ablation": f"{_HERE}.ablation:Ablation",
        "aggregation": f"{_HERE}.aggregation:Aggregation",
        "heterogeneity": f"{_HERE}.heterogeneity:Heterogeneity",
        "robustness": f"{_HERE}.robustness:Robustness",
        "gce": f"{_HERE}.gce:GCE",
        "deviation": f"{_HERE}.deviation:Deviation",
        "hyperparameters": f"{_HERE}.hyperparameters:Hyperparameters",
        "distribution": f"{_HERE}.distribution:Distribution",
        "complexity": f"{_HERE}.complexity:Complexity",
    },
)


def names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """What an option was given, once or several times and with commas.

    >>> names(["a,b", "c"]), names(None)
    (('a', 'b', 'c'), None)
    """
    if given is None:
        return None
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())
