"""`perseid admin certs`: a CA of one's own, and certificates for servers and clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perseid.app import certs
from perseid.security.certificates import AUTHORITY_DAYS, DAYS

Folder = Annotated[Path, typer.Option(help="Folder of the files; created if it is missing.")]
Name = Annotated[str, typer.Argument(help="The owner's name, in the certificate and in the names of the files.")]

app = typer.Typer(help="Make a CA, and certificates for servers and clients.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="certs")


@app.command()
def ca(
    folder: Folder,
    name: Annotated[str, typer.Option(help="The CA's name in certificates.")] = "Perseid CA",
    days: Annotated[int, typer.Option(min=1, help="Days for which it is valid.")] = AUTHORITY_DAYS,
) -> None:
    """Make a CA: ca.pem, for all servers and clients, and ca.key, which signs certificates and must stay secret."""
    typer.echo(certs.make_authority(folder, name, days))


@app.command()
def server(
    name: Name,
    folder: Folder,
    host: Annotated[list[str], typer.Option(help="A host name or address at which clients reach it; may be repeated.")],
    days: Annotated[int, typer.Option(min=1, help="Days for which it is valid.")] = DAYS,
) -> None:
    """Make or renew a server's certificate: NAME.pem and NAME.key. It is also valid for connections to other nodes."""
    typer.echo(certs.make(folder, name, host, days))


@app.command()
def client(
    name: Name,
    folder: Folder,
    days: Annotated[int, typer.Option(min=1, help="Days for which it is valid.")] = DAYS,
) -> None:
    """Make or renew a client's certificate: NAME.pem and NAME.key."""
    typer.echo(certs.make(folder, name, (), days))
