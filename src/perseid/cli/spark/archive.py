"""`perseid spark archive`: land a topic as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perseid.cli.spark.running import AsJson, Master, Namesrv, SparkLog, job
from perseid.cli.spark.times import pairs
from perseid.spark import nameservers

if TYPE_CHECKING:
    from perseid.spark.jobs.archive import Archived
    from perseid.spark.jobs.archive.folder import Gap

MAX_TOLD = 5
"""Queues or gaps that a line names."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(archive)


def archive(
    topic: Annotated[str, typer.Argument(help="The topic to land.")],
    table: Annotated[str, typer.Argument(help="Folder of the table; made if it is missing.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    format: Annotated[str | None, typer.Option(help="parquet, delta or iceberg; parquet for a new table.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="none, day or hour, of the store time.")] = None,
    schema: Annotated[
        str | None, typer.Option(help="What bodies hold: a .json (JSON Schema), .avsc, .desc or .ddl file, or DDL.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="The Protobuf message's full name, with a .desc.")] = None,
    drop_value: Annotated[bool, typer.Option(help="Keep no raw bytes of bodies that decode.")] = False,
    compact: Annotated[bool, typer.Option(help="Merge small files afterwards.")] = False,
    target_mb: Annotated[int, typer.Option(help="How large a merged file gets.", min=1)] = 128,
    keep_hours: Annotated[
        int, typer.Option(help="How long earlier versions are kept (Delta, Iceberg).", min=0)
    ] = 168,
    batch_offsets: Annotated[int, typer.Option(help="Offsets that one batch covers at most.", min=1)] = 500_000,
    tags: Annotated[str | None, typer.Option(help="Only messages with these tags: 'a || b'.")] = None,
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Fail when offsets are gone from the broker; else they are noted as a gap.")
    ] = True,
    accept_table: Annotated[
        bool, typer.Option(help="Others removed rows: go on with the table as it is; the rows are noted as a gap.")
    ] = False,
    new_generation: Annotated[
        bool, typer.Option(help="The topic was made again, or lost its end: keep what was landed, go on with what is.")
    ] = False,
    catalog: Annotated[
        list[str] | None,
        typer.Option(help="Readers may open an Iceberg table's catalog under this name, too; else as perseid alone."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the source, such as startingTimestamp=0.")
    ] = None,
    master: Master = None,
    spark_log: SparkLog = None,
    as_json: AsJson = False,
) -> None:
    """Bring the table up to what the topic holds now: each message once, however often this is run or killed."""
    options = {"failOnDataLoss": str(fail_on_data_loss).lower(), **pairs(option, "--option")}
    if tags is not None:
        options["tags"] = tags
    with job(f"{topic} → {table}", master=master, as_json=as_json, spark_log=spark_log) as running:
        from perseid.spark.jobs.archive import archive as run

        nameservers.check(namesrv)
        done = run(
            running.spark, nameserver=namesrv, topic=topic, table=table, format=format, partition_by=partition_by,
            schema=schema, message=message, keep_value=False if drop_value else None,
            max_offsets_per_trigger=batch_offsets, options=options, compact=compact, target_bytes=target_mb << 20,
            keep_hours=keep_hours, accept_table=accept_table, new_generation=new_generation,
            catalogs=catalog or (), on_start=partial(running.begins, "offsets"), on_batch=running.batch,
        )  # fmt: skip
        running.done(told(done, table), {**asdict(done), "table": table}, found=missing_told(done))


def told(done: Archived, table: str) -> str:
    """What a run did, in a line."""
    text = f"{done.rows} messages in {done.batches} batches added to {table}"
    if done.corrupt:
        text += f", {done.corrupt} of them with bodies that did not decode"
    if done.repeats:
        text += f"; {done.repeats} had come before, and were left out"
    if done.doubtful:
        text += f"; {done.doubtful} of them have stamps that came before with something else (docs/spark.md, the sink)"
    if done.rewound:
        reached, held = done.rewound
        since = f"batch {held}" if held >= 0 else "its beginning"
        text += f"; it held what it held at {since}, not at batch {reached}, and was read again from there"
    if done.compacted:
        text += f"; {done.compacted.before} files are {done.compacted.after} now"
    return text


def missing_told(done: Archived) -> str:
    """What is not in the table though a run is done, in a line; empty where nothing is."""
    parts = [gaps_told(done.gaps)] if done.gaps else []
    if done.away:
        others = " and others" if done.away[MAX_TOLD:] else ""
        parts.append(
            f"no broker has {', '.join(done.away[:MAX_TOLD])}{others} now, and what came to them since is not in the"
            " table yet: start their brokers, run it again"
        )
    return "; ".join(parts)


def gaps_told(gaps: Sequence[Gap]) -> str:
    """What is missing, in a line; empty where nothing is."""
    if not gaps:
        return ""
    lines = [f"{gap.queue}: {gap.messages} within {gap.start} to {gap.end - 1}, {gap.why}" for gap in gaps[:MAX_TOLD]]
    more = f"; and {len(gaps) - MAX_TOLD} gaps more" if gaps[MAX_TOLD:] else ""
    return f"{sum(gap.messages for gap in gaps)} messages are missing, and noted as gaps: {'; '.join(lines)}{more}"
