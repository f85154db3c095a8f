"""The mutation check itself: its table fits the sources, and a test that fails for another reason does not count."""

from __future__ import annotations

from pathlib import Path

import mutate
import pytest

from fedprior.methods import METHODS


def test_every_registered_class_has_a_mutation() -> None:
    shipped = {entry.cls for _, entry in METHODS.items() if entry.cls.__module__.startswith("fedprior.")}
    assert {METHODS.find(m.method).cls for m in mutate.table()} == shipped


def test_there_are_at_least_a_hundred() -> None:
    assert len(mutate.table("method") + mutate.table("part")) >= 100


@pytest.mark.parametrize("mutation", mutate.table("method") + mutate.table("part"), ids=str)
def test_every_mutation_fits(mutation: mutate.Mutation) -> None:
    source = (mutate.PACKAGE / mutation.file).read_text()
    assert mutation.plant(source) != source
    file, _, test = mutation.test.partition("::")
    assert f"def {test}" in (mutate.ROOT / file).read_text()


def test_a_mutation_must_match_once() -> None:
    for old, count in (("y + 1", 0), ("x", 2)):
        mutation = mutate.Mutation("m", "f.py", old, "z", "t.py")
        with pytest.raises(ValueError, match=rf"m: .* must occur once in f.py, and occurs {count} times"):
            mutation.plant("x = x - 1\n")


@pytest.mark.slow
def test_only_a_failed_assertion_catches(tmp_path: Path) -> None:
    """On a package and a test of a line each; the copy is imported although fedprior is installed."""
    test = tmp_path / "test_sign.py"
    test.write_text("from fedprior import sign\n\ndef test_sign():\n    assert sign(2) == 1\n")
    (tmp_path / "fedprior").mkdir()
    for body, outcome in (
        ("1 if x > 0 else -1", "SURVIVED"),
        ("1 if x < 0 else -1", "caught"),
        ("1 if y > 0 else -1", "NO ASSERTION (NameError:)"),
    ):
        (tmp_path / "fedprior" / "__init__.py").write_text(f"def sign(x):\n    return {body}\n")
        assert mutate.verdict(*mutate.pytest(tmp_path, str(test))) == outcome
    assert mutate.verdict(1, "E   Failed: DID NOT RAISE <class 'ValueError'>") == "caught"
    assert mutate.verdict(1, "E   Failed: Timeout") == "NO ASSERTION (Failed:)"
    assert mutate.verdict(2, "E   ImportError: no sign") == "NO ASSERTION (ImportError:)"
    with pytest.raises(RuntimeError, match=r"would import .* and not the copy"):
        mutate.pytest(tmp_path / "nothing", str(test))
