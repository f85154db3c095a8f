"""Do the tests notice? Plants each error of mutations.toml in a copy of the package and requires a failed assertion.

python tests/mutate.py [METHOD ...]    all mutations, or those of the named methods; exits with 1 if any survives
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fedprior"
WORKERS = 2


@dataclass(frozen=True)
class Mutation:
    method: str
    file: str
    old: str
    new: str
    test: str

    def plant(self, source: str) -> str:
        """The source of the file with the error in it."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self}: the old text must occur once in {self.file}, and occurs {count} times")
        return source.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.method}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def table(path: Path = ROOT / "tests" / "mutations.toml") -> list[Mutation]:
    return [Mutation(**entry) for entry in tomllib.loads(path.read_text())["mutation"]]


def copy_package(folder: Path) -> Path:
    """A copy of the package's source below ``folder``."""
    return shutil.copytree(PACKAGE, folder / "fedprior", ignore=shutil.ignore_patterns("__pycache__"))


def pytest(folder: Path, *tests: str) -> tuple[int, str]:
    """Run tests against the copy in ``folder``: pytest's exit code and its report."""
    run = partial(
        subprocess.run,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,  # an error that makes a loop endless must not hold up the rest
    )
    where = run([sys.executable, "-c", "import importlib.util as u; print(u.find_spec('fedprior').origin)"]).stdout
    if not Path(where.strip()).is_relative_to(folder):
        raise RuntimeError(f"the tests would import {where.strip()!r} and not the copy in {folder}")
    ran = run([sys.executable, "-m", "pytest", "-x", "--tb=short", *tests])
    return ran.returncode, ran.stdout + ran.stderr


def verdict(code: int, report: str) -> str:
    """ "caught" only by a failed assertion: a crash says nothing about what a test compares."""
    if code == 0:
        return "SURVIVED"
    failed = re.search(r"^E +(\S+)", report, re.MULTILINE)
    if code == 1 and failed and failed[1] in ("assert", "AssertionError", "AssertionError:"):
        return "caught"
    return f"NO ASSERTION ({failed[1] if failed else f'exit code {code}'})"


def attempt(mutation: Mutation) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = copy_package(Path(folder)) / mutation.file
        file.write_text(mutation.plant(file.read_text()))
        try:
            return verdict(*pytest(Path(folder).resolve(), mutation.test))
        except subprocess.TimeoutExpired:
            return "NO ASSERTION (it did not end)"


def main(methods: Sequence[str]) -> int:
    chosen = [m for m in table() if not methods or m.method in methods]
    if missing := set(methods) - {m.method for m in chosen}:
        print(f"no mutation of {', '.join(sorted(missing))}", file=sys.stderr)
        return 2
    for mutation in chosen:  # an entry that does not fit is found before anything runs
        mutation.plant((PACKAGE / mutation.file).read_text())
    with tempfile.TemporaryDirectory() as folder:  # without an error, all must be green
        copy_package(Path(folder))
        code, report = pytest(Path(folder).resolve(), *sorted({m.test for m in chosen}))
    if code != 0:
        print(report, "the tests fail without any mutation", sep="\n", file=sys.stderr)
        return 2
    survived = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for mutation, outcome in zip(chosen, pool.map(attempt, chosen), strict=True):
            survived += outcome != "caught"
            print(f"{outcome:9} {mutation}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations caught")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
