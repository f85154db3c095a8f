"""Progress on stderr: bars on a terminal; elsewhere a line now and then, so that a log shows life."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from fedprior.cli.app import err
from fedprior.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

INTERVAL = 30.0  # seconds between two lines of a log


class Display(Protocol):
    """What a command tells of its parts: a name, how many steps it has, how many are done, and a remark."""

    def add_task(self, description: str, /, *, total: int, remark: str) -> TaskID:
        """Begin a part."""

    def update(self, task: TaskID, /, *, completed: int | None = None, remark: str) -> None:
        """Say how far a part is."""

    def remove_task(self, task: TaskID, /) -> None:
        """Forget a part that failed."""


def progress(parts: int = 1) -> AbstractContextManager[Display]:
    """Bars on a terminal, lines elsewhere; so many ``parts`` there will be."""
    return _bars() if err.is_terminal else Lines(print_line, parts)


def print_line(text: str) -> None:
    """One line of a log."""
    err.print(printable(text), soft_wrap=True, markup=False, emoji=False, highlight=False)


class Lines(AbstractContextManager["Lines"]):
    """A line every ``interval`` seconds about the part that moved last, however many there are, and one at the end.

    A thread of its own writes them: a part may take long before it first tells anything, as compiling does.
    """

    def __init__(self, write: Callable[[str], None], parts: int = 1, interval: float | None = None):
        self._write, self._all, self._interval = write, parts, INTERVAL if interval is None else interval
        self._parts: dict[int, dict[str, Any]] = {}
        self._last: dict[str, Any] | None = None
        self._numbers, self._over = itertools.count(), threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def add_task(self, description: str, /, *, total: int, remark: str) -> TaskID:
        """Begin a part."""
        number = next(self._numbers)
        self._parts[number] = self._last = {"name": description, "total": total, "done": 0, "remark": remark}
        return number  # type: ignore[return-value]

    def update(self, task: TaskID, /, *, completed: int | None = None, remark: str) -> None:
        """Say how far a part is."""
        part = self._last = self._parts[task]
        part |= {"remark": remark} | ({} if completed is None else {"done": completed})

    def remove_task(self, task: TaskID, /) -> None:
        """Forget a part that failed."""
        if self._parts.pop(task, None) is self._last:
            self._last = None

    def line(self) -> str | None:
        """What there is to say; None: nothing yet."""
        part = self._last
        if part is None:
            return None
        done = sum(each["done"] >= each["total"] for each in list(self._parts.values()))
        words = [f"{part['name']}: {part['done']} of {part['total']}", part["remark"].strip()]
        words += [f"{done} of {self._all} done"] if self._all > 1 else []
        passed = timedelta(seconds=round(time.monotonic() - self._begun))
        return f"[{passed}] {', '.join(word for word in words if word)}"

    def _speak(self) -> None:
        while not self._over.wait(self._interval):
            if (text := self.line()) is not None:
                self._write(text)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()
        if (text := self.line()) is not None:
            self._write(text)


def _bars() -> Bars:
    """Bars with a name, a count, a remark and times; where none was shown, nothing is left behind."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    class QuietBars(Bars):
        def stop(self) -> None:
            if self.task_ids:
                super().stop()
            else:
                self.live.transient = True
                self.live.stop()

        def add_task(self, description: str, *arguments: Any, **options: Any) -> TaskID:
            return super().add_task(printable(description), *arguments, **options)

        def update(self, task_id: TaskID, *, remark: str = "", **options: Any) -> None:
            super().update(task_id, remark=printable(remark), **options)

    return QuietBars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[remark]}", style="bold", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
    )
