"""docs/reference/cli.md, made from the commands.

    python -m tests.tidy.cli_reference     writes it anew

What a parameter takes is read from the annotations of its command's function, and not from typer's objects, which
change from version to version.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from tests.tidy.settings_reference import cell, code

from perseid.cli.main import app

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMAND = "python -m tests.tidy.cli_reference"
INTRODUCTION = f"""\
# The command line

<!-- made by: {COMMAND} -->

All commands of `perseid`, as `perseid COMMAND --help` shows them. `-h` is short for `--help`, everywhere.

- **Exit codes**: 0 success, 1 failure, 2 a mistake in the command line, 130 Ctrl-C.
  Other exit codes are named below, with their commands.
- **Output**: results on stdout, everything else on stderr. With `--json` a result is JSON.
- **Addresses**: `--namesrv` takes one name server or several, `host:port;host:port`. Default: the variable
  `NAMESRV_ADDR`, else 127.0.0.1:9876.
- **Users and TLS** are options before the command: `perseid --credentials FILE --tls topic list`.
"""
HEAD = ("| option | takes | default | what |", "|---|---|---|---|")
ARGUMENTS = ("| argument | what |", "|---|---|")
PLACEHOLDERS = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def annotations(command: Any) -> dict[str, Any]:
    """The annotations of a command's parameters, with what typer is told."""
    return get_type_hints(command.callback, include_extras=True) if command.callback is not None else {}


def limits(extras: tuple[Any, ...]) -> str:
    """The smallest and the largest number that is taken."""
    low, high = (next((value for value in (getattr(one, name, None) for one in extras) if value is not None), None)
                 for name in ("min", "max"))  # fmt: skip
    if low is None and high is None:
        return ""
    return f", {low} to {high}" if None not in (low, high) else f", at least {low}" if high is None else f", to {high}"


def takes(annotation: Any) -> str:
    """What stands behind an option."""
    kind, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if get_origin(kind) in (Union, UnionType):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is list:
        return f"{takes(Annotated[get_args(kind)[0], *extras])}, again and again"
    if kind is bool:
        return ""
    metavar = next((one.metavar for one in extras if getattr(one, "metavar", None)), None)
    if isinstance(kind, type) and issubclass(kind, Enum) and metavar is None:
        return ", ".join(code(str(one.value)) for one in kind)
    return code(metavar or PLACEHOLDERS.get(kind, "TEXT")) + limits(tuple(extras))


def default(parameter: Any) -> str:
    """What counts without the option."""
    value = parameter.default
    value = value.value if isinstance(value, Enum) else value
    if parameter.required:
        return "needed"
    shown = (
        "" if callable(value) or value in (None, "", False, (), []) else code("true" if value is True else str(value))
    )
    if not parameter.envvar:
        return shown
    variables = [parameter.envvar] if isinstance(parameter.envvar, str) else list(parameter.envvar)
    return ", else ".join(filter(None, (*(f"variable {code(name)}" for name in variables), shown)))


def tables(command: Any) -> Iterator[str]:
    """The arguments and options of a command."""
    hints = annotations(command)
    shown = [one for one in command.params if not one.hidden and one.name != "help"]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    options.sort(key=lambda one: one.opts[0].startswith("--tls-"))  # long, and seldom needed
    if arguments:
        yield from ("", *ARGUMENTS)
        for one in arguments:
            yield f"| {code(argument(one))} | {cell(one.help or '')} |"
    if options:
        yield from ("", *HEAD)
        for one in options:
            names = ", ".join(map(code, (*one.opts, *one.secondary_opts)))
            cells = names, takes(hints[one.name]), default(one), one.help or ""
            yield f"| {' | '.join(map(cell, cells))} |"


def argument(parameter: Any) -> str:
    """As a usage line shows it."""
    name = (parameter.metavar or parameter.name).upper().strip("[]")
    name += "…" if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"


def section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    """A command, and those below it."""
    below = getattr(command, "commands", {})
    yield from ("", f"{'#' * min(len(path), 4)} `{' '.join(path)}`", "", inspect.cleandoc(command.help or ""))
    if not below:
        arguments = [argument(one) for one in command.params if one.param_type_name == "argument"]
        yield from ("", "```", " ".join((*path, *arguments, "[OPTIONS]")), "```")
    yield from tables(command)
    for name, one in below.items():
        yield from section((*path, name), one)


def whole() -> str:
    """The document as the commands are now."""
    command: Any = typer.main.get_command(app)
    lines = [
        "",
        "## Before the command",
        "",
        "Options that stand before the command, as in `perseid --tls topic list`.",
    ]
    lines += tables(command)
    for name, one in command.commands.items():
        lines += section(("perseid", name), one)
    return INTRODUCTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(whole())
