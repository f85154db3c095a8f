"""What the documentation writes from the code: cards of methods, the command line, the changelog; and what it refuses."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fedprior.cli import app
from fedprior.core.hyper import hypers
from fedprior.methods import METHODS, make
from fedprior.methods.references import bibtex

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the site's extensions by name."""
    monkeypatch.syspath_prepend(DOCS / "_ext")
    return importlib.import_module


def test_every_method_has_a_card(extension: Any) -> None:
    found = extension("cards").papers()
    assert sorted(name for names in found.values() for name in names) == sorted(METHODS)
    assert found["perfedavg"] == ["perfedavg", "perfedavg-hf"]


def test_a_card_tells_all_that_there_is(extension: Any) -> None:
    text = extension("cards").card(["ditto"])
    cls = METHODS.find("ditto").cls
    assert "# Ditto\n" in text
    for told in (cls.objective, bibtex(cls), "server:                         w <- sum_i p_i w_i", "-m ditto"):
        assert told in text
    for key, about in hypers(make("ditto")).items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{key}` "))
        assert f"`{getattr(make('ditto'), key)}`" in row
        assert about.source in row  # lam's too, which the name presets to what its source says
    assert "| `ditto` | `model` 1 D | `model` 1 D | `model` 1 D | 40 | 0 |" in text


def test_a_card_of_several_names_says_what_each_stands_for(extension: Any) -> None:
    text = extension("cards").card(["fedamp", "heurfedamp"])
    assert "FedAMP:\n\n$$" in text
    assert "HeurFedAMP:\n\n$$" in text
    assert "`xi`" in text
    settings = extension("cards")._settings("lg", METHODS.find("lg").preset)
    assert "- `mh-released` stands for `mean=mh`, `order=released`." in settings
    assert re.search(r"^\| `mean` \| `lg` \|.*the method's name", settings, re.M)


def test_cards_are_written_once_and_again_when_the_code_is_newer(
    extension: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = extension("cards")
    asked: list[list[str]] = []

    def card(names: list[str]) -> str:
        asked.append(names)
        return f"---\nfront: matter\n---\n\n# {names[0]}\n"

    monkeypatch.setattr(cards, "card", card)
    cards.generate(tmp_path / "cards")
    assert len(asked) == len(cards.papers()) == len(list((tmp_path / "cards").glob("*.md"))) - 1
    assert "| [ditto](ditto.md) | `ditto` | Li et al., ICML 2021 | all |" in (tmp_path / "cards/index.md").read_text()
    cards.generate(tmp_path / "cards")
    assert len(asked) == len(cards.papers())
    os.utime(tmp_path / "cards/index.md", (1, 1))
    cards.generate(tmp_path / "cards")
    assert len(asked) == 2 * len(cards.papers())


def test_the_command_line_is_on_its_page(extension: Any) -> None:
    text = extension("commands").page()
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        inner = getattr(command, "commands", {"": command})
        for sub, each in inner.items():
            title = f"fedprior {name} {sub}".strip()
            section = text.partition(f"# {title}\n")[2].partition("\n#")[0]
            assert section, title
            for option in each.params:
                if option.param_type_name == "option" and not getattr(option, "hidden", False):
                    assert f"`{option.opts[0]}`" in section, f"{title} {option.opts[0]}"
    assert "| `--seeds` `INTEGER RANGE` |" in text
    assert "fedprior run [OPTIONS] TASK" in text
    assert "| `TASK` | A task (see `fedprior tasks`) or a TOML file of your own. |" in text
    assert "```sh\nfedprior run digits-mclr --seeds 3\n" in text


def test_the_changelogs_links_lead_from_its_page(extension: Any) -> None:
    page = extension("changelog").page
    assert page("[a](docs/your-data.md) and [b](docs/results)", DOCS) == (
        "[a](../your-data.md) and [b](../results/index.md)"
    )


def test_text_in_a_table_is_no_markup(extension: Any) -> None:
    pages = extension("pages")
    assert pages.cell("a|b\n*c*  <d>") == r"a\|b \*c\* \<d>"
    assert pages.table(["x", "n"], [["a", "1"]], numbers=1) == "| x | n |\n| --- | ---: |\n| a | 1 |\n"


def test_what_a_page_would_fetch_is_found(extension: Any) -> None:
    pytest.importorskip("sphinx")
    loads = extension("promises").loads
    for text in (
        '<script async src="https://cdn.example/mathjax.js"></script>',
        "<img alt='x' src='//example/x.png'>",
        '<link rel="stylesheet" type="text/css" href="https://fonts.example/a.css">',
        "@font-face { src: url('https://fonts.example/a.woff2') }",
        '@import "https://example/a.css";',
    ):
        assert len(loads(f"before {text} after")) == 1, text
    for text in (
        '<a href="https://flower.ai">Flower</a>',
        '<script src="_static/x.js"></script>',
        "url(../fonts/a.woff2)",
    ):
        assert loads(text) == []
