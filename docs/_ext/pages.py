"""Pages that are written from the package when the site is built, and only where they are not there yet or have changed."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a page unless it says so already: one that is touched would be read again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def cell(text: object) -> str:
    """Text for a cell of a table: on one line, and without what would be markup."""
    shown = " ".join(str(text).split())
    for mark in ("\\", "|", "*", "_", "<", "$", "[", "]"):
        shown = shown.replace(mark, f"\\{mark}")
    return shown


def table(head: list[str], rows: list[list[str]], numbers: int = 0) -> str:
    """A table in Markdown; the last ``numbers`` columns are set to the right."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows)) + "\n"
