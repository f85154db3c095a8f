"""fedprior predict: a saved model on new samples."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli.app import app, print_line, warn
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.data.columns import Table
    from fedprior.models.saved import Predictor

PREDICTION = "prediction"  # the column that is added


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model saved by `fedprior export` or result.save.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="New samples: .csv, .tsv, .parquet or .npz.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the predictions there (default: to the terminal).")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each class as a column.")
    ] = False,
    array: Annotated[
        str | None, typer.Option(metavar="NAME", help="The array of samples in an .npz file (default: x).")
    ] = None,
) -> None:
    """Predict the classes of new samples with a saved model, without the data that it was trained on.

    A table needs the columns that the model was trained with, in any order; its
    other columns, such as an id, are kept beside the predictions. Numbers are
    scaled as the training samples were. The output is CSV.

    Examples:

      fedprior predict st-c.safetensors new-patients.csv -o predictions.csv
      fedprior predict client-3.safetensors pictures.npz --probabilities
    """
    from fedprior.models.saved import load

    predictor = load(model)
    table = _read(data, predictor, array)
    chosen = predictor.predict(table.x)
    columns: dict[str, list[Any]] = {**table.others, _free(PREDICTION, table): chosen.tolist()}
    if probabilities:
        each = predictor.predict_proba(table.x)
        columns |= {_free(f"p({name})", table): each[:, k].tolist() for k, name in enumerate(predictor.classes)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    if output is None:
        sys.stdout.write(text.getvalue())
        return
    from fedprior.files import write_text

    write_text(output, text.getvalue())
    print_line(f"{len(chosen)} predictions: {output}")


def _read(data: Path, predictor: Predictor, array: str | None) -> Table:
    """The samples of a file, and what else stands beside them."""
    from fedprior.data.table_file import read_features

    is_npz, columns = data.name.lower().endswith(".npz"), predictor.preparation.columns
    if array is not None and not is_npz:
        raise FedpriorError(f"--array names an array of an .npz file, and {data.name} is none")
    if columns is None and not is_npz:
        raise FedpriorError(
            f"the model was trained on arrays and knows no columns; give its samples as an .npz file, not {data.name}"
        )
    if array is not None or columns is None:
        return read_features(data, [array or "x"])
    table = read_features(data, columns, keep=None)
    if "" in table.others:
        warn(f"{data.name} has a column without a name; it is kept as it is")
    if PREDICTION in table.others:
        warn(
            f"{data.name} has a column '{PREDICTION}' already; it is kept as it is, and the model's predictions are in "
            f"'{_free(PREDICTION, table)}'"
        )
    return table


def _free(name: str, table: Table) -> str:
    """A name that no column of the table has."""
    while name in table.others:
        name += "_"
    return name
