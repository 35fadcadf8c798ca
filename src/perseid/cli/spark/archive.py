"""`perseid spark archive`: land a topic as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli.spark.running import AsJson, Master, Namesrv, job


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(archive)


def archive(
    topic: Annotated[str, typer.Argument(help="The topic to land.")],
    table: Annotated[str, typer.Argument(help="Folder of the Parquet table; made if it is missing.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    batch_offsets: Annotated[int, typer.Option(help="Offsets that one batch covers at most.", min=1)] = 500_000,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'a || b'.")] = "*",
    fail_on_data_loss: Annotated[bool, typer.Option(help="Fail when offsets are gone from the broker.")] = True,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Bring the table up to what the topic holds now: each message once, however often this is run or killed."""
    with job(f"{topic} → {table}", master=master, as_json=as_json) as running:
        from perseid.client.blocking import BlockingPullConsumer
        from perseid.spark.jobs.archive import archive as run

        with BlockingPullConsumer(namesrv) as consumer:
            running.total(sum(consumer.max_offset(q) - consumer.min_offset(q) for q in consumer.queues(topic)))

        def on_batch(batch: int, rows: int) -> None:
            running.advance(rows)
            running.event("batch", batch=batch, rows=rows)

        done = run(
            running.spark, nameserver=namesrv, topic=topic, table=table, max_offsets_per_trigger=batch_offsets,
            options={"tags": tags, "failOnDataLoss": str(fail_on_data_loss).lower()}, on_batch=on_batch,
        )  # fmt: skip
        running.done(
            f"{done.rows} messages in {done.batches} batches added to {table}",
            {"batches": done.batches, "rows": done.rows, "table": table},
        )
