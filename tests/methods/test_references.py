"""Methods and the papers they cite: one key each, and the same title, author and year wherever they stand."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from fedprior.core.method import Method
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.references import bibtex, entries, pseudocode

CLASSES = sorted({entry.cls for _, entry in METHODS.items()}, key=lambda cls: cls.__name__)
CITING = [cls for cls in CLASSES if cls.cites]


def field(entry: str, name: str) -> str:
    """A field of an entry without its braces."""
    found = re.search(rf"^ *{name} *= \{{(.*)\}},?$", entry, re.M)
    assert found, f"{name} is missing in {entry}"
    return re.sub(r"[{}]", "", found[1])


def test_every_entry_is_of_a_method_and_every_method_but_local_has_one() -> None:
    assert {cls.cites for cls in CITING} == set(entries())
    assert [cls.__name__ for cls in CLASSES if not cls.cites] == ["Local"]


@pytest.mark.parametrize("cls", CITING, ids=lambda cls: cls.__name__)
def test_an_entry_tells_the_same_as_the_method(cls: type[Method]) -> None:
    entry = bibtex(cls)
    first = field(entry, "author").split(" and ")[0].split(",")[0].split()[-1]
    assert f"{first} et al., " in cls.paper
    assert cls.paper.endswith(field(entry, "year"))
    told = re.sub(r"\s+", " ", inspect.getdoc(inspect.getmodule(cls)) or "")
    title = re.search(r'"([^"]+)"', told)
    assert title
    assert title[1].casefold() in field(entry, "title").casefold()
    venue = re.search(r"et al., (\w+) \d{4}", cls.paper)
    assert venue is None or venue[1] in entry


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_card_has_its_round_and_what_is_solved(cls: type[Method]) -> None:
    steps = pseudocode(cls)
    assert "<-" in steps
    assert "et al." not in steps  # the paper is named in the paragraph above
    for one, other in ("{}", "()", "[]"):
        assert cls.objective.count(one) == cls.objective.count(other)
    others = [other.objective for other in CLASSES if other is not cls]
    assert cls.objective not in ("", *others)  # not that of the class that it inherits from


def test_a_key_that_is_not_there_is_named() -> None:
    class Mine(FedAvg):
        cites = "mcmahan2017"

    Mine.__module__ = FedAvg.__module__  # as if it were shipped
    with pytest.raises(FedpriorError, match=r"unknown reference 'mcmahan2017'.*did you mean 'mcmahan2017fedavg'"):
        bibtex(Mine)


def test_a_method_of_ones_own_cites_what_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_method.py").write_text(
        "from fedprior.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    cites = 'me2026'\n"
        "class Same(FedAvg):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("my_own_method")
    assert bibtex(mine.Mine) == ""
    assert bibtex(mine.Same) == bibtex(FedAvg)
    (tmp_path / "references.bib").write_text("@misc{me2026,\n  title = {Mine}\n}\n")
    assert bibtex(mine.Mine) == "@misc{me2026,\n  title = {Mine}\n}"
    mine.Mine.cites = "you2027"
    (tmp_path / "references.bib").write_text("% mine\n\n@misc{me2026,\n}\n\n  @misc{ you2027 ,\n}\n", encoding="utf-8")
    assert bibtex(mine.Mine) == "@misc{ you2027 ,\n}"
    mine.Mine.cites = "me2062"
    with pytest.raises(FedpriorError, match=r"unknown reference 'me2062'.*did you mean 'me2026'"):
        bibtex(mine.Mine)
    mine.Mine.__module__ = "typed.in"
    assert bibtex(mine.Mine) == ""
