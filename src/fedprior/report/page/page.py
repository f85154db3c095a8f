"""The page as one file: markup, style, script and numbers, and a policy that forbids every request."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedprior.analysis.grouping import Warn, silent
from fedprior.analysis.series import ROUNDS
from fedprior.errors import FedpriorError
from fedprior.files import write_text
from fedprior.records.provenance import now
from fedprior.records.schema import RunRecord
from fedprior.report.page.around import notes_html, overview_html, row_names, row_notes, sweeps_html
from fedprior.report.page.encode import encoded
from fedprior.report.page.gather import Gathered, gather
from fedprior.report.page.look import element, text
from fedprior.report.page.static import task_html, task_words
from fedprior.report.untested import untested_runs
from fedprior.report.words import AVERAGE_WORDS

# In the order in which they are joined; the first three need no document.
CORE = ("numbers.js", "view.js", "sentences.js")
SCRIPTS = (
    *CORE,
    "dom.js",
    "summary.js",
    "curves.js",
    "gains.js",
    "clients.js",
    "holdings.js",
    "cost.js",
    "bar.js",
    "main.js",
)
STYLES = ("page.css", "charts.css")


def write_report(
    records: Iterable[RunRecord],
    path: Path,
    *,
    order: Sequence[str] = (),
    partition: bool = True,
    title: str | None = None,
    warn: Warn = silent,
) -> Path:
    """Write the page of some runs, whole or not at all."""
    records = list(records)
    gathered = gather(records, order, partition, warn)
    if not gathered.tasks and not gathered.sweeps:
        untested = "; ".join(runs.text for runs in untested_runs(records).values())
        raise FedpriorError(f"nothing to show: {untested or 'no run has been evaluated'}")
    write_text(path, page(gathered, title))
    return path


def page(gathered: Gathered, title: str | None = None, live: str | None = None) -> str:
    """The whole page. ``live``: the version of a page that is served and looks for newer ones."""
    script, style = joined(SCRIPTS), joined(STYLES)
    payload = {
        "live": live,
        "words": {"rounds": ROUNDS, "averages": AVERAGE_WORDS},
        "rows": list(row_names(gathered.tasks).items()),
        "notes": row_notes(gathered.tasks),
        "tasks": [encoded(task) for task in gathered.tasks],
    }
    title = title or heading(gathered)
    about = task_words(gathered.tasks[0]) if len(gathered.tasks) == 1 else ""
    body = [
        element("a", "Skip to the numbers", class_="skip", href="#main"),
        element("header", element("h1", text(title)) + (element("p", text(about), class_="quiet") if about else "")),
        element("div", "", id="bar", hidden=""),
        element("main", main_html(gathered), id="main", tabindex="-1"),
        element("div", "", id="told", role="status", aria_live="polite"),
        element("footer", text(f"Made by fedprior {version('fedprior')} at {now()[:16].replace('T', ' ')} UTC.")),
        element("script", packed(payload), type="application/octet-stream", id="payload"),
        f"<script>{script}</script>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script, style, live is not None)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        element("title", text(title)),
        f"<style>{style}</style>",
    ]
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        *head,
        "</head>",
        "<body>",
        *body,
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(lines)


def heading(gathered: Gathered) -> str:
    """What a page is called unless told otherwise."""
    names = [task.name for task in gathered.tasks] or list(dict.fromkeys(sweep.task for sweep in gathered.sweeps))
    return names[0] if len(names) == 1 else f"{len(names)} tasks" if names else "no runs yet"


def main_html(gathered: Gathered) -> str:
    """Everything that there is to see without a script."""
    several = len(gathered.tasks) > 1
    parts = [
        overview_html(gathered.tasks) if several else "",
        notes_html(gathered),
        *(task_html(task, place, several) for place, task in enumerate(gathered.tasks)),
        sweeps_html(gathered.sweeps),
    ]
    return "".join(parts)


def joined(names: Sequence[str]) -> str:
    """Files of the folder ``assets``, one after the other; the script is one function, so that its names are its own."""
    texts = [files("fedprior.report.page").joinpath("assets", name).read_text(encoding="utf-8") for name in names]
    whole = "\n".join(texts)
    return f'(() => {{\n"use strict";\n{whole}}})();\n' if names[0].endswith(".js") else whole


def packed(payload: Any) -> str:
    """Plain data as the page's script unpacks it: JSON, deflated, in base64, which no name in it can break out of."""
    content = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(content.encode(), 9)).decode()


def unpacked(content: str) -> Any:
    """What was packed."""
    return json.loads(zlib.decompress(base64.b64decode(content)))


def policy(script: str, style: str, live: bool) -> str:
    """What the page may do: run its own script and use its own style, and nothing else; a live one asks its own server."""
    connect = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none';{connect} script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
