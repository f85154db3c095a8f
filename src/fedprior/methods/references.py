"""What a method's card tells besides its settings: the steps of a round, and how to cite the paper."""

from __future__ import annotations

import inspect
import re
from importlib import resources

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


def entries() -> dict[str, str]:
    """All entries of references.bib, by key."""
    text = resources.files("fedprior.methods").joinpath("references.bib").read_text(encoding="utf-8")
    return {
        re.split("[{,]", entry)[1]: entry.strip() for entry in re.split(r"^(?=@)", text, flags=re.M) if entry.strip()
    }


def bibtex(cls: type[Method]) -> str:
    """The BibTeX entry of a method's paper; empty for a method that cites none.

    >>> from fedprior.methods.local import Local
    >>> bibtex(Local)
    ''
    """
    known = entries()
    if cls.cites and cls.cites not in known:
        raise unknown("reference", cls.cites, known)
    return known.get(cls.cites, "")
