"""The command line. Results go to stdout; progress, warnings and errors go to stderr."""

# Each file adds its command, in the order of the help; none imports anything heavy before it is run.
from fedprior.cli import run, study, sweep, compare, table, report, watch, runs, export, predict  # noqa: F401, I001
from fedprior.cli import tasks, methods, partition, theory, reproduce, flower  # noqa: F401
from fedprior.cli.app import app, main

__all__ = ["app", "main"]
