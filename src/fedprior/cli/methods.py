"""fedprior methods: what can be run, what it costs, and where its defaults come from."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fedprior.cli.app import Json, app, json_text, print_line, print_table
from fedprior.errors import FedpriorError


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[METHOD]", help="Show one method's defaults and sources.")
    ] = None,
    as_bibtex: Annotated[
        bool, typer.Option("--bibtex", help="Print the BibTeX entry of the method's paper, or those of all methods.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods with what they cost, or show one's settings: what they mean, and where their defaults come from."""
    if as_bibtex and as_json:
        raise FedpriorError("--json holds the BibTeX entry of a method that is named; choose --json or --bibtex")
    if as_bibtex:
        _cite(name)
    elif name is None:
        _list(as_json)
    else:
        _show(name, as_json)


def _cite(name: str | None) -> None:
    from fedprior.methods import METHODS
    from fedprior.methods.references import bibtex

    found = [bibtex(METHODS.find(each).cls) for each in (METHODS if name is None else [name])]
    if not any(found):
        raise FedpriorError(f"{name} cites no paper; fedprior methods NAME --bibtex prints the entry of one that does")
    sys.stdout.write("\n\n".join(dict.fromkeys(filter(None, found))) + "\n")


def _show(name: str, as_json: bool) -> None:
    from fedprior.core.hyper import hypers
    from fedprior.methods import METHODS, make
    from fedprior.methods.references import bibtex, pseudocode
    from fedprior.report.listings import settings_table
    from fedprior.wrappers import WRAPPERS

    method: Any = make(name)
    preset = METHODS.find(name).preset
    rows, values = [], method.in_force()
    for key, about in hypers(method).items():
        rows.append((key, values[key], about.meaning, "the method's name" if key in preset else about.source))
    defaults = {**{key: wrapper.default for key, wrapper in WRAPPERS.items()}, **method.wrapper_defaults}
    around = [(key, defaults[key], of.about.meaning, of.about.source) for key, of in WRAPPERS.items()]
    if as_json:
        named: dict[str, Any] = {
            part: {
                key: {"default": _plain(value), "meaning": meaning, "source": why} for key, value, meaning, why in of
            }
            for part, of in (("settings", rows), ("wrappers", around))
        }
        shown = {"method": name, "paper": method.paper, "participation": list(method.participation)}
        cls = type(method)
        named |= {"objective": cls.objective, "pseudocode": pseudocode(cls), "bibtex": bibtex(cls)}
        sys.stdout.write(json_text({**shown, **named}))
        return
    print_table(settings_table(f"{name}: {method.paper}", rows))
    print_table(settings_table("around it, as around any method", around))
    print_line(f"participation: {' or '.join(method.participation)} (the first is the default)")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _list(as_json: bool) -> None:
    from dataclasses import asdict

    from fedprior.core.batch import SAMPLES_PER_STEP
    from fedprior.engine.cost import SAMPLES, measure
    from fedprior.methods import METHODS, make
    from fedprior.report.listings import methods_table

    made = {name: make(name) for name in METHODS}
    costs = {name: asdict(measure(method)) for name, method in made.items()}
    if as_json:
        every = {
            name: {"paper": method.paper, "participation": list(method.participation), "cost": costs[name]}
            for name, method in made.items()
        }
        sys.stdout.write(json_text(every))
        return
    table = methods_table(
        costs,
        {name: method.participation[0] for name, method in made.items()},
        {name: method.paper for name, method in made.items()},
        samples=SAMPLES,
        samples_per_step=SAMPLES_PER_STEP,
    )
    print_table(table)
    print_line("The defaults and where each comes from: fedprior methods NAME")
