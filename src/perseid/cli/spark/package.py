"""`perseid spark package`: what is shipped to a cluster's executors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from perseid.base.errors import PerseidError
from perseid.cli.spark.running import AsJson

APPLICATION = Path(__file__).with_name("submit.py")
"""What spark-submit is given to run; a module that imports the whole command, so it is named, not imported."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(package)


def package(
    path: Annotated[Path, typer.Argument(help="File to write: .tar.gz, an environment; .zip, the source.")] = Path(
        "perseid-env.tar.gz"
    ),
    extra: Annotated[
        list[str] | None, typer.Option("--with", help="Another distribution for the environment, such as pyarrow.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one file with everything that executors need of Perseid, and print how to pass it to spark-submit.

    An environment holds the compiled core and all dependencies, for executors with this Python and this kind of
    machine. The source alone, in a .zip, works everywhere where its dependencies are installed, slower.
    """
    from perseid.spark.package import package as write

    try:
        done = write(path, extra=extra or ())
    except PerseidError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if as_json:
        told = {
            "event": "done", "path": str(done.path), "bytes": done.bytes, "files": done.files,
            "distributions": done.distributions, "options": done.options, "application": str(APPLICATION),
        }  # fmt: skip
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{done.path}: {done.files} files, {done.bytes / 1e6:.1f} MB")
    what = "has to be installed on each executor" if done.plain else "is in it"
    typer.echo(f"{what}: {', '.join(f'{name} {version}' for name, version in done.distributions.items())}")
    options = " ".join(done.options)
    typer.echo(f"spark-submit --master spark://HOST:7077 {options} {APPLICATION} archive TOPIC TABLE")
