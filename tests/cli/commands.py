"""The commands that several files run, and the task file that they write."""

from __future__ import annotations

QUICK = ("--set", "R=2", "--set", "K=2")
METRICS = ("balanced_accuracy", "macro_f1", "brier", "ece", "class_accuracy")  # besides accuracy and nll
COMPARE = (
    *("run", "digits-mclr", "-m", "fedavg", "-m", "mh", "--rounds", "12", "--seeds", "2", *QUICK),
    *("--set", "validation=0.2", "--set", f"metrics={list(METRICS)}".replace("'", '"')),
)
ROWS = ("local", "fedavg", "mh")  # of that comparison: Local is there without being asked for
ONE = ("run", "digits-mclr", "-m", "fedavg", "--no-local", "--rounds", "2", "--set", "R=2")
IID = """
[data]
source = "digits"
[partition]
kind = "iid"
clients = 3
[model]
name = "mclr"
"""
