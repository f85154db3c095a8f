"""Who holds what: the label counts that runs recorded, checked against their other records and never made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedprior.errors import FedpriorError
from fedprior.records.schema import ClientId, LabelCounts, RunRecord

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Holdings:
    """How many samples of each class every client has."""

    classes: tuple[ClientId, ...]
    clients: dict[ClientId, dict[str, list[int]]]  # client -> train, validation or test -> a number for each class
    fingerprint: str  # of the data and its partition, as the runs recorded it

    def totals(self) -> dict[ClientId, list[int]]:
        """All samples of each client, by class."""
        return {
            client: [sum(counts) for counts in zip(*parts.values(), strict=True)]
            for client, parts in self.clients.items()
        }


def holdings_of(runs: Sequence[RunRecord], samples: Mapping[ClientId, int]) -> tuple[Holdings | None, str | None]:
    """The label counts of a task's runs, or a sentence that says why there are none.

    Runs of one task have the same fingerprint, so that their label counts must be the same; and each client's test samples
    must be as many as its results are over.
    """
    try:
        every = [(run, counts) for run in runs if (counts := run.label_counts) is not None]
    except FedpriorError as error:  # no number depends on them
        return None, f"Who holds what is left out: {error}."
    known = [(run, counts) for run, counts in every if counts.clients and counts.classes]
    if not known:
        return None, "These records do not hold label counts, so that who holds what is left out."
    first, counts = known[0]
    for run, others in known[1:]:
        if others != counts:
            return (
                None,
                f"The label counts of {first.where} and {run.where} differ, so that who holds what is left out.",
            )
    if (wrong := _mismatch(counts, samples)) is not None:
        return None, f"The label counts of {first.where} do not fit its results ({wrong}), so that they are left out."
    return Holdings(counts.classes, counts.clients, str(first.config["run"].get("fingerprint"))), None


def _mismatch(counts: LabelCounts, samples: Mapping[ClientId, int]) -> str | None:
    for client, parts in counts.clients.items():
        if not set(parts) <= set(PARTS) or any(len(each) != len(counts.classes) for each in parts.values()):
            return f"client {client} does not have a number for each class"
        if any(n < 0 for each in parts.values() for n in each):
            return f"client {client} has a negative count"
    for client, count in samples.items():
        if client not in counts.clients:
            return f"they lack client {client}"
        if (tested := sum(counts.clients[client].get("test", ()))) != count:
            return f"client {client} has {tested} test samples there, and results over {count}"
    return None
