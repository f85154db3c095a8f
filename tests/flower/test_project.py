"""What `fedprior flower` writes and says, without a federation."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from program import fedprior, refused

from fedprior.errors import FedpriorError
from fedprior.flower.site import open_site
from fedprior.flower.spec import SiteSettings
from flower.certificates import certificate_authority, certificate_of
from flower.example import CLASSES, samples

TASK = """
rounds = 2
[sites]
shape = [6]
classes = ["ill", "well", "unsure"]
[model]
name = "mclr"
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A project whose site has a table with six columns."""
    folder = tmp_path / "eight-hospitals"
    assert fedprior("flower", "init", folder).code == 0
    (folder / "eight_hospitals" / "task.toml").write_text(TASK)
    data = folder / "eight_hospitals" / "data.py"
    changed = data.read_text().replace('["age", "pressure"]', 'list("abcdef")')
    data.write_text(changed)
    x, y, _ = samples(0)
    rows = [",".join([*map(str, row), label]) for row, label in zip(x.tolist(), y, strict=True)]
    (tmp_path / "visits.csv").write_text("\n".join(["a,b,c,d,e,f,diagnosis", *rows]) + "\n")
    return folder


def test_a_new_project_is_one_that_flower_takes(app: Path) -> None:
    import tomllib

    from flwr.common.config import validate_config

    content = tomllib.loads((app / "pyproject.toml").read_text())
    valid, errors, warnings = validate_config(content, check_module=False)
    assert (valid, errors, warnings) == (True, [], [])
    code = "from eight_hospitals.app import client, server; print(type(client).__name__, type(server).__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=app, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ClientApp", "ServerApp"]
    refused(fedprior("flower", "init", app), "is not empty")
    refused(fedprior("flower", "init", app / "7"), "begins with a letter")


@pytest.mark.parametrize("name", ["site", "test", "fedprior", "flwr", "class", "numpy"])
def test_no_project_takes_the_name_of_another_package(tmp_path: Path, name: str) -> None:
    refused(fedprior("flower", "init", tmp_path / name), f"a package called '{name}'", f"such as {name}-federation")
    assert not list(tmp_path.iterdir())


def test_a_site_is_checked_whatever_the_model_is(app: Path, tmp_path: Path) -> None:
    """That of the user's own is given to the app, which is not looked at."""
    config = f'data="{tmp_path / "visits.csv"}" state-dir="{tmp_path / "states"}"'
    task = app / "eight_hospitals" / "task.toml"
    task.write_text(TASK.replace('[model]\nname = "mclr"\n', ""))
    done = fedprior("flower", "check", app, "--node-config", config)
    assert (done.code, "data: 17 samples to train and 6 to test" in done.out) == (0, True), done.err
    task.write_text(TASK.replace("rounds", "round"))
    refused(fedprior("flower", "check", app, "--node-config", config), "unknown key", "'rounds'")


def test_a_site_is_checked_before_it_joins(app: Path, tmp_path: Path) -> None:
    config = f'data="{tmp_path / "visits.csv"}" state-dir="{tmp_path / "states"}"'
    done = fedprior("flower", "check", app, "--node-config", config)
    assert done.code == 0, done.err
    assert "data: 17 samples to train and 6 to test" in done.out
    (tmp_path / "visits.csv").write_text((tmp_path / "visits.csv").read_text().replace("ill", "sick"))
    refused(fedprior("flower", "check", app, "--node-config", config), "this site has a label 'sick'")
    refused(fedprior("flower", "check", app, "--node-config", 'data="none.csv"'), "cannot read the data file none.csv")
    refused(fedprior("flower", "check", tmp_path), "is no Flower project")


def test_keys_and_certificates_are_looked_at(app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    from fedprior.flower import look

    authority = certificate_authority(tmp_path / "authority.pem")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    assert look.check_certificate(authority, None) == f"valid until {until:%Y-%m-%d}"
    with pytest.raises(FedpriorError, match=r"no trusted SuperLink at 127\.0\.0\.1:1"):
        look.check_certificate(authority, "127.0.0.1:1")
    for odd in ("localhost", "localhost:", ":9443", "localhost:https", "localhost:65536"):
        with pytest.raises(FedpriorError, match=f"--superlink '{odd}' is not of the form HOST:PORT"):
            look.check_certificate(authority, odd)
    for days, text in ((-1, "was valid until .* only; renew it"), (1, "is not valid before .* clock right")):
        with pytest.raises(FedpriorError, match=text):
            look.check_certificate(certificate_of(tmp_path / f"{days}.pem", days), None)
    with pytest.raises(FedpriorError, match="is no certificate"):
        look.check_certificate(app / "LICENSE", None)
    with pytest.raises(FedpriorError, match="is no private key"):
        look.check_key(app / "LICENSE")

    def unsupported(*given: object) -> None:
        raise UnsupportedAlgorithm("a curve of its own")

    monkeypatch.setattr("cryptography.hazmat.primitives.serialization.load_pem_private_key", unsupported)
    with pytest.raises(FedpriorError, match=r"is no private key .*a curve of its own"):
        look.check_key(app / "LICENSE")


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["unknown"] * 4, [2, 2, 2, 2]),  # of one class alone
        (["1", "2", "1", "2"], [0, 1, 0, 1]),  # which look like numbers here
        (["2", "unknown", "1"], [1, 2, 0]),  # as many as there are samples
    ],
)
def test_a_site_need_not_have_samples_of_every_class(labels: list[str], numbers: list[int], tmp_path: Path) -> None:
    from fedprior.flower import samples_from_file

    (tmp_path / "a.csv").write_text("\n".join(["x,y", *(f"{k},{label}" for k, label in enumerate(labels))]))
    given = samples_from_file(tmp_path / "a.csv", label="y", features=["x"])
    site = open_site(given, SiteSettings(shape=[1], classes=["1", "2", "unknown"]))
    seen: dict[float, int] = {}
    for part, size in zip((site.train, site.test), site.sizes, strict=True):
        seen |= dict(zip(np.asarray(part.x)[:size, 0].tolist(), np.asarray(part.y)[:size].tolist(), strict=True))
    assert [seen[k] for k in range(len(labels))] == numbers


def test_the_samples_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedprior.flower import samples_from_file

    (tmp_path / "a.csv").write_text("x,y,part\n1,ill,train\n2,well,test\n3,ill,train\n4,well,train\n")
    x, y, is_test = samples_from_file(tmp_path / "a.csv", label="y", features=["x"], split="part")
    assert x.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    assert y.tolist() == ["ill", "well", "ill", "well"]
    assert is_test.tolist() == [False, True, False, False]
    with pytest.raises(FedpriorError, match=r"column 'y' of a\.csv is asked for twice"):
        samples_from_file(tmp_path / "a.csv", label="y", features=["x", "y"])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(samples_from_file("~/a.csv", label="y", features=["x"])) == 2
    assert set(CLASSES) >= set(y)
    assert np.isfinite(x).all()
