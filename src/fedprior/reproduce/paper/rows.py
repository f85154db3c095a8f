"""The rows: what is trained under which name, and which of its models a row reports. A new method is one line here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedprior.errors import unknown
from fedprior.records.schema import FINE_TUNED
from fedprior.reproduce.paper.tasks import EVERYWHERE, LINEAR, SMALL, PaperTask

PERSONAL, GLOBAL = "personal", "global"


@dataclass(frozen=True)
class Row:
    """A row of a table: a model of a variant that is trained."""

    label: str  # as tables call it
    variant: str  # what is trained; it names the folder of its cells
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    model: str = PERSONAL
    printed: str | None = None  # the paper's row, by its name in published.toml
    scope: str = EVERYWHERE

    @property
    def letter(self) -> str:
        """How the paper marks the model: G or P."""
        return "G" if self.model == GLOBAL else "P"


def _row(label: str, method: str, printed: bool = False, **options: Any) -> Row:
    return Row(label, method, method, printed=label if printed else None, **options)


def _with_ft(label: str, method: str, printed: bool = False, **options: Any) -> tuple[Row, Row]:
    """A row and the same with FT, which changes no training: both are scored in one run."""
    row = _row(label, method, printed, changes={"score_fine_tuned": 1}, **options)
    ft = f"{label}+FT"
    return row, replace(row, label=ft, model=FINE_TUNED, printed=ft if row.printed and row.model == PERSONAL else None)


def _am(row: Row, **options: Any) -> Row:
    """The row with AM."""
    label = f"{row.label}+AM"
    printed = label if row.printed else None
    return Row(label, f"{row.variant}+AM", row.method, {"beta": 2.0}, row.model, printed, **options)


FEDAVG, FEDAVG_FT = _with_ft("FedAvg", "fedavg", True, model=GLOBAL)
PFEDME, PFEDME_FT = _with_ft("pFedMe", "pfedme-released", True)
PERFEDAVG, PERFEDAVG_FT = _with_ft("Per-FedAvg", "perfedavg", True)
MH, MH_FT = _with_ft("mh", "mh-released", True)
LOCAL, LOCAL_FT = _with_ft("Local", "local")
MH_PAPER, MH_PAPER_FT = _with_ft("mh, paper's order", "mh")
PFEDME_PAPER = _row("pFedMe, paper's order", "pfedme", scope=SMALL)
DITTO = _row("Ditto", "ditto")
LG, MEG = _row("lg", "lg-released"), _row("meg", "meg-released")
LG_PAPER = _row("lg, paper's order", "lg", scope=LINEAR)
MEG_PAPER = _row("meg, paper's order", "meg", scope=LINEAR)
VARIANT = Row("mh variant, paper's order", "mh-variant", "pfedbred", {"mean": "mh-variant"}, scope=SMALL)
FEDPAC = _row("FedPAC", "fedpac", scope=SMALL)
PFEDHN = _row("pFedHN", "pfedhn", scope=SMALL)
FEDFOMO = _row("FedFomo", "fedfomo", scope=SMALL)

# In the order of the table: the paper's, what it lacks, and further methods.
PAPER = (
    FEDAVG,
    _am(FEDAVG),
    _row("FedEM", "fedem", True),  # the paper marks it G, but predicts with each client's own mixture
    _row("pFedBayes", "pfedbayes", True, scope=SMALL),
    _row("FedAMP", "fedamp", True),
    PFEDME,
    PFEDME_FT,
    _am(PFEDME),
    PERFEDAVG,
    PERFEDAVG_FT,
    _am(PERFEDAVG),
    MH,
    MH_FT,
    _am(MH),
)
BESIDE = (
    LOCAL,
    LOCAL_FT,
    FEDAVG_FT,
    DITTO,
    MH_PAPER,
    MH_PAPER_FT,
    _am(MH_PAPER, scope=LINEAR),
    PFEDME_PAPER,
    LG,
    LG_PAPER,
    MEG,
    MEG_PAPER,
)
FURTHER = (
    FEDPAC,
    PFEDHN,
    FEDFOMO,
    _row("HeurFedAMP", "heurfedamp", scope=SMALL),
    _row("FedU", "fedu", scope=SMALL),
    _row("FedProx", "fedprox", model=GLOBAL, scope=SMALL),
    _row("SCAFFOLD", "scaffold", model=GLOBAL, scope=SMALL),
    _row("Reptile", "reptile", scope=SMALL),
)
ROWS = (*PAPER, *BESIDE, *FURTHER)
COHERENT = (PFEDME, LG, MEG, MH, PFEDME_PAPER, MH_PAPER)  # those of the figure of coherence


def chosen(rows: Iterable[Row], names: Iterable[str] | None) -> list[Row]:
    """The rows of these methods or variants, and always Local if it is among them; without names, all of them."""
    rows = list(rows)
    if names is None:
        return rows
    names = list(names)
    called = dict.fromkeys(name for row in rows for name in (row.method, row.variant))
    for name in names:
        if name not in called:
            raise unknown("method", name, called)
    return [row for row in rows if row in (LOCAL, LOCAL_FT) or {row.method, row.variant} & set(names)]


def trained(rows: Iterable[Row], task: PaperTask, named: bool) -> list[Row]:
    """The rows that are trained on a task: those in its scope, or all where they were asked for by name."""
    return [row for row in rows if named or row.scope in task.scope]
