"""`perseid spark archive`: land a topic as Parquet."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from perseid.base.errors import PerseidError

spark_app = typer.Typer(help="Jobs on Spark, over topics.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(spark_app, name="spark")


@spark_app.command()
def archive(
    topic: Annotated[str, typer.Argument(help="The topic to land.")],
    table: Annotated[str, typer.Argument(help="Folder of the Parquet table; made if it is missing.")],
    namesrv: Annotated[str, typer.Option("--namesrv", "-n", help="host:port;host:port.")] = "127.0.0.1:9876",
    batch_offsets: Annotated[int, typer.Option(help="Offsets that one batch covers at most.", min=1)] = 500_000,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'a || b'.")] = "*",
    fail_on_data_loss: Annotated[bool, typer.Option(help="Fail when offsets are gone from the broker.")] = True,
    master: Annotated[str | None, typer.Option(help="Spark's master; local on all cores if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")] = False,
) -> None:
    """Bring the table up to what the topic holds now: each message once, however often this is run or killed."""
    console = Console(stderr=True)
    try:
        import perseid.spark
        from perseid.client.blocking import BlockingPullConsumer
        from perseid.spark.archive import archive as run
    except ImportError as error:
        console.print(f"Spark's parts are not installed ({error}): pip install 'perseid[spark]'")
        raise typer.Exit(1) from None
    try:
        with BlockingPullConsumer(namesrv) as consumer:
            there = sum(consumer.max_offset(q) - consumer.min_offset(q) for q in consumer.queues(topic))
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console, disable=as_json) as progress:
            bar = progress.add_task(f"{topic} → {table}", total=there)
            spark = perseid.spark.session("perseid archive", master=master)

            def on_batch(batch: int, rows: int) -> None:
                progress.advance(bar, rows)
                if as_json:
                    typer.echo(json.dumps({"event": "batch", "batch": batch, "rows": rows}))

            try:
                done = run(
                    spark, nameserver=namesrv, topic=topic, table=table, max_offsets_per_trigger=batch_offsets,
                    options={"tags": tags, "failOnDataLoss": str(fail_on_data_loss).lower()}, on_batch=on_batch,
                )  # fmt: skip
            finally:
                spark.stop()
    except PerseidError as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({"event": "done", "batches": done.batches, "rows": done.rows, "table": table}))
    else:
        typer.echo(f"{done.rows} messages in {done.batches} batches added to {table}")
