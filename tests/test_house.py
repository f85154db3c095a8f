"""The architecture: which folder may import which, no circles, small files, nothing written twice."""

from __future__ import annotations

import ast
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedprior

PACKAGE = Path(fedprior.__file__).parent
TOP = {"errors", "registry", "files"}
# What each room may import besides itself. "records.schema" stands for one file of a room.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "registry": TOP,
    "files": TOP,
    "records": TOP,
    "core": TOP,
    "models": {*TOP, "core", "data.preparation", "records.checkpoint"},  # for saving them
    "data": {*TOP, "core"},
    "priors": {*TOP, "core"},
    "methods": {*TOP, "core", "priors"},
    "wrappers": {*TOP, "core"},
    "engine": {*TOP, "core", "models", "data", "records.schema"},
    "analysis": {*TOP, "records"},
    "report": {*TOP, "records", "analysis", "data.partitions"},
}
MAY_IMPORT["study"] = {*MAY_IMPORT, "study"}
MAY_IMPORT["reproduce"] = {*MAY_IMPORT}
MAY_IMPORT["flower"] = {*MAY_IMPORT}
MAY_IMPORT["cli"] = {*MAY_IMPORT, "__init__"}
MAY_IMPORT["__init__"] = {*MAY_IMPORT} - {"cli"}
MAY_IMPORT["__main__"] = {"cli"}
# Packages that a room imports at the top of its files; anything heavier is imported inside functions.
PACKAGES: dict[str, set[str]] = {
    **{name: {"numpy"} for name in TOP},
    "__init__": set(),
    "__main__": set(),
    "records": {"numpy"},
    "analysis": {"numpy"},
    "report": {"numpy"},
    "cli": {"typer", "click", "rich"},
    "flower": {"jax", "equinox", "numpy", "pydantic", "safetensors", "flwr"},
}
EXCEPTIONS = {"records.checkpoint": {"jax", "safetensors"}, "data.view": {"jax"}}
JAX = {"jax", "equinox", "optax", "numpy", "scipy", "pydantic"}


def modules(package: Path) -> dict[str, Path]:
    """All modules by their names below the package: core.method, study (for its __init__), __init__ for the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = list(path.relative_to(package).with_suffix("").parts)
        if len(parts) > 1 and parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> Iterator[tuple[str, bool, bool]]:
    """What a module imports: the name, whether it is of this package, and whether it is so only for types."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    package = [] if name == "__init__" else name.split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        types = id(node) in for_types
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ["fedprior", *package[: len(package) - node.level + 1]]
                start = ".".join([*base, *([node.module] if node.module else [])])
            else:
                start = node.module or ""
            for alias in node.names:
                longer = f"{start}.{alias.name}".removeprefix("fedprior.")
                targets.append(f"fedprior.{longer}" if start.startswith("fedprior") and longer in known else start)
        for target in targets:
            own = target == "fedprior" or target.startswith("fedprior.")
            yield (target.removeprefix("fedprior").removeprefix(".") or "__init__") if own else target, own, types


def room(module: str) -> str:
    return module.split(".")[0]


def allowed(source: str, target: str) -> bool:
    may = MAY_IMPORT[room(source)]
    return (
        room(source) == room(target)
        or room(target) in may
        or any(target == entry or target.startswith(f"{entry}.") for entry in may if "." in entry)
    )


def violations(package: Path) -> list[str]:
    """Imports that go up, rooms that are not known, and circles."""
    found, files = [], modules(package)
    edges: dict[str, set[str]] = {}
    for name, path in files.items():
        if room(name) not in MAY_IMPORT:
            found.append(f"{name}: '{room(name)}' is no room of the house")
            continue
        for target, own, types in imports(name, path, set(files)):
            if not own:
                continue
            if room(target) not in MAY_IMPORT or (target not in files and room(target) not in files):
                found.append(f"{name} imports {target}, which is no module of the house")
            elif not allowed(name, target):
                found.append(f"{name} may not import {target}")
            elif not types and target != name:
                edges.setdefault(name, set()).add(target)
    return found + [f"a circle: {' -> '.join(circle)}" for circle in circles(edges)]


def circles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> Iterator[list[str]]:
        if node in path:
            yield [*path[path.index(node) :], node]
            return
        if node in done:
            return
        for target in sorted(edges.get(node, ())):
            yield from visit(target, [*path, node])
        done.add(node)

    for start in sorted(edges):
        yield from visit(start, [])


def test_folders_import_only_from_those_above_them() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("core/vectors.py", "import fedprior.engine.engine", "core.vectors may not import engine.engine"),
        ("methods/fedavg.py", "from fedprior import study", "methods.fedavg may not import study"),
        ("analysis/series.py", "from ..engine import metrics", "analysis.series may not import engine.metrics"),
        ("engine/round.py", "from fedprior.engine import walk, engine", "a circle: engine."),
        (
            "engine/metrics.py",
            "def f():\n    from fedprior.records import runs",
            "engine.metrics may not import records.runs",
        ),
        ("records/runs.py", "import fedprior", "records.runs may not import __init__"),
        ("attic/old.py", "import numpy", "attic.old: 'attic' is no room of the house"),
        ("engine/walk.py", "from fedprior.attic import old", "engine.walk imports attic, which is no module"),
    ],
    ids=["absolute", "from the package", "relative", "circle", "inside a function", "root", "unknown room", "unknown"],
)
def test_a_planted_import_is_found(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    package = tmp_path / "fedprior"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.toml"))
    path = package / file
    path.parent.mkdir(exist_ok=True)
    text = path.read_text() if path.exists() else ""
    head = "from __future__ import annotations\n"
    path.write_text(text.replace(head, f"{head}\n{line}\n", 1) if head in text else f"{line}\n")
    assert any(found.startswith(complaint) for found in violations(package)), violations(package)


def test_heavy_packages_are_imported_where_they_are_needed() -> None:
    for name, path in modules(PACKAGE).items():
        light = EXCEPTIONS.get(name, set()) | PACKAGES.get(room(name), JAX)
        tree = ast.parse(path.read_text())
        for node in tree.body:  # the top level alone
            targets = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                targets = [node.module or ""]
            for target in targets:
                first = target.split(".")[0]
                if first not in ("fedprior", "__future__") and not _standard(first):
                    assert first in light, f"{name} imports {target} at its top"


def _standard(name: str) -> bool:
    import sys

    return name in sys.stdlib_module_names


def test_no_file_is_long() -> None:
    long = {name: n for name, path in modules(PACKAGE).items() if (n := len(path.read_text().splitlines())) > 300}
    assert long == {}


def test_no_method_repeats_another() -> None:
    """No six lines in a row stand in two method files, imports, comments and blank lines aside."""
    seen: dict[tuple[str, ...], str] = {}
    for path in sorted((PACKAGE / "methods").glob("*.py")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        code = [line for line in lines if line and not line.startswith(("#", "from ", "import "))]
        for k in range(len(code) - 5):
            run = tuple(itertools.islice(code, k, k + 6))
            assert seen.setdefault(run, path.name) == path.name, f"{path.name} repeats {seen[run]}: {run}"
