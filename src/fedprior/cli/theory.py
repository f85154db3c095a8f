"""fedprior theory: the paper's theorems, measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import app, err, out, print_line


@app.command()
def theory(
    folder: Annotated[Path, typer.Option("--out", help="Where the pictures and theory.json go.")] = Path("theory"),
    seeds: Annotated[int, typer.Option(min=2, help="Runs per point where clients are sampled.")] = 5,
) -> None:
    """Measure the paper's two theorems on problems whose answer is known: a table and a picture each."""
    import jax
    from rich import box
    from rich.table import Table as RichTable

    from fedprior.files import write_text
    from fedprior.reproduce import convex, pictures
    from fedprior.reproduce import theory as numbers

    with jax.enable_x64(True), err.status("measuring (a few minutes) ..."):
        tables: dict[str, numbers.Table] = {
            "rate": numbers.rate(seeds=seeds),
            "radius": numbers.radius(),
            "step": numbers.step(),
        }
        by_steps = {local: numbers.step_bound(convex.quadratic(lam=2.0), local) for local in (1, 2, 5, 20)}
        tables["bounds"] = [
            {"constant": name, **{f"R = {local}": values[name] for local, values in by_steps.items()}}
            for name in by_steps[1]
        ]
        paths = pictures.draw(tables["rate"], tables["radius"], tables["step"], folder)
    titles = {
        "rate": "(a) error of the average iterate against T",
        "radius": "(b) squared distance of personal models from w* against lambda",
        "step": "(c) error after 300 rounds at multiples of Theorem 1's step bound",
        "bounds": "(c) Theorem 1's constants at lambda = 2",
    }
    for key, rows in tables.items():
        shown = RichTable(title=titles[key], title_justify="left", box=box.SIMPLE)
        for name in rows[0]:
            shown.add_column(name, justify="right")
        for row in rows:
            shown.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
        out.print(shown)
    for problem, s, slope, half in numbers.slopes(tables["rate"]):
        out.print(f"{problem}, S = {s}: slope {slope:.2f} ± {half:.2f} (95 %)", highlight=False)
    write_text(folder / "theory.json", json.dumps(tables, indent=1) + "\n")
    print_line(f"pictures: {', '.join(map(str, paths))}")
