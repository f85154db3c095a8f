"""The page of the command line, written from the program itself: every command, argument and option with its help."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pages import cell, table, write

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ABOUT = """\
# The command line

This page is written from the program when the site is built; `fedprior COMMAND --help` says the same.

Numbers, tables and JSON go to stdout; warnings, progress and errors go to stderr. The exit code is 0 after success, 2 after an
error, which is one line that says what was given, what is valid and the likely fix, and 130 after Ctrl-C, when `--resume` goes
on from where it stopped.

"""


def page() -> str:
    """The text of the page."""
    import typer.main

    from fedprior.cli import app

    group: Any = typer.main.get_command(app)
    return ABOUT + "\n".join(_section(f"fedprior {name}", command) for name, command in group.commands.items())


def _section(name: str, command: Any, level: int = 2) -> str:
    told = "\n\n".join(_paragraph(part) for part in (command.help or "").split("\n\n"))
    lines = [f"{'#' * level} {name}", "", told, ""]
    if hasattr(command, "commands"):
        inner = (_section(f"{name} {sub}", each, level + 1) for sub, each in command.commands.items())
        return "\n".join([*lines, *inner])
    given = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not getattr(each, "hidden", False)
    ]
    usage = " ".join([name, *("[OPTIONS]" if options else "",), *(_argument(each) for each in given)])
    lines += ["```text", " ".join(usage.split()), "```", ""]
    if given:
        rows = [[f"`{each.metavar or each.name.upper()}`", cell(_help(command, each))] for each in given]
        lines += [table(["argument", "what it is"], rows)]
    if options:
        lines += [table(["option", "what it does", "default"], [_option(each) for each in options])]
    return "\n".join(lines)


def _paragraph(text: str) -> str:
    """A paragraph of a help text; one that is set in holds commands."""
    lines = text.strip("\n").splitlines()
    if lines and all(line.startswith("  ") for line in lines):
        return "\n".join(["```sh", *(line.strip() for line in lines), "```"])
    return " ".join(text.split())


def _help(command: Any, argument: Any) -> str:
    """What an argument is. Some versions of click drop what typer hands over: then the function itself says it."""
    from typer.utils import get_params_from_function

    if getattr(argument, "help", None):
        return str(argument.help)
    declared = get_params_from_function(inspect.unwrap(command.callback))
    return getattr(declared[argument.name].default, "help", None) or ""


def _argument(each: Any) -> str:
    shown = (each.metavar or each.name.upper()) + ("..." if each.nargs == -1 else "")
    return shown if each.required or shown.startswith("[") else f"[{shown}]"


def _option(each: Any) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
    value = "" if each.is_flag else f" `{each.metavar or each.type.name.upper()}`"
    default = each.default() if callable(each.default) else each.default
    shown = "" if default in (None, False, (), []) or each.is_flag else f"`{default}`"
    return [names + value, cell(each.help or ""), shown]


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx write the page before it looks for pages."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "reference" / "commands.md", page()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
