"""fedprior theory: the paper's theorems, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprior.cli.app import app, err, json_text, print_line, print_table
from fedprior.cli.progress import progress

if TYPE_CHECKING:
    from fedprior.reproduce.theorems.rate import Table

TITLES = {  # of the tables that are printed; the rest is in theory.json
    "slopes": "Theorem 1: slopes on log-log axes, their 95 % intervals over seeds, the slope of the proof's bound, and "
    "whether all steps are inside the theorem's conditions",
    "bounds": "Theorem 1 with beta = 1: the bound on the step, the rounds it asks for, and the beta with which a step of "
    "1 / (20 L_F) would be inside",
    "step": "Theorem 1: error after 300 rounds at multiples of the bound on the step (S = N, R = 2)",
    "limit": "Theorem 1 with eta > 0, lambda = 100: the error where the method comes to rest, and the bound on it",
    "radius": "Theorem 2: squared distance of the farthest personal model from w* against lambda",
    "meta": "Theorem 2 with eta > 0, lambda = 100: the same against eta, beside the bound and its terms",
    "deviation": "sigma_Phi of lg on logistic regression, from below; strain = (1 + sigma_Phi)(1 + eta gamma_Phi)",
}


@app.command()
def theory(
    folder: Annotated[Path, typer.Option("--out", help="Where the pictures and theory.json go.")] = Path("theory"),
    seeds: Annotated[
        int | None, typer.Option(min=2, help="Runs per point where clients are sampled (default: 128, quick: 24).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few points only, in seconds: shows that it works.")] = False,
) -> None:
    """Measure the paper's two theorems on problems whose answer is known: tables and pictures, in a few minutes."""
    import jax

    from fedprior.files import write_text
    from fedprior.reproduce.theorems import measure as numbers
    from fedprior.reproduce.theorems import pictures

    with jax.enable_x64(True), progress() as bars:
        part = bars.add_task("theory", total=1, remark="")

        def watch(text: str) -> None:
            err.print(text, highlight=False)
            bars.update(part, remark=text)

        measured = numbers.measure(watch, seeds, quick)
        bars.update(part, completed=1, remark="")
        paths = pictures.draw(measured, folder)
    tables = measured.tables()
    for key, title in TITLES.items():
        _print(title, tables[key])
    write_text(folder / "theory.json", json_text(tables))
    print_line(f"pictures: {', '.join(map(str, paths))}    numbers: {folder / 'theory.json'}")


def _print(title: str, rows: Table) -> None:
    from fedprior.report.tables import Table as Printed

    if rows:
        texts = [isinstance(value, str) for value in rows[0].values()]
        body = tuple(tuple(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()) for row in rows)
        print_table(Printed(title, "", tuple(rows[0]), body, left=[*texts, False].index(False)))
        print_line("")
