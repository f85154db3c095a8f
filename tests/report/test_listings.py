"""What there is, as tables."""

from __future__ import annotations

from fedprior.report.listings import methods_table, settings_table, sources_table, tasks_table
from fedprior.report.tables import render

COSTS = {
    "fedavg": {"gradients": 20, "hvps": 0, "forward": 0, "down": 1.0, "up": 1.0, "state": 0.0},
    "perfedavg": {"gradients": 40, "hvps": 20, "forward": 1, "down": 1.0, "up": 1.004, "state": 2.5},
}


def test_methods_with_what_they_cost() -> None:
    papers = {"fedavg": "McMahan et al., Communication-Efficient Learning of Deep Networks " * 3, "perfedavg": "Fallah"}
    table = methods_table(COSTS, dict.fromkeys(COSTS, "all"), papers, samples=40, samples_per_step=128)
    assert table.body[1] == ("perfedavg", "40+20h", "1", "1", "1", "2.5", "all", "Fallah")
    lines = render(table, "text").splitlines()
    assert max(map(len, lines)) <= 80
    assert "perfedavg" in "".join(lines)  # the paper's name is what wraps
    assert "(h: Hessian-vector products)" in table.note
    assert "up to 128 samples of a pass over all (counted for a client of 40)" in table.note
    plain = methods_table({"fedavg": COSTS["fedavg"]}, {"fedavg": "all"}, {"fedavg": ""}, samples=1, samples_per_step=2)
    assert "Hessian" not in plain.note


def test_tasks_and_settings() -> None:
    table = tasks_table([("digits-mclr", 100, None, 20, "digits"), ("mnist-mclr", 800, 10, 20, "the paper's")])
    assert table.body == (
        ("digits-mclr", "100", "all", "20", "digits"),
        ("mnist-mclr", "800", "10", "20", "the paper's"),
    )
    settings = sources_table("mh: the paper", ("setting", "default"), [("lam", 15.0, "released scripts")])
    assert settings.head == ("setting", "default", "where it comes from")
    assert settings.body == (("lam", "15.0", "released scripts"),)


def test_settings_with_what_they_mean() -> None:
    table = settings_table("mh", [("lam", 15.0, "how strongly " * 5 + "it is pulled", "a paper " * 8)])
    lines = render(table, "text").splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines).split())
    assert "what it means" in words
    assert words.count("strongly") == 5
    assert words.count("paper") == 8
