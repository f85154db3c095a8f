"""When, how and by which version a run was made, and which labels its clients have: facts on which no number depends.

They lie in files of their own, since runs with the same numbers differ in them, and since label counts may be confidential:
the setting ``record_labels = false`` leaves them out.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.files import read_json, write_json, write_text, writing
from fedprior.records.schema import ClientId, LabelCounts, Session

SESSIONS, LABELS = "provenance.json", "label_counts.json"
FILES = (SESSIONS, LABELS)


def now() -> str:
    """This moment; sessions of a run are told by it, and one may follow another within a second."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write(folder: Path, session: Session, labels: LabelCounts | None) -> None:
    """Add a session, or say how it ended; write the label counts, or remove them where they are to be left out."""
    before = [each for each in read(folder) or () if each.begun != session.begun]
    write_json(folder / SESSIONS, {"sessions": [each._asdict() for each in (*before, session)]})
    if labels is None:
        _remove(folder / LABELS)
        return
    clients = [{"client": client, **counts} for client, counts in labels.clients.items()]
    text = json.dumps({"classes": labels.classes, "clients": clients}) + "\n"
    path = folder / LABELS
    if not os.path.lexists(path) or path.read_bytes() != text.encode():
        write_text(path, text)


def read(folder: Path) -> tuple[Session, ...] | None:
    """The sessions of a run; None where none was recorded."""
    content = _content(folder / SESSIONS)
    if content is None:
        return None
    try:
        sessions = tuple(Session(**each) for each in content["sessions"])
    except (KeyError, TypeError) as error:
        raise _odd(folder / SESSIONS) from error
    if not all(isinstance(s.begun, str) and isinstance(s.fedprior, str) for s in sessions) or not all(
        part is None or isinstance(part, str) for s in sessions for part in (s.ended, s.command)
    ):
        raise _odd(folder / SESSIONS)
    return sessions


def read_labels(folder: Path) -> LabelCounts | None:
    """The label counts of a run; None where they were left out."""
    content = _content(folder / LABELS)
    if content is None:
        return None
    try:
        clients: dict[ClientId, dict[str, list[int]]] = {
            each["client"]: {part: [int(n) for n in counts] for part, counts in each.items() if part != "client"}
            for each in content["clients"]
        }
        return LabelCounts(tuple(content["classes"]), clients)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _odd(folder / LABELS) from error


def remove(folder: Path) -> None:
    """Forget a run that is replaced."""
    for name in FILES:
        _remove(folder / name)


def _content(path: Path) -> dict[str, Any] | None:
    return read_json(path) if os.path.lexists(path) else None


def _remove(path: Path) -> None:
    with writing(path):
        path.unlink(missing_ok=True)


def _odd(path: Path) -> FedpriorError:
    return FedpriorError(
        f"{path} is not what a run writes; restore it from a copy, or delete it: no number depends on it"
    )
