"""`perseid spark archive`: land a topic as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import JobOptions, Namesrv, job
from perseid.spark import nameservers
from perseid.spark.jobs.options import ArchiveOptions

if TYPE_CHECKING:
    from perseid.spark.jobs.archive import Archived
    from perseid.spark.jobs.archive.folder import Gap

MAX_TOLD = 5
"""Queues or gaps that a line names."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(archive)


@flattened
def archive(
    *,
    topic: Annotated[str, typer.Argument(help="The topic to archive.")],
    table: Annotated[str, typer.Argument(help="Folder of the table; created if it is missing.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    options: ArchiveOptions,
    run_options: JobOptions,
) -> None:
    """Add a topic's new messages to a table: each message once, however often this is run or killed."""
    with job(f"{topic} → {table}", run_options) as running:
        from perseid.spark.jobs.archive import archive as run

        nameservers.check(namesrv)
        done = run(
            running.spark, nameserver=namesrv, topic=topic, table=table, options=options,
            on_start=partial(running.begins, "offsets"), on_batch=running.batch,
        )  # fmt: skip
        running.done(told(done, table), {**asdict(done), "table": table}, found=missing_told(done))


def told(done: Archived, table: str) -> str:
    """The outcome of a run, in a line."""
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
    """Messages that are not in the table though a run is done, in a line; empty without any."""
    parts = [gaps_told(done.gaps)] if done.gaps else []
    if done.away:
        others = " and others" if done.away[MAX_TOLD:] else ""
        parts.append(
            f"no broker has {', '.join(done.away[:MAX_TOLD])}{others} now, and what came to them since is not in the"
            " table yet: start their brokers, run it again"
        )
    return "; ".join(parts)


def gaps_told(gaps: Sequence[Gap]) -> str:
    """Gaps, in a line; empty without any."""
    if not gaps:
        return ""
    lines = [f"{gap.queue}: {gap.messages} within {gap.start} to {gap.end - 1}, {gap.why}" for gap in gaps[:MAX_TOLD]]
    more = f"; and {len(gaps) - MAX_TOLD} gaps more" if gaps[MAX_TOLD:] else ""
    return f"{sum(gap.messages for gap in gaps)} messages are missing, and noted as gaps: {'; '.join(lines)}{more}"
