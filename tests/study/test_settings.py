"""Settings: where each goes, what is refused, and the tasks that ship with fedprior."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from program import fedprior

import fedprior as fp
from fedprior import methods
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS
from fedprior.study.assignment import format_value, parse_assignment
from fedprior.study.file import read_study
from fedprior.study.program import method_for
from fedprior.study.settings import (
    BESIDE,
    Protocol,
    TaskFile,
    TaskSettings,
    change_protocol,
    parse,
    read,
    read_task,
    task_names,
)
from fedprior.study.study import Study
from fedprior.study.task import open_task
from fedprior.study.variant import Variant
from study.small import small_task

MINE: dict[str, Any] = {
    "name": "mine",
    "data": {"source": "digits"},
    "partition": {"kind": "iid", "clients": 3},
    "model": {"name": "mclr"},
}


@pytest.mark.parametrize("name", task_names())
def test_a_shipped_task_is_whole_and_says_where_its_values_come_from(name: str) -> None:
    content = tomllib.loads((resources.files("fedprior.study.tasks") / f"{name}.toml").read_text())
    file = read(name)
    assert (file.task.name, file.protocol.rounds) == (name, content["rounds"])
    assert file.task.about
    given = {*content, *content["method"]} - {"why", "method", "about"}
    assert set(file.why) <= given, "a reason for a key that is not there"
    needed = {*content["method"], *given} - {"data", "model"}
    assert needed <= set(file.why), "a value without a reason"
    assert all(reason.strip() for reason in file.why.values())
    task: Any = SimpleNamespace(name=name, defaults=file.method)  # all that a method asks of it; the data may be absent
    built = {m: method_for(task, Variant.of(m)) for m in METHODS}
    for key, value in content["method"].items():
        has = [
            m for m in METHODS if key in methods.keys(m) and key not in METHODS.find(m).preset
        ]  # else the name's own
        assert has
        assert all(getattr(built[m], key) == value for m in has)


def test_the_paper_eight_tasks_and_the_embedded_ones_are_there() -> None:
    assert set(task_names()) >= {
        *(f"{data}-{model}" for data in ("mnist", "fmnist", "femnist", "digits") for model in ("mclr", "dnn")),
        "cifar10-cnn",
        "sent140-lstm",
    }


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("lam=15", "lam", 15),
        ("lambda=15.5", "lam", 15.5),
        ("order=released", "order", "released"),
        ('order="released"', "order", "released"),
        ("overwrite=true", "overwrite", True),
        (" rounds = 3", "rounds", 3),
        ("alpha=1e6", "alpha", 1e6),
        ("data.source=", "data.source", ""),
        ("x=a=b", "x", "a=b"),
        ("metrics=['brier', 'ece']", "metrics", ["brier", "ece"]),
    ],
)
def test_assignments(text: str, key: str, value: Any) -> None:
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize("text", ["lam", "=3", ""])
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(FedpriorError, match="is not of the form key=value"):
        parse_assignment(text)


@pytest.mark.parametrize("value", [1, 1.0, 0.1, 1 / 3, 1e-30, True, "w", "15", "true", "a b", "", [1, "x"], ["a,b"]])
def test_values_are_written_as_they_are_read(value: Any) -> None:
    back = parse_assignment(f"key={format_value(value)}")[1]
    assert back == value
    assert isinstance(back, bool) == isinstance(value, bool)


# -- where a key goes --------------------------------------------------------------------------------------------------


def test_a_key_goes_to_every_method_that_has_it() -> None:
    study = Study("digits-mclr", ["local", "fedavg", "pfedme", "mh"], lam=30, R=7, rounds=9)
    (task,) = study.tasks
    built = [method_for(task, row) for row in study.rows]
    assert task.protocol.rounds == 9
    assert [m.R for m in built] == [7, 7, 7, 7]  # type: ignore[attr-defined]
    assert [getattr(m, "lam", None) for m in built] == [None, None, 30.0, 30.0]
    with pytest.raises(FedpriorError, match="unknown key 'lam'"):  # an error only if none has it
        Study("digits-mclr", ["local", "fedavg"], lam=30).rows  # noqa: B018


def test_changes_reach_into_parts_and_leave_the_task_alone() -> None:
    file = read("digits-mclr", {"partition.alpha": 5.0, "data.normalize": "half"})
    assert (file.task.partition["alpha"], file.task.data.normalize) == (5.0, "half")
    assert read("digits-mclr").task.partition["alpha"] == 0.3
    content = {**MINE}
    read(content, {"partition.clients": 9})
    assert content["partition"]["clients"] == 3
    with pytest.raises(FedpriorError, match=r"'name\.first': 'name' is a single value and has no parts"):
        read(MINE, {"name.first": "x"})


def test_what_a_name_stands_for_is_not_for_the_task_to_change() -> None:
    task = open_task(parse({**MINE, "method": {"mean": "lg", "lambda": 2.0}}, "mine"))
    mh = method_for(task, Variant.of("mh"))
    assert (mh.mean, mh.lam) == ("mh", 2.0)  # type: ignore[attr-defined]
    assert method_for(task, Variant.of("mh", mean="meg")).mean == "meg"  # type: ignore[attr-defined]
    assert method_for(task, Variant.of("mh", lam=3)).lam == 3.0  # type: ignore[attr-defined]
    wrong = open_task(parse({**MINE, "method": {"lamda": 2.0}}, "mine"))
    with pytest.raises(FedpriorError, match=r"unknown key 'lamda' in \[method\] of task 'mine' \(did you mean 'lam"):
        method_for(wrong, Variant.of("mh"))


def test_a_task_is_opened_with_settings_of_all_kinds() -> None:
    task = fp.task("digits-mclr", rounds=5, **{"partition.clients": 4, "lambda": 7.0})
    assert (task.protocol.rounds, task.federation.n_clients, task.defaults["lam"]) == (5, 4, 7.0)
    with pytest.raises(FedpriorError, match=r"unknown key 'roundz' \(did you mean 'rounds'\?\)"):
        fp.task("digits-mclr", roundz=5)
    with pytest.raises(FedpriorError, match="unknown task 'digitz'"):
        fp.task("digitz")


@pytest.mark.parametrize(
    "use",
    [
        lambda: fp.task("digits-mclr", chunk=8),
        lambda: Study("digits-mclr", ["mh"], chunk=8),
        lambda: Variant.of("mh", chunk=8),
        lambda: Variant.parse("mh:chunk=8"),
        lambda: parse_assignment("chunk=8"),
        lambda: parse({**MINE, "chunk": 8}, "mine"),
    ],
)
def test_an_old_key_is_refused_with_its_new_name(use: Any) -> None:
    with pytest.raises(FedpriorError, match="'chunk' is now called 'clients_per_vmap'"):
        use()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 2.0}, "rounds: input should be a valid integer"),
        ({"rounds": True}, "rounds: input should be a valid integer"),
        ({"aggregated": 0}, "aggregated: input should be greater than or equal to 1"),
        ({"validation": 1.0}, "validation: input should be less than 1"),
        ({"weights": "size"}, "weights: input should be 'samples' or 'uniform'"),
        ({"pooled": "always"}, "pooled: input should be 'last', 'every' or 'never'"),
        ({"name": "a/b"}, "name: string should match"),
        ({"name": "\u6570" * 41}, "name: .* use 1 to 120 characters, of which accented letters and"),
        ({"data": {}}, "'data.source' is missing"),
        (
            {"data": {"source": "digits", "sauce": 1}},
            "unknown key 'data.sauce' in task 'mine' .*valid: .*data.normalize",
        ),
        ({"partition": {"kind": "iid", "clients": "3"}}, "partition 'iid': clients: input should be a valid integer"),
        ({"seed": 1}, "unknown key 'seed' in task 'mine'"),
        ({"method": 3}, "'method' must be a table of settings"),
        ({"model": {}}, "model.name is missing; valid: "),
        ({"model": {"name": "mlcr"}}, r"unknown model 'mlcr' \(did you mean 'mclr'\?\)"),
        ({"model": {"name": "dnn", "hidden": "wide"}}, "hidden"),
        ({"model": {"name": "mclr", "hidden": 3}}, "hidden"),
    ],
)
def test_wrong_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as caught:
        parse({**MINE, **change}, "task 'mine'")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("beta", "message"),
    [(0, "beta = 0.0 is not valid; it must be a finite number above 0"), (float("nan"), "beta = nan")],
)
def test_wrong_values_of_a_wrapper(beta: float, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        Variant.of("mh", beta=beta)
    with pytest.raises(FedpriorError, match=message):
        Study("digits-mclr", ["mh"], beta=beta).rows  # noqa: B018


def test_a_protocol_changes_in_parts_and_has_one_length() -> None:
    changed = change_protocol(Protocol(rounds=9), {"budget.gradients": 80, "batch": 3}, "'x'")
    assert changed == Protocol.model_validate({"rounds": 9, "budget": {"gradients": 80}, "batch": 3})
    assert change_protocol(changed, {}, "'x'") is changed
    for refused in (
        lambda: change_protocol(changed, {"rounds": 3}, "'x'"),
        lambda: read("digits-mclr", {"rounds": 3, "budget.gradients": 100}),
        lambda: fp.task("digits-mclr", rounds=3, budget={"gradients": 100}),
        lambda: read({**MINE, "budget": {"gradients": 100}}, {"rounds": 3}),
    ):
        with pytest.raises(FedpriorError, match="rounds and budget both say how long to run; choose one of them"):
            refused()
    with pytest.raises(FedpriorError, match="unknown key 'batsh' in 'x'"):
        change_protocol(changed, {"batsh": 3}, "'x'")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(FedpriorError, match=r"cannot read task file .*mine\.toml: No such file"):
        read_task(str(path))
    path.write_text("rounds = [")
    with pytest.raises(FedpriorError, match=r"task .*mine\.toml is not valid TOML"):
        read_task(str(path))
    path.write_text("rounds = 3")
    assert read_task(str(path)) == {"name": "mine", "rounds": 3}


def test_settings_are_immutable_and_plain_data_gives_them_back() -> None:
    file = parse({**MINE, "rounds": 4, "method": {"lambda": 2.0}, "why": {"rounds": "enough"}}, "mine")
    with pytest.raises(ValueError, match="frozen"):
        file.protocol.rounds = 3  # type: ignore[misc]
    assert file == TaskFile(TaskSettings.model_validate(MINE), Protocol(rounds=4), {"lam": 2.0}, {"rounds": "enough"})
    assert parse(file.plain(), "mine") == file
    assert read_task("digits-mclr")["name"] == "digits-mclr"


# -- what a study has beside its settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(BESIDE))
def test_settings_called_like_a_parameter_of_a_study_are_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(f'tasks = ["digits-mclr"]\nvariants.local = {{}}\nsettings.{key} = ["mh"]')
    message = f"^'{key}' is no setting; {re.escape(BESIDE[key])}$"
    with pytest.raises(FedpriorError, match=message):
        read_study(tmp_path / "x.toml")
    assert fedprior("run", "digits-mclr", "--set", f"{key}=3").err == f"error: '{key}' is no setting; {BESIDE[key]}\n"


def test_the_parameters_of_a_study_are_known() -> None:
    assert {*inspect.signature(Study.__init__).parameters} - {"settings"} == {*BESIDE}
    with pytest.raises(FedpriorError, match="'local' is no setting; give --local or --no-local"):
        fp.run(small_task(), "fedavg", local=False)
