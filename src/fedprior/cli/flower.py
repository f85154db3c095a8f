"""fedprior flower: the same methods on a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import app, need_flower, print_line, print_table
from fedprior.cli.standing import standing
from fedprior.errors import FedpriorError

flower = typer.Typer(
    help="Run a method on a real federation, with Flower's SuperLink and SuperNodes.\n\n"
    "Start with: fedprior flower init hospitals, and read docs/deploy.md.",
    no_args_is_help=True,
)
app.add_typer(flower, name="flower")

App = Annotated[Path, typer.Argument(metavar="APP", help="The folder that `fedprior flower init` wrote.")]


@flower.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder; its name is the project's.")],
) -> None:
    """Write a Flower project that is ready to run: adapt data.py and task.toml."""
    need_flower()
    from fedprior.flower.project import write_project

    for path in write_project(folder):
        print_line(str(path))
    print_line(
        "Adapt data.py and task.toml, try them on each site with `fedprior flower check`, and see docs/deploy.md."
    )


@flower.command()
def check(
    folder: App = Path(),
    node_config: Annotated[
        str,
        typer.Option(
            metavar="'KEY=VALUE ...'",
            help="As given to flower-supernode: pairs such as 'data=\"a.csv\"', or a TOML file.",
        ),
    ] = "",
    key: Annotated[Path | None, typer.Option(help="The site's private key.")] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="The certificate of the federation's authority.")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Try a connection; nothing is sent.")
    ] = None,
) -> None:
    """Test a site's data, key and certificate before it joins."""
    need_flower()
    from fedprior.flower import look
    from fedprior.flower.control import read_config

    config = read_config(node_config, "--node-config")
    site = look.check_data(folder, config)
    train, test = site.sizes
    print_line(f"data: {train} samples to train and {test} to test")
    print_line(f"states: {look.check_state_folder(config)}")
    if key is not None:
        print_line(f"key: {look.check_key(key)}")
    if root_certificates is not None:
        print_line(f"certificate: {look.check_certificate(root_certificates, superlink)}")
    elif superlink is not None:
        raise FedpriorError("--superlink needs --root-certificates: the connection is checked against that certificate")


@flower.command()
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A deployed run: RUNS/<task>/<row>/<seed>.")],
) -> None:
    """Show the round that a deployed run is in, and which clients were absent or rejected."""
    need_flower()
    from fedprior.flower import look
    from fedprior.records.runs import RunFolder
    from fedprior.report.tables import Table

    about, record = look.status_of(run), RunFolder(run)
    word, note = standing(record)
    title = f"{run}: {word}, round {about['round']} of {record.config['run']['protocol']['rounds']}"
    head = ("client", "train", "test", "absent", "rejected", "state")
    body = tuple(tuple(str(client[key]) for key in head) for client in about["clients"])
    legend = (
        "samples to train and to test; rounds in which a client was absent, replies that were rejected; its state: "
        "a site that has lost it says in its log how it comes back"
    )
    print_table(Table(title, f"{note}; {legend}" if note else legend, head, body))


@flower.command()
def rejoin(
    state: Annotated[Path, typer.Argument(metavar="FILE", help="The lost state, as the site's log names it.")],
) -> None:
    """On a site: let it come back as a newcomer, where its state is lost for good.

    The site asks the server with its next message, which takes it back unless the method forbids it. What it had learnt
    is lost. The command holds for this one state.
    """
    need_flower()
    from fedprior.flower.rejoin import allow

    print_line(str(allow(state)))
    print_line("When the server next asks for this state, the site begins anew, as a newcomer.")


@flower.command()
def resume(
    folder: App,
    connection: Annotated[str, typer.Argument(metavar="CONNECTION", help="The SuperLink, as `flwr run` takes it.")],
    run_config: Annotated[
        str,
        typer.Option(metavar="'KEY=VALUE ...'", help="What the stopped run was started with: pairs, or a TOML file."),
    ] = "",
) -> None:
    """Go on with a deployed run whose server was stopped, from its checkpoint and the sites' states."""
    need_flower()
    from fedprior.flower import control

    number = control.begin(folder, connection, {**control.read_config(run_config, "--run-config"), "resume": True})
    print_line(f"run {number} goes on. Ctrl-C stops following its log; the run goes on.")
    if control.follow(number, connection):
        control.check_finished(number, connection)
