"""What is valid in a row's settings but may not be meant."""

from __future__ import annotations

from fedprior.core.hyper import hypers, without_effect
from fedprior.study.program import Program
from fedprior.study.settings import Protocol
from fedprior.wrappers import WRAPPERS, in_force


def remarks_on(program: Program) -> list[str]:
    """The settings of a row that do nothing, and what is left out by default, one sentence each."""
    name, method, wrappers = program.variant.name, program.method, program.variant.wrappers
    texts = []
    if program.protocol.budget is not None and program.rounds_by_budget is None:
        (kind,) = program.protocol.budget.model_dump()
        texts.append(f"{name} uses none of the {kind} budget, so it runs the protocol's {program.rounds} rounds")
    if program.protocol.pooled is None and program.pooled == "never":
        texts.append(
            f"the personal models of {program.task.federation.n_clients:,} clients are not scored on the pooled test, which "
            "would take long; set pooled=last to score them anyway"
        )
    for key in wrappers.keys() - in_force(program.scored_wrappers, method).keys():
        whole, default = WRAPPERS.find(key).part_of, WRAPPERS.find(key).default
        if whole is not None and wrappers[key] != default:
            texts.append(f"{name}: {key} does nothing without {whole}")
    if not method.weighted and program.protocol.weights != Protocol.model_fields["weights"].default:
        texts.append(
            f"{name}: weights = {program.protocol.weights} does nothing, since its server does not weigh clients"
        )
    about = hypers(method)
    for key, why in without_effect(method).items():
        if about[key].lacks(method) is None:
            texts.append(f"{name}: {key} = {about[key].inert:g} is valid, but switches off what {key} controls")
        elif key in program.variant.settings:
            texts.append(f"{name}: {why}, so that here it does nothing")
    return texts
