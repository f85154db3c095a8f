"""Do the tests notice? Plants each error of mutations.toml in a copy of the package and requires a failed assertion.

python tests/mutate.py [NAME ...]    all mutations, or those of the named methods and parts; exits with 1 if any survives
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fedprior"
WORKERS = 2
SECONDS = 600  # an error that makes a loop endless must not hold up the rest
# What tests import besides the package. A server imports it once, and every run of pytest is a process that it forks:
# a second each, instead of three. JAX only starts in the fork, with the devices and flags of the tests.
PRELOADED = ["equinox", "hypothesis", "mpmath", "optax", "pytest", "scipy.stats", "sklearn.metrics"]
FORKS = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Mutation:
    part: str  # of the library; the registered name where it is a method
    file: str
    old: str
    new: str
    test: str

    @property
    def method(self) -> str:
        """The part, of an error in a method."""
        return self.part

    def plant(self, source: str) -> str:
        """The source of the file with the error in it."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self}: the old text must occur once in {self.file}, and occurs {count} times")
        return source.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.part}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def table(of: str = "method", path: Path = ROOT / "tests" / "mutations.toml") -> list[Mutation]:
    """The errors in methods, or those in the other parts of the library (``of`` = "part")."""
    entries = tomllib.loads(path.read_text())["mutation"]
    if lost := [entry for entry in entries if not {"method", "part"} & set(entry)]:
        raise ValueError(f"a mutation must name a method or a part: {lost[0]}")
    return [Mutation(part=entry.pop(of), **entry) for entry in entries if of in entry]


def copy_package(folder: Path) -> Path:
    """A copy of the package's source below ``folder``."""
    return shutil.copytree(PACKAGE, folder / "fedprior", ignore=shutil.ignore_patterns("__pycache__"))


def pytest(folder: Path, *tests: str) -> tuple[int, str]:
    """Run tests against the copy in ``folder``, in a process of its own: pytest's exit code and its report."""
    with tempfile.TemporaryDirectory() as results:
        code, report = Path(results, "code"), Path(results, "report")
        process = FORKS.Process(target=_session, args=(folder, tests, code, report))
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError
        said = report.read_text(errors="replace") if report.exists() else ""
        if said.startswith("would import"):
            raise RuntimeError(f"the tests {said}")
        # Not the process' own exit code: two threads that wait for their processes may take it from each other.
        return int(code.read_text()) if code.exists() else -1, said


def _session(folder: Path, tests: Sequence[str], code: Path, report: Path) -> None:
    """What the forked process does: pytest, as from a shell in which PYTHONPATH is the folder."""
    with report.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    # As `make test` compiles: nearly all of a run's time is compiling.
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
    os.environ.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1", XLA_FLAGS=flags)
    found = importlib.util.find_spec("fedprior")
    if found is None or found.origin is None or not Path(found.origin).is_relative_to(folder):
        report.write_text(f"would import {found and found.origin!r} and not the copy in {folder}")
        return
    import pytest

    # Preloaded plugins (Hypothesis, jaxtyping) come too late for pytest to rewrite their own assertions, which is as well.
    ended = pytest.main(["-x", "--tb=short", "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests])
    sys.stdout.flush()
    code.write_text(str(int(ended)))


def verdict(code: int, report: str) -> str:
    """ "caught" only by a failed assertion, or by an error that a test asks for and does not get: a crash says nothing about
    what a test compares.
    """
    if code == 0:
        return "SURVIVED"
    failed = re.search(r"^E +(Failed: DID NOT RAISE|\S+)", report, re.MULTILINE)
    if code == 1 and failed and failed[1] in ("assert", "AssertionError", "AssertionError:", "Failed: DID NOT RAISE"):
        return "caught"
    return f"NO ASSERTION ({failed[1] if failed else f'exit code {code}'})"


def attempt(mutation: Mutation) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = copy_package(Path(folder)) / mutation.file
        file.write_text(mutation.plant(file.read_text()))
        try:
            return verdict(*pytest(Path(folder).resolve(), mutation.test))
        except TimeoutError:
            return "NO ASSERTION (it did not end)"


def without_any(tests: Sequence[str]) -> tuple[int, str]:
    """The tests on a copy without an error, which must all be green."""
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        return pytest(Path(folder).resolve(), *tests)


def main(names: Sequence[str]) -> int:
    chosen = [m for m in table("method") + table("part") if not names or m.part in names]
    if missing := set(names) - {m.part for m in chosen}:
        print(f"no mutation of {', '.join(sorted(missing))}", file=sys.stderr)
        return 2
    for mutation in chosen:  # an entry that does not fit is found before anything runs
        mutation.plant((PACKAGE / mutation.file).read_text())
    FORKS.set_forkserver_preload(PRELOADED)
    survived = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        green = pool.submit(without_any, sorted({m.test for m in chosen}))
        outcomes = pool.map(attempt, chosen)
        code, report = green.result()
        if code != 0:
            pool.shutdown(cancel_futures=True)
            print(report, "the tests fail without any mutation", sep="\n", file=sys.stderr)
            return 2
        for mutation, outcome in zip(chosen, outcomes, strict=True):
            survived += outcome != "caught"
            print(f"{outcome:9} {mutation}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations caught")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
