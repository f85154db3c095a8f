"""Which rounds of a run are evaluated, and what is looked at in each: what a run does, and what its records must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedprior.records.schema import NEWCOMERS

PERSONAL_POOLED = ("personal", "pooled")
Kinds = Counter[tuple[int, str, str]]  # how many rows there are of a round, a model and some data


class Schedule(NamedTuple):
    """Which models and data are evaluated in which of a run's rounds."""

    rounds: int
    eval_every: int = 1
    pooled: str = "last"  # when personal models see the pooled test: last, every, never
    scored: bool = True  # whether an evaluation gives numbers; where no samples were held out, none does
    whole: bool = True  # whether every client is scored each time; in a deployed federation, one may be absent

    @staticmethod
    def of(config: Mapping[str, Any]) -> Schedule:
        """The schedule of a recorded run."""
        protocol = config["run"]["protocol"]
        when = protocol["rounds"], protocol.get("eval_every", 1), protocol.get("pooled", "last")
        return Schedule(*when, scored=config.get("scored", True), whole=not config.get("deployed", False))

    def is_due(self, t: int) -> bool:
        """Whether round t is evaluated."""
        return t % self.eval_every == 0 or t == self.rounds

    def due(self, last: int) -> Iterator[int]:
        """The rounds up to ``last`` that are evaluated.

        >>> list(Schedule(5, eval_every=2).due(5)), list(Schedule(5, eval_every=2).due(4))
        ([2, 4, 5], [2, 4])
        """
        yield from range(self.eval_every, last + 1, self.eval_every)
        if self.rounds <= last and self.rounds % self.eval_every:
            yield self.rounds

    def is_pooled(self, t: int) -> bool:
        """Whether the personal models see the pooled test after round t."""
        return self.is_due(t) and (self.pooled == "every" or (self.pooled == "last" and t == self.rounds))

    def is_wanted(self, t: int, model: str, data: str) -> bool:
        """Whether a run of this length has such a score of round t."""
        if model in NEWCOMERS:
            return t == self.rounds
        return self.is_pooled(t) if (model, data) == PERSONAL_POOLED else self.is_due(t)

    def gap(self, there: Kinds, last: int) -> int | None:
        """The first evaluated round up to ``last`` that lacks rows which other rounds have; None if there is none.

        >>> Schedule(4, eval_every=2).gap(Counter({(2, "personal", "own"): 3, (4, "personal", "own"): 2}), last=4)
        4
        """
        if not self.whole:
            return None
        usual: dict[tuple[str, str], int] = {}
        for (_, *kind), number in there.items():
            usual[kind[0], kind[1]] = max(number, usual.get((kind[0], kind[1]), 1))
        for t in self.due(last):
            lacks = any(self.is_wanted(t, *kind) and there[t, *kind] < number for kind, number in usual.items())
            if lacks or (self.scored and not usual):
                return t
        return None
