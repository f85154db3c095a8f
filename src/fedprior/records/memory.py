"""What a recorder writes to, and a run that is kept in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedprior.files import plain
from fedprior.records.best import Arrays
from fedprior.records.schema import ClientRow, LabelCounts, Row, RunRecord, Session, Status, Times


class Run(Protocol):
    """What a recorder writes to."""

    @property
    def where(self) -> str:
        """What to call the place in a message."""

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave."""

    def save(self, state: Any, at: int) -> None:
        """Keep a state from which the run can go on."""

    def keep_best(self, arrays: Arrays, t: int) -> None:
        """Keep the state of round t, which is the best so far."""

    def best_state(self, t: int) -> Arrays | None:
        """The state of round t if it was kept as the best, and is whole."""

    def drop_best(self, values: Mapping[int, float]) -> None:
        """Drop the states that are not the best up to any round from which the run may go on, given all values so far."""

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""

    def sign(self, session: Session, label_counts: LabelCounts | None) -> None:
        """Say when and how the run is being made, or has been, and which labels the clients have (None: leave that out)."""

    def record(self) -> RunRecord:
        """The run as it stands, for analysis."""


@dataclass
class MemoryRun:
    """A run that is kept nowhere else."""

    where: str = "memory"
    config: dict[str, Any] = field(default_factory=dict)
    status: Status = Status.RUNNING
    round: int = 0
    rows: list[Row] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    provenance: tuple[Session, ...] | None = None
    label_counts: LabelCounts | None = None
    best: dict[int, Arrays] = field(default_factory=dict)  # the state that is best on validation, by its round

    def begin(self, config: dict[str, Any]) -> None:
        """Start anew, with nothing of what was here."""
        vars(self).update(vars(MemoryRun(self.where, plain(config))))

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave."""
        self.rows += rows
        self.clients += clients
        self.times.append(times)

    def save(self, state: Any, at: int) -> None:
        """Keep nothing: who runs in memory has the state."""

    def keep_best(self, arrays: Arrays, t: int) -> None:
        """Keep the state of round t in place of any other."""
        self.best = {t: arrays}

    def best_state(self, t: int) -> Arrays | None:
        """The state of round t if it was kept."""
        return self.best.get(t)

    def drop_best(self, values: Mapping[int, float]) -> None:
        """Drop nothing: only one state is kept."""

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""
        self.status, self.round = status, at

    def sign(self, session: Session, label_counts: LabelCounts | None) -> None:
        """Say when and how the run is being made."""
        self.provenance, self.label_counts = (session,), label_counts

    def record(self) -> RunRecord:
        """The run as it stands."""
        tables = tuple(self.rows), tuple(self.clients), self.where, tuple(self.times)
        return RunRecord(self.config, self.status, self.round, *tables, self.provenance, lambda: self.label_counts)
