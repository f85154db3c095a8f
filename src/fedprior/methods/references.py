"""What a method's card tells besides its settings: the steps of a round, and how to cite the paper."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from fedprior.core.method import Method
from fedprior.errors import unknown


def pseudocode(cls: type[Method]) -> str:
    """One round of a method: the docstring of its module without the first paragraph, which names the paper.

    >>> from fedprior.methods.fedavg import FedAvg
    >>> print(pseudocode(FedAvg))
    client:  w_i <- w_i - alpha grad f_i(w_i; B),  R times from the received w
    server:  w <- sum_i p_i w_i
    """
    told = inspect.getdoc(inspect.getmodule(cls)) or ""
    return inspect.cleandoc("\n" + told.partition("\n\n")[2])


SHIPPED = Path(__file__).with_name("references.bib")


def entries(file: Path = SHIPPED) -> dict[str, str]:
    """All entries of a file of BibTeX, by key; what is written before the first of them is a remark."""
    text = file.read_text(encoding="utf-8")
    parts = re.split(r"^\s*(?=@)", text, flags=re.M)
    return {key[1]: part.strip() for part in parts if (key := re.match(r"@\w+\s*\{\s*([^\s,}]+)", part))}


def bibtex(cls: type[Method]) -> str:
    """The BibTeX entry of a method's paper; empty for a method that cites none.

    A class of one's own may cite what shipped methods do, and what is in a references.bib beside its own file; without
    such a file its key is taken for a remark.

    >>> from fedprior.methods.local import Local
    >>> bibtex(Local)
    ''
    """
    beside = _references_beside(cls)
    known = entries() if beside is None else {**entries(), **entries(beside)}
    if cls.cites and cls.cites not in known and beside is not None:
        raise unknown("reference", cls.cites, known)
    return known.get(cls.cites, "")


def _references_beside(cls: type[Method]) -> Path | None:
    """The references.bib beside the file of a class, if there is one."""
    try:
        beside = Path(inspect.getfile(cls)).with_name("references.bib")
    except (TypeError, OSError):  # typed in at a prompt
        return None
    return beside if beside.is_file() else None
