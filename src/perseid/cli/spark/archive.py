"""`perseid spark archive`: land a topic as a table."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from perseid.cli.spark.running import AsJson, Master, Namesrv, job
from perseid.cli.spark.times import pairs


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
    fail_on_data_loss: Annotated[bool, typer.Option(help="Fail when offsets are gone from the broker.")] = True,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the source, such as startingTimestamp=0.")
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Bring the table up to what the topic holds now: each message once, however often this is run or killed."""
    options = {"failOnDataLoss": str(fail_on_data_loss).lower(), **pairs(option, "--option")}
    if tags is not None:
        options["tags"] = tags
    with job(f"{topic} → {table}", master=master, as_json=as_json) as running:
        from perseid.spark.jobs.archive import archive as run

        done = run(
            running.spark, nameserver=namesrv, topic=topic, table=table, format=format, partition_by=partition_by,
            schema=schema, message=message, keep_value=False if drop_value else None,
            max_offsets_per_trigger=batch_offsets, options=options, compact=compact, target_bytes=target_mb << 20,
            keep_hours=keep_hours, on_start=partial(running.begins, "offsets"), on_batch=running.batch,
        )  # fmt: skip
        bad = f", {done.corrupt} of them with bodies that did not decode" if done.corrupt else ""
        merged = f"; {done.compacted.before} files are {done.compacted.after} now" if done.compacted else ""
        running.done(
            f"{done.rows} messages in {done.batches} batches added to {table}{bad}{merged}",
            {**asdict(done), "table": table},
        )
