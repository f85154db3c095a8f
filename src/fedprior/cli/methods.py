"""fedprior methods: what can be run, what it costs, and where its defaults come from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedprior.cli.app import app, print_line, print_table


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[METHOD]", help="Show one method's defaults and sources.")
    ] = None,
) -> None:
    """List the methods with what they cost, or show one's settings: what they mean, and where their defaults come from."""
    if name is None:
        _list()
    else:
        _show(name)


def _show(name: str) -> None:
    from fedprior.core.hyper import hypers
    from fedprior.methods import METHODS, make
    from fedprior.report.listings import settings_table
    from fedprior.wrappers import WRAPPERS

    method: Any = make(name)
    preset = METHODS.find(name).preset
    rows = []
    for key, about in hypers(method).items():
        value = getattr(method, key)
        if value is None and hasattr(method, "switch"):
            value = method.switch(key)
        rows.append((key, value, about.meaning, "the method's name" if key in preset else about.source))
    print_table(settings_table(f"{name}: {method.paper}", rows))
    around = {**{key: wrapper.default for key, wrapper in WRAPPERS.items()}, **method.wrapper_defaults}
    wrappers = {key: wrapper.about for key, wrapper in WRAPPERS.items()}
    print_table(
        settings_table(
            "around it, as around any method",
            [(key, around[key], about.meaning, about.source) for key, about in wrappers.items()],
        )
    )
    print_line(f"participation: {' or '.join(method.participation)} (the first is the default)")


def _list() -> None:
    from dataclasses import asdict

    from fedprior.core.batch import SAMPLES_PER_STEP
    from fedprior.engine.cost import SAMPLES, measure
    from fedprior.methods import METHODS, make
    from fedprior.report.listings import methods_table

    made = {name: make(name) for name in METHODS}
    table = methods_table(
        {name: asdict(measure(method.algorithm())) for name, method in made.items()},
        {name: method.participation[0] for name, method in made.items()},
        {name: method.paper for name, method in made.items()},
        samples=SAMPLES,
        samples_per_step=SAMPLES_PER_STEP,
    )
    print_table(table)
    print_line("The defaults and where each comes from: fedprior methods NAME")
