"""`perseid spark replay`: an archive's rows back into a topic."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from perseid.cli.spark.running import AsJson, Master, Namesrv, SparkLog, job
from perseid.cli.spark.times import moment
from perseid.spark import nameservers


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    table: Annotated[str, typer.Argument(help="Folder of the archive.")],
    topic: Annotated[str, typer.Argument(help="The topic to send to; it must be there.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    rate: Annotated[int | None, typer.Option(help="Messages a second at most.", min=1)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was stored at or after: a time, or milliseconds.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what was stored before: a time, or milliseconds.")] = None,
    order_by: Annotated[
        str | None, typer.Option(help="A column: rows with one value stay in order of time. Else queues stay in order.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The replay's name: another one sends all again.")] = None,
    master: Master = None,
    spark_log: SparkLog = None,
    as_json: AsJson = False,
) -> None:
    """Send an archive's messages to a topic: each once for readers that dedupe, however often this is killed."""
    since_ms, until_ms = moment(since, "--since"), moment(until, "--until")
    with job(f"{table} → {topic}", master=master, as_json=as_json, spark_log=spark_log) as running:
        from perseid.spark.jobs.replay import replay as run

        nameservers.check(namesrv)
        done = run(
            running.spark, table=table, nameserver=namesrv, topic=topic, rate=rate, since_ms=since_ms,
            until_ms=until_ms, order_by=order_by, name=name, on_start=partial(running.begins, "rows"),
            on_batch=running.batch,
        )  # fmt: skip
        running.done(
            f"{done.rows} messages sent to {topic} in {done.seconds:.1f} s; {done.done} of {done.batches} batches done",
            {**asdict(done), "topic": topic},
        )
