"""The `perseid` command: each module of this folder adds its commands with `register(app)`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from perseid.base.errors import PerseidError

COMMANDS = {
    "perseid.cli.servers": ("namesrv", "broker", "up", "dledger", "controller"),
    "perseid.cli.messages": ("send", "consume"),
    "perseid.cli.topics": ("topic",),
    "perseid.cli.admin": ("admin",),
    "perseid.cli.settings": ("settings",),
    "perseid.cli.verify": ("verify",),
    "perseid.cli.spark": ("spark",),
    "perseid.cli.sim": ("sim",),
}
"""Modules and the commands that each registers, in the order in which `perseid --help` shows them. A command
imports its own module alone: that of the servers is most of what there is to import."""
CREDENTIALS = "PERSEID_CREDENTIALS"
WITH_VALUES = frozenset(("--credentials", "--ca", "--cert", "--key", "--server-name"))
FLAGS = frozenset(("--tls", "--insecure"))
"""What may stand before a command, and is none."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from perseid.app.about import describe  # imports the core

        typer.echo(describe())
        raise typer.Exit()


def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    credentials: Annotated[
        Path | None,
        typer.Option(
            envvar=CREDENTIALS,
            metavar="FILE",
            help="Who you are, for clusters with users: two lines, accessKey: NAME and secretKey: KEY.",
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", envvar="PERSEID_TLS", help="Speak TLS with the cluster; so do the next ones.")
    ] = False,
    ca: Annotated[str, typer.Option(envvar="PERSEID_CA", help="PEM: CAs of the servers; else the system's.")] = "",
    cert: Annotated[str, typer.Option(envvar="PERSEID_CERT", help="PEM: a certificate to show to servers.")] = "",
    key: Annotated[str, typer.Option(envvar="PERSEID_KEY", help="PEM: its key, where it is in another file.")] = "",
    server_name: Annotated[
        str, typer.Option(envvar="PERSEID_SERVER_NAME", help="Whom certificates have to name; else the host dialled.")
    ] = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", envvar="PERSEID_INSECURE", help="Trust any server, one that only pretends to be it as well."
        ),
    ] = False,
) -> None:
    """A message broker, compatible with Apache RocketMQ on the wire and on disk."""
    if credentials is not None:
        os.environ[CREDENTIALS] = str(credentials.expanduser().absolute())  # where each client looks, Spark's too
    if tls or ca or cert or key or server_name or insecure:
        from perseid.client.tls import ClientTls, use  # only for who asks for it

        password = os.environ.get("PERSEID_KEY_PASSWORD", "")
        use(ClientTls(ca, cert, key, password, verify=not insecure, server_name=server_name))


def command_line(*modules: str) -> typer.Typer:
    """The command with the commands of these modules."""
    app = typer.Typer(
        name="perseid",
        help=options.__doc__,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in modules:
        import_module(name).register(app)
    return app


def asked(words: list[str]) -> list[str]:
    """The modules that these words of a command line need: one, or all, as for `--help` and what there is not."""
    while words and words[0].partition("=")[0] in WITH_VALUES | FLAGS:
        words = words[2 if words[0] in WITH_VALUES else 1 :]
    first = words[0] if words else ""
    return [name for name, commands in COMMANDS.items() if first in commands] or [*COMMANDS]


def __getattr__(name: str) -> typer.Typer:
    """`app`, the whole command, for programs that call it within their own process."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = command_line(*COMMANDS)
    globals()[name] = app
    return app


def main() -> None:
    """Run the command; an error that we foresaw is one line on stderr and exit code 1."""
    try:
        command_line(*asked(sys.argv[1:]))()
    except PerseidError as error:
        print(f"perseid: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
