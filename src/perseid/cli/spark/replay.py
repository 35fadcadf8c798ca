"""`perseid spark replay`: an archive's rows back into a topic."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import JobOptions, Namesrv, job
from perseid.spark import nameservers
from perseid.spark.jobs.options import ReplayOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


@flattened
def replay(
    *,
    table: Annotated[str, typer.Argument(help="Folder of the archive.")],
    topic: Annotated[str, typer.Argument(help="The topic to send to; it must exist.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    options: ReplayOptions,
    run_options: JobOptions,
) -> None:
    """Send an archive's messages to a topic: each once for readers that deduplicate, however often this is killed."""
    with job(f"{table} → {topic}", run_options) as running:
        from perseid.spark.jobs.replay import replay as run

        nameservers.check(namesrv)
        done = run(
            running.spark, table=table, nameserver=namesrv, topic=topic, options=options,
            on_start=partial(running.begins, "rows"), on_batch=running.batch,
        )  # fmt: skip
        running.done(
            f"{done.rows} messages sent to {topic} in {done.seconds:.1f} s; {done.done} of {done.batches} batches done",
            {**asdict(done), "topic": topic},
        )
