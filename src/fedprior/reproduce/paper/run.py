"""Training what an artefact needs: all cells in one folder that artefacts share, study after study.

OUT/reproduction.json     the layout of the folder
OUT/cells/<task>/<row>/<seed>
OUT/records/              digests of the cells that are done (`kept`)
OUT/<artefact>/           its tables and figures
OUT/quick/, OUT/tuned/    the same of `--quick` and of `--tuned`, each with a mark of its own
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.analysis.grouping import silent
from fedprior.errors import FedpriorError
from fedprior.files import read_json, write_text
from fedprior.records.runs import RunFolder
from fedprior.records.schema import RunRecord, Status
from fedprior.reproduce.paper.kept import Kept
from fedprior.reproduce.paper.tasks import SECONDS_PER_GRADIENT, SECONDS_PER_ROUND
from fedprior.study.cells import Plan, PlannedCell
from fedprior.study.program import has_global_model
from fedprior.study.results import Lost, Results
from fedprior.study.trial import Progress

if TYPE_CHECKING:
    from fedprior.reproduce.paper.artefact import Request
    from fedprior.study.cells import Cell, CellWatch
    from fedprior.study.study import Study

LAYOUT = 1
MARK = "reproduction.json"
INSIDE = ("quick", "tuned")  # parts of an output folder that are output folders themselves
RECORDS = "records"  # the part that may be copied to another machine, alone


def folders(out: Path, request: Request) -> list[Path]:
    """The output folders of a request: the first one holds the others, and the last one holds what is made."""
    parts = [name for name in INSIDE if getattr(request, name)]
    return [out, *(out.joinpath(*parts[: k + 1]) for k in range(len(parts)))]


def check_folder(out: Path) -> None:
    """Refuse an output folder that another version of the command laid out, or that is none."""
    mark = out / MARK
    if mark.exists():
        found = read_json(mark).get("layout")
        if found != LAYOUT:
            raise FedpriorError(
                f"{out} was laid out by another version of fedprior (layout {found!r} in {mark}, this one has {LAYOUT}); "
                "use another --out"
            )
    elif out.exists() and (not out.is_dir() or any(path.name not in (*INSIDE, RECORDS) for path in out.iterdir())):
        raise FedpriorError(f"{out} is no folder of `fedprior reproduce` ({MARK} is missing); use another --out")


def mark_folder(out: Path) -> None:
    """Say whose folder it is."""
    if not (out / MARK).exists():
        write_text(out / MARK, json.dumps({"layout": LAYOUT}) + "\n")


def plan(studies: Sequence[Study], cells: Path, kept: Kept | None = None) -> Plan:
    """All cells, how they stand, and how long they will take: as recorded, or else as guessed from their gradients."""
    found: list[PlannedCell] = []
    for study in studies:
        guesses = {cell[:3]: guess(cell) for cell in study.cells(cells)}
        done = _by_cell([] if kept is None else kept.matching(study.cells(cells), silent))
        for cell in study.plan(cells).cells:
            if (record := done.get((cell.task, cell.variant, cell.seed))) is not None:
                found.append(replace(cell, done=record.round, status=record.status.value, seconds_left=0.0))
                continue
            seconds = cell.seconds_left
            each = guesses[cell.task, cell.variant, cell.seed]
            if seconds is None and each is not None:
                seconds = each * (cell.rounds - cell.done)
            found.append(replace(cell, seconds_left=seconds))
        close(study)
    return Plan(tuple(found))


def left_out(studies: Sequence[Study]) -> list[str]:
    """The rows that tasks do not allow, and why; it is known once they are planned."""
    found = {row: why for study in studies for row, why in study.left_out.items()}
    return [f"{task}: {row} is left out: {why}" for (task, row), why in found.items()]


def guess(cell: Cell) -> float | None:
    """Seconds that a round may take on two cores, from what mh took there; None where that was not measured.

    A gradient takes three times as long as a forward pass, of which an evaluation needs one for each model and test sample.
    """
    program = cell.trial.program
    base = [name for name in SECONDS_PER_GRADIENT if program.task.name.startswith(name)]
    cost = program.recorded_cost
    if not base or cost["gradients"] is None:
        return None
    gradients = cost["gradients"] * cost["trained_clients_per_round"]
    protocol, models = program.protocol, 2 if has_global_model(program.task, program.method) else 1
    models += protocol.score_fine_tuned > 0
    batches = float(program.task.federation.test.size.sum()) / protocol.batch
    passes = models * batches / protocol.eval_every
    return SECONDS_PER_ROUND + SECONDS_PER_GRADIENT[base[0]] * float(gradients + passes / 3)


def train(
    studies: Sequence[Study],
    cells: Path,
    *,
    watch: CellWatch,
    warn: Callable[[str], None],
    should_stop: Callable[[], bool] = lambda: False,
    executor: Executor | None = None,
    command: str | None = None,
    kept: Kept | None = None,
    models: bool = False,
) -> Results | None:
    """Train what is not there yet, and return all records; None if it was stopped. A run that failed makes no table.

    ``kept``: where digests of what is done are kept; they stand in for cells, unless the ``models`` are wanted too.
    """
    together = Results([])
    for study in studies:
        if should_stop():
            return None
        found = [] if kept is None or models else kept.matching(study.cells(cells), warn)
        elsewhere = _by_cell(found)
        for cell in study.cells(cells) if found else ():
            if (record := elsewhere.get(cell[:3])) is not None:
                if record.status is Status.DIVERGED:
                    watch(cell._replace(folder=None), None)  # which says nothing of it
                else:
                    watch(cell, Progress(record.round, record.round, None, 0.0))
        results = study.run(
            cells,
            watch=watch,
            warn=warn,
            should_stop=should_stop,
            executor=executor,
            command=command,
            resume=True,
            models=False,
            wanted=_but(elsewhere),
        )
        done = [record for record in results.records if record.status == "finished"]
        new = done + _diverged(study, cells, elsewhere)
        if kept is not None:
            kept.keep(new)
        whole = len(done) + len(results.lost) + len(found) == len(study.cells())
        together.records += found + new
        together.lost += [_lost(record) for record in found if record.status is Status.DIVERGED] + results.lost
        for record in done:
            _keep_newest(RunFolder(Path(record.where)))
        close(study)
        if not whole:
            return None
    if failed := together.failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise FedpriorError(f"a run failed: {failed[0]}{more}; the same command tries again, with fewer --workers, say")
    return together


def _by_cell(records: Iterable[RunRecord]) -> dict[tuple[str, str, int], RunRecord]:
    return {(record.task, record.variant, record.seed): record for record in records}


def _but(elsewhere: Container[tuple[str, str, int]]) -> Callable[[Cell], bool]:
    return lambda cell: cell[:3] not in elsewhere


def _lost(record: RunRecord) -> Lost:
    text = f"{record.variant} diverged in round {record.round} (seed {record.seed}, {record.where})"
    return Lost(record.task, record.variant, "diverged", text)


def _diverged(study: Study, cells: Path, elsewhere: Container[tuple[str, str, int]]) -> list[RunRecord]:
    """What was recorded of a study's runs that diverged."""
    here = (cell for cell in study.cells(cells) if cell[:3] not in elsewhere)
    runs = [RunFolder(cell.folder) for cell in here if cell.folder is not None]
    return [run.record() for run in runs if run.exists and run.status[0] is Status.DIVERGED]


def close(study: Study) -> None:
    """Let go of a study's data and programs: those of eight tasks together would not fit into memory."""
    import jax

    for name in ("tasks", "programs"):
        study.__dict__.pop(name, None)
    jax.clear_caches()
    gc.collect()


def _keep_newest(run: RunFolder) -> None:
    """A run that is done needs one state to go on from; the others of hundreds of cells would fill the disk."""
    for path in run.checkpoints[:-1]:
        path.unlink()
