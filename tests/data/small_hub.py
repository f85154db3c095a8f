"""A small copy of the hub's layout that stands for the real data: pictures, writers, tweets and word vectors."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PIXELS = np.random.default_rng(0).integers(0, 256, (16, 28, 28)).astype(np.uint8)
LABELS = np.arange(16) % 10
WRITERS = ["w9", "w9", "w2", "w2"] * 4
TWEETS = ["Good day , good!", "bad DAY", "zzzunknown good", " ".join(["good"] * 40)]


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write(folder: Path, split: str, columns: Mapping[str, Any], pictures: str | None = None) -> Path:
    """A parquet file as the hub has it: picture columns hold PNG bytes and say so in the metadata."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = dict(columns)
    if pictures:
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        columns[pictures] = pa.array([{"bytes": content, "path": None} for content in columns[pictures]], kind)
    table = pa.table(columns)
    features = {name: {"dtype": str(table.schema.field(name).type), "_type": "Value"} for name in columns}
    if pictures:
        features[pictures] = {"_type": "Image"}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}-00000-of-00001.parquet"
    pq.write_table(table, path)
    return path


def write_all(root: Path) -> None:
    """Small mnist, femnist and sent140, and a file of GloVe vectors."""
    for name, label in (("mnist", "label"), ("femnist", "character")):
        for split, rows in (("train", slice(0, 12)), ("test", slice(12, 16))):
            columns = {"image": [png(p) for p in PIXELS[rows]], label: LABELS[rows], "writer_id": WRITERS[rows]}
            write(root / name, split, columns, "image")
    write(root / "sent140", "train", {"text": TWEETS, "user": ["b", "a", "b", "c"], "sentiment": [1, 0, 1, 1]})
    (root / "glove").mkdir()
    glove = "good 1 2\nday 3 4\n, 5 6\nbad 7 8\nnever 9 9\n"
    (root / "glove" / "glove.6B.2d.txt.gz").write_bytes(gzip.compress(glove.encode()))


def cache_entries(root: Path) -> list[Path]:
    return sorted((root.parent / "cache").iterdir())
