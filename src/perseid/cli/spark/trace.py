"""`perseid spark trace`: latencies and failures from message traces."""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import Folders, JobOptions, Report, SomeNamesrv, job
from perseid.wire.names import TRACE_TOPIC


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trace)


@flattened
def trace(
    *,
    topic: Annotated[str, typer.Argument(help="The trace topic, if it has another name.")] = TRACE_TOPIC,
    namesrv: SomeNamesrv = None,
    folder: Folders = None,
    report: Report = None,
    run_options: JobOptions,
) -> None:
    """Latency percentiles per topic and client (send, end to end, consume) and failures, from message traces."""
    with job("traces", run_options) as running:
        from perseid.spark.jobs.trace import lines, page
        from perseid.spark.jobs.trace import trace as run

        found = run(running.spark, nameserver=namesrv, folders=folder or (), topic=topic, on_progress=running.at)
        running.report(lambda: page(found), report)
        running.done("\n".join(lines(found)), found.told())
