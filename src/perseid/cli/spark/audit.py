"""`perseid spark audit`: do replicas agree?"""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import FOUND, JobOptions, Report, job


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


@flattened
def audit(
    *,
    folders: Annotated[list[str], typer.Argument(help="Store folders, one of each replica.")],
    samples: Annotated[int, typer.Option(help="The number of differences of each pair that are listed.", min=1)] = 20,
    max_record_bytes: Annotated[
        str | None, typer.Option(help="The longest record; for brokers whose maxMessageSize is not 4 MiB.")
    ] = None,
    report: Report = None,
    run_options: JobOptions,
) -> None:
    """Compare the logs of replicas, record by record: first divergence, missing, extra, corrupt, by topic.

    The folders may be Java's or ours, of slaves, broker sets under a controller, or DLedger groups, copies or in use.
    Exit code 0: all agree where they overlap. 3: a divergence, or something corrupt.
    """
    with job(f"{len(folders)} replicas", run_options) as running:
        from perseid.spark.jobs.audit import audit as run
        from perseid.spark.jobs.audit import lines, page

        found = run(
            running.spark, folders=folders, max_record_bytes=max_record_bytes, samples=samples, on_progress=running.at
        )
        running.report(lambda: page(found), report)
        running.done("\n".join(lines(found)), found.told())
        if not found.is_equal:
            raise typer.Exit(FOUND)
