"""`perseid admin audit`: what a broker's audit log says, its older files too; read from the files, whether it runs or
not."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from perseid.app.access import AUDIT_FILE, AUDIT_FOLDER
from perseid.base.errors import ConfigError
from perseid.cli.topics import AsJson, show

LAST = 50
MOST = 1_000_000
Line = dict[str, Any]


def register(admin: typer.Typer) -> None:
    """Add the command to `perseid admin`."""
    admin.command()(audit)


def audit(
    store: Annotated[Path, typer.Argument(help="The broker's storePathRootDir, or its auditLogPath.")],
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only requests of this user.")] = None,
    address: Annotated[
        str | None, typer.Option("--from", help="Only requests from addresses with this beginning.")
    ] = None,
    code: Annotated[str | None, typer.Option(help="Only requests with this code, such as AUTH_CREATE_USER.")] = None,
    about: Annotated[
        str | None, typer.Option(help="Only requests with this text in a resource or field, such as a topic.")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only refused requests.")] = False,
    last: Annotated[int, typer.Option("--last", min=1, max=MOST, help="The number of lines, at most.")] = LAST,
    as_json: AsJson = False,
) -> None:
    """The last lines of a broker's audit log: which user made which request, and whether it was allowed."""

    def wanted(line: Line) -> bool:
        return (
            (user is None or line.get("user") == user)
            and (address is None or str(line.get("address", "")).startswith(address))
            and (code is None or line.get("code") == code.upper())
            and (about is None or any(about in text for text in _texts(line)))
            and not (refused and line.get("allowed") is not False)
        )

    found: deque[Line] = deque((line for line in _lines(_folder(store)) if wanted(line)), maxlen=last)
    if as_json:
        for line in found:
            typer.echo(json.dumps(line))
        return
    table = Table("time", "user", "from", "request", "about", "allowed", "why")
    for line in found:
        request = line.get("code") or f"{line.get('leftOut', 0)} more"
        cells = [line.get("time", ""), line.get("user", ""), line.get("address", ""), request, " ".join(_texts(line))]
        told = [*cells, "yes" if line.get("allowed") else "no", line.get("why", "")]
        table.add_row(*(Text(_plain(str(cell))) for cell in told))
    if found:
        show(table)
    else:
        typer.echo("no such line", err=True)


def _folder(store: Path) -> Path:
    for folder in (store.expanduser() / AUDIT_FOLDER, store.expanduser()):
        if (folder / AUDIT_FILE).is_file():
            return folder
    raise ConfigError(
        f"{store}: no {AUDIT_FILE}, nor {AUDIT_FOLDER}/{AUDIT_FILE}: name a broker's storePathRootDir or auditLogPath; "
        "it is there once somebody asked for something, with authenticationEnabled=true"
    )


def _lines(folder: Path) -> Iterator[Line]:
    """From the oldest file to the newest; what a crash cut off is no line."""
    older = [path for path in folder.glob(f"{AUDIT_FILE}.*") if path.suffix[1:].isdecimal()]
    older.sort(key=lambda path: -int(path.suffix[1:]))
    for path in (*older, folder / AUDIT_FILE):
        with path.open("rb") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line


def _texts(line: Line) -> list[str]:
    """What a request was about."""
    resources = [f"{one['resource']} {'|'.join(one['actions'])}" for one in line.get("asked", ())]
    return resources + [f"{name}={value}" for name, value in line.get("fields", {}).items()]


def _plain(text: str) -> str:
    """What strangers wrote must not steer a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
