"""How long fedprior takes to start: commands that only look, and runs up to their first round, as ratios to importing JAX.

    python benchmarks/start.py                          # everything but `-m all`; one JSON object on stdout
    python benchmarks/start.py --all                    # `run digits-dnn -m all` instead: some minutes
    python benchmarks/start.py --only methods run       # some of the commands; `table` needs `run`, which is added

Every command runs in a process of its own, first with an empty cache folder (``cold``) and then with what that left there
(``warm``): decoded data, counted costs, and JAX's compiled programs. ``ratio`` is the time of a whole process over that of
one that imports JAX and makes its devices, the median of those measured between the commands. Of a run, ``first_round`` is
the time at which the first row's first round is evaluated and recorded, and ``over_import`` what of it is not importing.

``parts`` say what a run's time went into, in seconds of the clock: importing, opening the task, tracing Python to jaxprs,
lowering them, XLA's compiler (or reading its cache); what remains is running, recording and drawing. Parts that overlap in
time, since programs are compiled side by side, are counted in the first of them. ``compile_seconds`` adds up all programs,
and ``programs``, ``cache_hits`` and ``cache_misses`` count them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

LOOKING = {"help": ["--help"], "tasks": ["tasks"], "table": ["table", "RUNS"], "methods": ["methods"]}
RUNS = {"run": ["run", "digits-mclr", "-m", "mh", "--rounds", "2"]}
ALL = {"all": ["run", "digits-dnn", "-m", "all", "--rounds", "1"]}
JAX_ALONE = "import jax; jax.devices()"
SPANS = {  # in this order a moment is counted
    "compiling": "/jax/core/compile/backend_compile_duration",
    "lowering": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "tracing": "/jax/core/compile/jaxpr_trace_duration",
}

Span = tuple[float, float]


def within(spans: list[Span], taken: list[Span]) -> float:
    """Seconds that lie in some of the spans and in none of those that are taken already."""
    edges = sorted({edge for span in spans + taken for edge in span})
    covers = lambda of, a, b: any(s <= a and b <= e for s, e in of)  # noqa: E731
    return sum(b - a for a, b in itertools.pairwise(edges) if covers(spans, a, b) and not covers(taken, a, b))


def inside(arguments: list[str], begun: float) -> None:
    """In a process of its own: run a command of fedprior, and write what its time went into as the last line of stderr."""
    import jax

    jax.devices()
    jax_done = time.time()
    from fedprior.cli.app import main
    from fedprior.study import recorder, study

    imported = time.time()
    spans: dict[str, list[Span]] = {name: [] for name in ("opening", *SPANS)}
    counts: Counter[str] = Counter()
    rounds: dict[str, float] = {}
    names = {event: name for name, event in SPANS.items()}

    def timed(event: str, start_time: float, end_time: float, **_: Any) -> None:
        if event in names:
            spans[names[event]].append((start_time, end_time))

    jax.monitoring.register_event_time_span_listener(timed)
    jax.monitoring.register_event_listener(lambda event, **_: counts.update([event]))
    watch, opened = recorder.Recorder.watch, study.open_by_name  # type: ignore[attr-defined]

    def watching(self: Any, *given: Any, **options: Any) -> Any:
        rows = watch(self, *given, **options)
        rounds.setdefault(self.trial.program.variant.name, time.time() - begun)
        return rows

    def opening(*given: Any, **settings: Any) -> Any:
        start = time.time()
        task = opened(*given, **settings)
        spans["opening"].append((start, time.time()))
        return task

    recorder.Recorder.watch, study.open_by_name = watching, opening  # type: ignore[method-assign, attr-defined]
    sys.argv = ["fedprior", *arguments]
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    total = time.time() - begun
    parts: dict[str, float] = {"importing_jax": jax_done - begun, "importing_the_rest": imported - jax_done}
    taken: list[Span] = []
    for name in (*SPANS, "opening"):
        parts[name] = within(spans[name], taken)
        taken += spans[name]
    parts["the_rest"] = total - sum(parts.values())
    about = {
        "rounds": rounds,
        "parts": parts,
        "compile_seconds": sum(end - start for start, end in spans["compiling"]),
        "programs": len(spans["compiling"]),
        "cache_hits": counts["/jax/compilation_cache/cache_hits"],
        "cache_misses": counts["/jax/compilation_cache/cache_misses"],
        "seconds": total,
    }
    print(json.dumps(about), file=sys.stderr)
    sys.exit(code)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return round(value, 2) if isinstance(value, float) else value


class Bench:
    """Commands in processes of their own, and JAX's import between them."""

    def __init__(self, folder: Path):
        self.folder, self.jax_seconds = folder, list[float]()
        # What the user has set of JAX's cache would be used instead of fedprior's.
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}

    def time(self, command: list[str], cache: Path) -> tuple[float, str]:
        begun = time.perf_counter()
        environment = {**self.environment, "FEDPRIOR_CACHE": str(cache)}
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        return time.perf_counter() - begun, done.stderr

    def import_jax(self) -> None:
        self.jax_seconds.append(self.time([sys.executable, "-c", JAX_ALONE], self.folder / "none")[0])

    def looking(self, name: str, arguments: list[str]) -> dict[str, Any]:
        """A command that only looks, cold and warm."""
        said = [str(self.folder / "runs") if part == "RUNS" else part for part in arguments]
        command = [sys.executable, "-c", "from fedprior.cli import main; main()", *said]
        times = {}
        for state in ("cold", "warm"):
            self.import_jax()
            times[state] = {"seconds": self.time(command, self.folder / f"cache-{name}")[0]}
        return times

    def run(self, name: str, arguments: list[str]) -> dict[str, Any]:
        """A run, cold and warm."""
        found = {}
        for state in ("cold", "warm"):
            self.import_jax()
            out = ["--out", str(self.folder / "runs"), "--overwrite"]
            command = [sys.executable, os.path.abspath(__file__), "--inside", str(time.time()), *arguments, *out]
            said = self.time(command, self.folder / f"cache-{name}")[1]
            about = json.loads(said.strip().splitlines()[-1])
            by_row = about.pop("rounds")
            first = min(by_row.values())
            imports = about["parts"]["importing_jax"] + about["parts"]["importing_the_rest"]
            row_ends = {} if len(by_row) > 3 else {"first_round_by_row": by_row}
            found[state] = {"first_round": first, "over_import": first - imports, **row_ends, **about}
            print(name, state, json.dumps(rounded(found[state])), file=sys.stderr, flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*RUNS, *LOOKING], default=[*RUNS, *LOOKING])
    parser.add_argument("--all", action="store_true", help="run every method on digits-dnn instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.import_jax()  # from the disk into memory: it does not count
        bench.jax_seconds.clear()
        needed = {*options.only, *(["run"] if "table" in options.only else [])}  # a table is that of its runs
        chosen = ALL if options.all else {name: arguments for name, arguments in RUNS.items() if name in needed}
        found = {name: bench.run(name, arguments) for name, arguments in chosen.items()}
        if not options.all:
            found |= {name: bench.looking(name, said) for name, said in LOOKING.items() if name in options.only}
        reference = statistics.median(bench.jax_seconds)
        for of in found.values():
            for times in of.values():
                times["ratio"] = times["seconds"] / reference
        print(json.dumps(rounded({"import_jax_seconds": reference, **found}), indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[3:], float(sys.argv[2]))
    else:
        main()
