"""Folders from elsewhere: what is in them is data, and what cannot be data is refused in one line, without hanging."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import evaluated, record, written
from program import contents, fedprior, refused

from fedprior.errors import FedpriorError
from fedprior.files import replace_file, write_text
from fedprior.records import checkpoint
from fedprior.records.lock import NAME, hold, holder
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Times
from fedprior.study.recorder import run_trial
from records.states import state

NASTY = "a\x1b[2J[red]b[/red]\n_c_ $x^$"


def recorded(folder: Path, **more: Any) -> RunFolder:
    values = evaluated([{"accuracy": [10.0 * t, 20.0]} for t in (1, 2)], samples=[3, 3])
    return written(folder, record("mh", 0, *values, **more))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return recorded(tmp_path / "runs" / "one")


def changed(run: RunFolder, change: Callable[[dict[str, Any]], object]) -> None:
    path = run.path / "config.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# -- what is in the files ----------------------------------------------------------------------------------------------


def put(*keys: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(content: dict[str, Any]) -> None:
        *outer, last = keys
        for key in outer:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("run", "protocol", "rounds", value=10**18), "run.protocol.rounds is 1000000000000000000, not a whole"),
        (put("run", "protocol", "rounds", value=1e999), "run.protocol.rounds is inf, not a whole number"),
        (put("run", "protocol", "rounds", value="many"), "run.protocol.rounds is 'many', not a whole number"),
        (put("run", "protocol", "eval_every", value=0), "run.protocol.eval_every is 0, not a whole number"),
        (put("run", "protocol", "aggregated", value=True), "run.protocol.aggregated is True, not a whole number"),
        (put("run", "protocol", "budget", value={"gradients": "x"}), "run.protocol.budget is"),
        (put("run", "protocol", "budget", value={"odd": 1}), "is {'odd': 1}, not a number of one of: gradients, total"),
        (put("run", "seed", value=1e999), "run.seed is inf, not a whole number"),
        (put("run", "seed", value=10**4000), "run.seed is 1000"),
        (put("run", "task", value=[]), "run.task is [], not a table of settings"),
        (put("run", "task", "name", value=3), "run.task.name is 3, not a name"),
        (put("run", "variant", "name", value="x" * 10_000), "run.variant.name is"),
        (put("run", "variant", "name", value=" \t"), r"run.variant.name is ' \t', not a name"),
        (put("run", "variant", "method", value=None), "run.variant.method is None"),
        (put("run", "variant", value={}), "does not describe a run"),
        (put("run", "client_ids", value=[[1]]), "run.client_ids is [[1]]"),
        (put("run", "clients", value="many"), "run.clients is 'many', not a whole number"),
        (lambda c: (c.update(client_rows=2), c["run"].pop("clients")), "run.clients is None, not a whole number"),
        (put("metrics", value=[{"name": "accuracy"}]), "metrics is [{"),
        (put("metrics", value=[{"name": "a", "unit": "", "better": "higher", "odd": 1}]), "metrics is [{"),
        (put("class_names", value=[1]), "class_names is [1], not names"),
        (put("cost", value={"gradients": 1}), "cost is {'gradients': 1}, not numbers"),
        (put("cost", "parameters", value=10**400), "cost is {"),
        (put("cost", "gradients", value=None), "cost is {"),
        (put("format", value=1), "does not describe a run"),
        (put("format", value=[1]), "its format is [1]"),
    ],
)
def test_settings_that_no_run_has(run: RunFolder, change: Callable[[dict[str, Any]], object], told: str) -> None:
    changed(run, change)
    line = refused(fedprior("table", run.path.parent), "config.json", told)
    assert len(line) < 400
    (listed,) = json.loads(fedprior("runs", run.path.parent, "--json").out)
    assert (listed["status"], listed["folder"]) == ("damaged", "one")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "nested more than 50 levels deep"),
        ('{"a":' * 100_000, "nested more than 50 levels deep"),
        ('{"a":' * 60 + "1" + "}" * 60, "nested more than 50 levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "cannot read"),
        ("null", "does not hold a JSON object"),
        ('"\ud800"', "does not hold a JSON object"),
    ],
    ids=["lists", "tables", "sixty", "digits", "null", "half a character"],
)
@pytest.mark.parametrize("name", ["config.json", "status.json", "provenance.json"])
def test_json_that_is_made_to_hurt(run: RunFolder, name: str, text: str, told: str) -> None:
    (run.path / name).write_bytes(text.encode(errors="surrogatepass"))
    refused(fedprior("table", run.path.parent), name, told)


def test_a_status_that_no_run_has(run: RunFolder) -> None:
    for at in ("1e999", "1" * 100, '"2"', "-1", "null", "2.0"):
        (run.path / "status.json").write_text(f'{{"status": "finished", "round": {at}}}')
        refused(fedprior("table", run.path.parent), "status.json", "does not say how the run stands")


@pytest.mark.parametrize("name", ["config.json", "status.json"])
def test_a_huge_file_is_not_read(run: RunFolder, name: str) -> None:
    os.truncate(run.path / name, 2**30)  # as zeros that take no space
    refused(fedprior("table", run.path.parent), name, "it is larger than 64 MiB")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "a." * 100_000 + "a = 1", "rounds = " + "9" * 5000], ids=["lists", "keys", "digits"]
)
def test_toml_that_is_made_to_hurt(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.toml").write_text(text if text.startswith(("a", "r")) else f"x = {text}")
    refused(fedprior("run", tmp_path / "mine.toml", "--out", tmp_path / "out"), "mine.toml")
    refused(fedprior("study", tmp_path / "mine.toml", "--out", tmp_path / "out"), "mine.toml")
    refused(fedprior("run", "digits-mclr", "--set", f"rounds={'[' * 100_000}", "--out", tmp_path / "out"), "rounds")


PATHOLOGICAL = f'partition={{kind="pathological",clients={10**12},classes_per_client=2}}'


@pytest.mark.parametrize(
    "value",
    [f"rounds={10**18}", f"rounds={'9' * 5000}", f"partition.clients={10**12}", PATHOLOGICAL],
    ids=["rounds", "digits", "clients", "pathological"],
)
def test_numbers_without_measure(tmp_path: Path, value: str) -> None:
    about = "clients" if "clients" in value else "rounds"
    line = refused(fedprior("run", "digits-mclr", "--set", value, "--out", tmp_path / "out"), about)
    assert len(line) < 300


# -- what stands in place of a file ------------------------------------------------------------------------------------

FILES = (
    "config.json",
    "status.json",
    "metrics.csv",
    "clients.csv",
    "times.csv",
    "provenance.json",
    "label_counts.json",
)


@pytest.mark.parametrize("name", [*FILES, NAME, "checkpoints/round-00000002.safetensors"])
def test_a_link_inside_a_run_is_neither_read_nor_written_through(tmp_path: Path, run: RunFolder, name: str) -> None:
    run.save(state(2), 2)
    path, precious = run.path / name, tmp_path / "precious"
    precious.write_bytes(path.read_bytes() if path.exists() else b"data")
    path.unlink(missing_ok=True)
    path.symlink_to(precious)
    before = contents(tmp_path)
    refused(fedprior("table", run.path), f"{path} is a link to elsewhere", "remove it")
    nobody: Any = None
    options: list[dict[str, Any]] = [{"resume": True}, {"overwrite": True}, {}]
    for each in options:
        with pytest.raises(FedpriorError, match="is a link to elsewhere"):
            run_trial(nobody, run.path, **each)
    assert contents(tmp_path) == before


def test_a_folder_of_states_that_is_a_link(tmp_path: Path, run: RunFolder) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "round-00000001.safetensors").write_text("mine")
    (run.path / "checkpoints").symlink_to(tmp_path / "mine")
    nobody: Any = None
    with pytest.raises(FedpriorError, match="checkpoints is a link to elsewhere"):
        run_trial(nobody, run.path, overwrite=True)
    assert (tmp_path / "mine" / "round-00000001.safetensors").read_text() == "mine"


def test_tables_that_turn_into_links_are_not_written_through(tmp_path: Path, run: RunFolder) -> None:
    (tmp_path / "precious").write_text("data")
    for name in ("metrics.csv", "config.json.tmp"):
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(tmp_path / "precious")
    values = evaluated([{"accuracy": [1.0]}], samples=[3])
    with pytest.raises(FedpriorError, match=r"cannot write .*metrics.csv"):
        run.append(*values, Times(3, 0.1, 0.1))
    run.begin(record("mh").config)
    assert (tmp_path / "precious").read_text() == "data"
    assert not (run.path / "metrics.csv").is_symlink()


def test_a_link_to_a_run_is_the_users_own(tmp_path: Path, run: RunFolder) -> None:
    (tmp_path / "link").symlink_to(run.path.parent)
    assert fedprior("table", tmp_path / "link", "--format", "csv").code == 0
    (tmp_path / "other").symlink_to(run.path)
    assert fedprior("table", tmp_path / "other", "--format", "csv").code == 0


@pytest.mark.parametrize("name", [*FILES[:6], NAME])
@pytest.mark.parametrize("what", ["pipe", "folder"])
def test_what_is_no_file_is_refused_without_waiting(run: RunFolder, name: str, what: str) -> None:
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name) if what == "pipe" else (run.path / name).mkdir()
    refused(fedprior("table", run.path), name)
    (listed,) = json.loads(fedprior("runs", run.path, "--json").out)
    assert listed["status"] == "damaged"
    assert holder(run.path) is None


def test_a_checkpoint_that_is_a_pipe(run: RunFolder) -> None:
    (run.path / "checkpoints").mkdir()
    os.mkfifo(run.path / "checkpoints" / "round-00000001.safetensors")
    assert run.restore(state()) == (None, ["round-00000001.safetensors"])


def test_what_is_no_checkpoint_is_left_alone(run: RunFolder) -> None:
    run.save(state(2), 2)
    for name in ("round-x.safetensors", "round-.safetensors", "round-1-2.safetensors", "round-٣٣٣٣٣٣٣٣.safetensors"):
        (run.path / "checkpoints" / name).write_text("mine")
    assert [path.name for path in run.checkpoints] == ["round-00000002.safetensors"]
    run.rewind(1, ["accuracy", "nll"])
    assert len(list((run.path / "checkpoints").iterdir())) == 4
    (run.path / "config.json").write_text('{"format": [1]}')
    with pytest.raises(FedpriorError, match=r"its format is \[1\], no number"):
        run.written_format  # noqa: B018


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(run: RunFolder) -> None:
    (run.path / "metrics.csv").chmod(0)
    refused(fedprior("table", run.path), "metrics.csv", "Permission denied")


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_neither_control_a_terminal_nor_are_markup(tmp_path: Path) -> None:
    for k, name in enumerate((NASTY, "local")):
        values = evaluated([{"accuracy": [10.0 * t + k, 20.0]} for t in (1, 2)], [3, 3], names=[NASTY, "b"])
        written(tmp_path / str(k), record(name, 0, *values, method="local", task=NASTY, client_ids=[NASTY, "b"]))
    for command in (
        *(("table", tmp_path, "--format", format) for format in ("text", "markdown", "latex", "html", "csv")),
        *(("compare", tmp_path, "--format", format) for format in ("text", "markdown", "latex", "html", "csv")),
        ("runs", tmp_path),
        ("table", tmp_path, "--metric", NASTY),
        ("compare", tmp_path, "--against", NASTY + "c"),
    ):
        shown = fedprior(*command)
        assert "\x1b" not in shown.out + shown.err, command
        assert "[red]" in shown.out + shown.err or "latex" in command or "markdown" in command, command


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield int(request.param)
    os.umask(before)


def test_all_files_have_the_mode_of_any_new_file(tmp_path: Path, umask: int) -> None:
    run = recorded(tmp_path / "run")
    run.save(state(2), 2)
    checkpoint.write(tmp_path / "x.safetensors", state())
    write_text(tmp_path / "summary.json", "{}")

    def privately(path: Path) -> None:
        os.close(os.open(path.with_name("p"), os.O_CREAT, 0o600))
        os.replace(path.with_name("p"), path)

    replace_file(tmp_path / "private", privately)
    with hold(tmp_path):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 10
    assert set(modes.values()) == {0o666 & ~umask}, modes
