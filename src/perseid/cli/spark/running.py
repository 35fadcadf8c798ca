"""What all jobs share: options, Spark's session, a progress bar, events as JSON lines, errors in one line, exit codes.

Exit codes: 0 done, and nothing found that should not be; 1 an error, in one line on stderr; 2 wrong usage; FOUND the
job is done and found what its user has to look at; INTERRUPTED by Ctrl-C.
"""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from perseid.base.errors import PerseidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from perseid.spark.report import Page

FOUND = 3
"""As in `perseid verify`: something is not as it was promised."""
INTERRUPTED = 130
"""As shells have it: 128 and SIGINT's number."""
_CAUSE = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]+(?:Error|Exception): .+)$", re.MULTILINE)
"""A line of a Java or Python trace that names what was raised."""

Namesrv = Annotated[str, typer.Option("--namesrv", "-n", help="host:port;host:port.")]
SomeNamesrv = Annotated[str | None, typer.Option("--namesrv", "-n", help="host:port;host:port: ask the brokers.")]
Folders = Annotated[
    list[str] | None, typer.Option("--folder", "-f", help="Read this store folder, with no broker; may be repeated.")
]
Master = Annotated[str | None, typer.Option(help="Spark's master; local on all cores if not given.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]


def _with_folder(path: Path | None) -> Path | None:
    """Refused before the job runs, not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.absolute().parent}")
    return path


Report = Annotated[
    Path | None,
    typer.Option("--report", help="HTML file to be made: tables and pictures.", dir_okay=False, callback=_with_folder),
]


class Job:
    """A job that runs: its session, and what it tells people (stderr) or programs (stdout)."""

    def __init__(self, spark: SparkSession, progress: Progress, bar: TaskID, *, as_json: bool) -> None:
        self.spark = spark
        self._progress = progress
        self._bar = bar
        self._as_json = as_json

    def at(self, done: int, total: int) -> None:
        """So much of so much is done."""
        self._progress.update(self._bar, completed=done, total=total)

    def begins(self, what: str, count: int) -> None:
        """A job of batches has so much to do, of `what`."""
        self._progress.update(self._bar, total=count)
        self.event("start", **{what: count})

    def batch(self, batch: int, rows: int, repeats: int | None = None) -> None:
        """A batch is done. `repeats`: messages that were left out, as they had come before."""
        self._progress.advance(self._bar, rows + (repeats or 0))
        self.event("batch", batch=batch, rows=rows, **({} if repeats is None else {"repeats": repeats}))

    def event(self, name: str, **fields: Any) -> None:
        """A line for programs; people see nothing of it."""
        if self._as_json:
            typer.echo(json.dumps({"event": name, **fields}))

    def row(self, fields: Mapping[str, Any]) -> None:
        """A row of a result, one JSON object a line, for people and programs."""
        self._progress.stop()
        line = {"event": "row", **fields} if self._as_json else fields
        typer.echo(json.dumps(line, ensure_ascii=self._as_json))

    def report(self, make: Callable[[], Page], path: Path | None) -> None:
        """Make the page, if one was asked for."""
        if path is not None:
            make().write(path)
            self.event("report", path=str(path))

    def done(self, text: str, told: Mapping[str, Any], *, found: str = "") -> None:
        """The last word: `text` for people, `told` for programs. `found`: what the user has to look at, of which the
        exit code tells too."""
        self._progress.stop()
        if self._as_json:
            self.event("done", **told)
        else:
            typer.echo(text)
        if found:
            if not self._as_json:
                typer.echo(found, err=True)
            raise typer.Exit(FOUND)


@contextmanager
def job(title: str, *, master: str | None, as_json: bool) -> Iterator[Job]:
    """A session for one job, with a bar named `title`; the session ends with it. An error is one line."""
    console = Console(stderr=True)
    try:
        import perseid.spark
    except ImportError as error:
        console.print(f"Spark's parts are not installed ({error}): pip install 'perseid[spark]'")
        raise typer.Exit(1) from None
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=as_json) as progress:
        bar = progress.add_task(title, total=None)
        try:
            spark = perseid.spark.session(f"perseid: {title}", master=master)
            with _stopped(spark):
                yield Job(spark, progress, bar, as_json=as_json)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            progress.stop()
            typer.echo("perseid: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            progress.stop()
            typer.echo(f"perseid: {_in_one_line(error)}", err=True)
            raise typer.Exit(1) from None


@contextmanager
def _stopped(spark: SparkSession) -> Iterator[None]:
    """The session ends; that a dead JVM cannot be stopped is not told in place of what happened before."""
    try:
        yield
    except BaseException as first:
        try:
            spark.stop()
        except Exception as error:
            first.add_note(f"and Spark did not stop: {error}")
        raise
    spark.stop()


def _in_one_line(error: Exception) -> str:
    """What happened. An error that we did not foresee has its trace in a file, which the line names."""
    text = str(error)
    if isinstance(error, PerseidError):
        return " ".join(text.split())
    causes = _CAUSE.findall(text)
    line = " ".join((causes[-1] if causes else f"{type(error).__name__}: {text.strip().partition(chr(10))[0]}").split())
    try:
        with tempfile.NamedTemporaryFile("w", prefix="perseid-spark-", suffix=".trace", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError as refused:  # the disk that is full may be this one
        return f"{line} (its trace could not be written: {refused})"
    return f"{line} (the trace is in {file.name})"
