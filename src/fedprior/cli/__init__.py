"""The command line. Results go to stdout; progress, warnings and errors go to stderr."""

from fedprior.cli import learn, look  # their commands, in the order of the help
from fedprior.cli.program import app, main

__all__ = ["app", "learn", "look", "main"]
