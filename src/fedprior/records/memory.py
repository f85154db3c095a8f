"""What a recorder writes to, and a run that is kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedprior.records.schema import ClientRow, LabelCounts, Row, RunRecord, Session, Status, Times, plain


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
    best: dict[int, Any] = field(default_factory=dict)  # the state that is best on validation, by its round

    def begin(self, config: dict[str, Any]) -> None:
        """Start anew."""
        self.config = plain(config)

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave."""
        self.rows += rows
        self.clients += clients
        self.times.append(times)

    def save(self, state: Any, at: int) -> None:
        """Keep nothing: who runs in memory has the state."""

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
