"""Shared by all jobs: options, Spark's session, a progress bar, events as JSON lines, errors in one line, exit codes.

Exit codes: 0 done, and nothing found that should not be; 1 an error, in one line on stderr; 2 wrong usage; FOUND the
job is done and found what its user has to look at; 128 and a signal's number: by that (130: Ctrl-C).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

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

import perseid.spark
from perseid.base import extras
from perseid.cli.spark.ending import StdoutClosed, Watch, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from perseid.spark.report import Page

FOUND = 3
"""As in `perseid verify`: something is not as it was promised."""
Namesrv = Annotated[str, typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", help="host:port;host:port.")]
SomeNamesrv = Annotated[
    str | None, typer.Option("--namesrv", "-n", help="Name servers, host:port;host:port: read from the brokers.")
]
Folders = Annotated[
    list[str] | None, typer.Option("--folder", "-f", help="Read this store folder, without a broker; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object for each line, for scripts.")]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of all jobs: where Spark is, and how they report."""

    master: Annotated[str | None, typer.Option(help="Spark's master. Default: local, on all cores.")] = None
    spark_log: Annotated[
        Path | None, typer.Option(help="A file for Spark's own output; /dev/stderr shows it.", dir_okay=False)
    ] = None
    as_json: AsJson = False


def _with_folder(path: Path | None) -> Path | None:
    """Refused before the job runs, not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.absolute().parent}")
    if path is not None:
        extras.require("--report", "matplotlib")
    return path


Report = Annotated[
    Path | None,
    typer.Option(
        "--report", help="Write an HTML file with tables and pictures.", dir_okay=False, callback=_with_folder
    ),
]


class Deferred:
    """A Spark session that begins when something is first asked of it, which takes seconds: what a job can tell without
    Spark (a wrong name, a wrong option, that there is nothing to do) it tells at once."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start

    @cached_property
    def _session(self) -> SparkSession:
        return self._start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Job:
    """A job that runs: its session, and what it tells people (stderr) or programs (stdout)."""

    def __init__(self, start: Callable[[], SparkSession], progress: Progress, bar: TaskID, *, as_json: bool) -> None:
        self.spark = cast("SparkSession", Deferred(start))
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
            _say(json.dumps({"event": name, **fields}))

    def row(self, fields: Mapping[str, Any]) -> None:
        """A row of a result, one JSON object a line, for people and programs."""
        self._progress.stop()
        line = {"event": "row", **fields} if self._as_json else fields
        _say(json.dumps(line, ensure_ascii=self._as_json))

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
            _say(text)
        if found:
            if not self._as_json:
                typer.echo(found, file=self._progress.console.file)
            raise typer.Exit(FOUND)


def _say(text: str) -> None:
    """A line on stdout. StdoutClosed: nobody reads it (`| head`)."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is left in the buffer goes there when Python ends
        os.close(nowhere)
        raise StdoutClosed("stdout was closed by its reader, and the rest of the result is told nobody") from None


@contextmanager
def job(title: str, options: JobOptions) -> Iterator[Job]:
    """One job, with a bar named `title`; its session begins when it is first asked for, and ends with it. An error is
    one line, also a signal, or the death of Spark's JVM."""
    console = Console(file=sys.stderr)  # the one of now: what others write there goes elsewhere meanwhile
    try:
        watch = Watch(options.spark_log)
    except OSError as error:
        raise typer.BadParameter(f"--spark-log: {error}") from None
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip

    def start() -> SparkSession:
        watch.session = perseid.spark.session(f"perseid: {title}", master=options.master, jvm=watch.jvm)
        watch.started()
        return watch.session

    shown = console.is_terminal and not options.as_json
    try:
        with watch, Progress(*columns, console=console, disable=not shown, redirect_stderr=False) as progress:
            extras.require("a job on Spark", *perseid.spark.PACKAGES)
            yield Job(start, progress, progress.add_task(title, total=None), as_json=options.as_json)
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (Exception, KeyboardInterrupt) as error:
        status, line = told(error, watch)
        typer.echo(f"perseid: {line}", err=True)
        raise typer.Exit(status) from None
