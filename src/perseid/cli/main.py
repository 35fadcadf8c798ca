"""The `perseid` command: each module of this folder adds its commands with `register(app)`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from perseid.base.errors import PerseidError
from perseid.cli import admin, messages, servers, sim, spark, topics, verify

MODULES = (servers, messages, topics, admin, verify, spark, sim)
"""In the order in which `perseid --help` shows them."""

app = typer.Typer(
    name="perseid",
    help="A message broker, compatible with Apache RocketMQ on the wire and on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in MODULES:
    module.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"perseid {version('perseid')}")
        except PackageNotFoundError:
            typer.echo("perseid (not installed)")
        raise typer.Exit()


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A message broker, compatible with Apache RocketMQ on the wire and on disk."""


def main() -> None:
    """Run the command; an error that we foresaw is one line on stderr and exit code 1."""
    try:
        app()
    except PerseidError as error:
        print(f"perseid: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
