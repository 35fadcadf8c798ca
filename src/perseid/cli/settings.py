"""`perseid settings`: what each setting of each node does."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated

import typer

from perseid.app import settings as settings_app
from perseid.app.settings import Described

MIN_WIDTH, MAX_WIDTH = 60, 110
"""Columns of a text."""
INDENT = "    "


def register(app: typer.Typer) -> None:
    """Add the command to the `perseid` command."""
    app.command()(settings)


def settings(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A setting, such as brokerPermission. Default: all settings.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Explain settings: effect, default, unit, limits, and whether a running node follows changes."""
    found = settings_app.find(name) if name is not None else list(settings_app.described())
    if as_json:
        typer.echo(json.dumps([one.to_dict() for one in found], indent=2, ensure_ascii=False))
    elif name is not None:
        typer.echo("\n\n".join(_whole(one) for one in found))
    else:
        typer.echo("\n".join(_lines(found)))


def _width() -> int:
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size().columns))


def _plain(text: str) -> str:
    """Without Markdown's marks."""
    return text.replace("`", "")


def _default(one: Described) -> str:
    value = _plain(one.option.computed) or one.default or "empty"
    return f"{value} {one.option.unit}" if one.option.unit else value


def _whole(one: Described) -> str:
    """All of one setting."""
    option = one.option
    rows = [
        ("default", _default(one)),
        ("takes", one.limits),
        ("changed", "while the node runs" if option.live else "by a restart"),
        ("of", ", ".join(one.part.nodes) + ("; RocketMQ has no such setting" if option.ours else "")),
    ]
    wrapped = textwrap.wrap(_plain(option.effect), _width(), initial_indent=INDENT, subsequent_indent=INDENT)
    facts = [f"{INDENT}{title:<8} {text}" for title, text in rows if text]
    return "\n".join([option.key, *wrapped, *facts])


def _lines(found: Iterable[Described]) -> Iterator[str]:
    """One line for each setting, below the title of its group."""
    for (part, section), group in groupby(found, lambda one: (one.part, one.option.section)):
        yield f"\n{part.title}: {section} ({', '.join(part.nodes)})"
        for one in group:
            live = "live" if one.option.live else ""
            yield f"{INDENT}{one.option.key:<46} {live:<5} {_default(one)}".rstrip()
    yield "\nlive: a running node follows a change. `perseid settings NAME` says what a setting does."
