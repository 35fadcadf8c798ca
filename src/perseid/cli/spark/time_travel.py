"""`perseid spark time-travel`: a topic as of a store time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.archive import gaps_told
from perseid.cli.spark.running import JobOptions, job
from perseid.cli.values import moment, pairs
from perseid.spark import nameservers


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("time-travel")(time_travel)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Where rows are written or shown."""

    out: Annotated[str | None, typer.Option(help="Write the rows there, as Parquet; it must not exist.")] = None
    show: Annotated[int, typer.Option(help="Show this number of rows, in order of time.", min=0)] = 0


@flattened
def time_travel(
    *,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    as_of: Annotated[str, typer.Option(help="A time (2026-11-20T12:00:00, UTC), or milliseconds since 1970.")],
    table: Annotated[str | None, typer.Option(help="Folder of the topic's archive, if there is one.")] = None,
    namesrv: Annotated[str | None, typer.Option("--namesrv", "-n", help="The live log: host:port;host:port.")] = None,
    store: Annotated[
        list[str] | None, typer.Option(help="Or BROKER=FOLDER: a broker's name and its store, with no broker running.")
    ] = None,
    output: OutputOptions,
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Fail if messages between archive and log are missing.")
    ] = True,
    run_options: JobOptions,
) -> None:
    """The messages that a topic had at a time, from its archive and its live log, each message once."""
    at_ms, stores = moment(as_of, "--as-of"), pairs(store, "--store")
    assert at_ms is not None
    with job(f"{topic} as of {as_of}", run_options) as running:
        from perseid.spark.jobs.time_travel import time_travel as frame
        from perseid.spark.jobs.time_travel import travel

        server = namesrv or (None if stores else "127.0.0.1:9876")
        if server is not None:
            nameservers.check(server)
        source: dict[str, Any] = {
            "topic": topic, "as_of": at_ms, "nameserver": server, "stores": stores or None, "table": table,
            "source_options": {"failOnDataLoss": str(fail_on_data_loss).lower()},
        }  # fmt: skip
        done = travel(running.spark, **source, out=output.out)
        if output.show:
            rows = running.spark.read.parquet(output.out) if output.out else frame(running.spark, **source)
            places = ("storeTimestamp", "brokerName", "queueId", "queueOffset")
            for row in rows.orderBy(*places).limit(output.show).collect():
                running.row({name: shown(value) for name, value in row.asDict(recursive=True).items()})
        where = f", written to {output.out}" if output.out else ""
        running.done(
            f"{topic} held {done.rows} messages at {as_of}, {done.archived} of them archived{where}", asdict(done),
            found=gaps_told(done.gaps),
        )  # fmt: skip


def shown(value: Any) -> Any:
    """A value as JSON can have it, and as people can read it: bodies as text if they are."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(name): shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
