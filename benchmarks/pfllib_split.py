"""Write the split of a task in the layout that PFLlib reads, so that both can be timed and compared on the same samples.

    python benchmarks/pfllib_split.py mnist-mclr ../PFLlib/dataset/MNIST

makes train/0.npz, test/0.npz, ... (a dictionary of x and y for each client, in the order of fedprior's clients) and
config.json. benchmarks/peers.md has the commands to time both sides.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import fedprior as fp
from fedprior.data.federation import Samples
from fedprior.files import replace_file, write_json


def client(samples: Samples, i: int, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """What client i holds; images of one row become images again."""
    part = slice(samples.start[i], samples.start[i] + samples.size[i])
    x = np.asarray(samples.x)[part]
    return {"x": x if shape is None else x.reshape(len(x), *shape), "y": np.asarray(samples.y)[part].astype(np.int64)}


def write(path: Path, content: dict[str, Any]) -> None:
    """One client's file. PFLlib reads a dictionary out of it with NumPy's pickle, which fedprior itself never does."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            np.savez_compressed(stream, data=np.array(content, dtype=object))

    replace_file(path, save)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="a task of fedprior, such as mnist-mclr")
    parser.add_argument("folder", type=Path, help="PFLlib's folder for the data set, new or empty")
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()):
        raise SystemExit(f"{options.folder} is not empty; name a new folder")
    federation = fp.task(options.task).federation
    pixels = int(np.prod(federation.train.x.shape[1:]))
    shape = (1, 28, 28) if pixels == 784 else None  # its models for MNIST flatten images themselves
    for part in ("train", "test"):
        samples = getattr(federation, part)
        for i in range(federation.n_clients):
            write(options.folder / part / f"{i}.npz", client(samples, i, shape))
    about = {"num_clients": federation.n_clients, "num_classes": federation.n_classes}
    write_json(options.folder / "config.json", {**about, "made_by": f"fedprior, task {options.task}"})
    print(f"{federation.n_clients} clients in {options.folder}")


if __name__ == "__main__":
    main()
