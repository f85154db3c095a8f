"""A directive that shows examples as cards: each with its title, its first sentence and the first picture that it drew."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


class Shown(nodes.General, nodes.Element):
    """Where the cards will stand once all examples have been run."""


class Gallery(SphinxDirective):
    """The pages in its lines, one each, as cards."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """A place for the cards, and a hidden table of contents of the same pages."""
        pages = [line.strip() for line in self.content if line.strip()]
        tree = self.parse_text_to_nodes("```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```")
        folder = posixpath.dirname(self.env.docname)
        return [Shown(pages=[posixpath.join(folder, page) for page in pages]), *tree]


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the cards where they belong."""
    for place in list(doctree.findall(Shown)):
        grid = nodes.container(classes=["gallery"])
        for page in place["pages"]:
            grid += _card(app, app.env, page, docname)
        place.replace_self(grid)


def _card(app: Sphinx, env: BuildEnvironment, page: str, docname: str) -> nodes.Node:
    example = env.get_doctree(page)
    card = nodes.container(classes=["gallery-card"])
    address = app.builder.get_relative_uri(docname, page)
    picture: Any = next(iter(example.findall(nodes.image)), None)
    if picture is not None:
        small = nodes.image(uri=picture["uri"], candidates={"*": picture["uri"]}, alt=picture.get("alt", ""))
        card += nodes.paragraph("", "", nodes.reference("", "", small, refuri=address, internal=True))
    title = next(iter(example.findall(nodes.title))).astext()
    card += nodes.paragraph(
        "", "", nodes.reference("", title, refuri=address, internal=True), classes=["gallery-title"]
    )
    first = next((each for each in example.findall(nodes.paragraph)), None)
    card += nodes.paragraph("", re.split(r"\.(?:\s|$)", first.astext())[0] + "." if first is not None else "")
    return card


def _skip(translator: Any, node: nodes.Element) -> None:
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_node(Shown, html=(_skip, None))
    app.add_directive("gallery", Gallery)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
