"""The changelog as a page: the file at the root of the repository, with its links as seen from the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pages import write

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def page(text: str, docs: Path) -> str:
    """The text of the page: links into docs/ lead there, and those to a folder to its index."""

    def moved(link: re.Match[str]) -> str:
        target = link[1] + ("/index.md" if (docs / link[1]).is_dir() else "")
        return f"](../{target})"

    return re.sub(r"\]\(docs/([^)]+?)/?\)", moved, text)


def generate(docs: Path) -> None:
    """Write the page."""
    text = (docs.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    write(docs / "reference" / "changelog.md", page(text, docs))


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx write the page before it looks for pages."""
    app.connect("builder-inited", lambda app: generate(Path(app.srcdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
