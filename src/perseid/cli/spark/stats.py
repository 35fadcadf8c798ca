"""`perseid spark stats`: size, rate, skew."""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import Folders, JobOptions, Report, SomeNamesrv, job


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)


@flattened
def stats(
    *,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics. Default: all but system topics.")] = None,
    namesrv: SomeNamesrv = None,
    folder: Folders = None,
    report: Report = None,
    run_options: JobOptions,
) -> None:
    """Size, rate over time and skew of topics, from their brokers or from store folders."""
    with job("stats", run_options) as running:
        from perseid.spark.jobs.stats import lines, page
        from perseid.spark.jobs.stats import stats as run

        found = run(
            running.spark, nameserver=namesrv, topics=topics or (), folders=folder or (), on_progress=running.at
        )
        running.report(lambda: page(found), report)
        running.done("\n".join(lines(found)), found.told())
