"""Every program is compiled with the same options, which are recorded, and with which a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import blobs

import fedprior as fp
from fedprior.core import compiling
from fedprior.core.compiling import Compiler, check_options, preferred_options
from fedprior.engine.engine import Engine
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.records.runs import RunFolder
from fedprior.study.export import open_run

FUSION = "xla_cpu_experimental_ynn_fusion_type"
RUN: dict[str, Any] = {"local": False, "partition.clients": 4, "aggregated": 2, "rounds": 2}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiler is told of each program that is made."""
    options: list[Any] = []
    plain = jax.jit

    def jit(function: Any, **how: Any) -> Any:
        options.append(how.get("compiler_options"))
        return plain(function, **how)

    monkeypatch.setattr(jax, "jit", jit)
    return options


def test_programs_are_compiled_with_the_preferred_options(told: list[Any]) -> None:
    assert dict(preferred_options()) == {FUSION: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
    told.clear()
    Compiler()(lambda x: x)
    Compiler({})(lambda x: x)
    assert told == [preferred_options(), {}]


def test_what_the_user_has_set_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--{FUSION}=none")
    preferred_options.cache_clear()
    assert preferred_options() == {}
    monkeypatch.undo()
    preferred_options.cache_clear()


def test_a_compiler_that_does_not_know_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedpriorError, match="compiled with xla_no_such=1, which this version of jaxlib does not take"):
        check_options({"xla_no_such": "1"})
    monkeypatch.setattr(compiling, "_PREFERRED", {"xla_no_such": "1"})
    preferred_options.cache_clear()
    assert preferred_options() == {}
    monkeypatch.undo()
    preferred_options.cache_clear()


def test_no_program_is_compiled_otherwise() -> None:
    """Only the closed-form problems of the theory, in double precision and without records, use JAX's own jit."""
    source = Path(fp.__file__).parent
    found = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "jax.jit(" in path.read_text() and path.parent.name != "theorems"
    ]
    assert found == ["core/compiling.py"]


def test_a_run_goes_on_with_the_options_that_it_recorded(tmp_path: Path, told: list[Any]) -> None:
    (begun,) = fp.Study("digits-mclr", ["fedavg"], **RUN).run(tmp_path).runs
    folder = tmp_path / "digits-mclr" / "fedavg" / "0"
    assert RunFolder(folder).config["compiler_options"] == preferred_options()
    assert {} not in told

    config = json.loads((folder / "config.json").read_text())
    del config["compiler_options"]  # as older versions wrote it
    (folder / "config.json").write_text(json.dumps(config))
    told.clear()
    (resumed,) = fp.Study("digits-mclr", ["fedavg"], **{**RUN, "rounds": 3}).run(tmp_path, resume=True).runs
    assert "compiler_options" not in RunFolder(folder).config
    assert resumed.trial.program.engine.compiler.options == {}
    assert told.count({}) >= 4  # choosing, training, merging, evaluating
    assert open_run(folder).trial.program.engine.compiler.options == {}
    assert begun.trial.program.engine.compiler.options == preferred_options()


@pytest.mark.slow
@pytest.mark.bits
def test_sums_over_many_classes_do_not_depend_on_how_many_devices_there_are() -> None:
    """By the compiler's defaults, sums over more than 32 numbers are split otherwise in a program of several devices."""
    problem, data = blobs((300, 150, 97), d=40, classes=40, hidden=8)

    def ends(devices: int, compiler: Compiler) -> list[np.ndarray]:
        method = make("fedavg", R=3).algorithm()
        engine = Engine(problem, method, data, batch_size=128, devices=jax.devices()[:devices], compiler=compiler)
        state, _ = engine.step(engine.init(0))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state.server)]

    def same(compiler: Compiler) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(ends(1, compiler), ends(2, compiler), strict=True))

    assert same(Compiler())
    assert not same(Compiler({}))  # if this fails, the compiler's defaults have been mended, and the option may go
