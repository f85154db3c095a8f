"""What the pages promise: every picture says in words what it shows, and nothing that a page loads lies on the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LEAST = 4  # words
# What a browser fetches by itself when a page is opened; a link that a reader follows is none of it.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*\b(?:src|data)=["']?(?:https?:)?//[^\s"'>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon|preconnect))[^>]*\bhref=["']?(?:https?:)?//[^\s"'>]+"""
    r"""|(?:url\(|@import\s)["']?(?:https?:)?//[^\s"')]+""",
    re.I,
)


def check_alternatives(app: Sphinx, doctree: nodes.document) -> None:
    """Warn about a picture without words."""
    for image in doctree.findall(nodes.image):
        if len(str(image.get("alt", "")).split()) < LEAST:
            logging.getLogger(__name__).warning(
                "a picture without a text alternative: %s", image["uri"], location=image
            )


def loads(text: str) -> list[str]:
    """What a page or a style sheet would fetch from elsewhere."""
    return LOADED.findall(text)


def check_offline(app: Sphinx, error: Exception | None) -> None:
    """Refuse pages that would fetch anything."""
    if error is None and app.builder.name == "html":
        found = {
            f"{path}: {what}"
            for path in Path(app.outdir).rglob("*")
            if path.suffix in (".html", ".css")
            for what in loads(path.read_text(encoding="utf-8", errors="replace"))
        }
        if found:
            raise ExtensionError("these would be fetched from the network:\n" + "\n".join(sorted(found)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at pages when they are read, and at the whole when it is written."""
    app.connect("doctree-read", check_alternatives)
    app.connect("build-finished", check_offline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
