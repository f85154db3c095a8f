"""Kill studies at random moments, resume them, and compare with one that was left alone.

    python tests/kill_run.py 20

kills twenty studies (of two seeds each), each in another way, half of them run from the command line and half from Python,
and says of each whether the resumed one ended with the same bytes. The tests use the same functions.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROUNDS, SEEDS = 6, (0, 1)
SETTINGS = {"rounds": ROUNDS, "R": 2, "K": 2, "pooled": "never", "metrics": [], "validation": 0.2}
SET = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
COMMAND = (
    "run",
    "digits-mclr",
    "-m",
    "mh",
    "--no-local",
    "--seeds",
    str(len(SEEDS)),
    *SET,
    "--checkpoint-seconds",
    "0",
)
PYTHON = f"""
import sys, fedprior as fp
study = fp.Study("digits-mclr", ["mh"], local=False, seeds={SEEDS}, **{SETTINGS})
study.run(sys.argv[2], resume="--resume" in sys.argv, checkpoint_seconds=0)
"""


class Blow(NamedTuple):
    """When a run is hit: at the ``nth`` moment ``where`` of replacing a file, or ``delay`` after its first files.

    ``torn`` cuts the half-written file in two first, as a kill in the middle of the write would.
    """

    where: str  # written (not yet renamed), renamed, or delay
    nth: int = 1
    delay: float = 0.0
    only: str = "round-"  # of files with this in their names ("" for all)
    torn: bool = False
    signals: tuple[int, ...] = (int(signal.SIGKILL),)

    def __str__(self) -> str:
        if self.where == "delay":
            return f"{self.delay:.2f} s after the start"
        state = "half of" if self.torn else "all of"
        moment = f"{state} it written, not renamed" if self.where == "written" else "right after the rename"
        return f"file {self.nth} of '{self.only}*', {moment}"


def strike(blow: Blow) -> None:
    """In the process to be hit: lie in wait."""
    from fedprior import files

    met = 0

    def moment(where: str, path: Path) -> None:
        nonlocal met
        if where != blow.where or blow.only not in path.name:
            return
        met += 1
        if met == blow.nth:
            if blow.torn:
                (half,) = path.parent.glob(f"{path.name}.*.tmp")
                os.truncate(half, half.stat().st_size // 2)
            for number in blow.signals:
                os.kill(os.getpid(), number)

    files.moment = moment


def start(
    out: Path, blow: Blow | None = None, resume: bool = False, python: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the study in a process of its own, by the command line or from Python, to its end or to the blow."""
    code = PYTHON if python else "import fedprior.cli; fedprior.cli.main()"
    if blow is not None and blow.where != "delay":
        code = f"import kill_run; kill_run.strike(kill_run.{blow!r})\n{code}"
    arguments = [*(() if python else COMMAND), "--out", str(out), *(["--resume"] if resume else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    if blow is not None and blow.where == "delay":
        while process.poll() is None and not folder(out).joinpath("config.json").exists():
            time.sleep(0.005)
        time.sleep(blow.delay)
        process.kill()
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def folder(out: Path, seed: int = 0) -> Path:
    return out / "digits-mclr" / "mh" / str(seed)


def outcome(out: Path) -> dict[str, bytes]:
    """What must be the same to the last byte, however often the study was killed."""
    names = ["config.json", "status.json", "metrics.csv", "clients.csv", f"checkpoints/round-{ROUNDS:08d}.safetensors"]
    files = [folder(out, seed) / name for seed in SEEDS for name in names]
    files += [path for seed in SEEDS for path in (folder(out, seed) / "checkpoints").glob("best-*")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def duration(out: Path) -> float:
    """Seconds between the first and the last file of a finished study."""
    first, last = folder(out, SEEDS[0]) / "config.json", folder(out, SEEDS[-1]) / "status.json"
    return last.stat().st_mtime - first.stat().st_mtime


def checkpoints(out: Path) -> list[str]:
    """The files of states, as ``<seed>/<file>``."""
    return [
        f"{seed}/{path.name}" for seed in SEEDS for path in sorted((folder(out, seed) / "checkpoints").glob("round-*"))
    ]


def blows(count: int, rng: random.Random, seconds: float) -> list[Blow]:
    """Kills of all kinds in turn, each at a random moment; a study takes ``seconds``."""
    chosen = []
    for k in range(count):
        at = rng.randint(1, ROUNDS * len(SEEDS))
        kinds = [
            Blow("written", at),
            Blow("renamed", at),
            Blow("delay", delay=rng.uniform(0, seconds)),
            Blow("written", at, torn=True),
            Blow("written", rng.randint(1, 2), only="best-", torn=rng.random() < 0.5),
            Blow("renamed", rng.randint(1, 2), only="best-"),
            Blow("written", rng.randint(1, (ROUNDS + 2) * len(SEEDS)), only="", torn=rng.random() < 0.5),
        ]
        chosen.append(kinds[k % len(kinds)])
    return chosen


def main(count: int) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        alone = Path(scratch) / "alone"
        for out in (Path(scratch) / "warm", alone):  # the first one fills the compilation cache
            done = start(out)
            assert done.returncode == 0, done.stderr
        reference, seconds = outcome(alone), duration(alone)
        for k, blow in enumerate(blows(count, random.Random(), seconds), start=1):
            out = Path(scratch) / str(k)
            python = k % 2 == 0
            killed = start(out, blow, python=python)
            left = checkpoints(out)
            resumed = start(out, resume=True, python=python)
            hit = killed.returncode == -signal.SIGKILL
            ok = (hit or blow.where == "delay") and resumed.returncode == 0 and outcome(out) == reference
            failures += not ok
            how = "killed" if hit else f"ended with {killed.returncode} before"
            print(
                f"{k:3d}  {how}: {blow}; left: {', '.join(left) or 'nothing'}; {'identical' if ok else 'FAILED'}",
                flush=True,
            )
            if not ok:
                print(killed.stderr, resumed.stderr)
    print(f"{count - failures} of {count} resumed studies are identical to the one that was left alone")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
