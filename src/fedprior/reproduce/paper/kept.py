"""Digests of the cells that are done, small enough for a repository: OUT/records/<task>/<row>.json.xz.

With them an artefact is made again, or gets another row, where nothing was trained: only what is new is computed. A cell
whose settings, data or update differ from what they were is trained anew.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.errors import FedpriorError
from fedprior.files import parsed, read_bytes, replace_file
from fedprior.records.digest import digest_of, record_of
from fedprior.records.sameness import check_same
from fedprior.records.schema import RunRecord

if TYPE_CHECKING:
    from fedprior.study.cells import Cell

ENDING = ".json.xz"
MOST = 256 * 2**20  # bytes of JSON; a thousand times what the seeds of a row take


@dataclass(frozen=True)
class Kept:
    """The digests in a folder."""

    folder: Path

    def path(self, task: str, row: str) -> Path:
        """The file of a row on a task."""
        return self.folder / task / f"{row}{ENDING}"

    def read(self, task: str, row: str) -> dict[int, RunRecord]:
        """The runs of a row by their seeds."""
        if not (path := self.path(task, row)).exists():
            return {}
        content = parsed(str(path), _unpacked, read_bytes(path, MOST))
        if not isinstance(content, list):
            raise FedpriorError(f"{path} holds no records of runs; remove it")
        return {record.seed: record for record in (record_of(each, str(path)) for each in content)}

    def matching(self, cells: Iterable[Cell], warn: Callable[[str], None]) -> list[RunRecord]:
        """The records of those cells that were done as they would be now, and of as many rounds."""
        found, by_row = list[RunRecord](), dict[tuple[str, str], dict[int, RunRecord]]()
        apart = Counter[tuple[str, str]]()
        for cell in cells:
            if (key := cell[:2]) not in by_row:
                by_row[key] = self.read(*key)
            record = by_row[key].get(cell.seed)
            if record is None or _rounds(record) != cell.trial.program.rounds:
                continue
            try:
                told = check_same(str(self.path(*key)), record.config, cell.trial.config())
            except FedpriorError as error:
                why = str(error).rpartition(";")[0] or error  # without the advice, since nothing need be done
                warn(f"{cell} is trained anew: {why}")
                continue
            found.append(record)
            if told:
                apart[cell.task, "; ".join(text.replace("resuming with", "made with") for text in told)] += 1
        for (task, text), count in apart.items():  # not cell by cell: it is the same of hundreds
            warn(f"{self.folder}: {count} run{'s' * (count > 1)} of {task} stand in for cells: {text}")
        return found

    def keep(self, records: Iterable[RunRecord]) -> None:
        """Add runs that are done. A longer one of the same cell stays."""
        by_row: dict[tuple[str, str], list[RunRecord]] = {}
        for record in records:
            by_row.setdefault((record.task, record.variant), []).append(record)
        for (task, row), new in by_row.items():
            runs = self.read(task, row)
            runs |= {record.seed: record for record in new if not _is_longer(runs.get(record.seed), record)}
            text = json.dumps([digest_of(runs[seed]) for seed in sorted(runs)], separators=(",", ":"))
            packed = lzma.compress(text.encode(), preset=6)
            replace_file(self.path(task, row), partial(Path.write_bytes, data=packed))


def _rounds(record: RunRecord) -> int:
    """T, which a run that diverged did not reach."""
    return int(record.config["run"]["protocol"]["rounds"])


def _is_longer(old: RunRecord | None, new: RunRecord) -> bool:
    """Whether a run that is kept goes beyond another one of the same settings."""
    if old is None or _rounds(old) <= _rounds(new):
        return False
    try:
        check_same(old.where, old.config, new.config)
    except FedpriorError:
        return False
    return True


def _unpacked(data: bytes) -> Any:
    """The JSON in compressed bytes, of a bounded size."""
    unpacker = lzma.LZMADecompressor(memlimit=MOST)
    try:
        text = unpacker.decompress(data, max_length=MOST)
    except lzma.LZMAError as error:
        raise ValueError(f"it is damaged ({error}); remove it") from error
    if not unpacker.eof:
        raise ValueError("it is cut short, or far too large; remove it")
    return json.loads(text)
