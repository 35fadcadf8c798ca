"""`perseid admin certs`: a CA of one's own, and certificates for servers and clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perseid.app import certs
from perseid.security.certificates import AUTHORITY_DAYS, DAYS

Folder = Annotated[Path, typer.Option(help="Where the files are; made when it is missing.")]
Name = Annotated[str, typer.Argument(help="Of its owner: the files' name, and what servers call a client by.")]

app = typer.Typer(help="Make a CA, and certificates for servers and clients.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="certs")


@app.command()
def ca(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Its name in certificates.")] = "Perseid CA",
    days: Annotated[int, typer.Option(min=1, help="Valid for so long.")] = AUTHORITY_DAYS,
) -> None:
    """Make a CA: ca.pem, which all are given, and ca.key, which makes certificates and stays here."""
    typer.echo(certs.make_authority(folder, name, days))


@app.command()
def server(
    name: Name,
    folder: Folder,
    host: Annotated[list[str], typer.Option(help="A name or address by which clients dial it; may be repeated.")],
    days: Annotated[int, typer.Option(min=1, help="Valid for so long.")] = DAYS,
) -> None:
    """Make a server's certificate, or renew it: NAME.pem and NAME.key. It is good to dial other nodes with, too."""
    typer.echo(certs.make(folder, name, host, days))


@app.command()
def client(
    name: Name,
    folder: Folder,
    days: Annotated[int, typer.Option(min=1, help="Valid for so long.")] = DAYS,
) -> None:
    """Make a client's certificate, or renew it: NAME.pem and NAME.key."""
    typer.echo(certs.make(folder, name, (), days))
