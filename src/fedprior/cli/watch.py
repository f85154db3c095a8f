"""fedprior watch: the report page, served while runs go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import app, print_line
from fedprior.cli.report import NoPartition


@app.command()
def watch(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Folders with runs, or where they will be.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port of this machine to serve on; 0: any that is free.")] = 8420,
    no_partition: NoPartition = False,
) -> None:
    """Serve the report page on this machine while runs go on.

    The page looks for news every two seconds and keeps what was chosen on it.
    Runs and sweeps may begin, end, be killed and go on meanwhile. Only this
    machine can open it. Ctrl-C ends it.
    """
    from fedprior.cli.serving import server
    from fedprior.methods import METHODS
    from fedprior.report.page.live import Watched

    watched = Watched(folders or [Path("runs")], order=tuple(METHODS), partition=not no_partition)
    with server(watched, port) as serving:
        host, chosen = serving.server_address[:2]
        print_line(f"watching {', '.join(map(str, watched.folders))}: http://{host!s}:{chosen}/ (Ctrl-C ends it)")
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print_line("no longer watching")
