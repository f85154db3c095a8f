"""Where the time of a deployed round goes: the federation of docs/deploy.md, on this machine, with a stopwatch in its app.

    python benchmarks/deploy.py                 # one JSON object on stdout; a few minutes
    python benchmarks/deploy.py --rounds 8 --keep /tmp/federation

Flower starts a process for every message. `seconds` are those of the message that a round waited for, from the end of the
round before to its own end, and their sum is the round's:

    server      the server merges, writes its records and a checkpoint, and sends the next messages
    wait        until the site's process is there: its SuperNode looks for a message every 3 s when it is idle
    flower      the process starts, imports Flower, fetches the message and unpacks the app
    import      the app imports JAX and fedprior
    work        the site scores and trains: its data, `trace` and `lower` (JAX), `compile` (or fetch it), and the rest
    reply       the answer's way back, until the server finds it: the SuperNode and the server look every 0.5 s

Medians over the rounds, and their shares of the round in `share`; `first` is the first round that also scores, in which
programs are compiled that later ones find in the cache. `cpu` is the time that a message's process computes: it depends less
on what else the machine does. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from flower.loopback import Federation, has_nginx

ORDER = ("server", "wait", "flower", "import", "work", "reply")
COMPILER = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile",
}
APP = '''
"""The app of the page, with a stopwatch: every process writes when it did what to the folder FEDPRIOR_TRACE."""

import os
import time

BEGUN, BEGUN_CPU = time.time(), time.process_time()

import json
from pathlib import Path

from fedprior.flower import client_app, server_app

from .data import load

TASK = Path(__file__).with_name("task.toml")
inner_client, inner_server = client_app(TASK, load), server_app(TASK)
IMPORTED, IMPORTED_CPU = time.time(), time.process_time()

import jax
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

compiler = {}


def listen(name, seconds, **about):
    key = name.rpartition("/")[2]
    compiler[key] = compiler.get(key, 0.0) + seconds


def started():
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")


def write(name, content):
    Path(os.environ["FEDPRIOR_TRACE"], name).write_text(json.dumps(content))


class Client(ClientApp):
    def __call__(self, message, context):
        jax.monitoring.register_event_duration_secs_listener(listen)
        called, called_cpu = time.time(), time.process_time()
        reply = inner_client(message, context)
        at = {"started": started(), "begun": BEGUN, "imported": IMPORTED, "called": called, "done": time.time()}
        cpu = {"flower": BEGUN_CPU, "import": IMPORTED_CPU - BEGUN_CPU, "work": time.process_time() - called_cpu}
        about = {"id": message.metadata.message_id, "round": message.metadata.group_id}
        write(f"client-{os.getpid()}.json", {**about, "at": at, "cpu": cpu, "compiler": compiler})
        return reply


class Watched:
    """A Grid that notes when messages go and come."""

    def __init__(self, grid):
        self.grid, self.pushed, self.pulled = grid, {}, {}

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        numbers = list(self.grid.push_messages(messages))
        self.pushed.update({str(number): time.time() for number in numbers})
        return numbers

    def pull_messages(self, numbers):
        replies = list(self.grid.pull_messages(numbers))
        self.pulled.update({reply.metadata.reply_to_message_id: time.time() for reply in replies})
        return replies


class Server(ServerApp):
    def __call__(self, grid, context):
        watched = Watched(grid)
        inner_server(watched, context)
        write("server.json", {"pushed": watched.pushed, "pulled": watched.pulled})


client = Client()  # in lines of their own: Flower looks for them without running the file
server = Server()
'''


def follow(folder: Path, rounds: int) -> Path:
    """Set the page's federation up, run its app with a stopwatch, and return the folder of the traces."""
    traces = folder / "traces"
    traces.mkdir()
    federation = Federation(folder, {"FEDPRIOR_TRACE": str(traces), "FEDPRIOR_CACHE": str(folder / "cache")})
    try:
        federation.follow(before="Run")
        package = federation.home / "hospitals" / "hospitals"
        (package / "app.py").write_text(APP)
        task = package / "task.toml"
        task.write_text(task.read_text().replace("rounds = 4", f"rounds = {rounds}"))
        federation.type(
            f'flwr run hospitals owner --stream --run-config \'row="mh" clients=3 out="{folder / "runs"}"\''
        )
    finally:
        federation.stop()
    return traces


def waited_for(traces: Path) -> list[dict[str, Any]]:
    """The message of each round whose reply came last, and its seconds."""
    server = json.loads((traces / "server.json").read_text())
    last: dict[int, dict[str, Any]] = {}
    for path in traces.glob("client-*.json"):
        message = json.loads(path.read_text())
        pulled = server["pulled"].get(message["id"])
        if pulled is None or not message["round"]:  # a greeting
            continue
        message.update(pushed=server["pushed"][message["id"]], pulled=pulled)
        t = int(message["round"])
        if t not in last or last[t]["pulled"] < pulled:
            last[t] = message
    found = []
    for t in sorted(last)[1:]:
        message, at = last[t], last[t]["at"]
        ends = [message["pushed"], *(at[key] for key in ("started", "begun", "imported", "done")), message["pulled"]]
        begins = [last[t - 1]["pulled"], *ends]
        seconds = {name: end - begin for name, begin, end in zip(ORDER, begins, ends, strict=False)}
        compiler = {name: message["compiler"].get(key, 0.0) for key, name in COMPILER.items()}
        found.append({"seconds": seconds, "work": compiler, "cpu": message["cpu"]})
    return found


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}


def report(traces: Path) -> dict[str, Any]:
    every = waited_for(traces)
    rows = every[1:-1]  # the first one compiles, and the last one only scores
    whole = [sum(row["seconds"].values()) for row in rows]
    return {
        "nginx": has_nginx(),
        "rounds": len(rows),
        "seconds_per_round": round(statistics.median(whole), 2),
        "first": round(sum(every[0]["seconds"].values()), 2),
        "seconds": medians([row["seconds"] for row in rows]),
        "share": medians(
            [{name: row["seconds"][name] / total for name in ORDER} for row, total in zip(rows, whole, strict=True)]
        ),
        "work": medians([row["work"] for row in rows]),
        "cpu": medians([row["cpu"] for row in rows]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="at least 4")
    parser.add_argument("--keep", type=Path, help="a new folder for the federation, which is left there")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        print(json.dumps(report(follow(given.keep.absolute(), given.rounds)), indent=1))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            print(json.dumps(report(follow(Path(temporary), given.rounds)), indent=1))
