"""The two halves of the federation. Flower runs `server` beside the SuperLink and `client` beside every SuperNode."""

from pathlib import Path

from fedprior.flower import client_app, server_app

from .data import load

TASK = Path(__file__).with_name("task.toml")

client = client_app(TASK, load)
server = server_app(TASK)
