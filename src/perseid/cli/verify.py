"""`perseid verify run|check`: is all there that was acknowledged, in order? Where did the time of an outage go?"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perseid.cli.flags import flattened
from perseid.cli.topics import DEFAULT_NAMESRV, PIPE_COLUMNS, AsJson, Namesrv, run, show
from perseid.client import Admin, NoRoute, PullConsumer, Session
from perseid.verify import Findings, Ledger, Outage, OutageMonitor, SteadySender, compare, read_back
from perseid.verify.steady import SenderStats

BROKEN = 3
"""Exit code when the cluster broke a promise."""
STOPS = (signal.SIGINT, signal.SIGTERM)
BAR_CELLS, LEAST_BAR_CELLS = 40, 12
OTHER_CELLS = 84
"""Of a picture's other columns, where there is room for them."""
BLOCKS = "▏▎▍▌▋▊▉█"
REFRESH_PER_SECOND = 8
OTHER_ERRORS = 5
"""Kinds of errors that are shown of an outage."""
COLOURS = {
    "detection": "yellow", "election": "magenta", "role change": "cyan", "route": "blue", "return": "yellow",
    "first acknowledgement": "green",
}  # fmt: skip

verify_app = typer.Typer(help="Check that a cluster keeps all messages that it has acknowledged.", no_args_is_help=True)
Settle = Annotated[float, typer.Option(min=0, help="Seconds in which all acknowledged messages must become readable.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(verify_app, name="verify")


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How messages are sent, and what is polled meanwhile."""

    rate: Annotated[float, typer.Option(min=0.1, max=20_000, help="Messages a second, of all queues together.")] = 200
    seconds: Annotated[float, typer.Option(min=0, help="How long to send; 0: until Ctrl-C.")] = 30
    ledger: Annotated[
        Path | None,
        typer.Option(help="Write the ledger of acknowledged messages to this new file. Default: only in memory."),
    ] = None
    body_bytes: Annotated[int, typer.Option("--bytes", min=1, help="The size of each body.")] = 100
    queues: Annotated[
        int, typer.Option("--queues", "-q", min=1, help="The number of queues of a topic that is created.")
    ] = 8
    poll_ms: Annotated[
        float,
        typer.Option(min=1, help="The interval at which the route is read and controllers are asked while sends fail."),
    ] = 5
    controllers: Annotated[
        str | None, typer.Option(help="Controllers to ask, host:port;…. Default: those of the brokers' settings.")
    ] = None


@verify_app.command("run")
@flattened
def run_(
    *,
    topic: Annotated[
        str, typer.Argument(help="The topic; created with --queues queues if it is missing.")
    ] = "perseid-verify",
    options: SendOptions,
    settle: Settle = 30,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Send at a steady rate during failures, and check afterwards that all acknowledged messages are there.

    Each message is retried until it is acknowledged. While sends fail, the route is read every few milliseconds.
    Each outage is split into its parts. Kill a master meanwhile, and see. Exit code 3: something was lost, has moved,
    was reordered or invented.
    """
    session = Session(namesrv)
    screen = _Screen(options.seconds, quiet=as_json)

    async def work() -> tuple[Findings, SenderStats, list[Outage]]:
        async with Admin(session=session) as admin, OutageMonitor(
            session, poll_ms=options.poll_ms, controllers=options.controllers,
            on_begin=screen.begins, on_end=screen.ended,
        ) as monitor:  # fmt: skip
            await _make_topic(admin, topic, options.queues)
            await monitor.prepare(topic)
            with Ledger(topic, f"v{time.time_ns() // 1_000_000:x}", options.ledger) as ledger:
                sender = SteadySender(
                    session, ledger, rate=options.rate, body_bytes=options.body_bytes, poll_ms=options.poll_ms,
                    observer=monitor,
                )  # fmt: skip
                await screen.show(sender, sender.run(options.seconds or None))
            outages = monitor.outages + list(monitor.open.values())
            async with PullConsumer(session=session, group="PERSEID_VERIFY") as consumer:
                found = await read_back(consumer, ledger, settle_ms=int(settle * 1000))
        return compare(ledger.entries, found), sender.stats, outages

    findings, counts, outages = run(work(), namesrv)
    if as_json:
        told = {"topic": topic, **findings_json(findings), "sender": _stats_json(counts)}
        typer.echo(json.dumps({**told, "outages": [dict(one.to_json()) for one in outages]}))
    else:
        show_outages([one for one in outages if one.first_ack is None])
        show_findings(findings, counts)
    if not findings.kept:
        raise typer.Exit(BROKEN)


@verify_app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="ledger", help="A file from `perseid verify run --ledger`.")],
    settle: Settle = 30,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Check a ledger again: after another failover, a restart, a restore. Exit code 3 as for `run`."""
    ledger = Ledger.load(path)

    async def work() -> Findings:
        async with PullConsumer(namesrv, "PERSEID_VERIFY") as consumer:
            return compare(ledger.entries, await read_back(consumer, ledger, settle_ms=int(settle * 1000)))

    findings = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps({"topic": ledger.topic, **findings_json(findings)}))
    else:
        show_findings(findings, None)
    if not findings.kept:
        raise typer.Exit(BROKEN)


async def _make_topic(admin: Admin, topic: str, queues: int) -> None:
    try:
        await admin.topic_route(topic)
    except NoRoute:
        await admin.create_topic(topic, queues)


# ---- for scripts ----


def findings_json(findings: Findings) -> dict[str, Any]:
    """The findings for scripts."""
    return {"kept": findings.kept, **asdict(findings)}


def _stats_json(stats: SenderStats) -> dict[str, Any]:
    return {
        "acknowledged": stats.acknowledged,
        "attempts": stats.attempts,
        "failures": stats.failures,
        "storedOnly": stats.stored_only,
        "longestGapMs": round(stats.longest_gap_ms, 2),
    }


# ---- for people ----


class _Screen:
    """One line that moves while messages are sent, and a picture of each outage when it is over."""

    def __init__(self, seconds: float, *, quiet: bool) -> None:
        self._seconds = seconds
        self._quiet = quiet
        self._console = Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_COLUMNS)
        self._down: dict[str, float] = {}

    def begins(self, outage: Outage) -> None:
        self._down[outage.broker_name] = time.monotonic()

    def ended(self, outage: Outage) -> None:
        self._down.pop(outage.broker_name, None)
        if not self._quiet:
            self._console.print(Picture(outage.to_json()))

    async def show(self, sender: SteadySender, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, or to Ctrl-C or SIGTERM, which end the sending and not the check; a second one ends
        all."""
        loop, start, task = asyncio.get_running_loop(), time.monotonic(), asyncio.ensure_future(work)

        def stop() -> None:
            sender.stop.set()
            for number in STOPS:
                loop.remove_signal_handler(number)

        for number in STOPS:
            loop.add_signal_handler(number, stop)
        try:
            with Live(console=self._console, refresh_per_second=REFRESH_PER_SECOND, transient=True) as live:
                while not task.done():
                    if not self._quiet:
                        live.update(self._line(sender.stats, time.monotonic() - start))
                    await asyncio.wait({task}, timeout=1 / REFRESH_PER_SECOND)
            task.result()
        finally:
            task.cancel()
            stop()

    def _line(self, counts: SenderStats, elapsed: float) -> Text:
        of = f" of {self._seconds:.0f}" if self._seconds else ""
        text = Text(f"{elapsed:5.1f}{of} s   {counts.acknowledged:,} acknowledged   ")
        text.append(f"longest gap {counts.longest_gap_ms:,.0f} ms", style="dim")
        for name, since in self._down.items():
            text.append(f"   {name}: none for {time.monotonic() - since:.1f} s", style="bold red")
        return text


@dataclass(frozen=True, slots=True)
class Picture:
    """An outage's parts, one below the other, each where it lies in the window; as wide as the terminal."""

    told: Mapping[str, Any]
    """`Outage.to_json()`."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        told = self.told
        time_ms, length = told["lastAcknowledgementMs"], f"{told['lengthMs'] or 0:,.0f} ms"
        clock = time.strftime("%H:%M:%S", time.localtime(time_ms / 1000)) + f".{time_ms % 1000:03}"
        if told["slowOnly"]:
            yield Text(f"{told['broker']}: an answer took {length}, at {clock}", style="dim")
            return
        epochs = f"; epoch {told['oldEpoch']} → {told['newEpoch']}" if told["oldEpoch"] != told["newEpoch"] else ""
        text = Text(told["broker"], style="bold")
        text.append(": ", style="not bold").append(length, style="bold red")
        yield text.append(f" without an acknowledgement, from {told['from']} at {clock}{epochs}", style="not bold")
        yield self._table(max(LEAST_BAR_CELLS, min(BAR_CELLS, options.max_width - OTHER_CELLS)))

    def _table(self, cells: int) -> Table:
        told = self.told
        table = Table(box=None, padding=(0, 1), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, min_width=cells)
        table.add_column(overflow="fold", style="dim")
        for part in told["parts"]:
            start, end = part["startMs"], part["startMs"] + part["ms"]
            drawn = bar(start, end, told["lengthMs"] or 1.0, cells) if part["seen"] else ""
            took = f"{part['ms']:,.0f} ms" if part["seen"] else "–"
            table.add_row(part["name"], took, Text(drawn, style=COLOURS.get(part["name"], "white")), part["what"])
        for one in told["also"]:
            table.add_row("also", f"{one['atMs']:,.0f} ms", "", one["what"])
        for why, count in sorted(told["errors"].items(), key=lambda row: -row[1])[:OTHER_ERRORS]:
            table.add_row("error", f"{count} ×", "", why, style="dim")
        return table


def bar(start: float, end: float, whole: float, width: int = BAR_CELLS) -> str:
    """`start` to `end` of `whole` as blocks in `width` cells, the end exact to an eighth; what there is can be seen."""
    first, last = (round(8 * width * min(1.0, max(0.0, at / whole))) for at in (start, end))
    first = min(first, 8 * width - 1)
    last = max(last, first + 1)
    cells = first // 8
    filled = last - 8 * cells
    return " " * cells + "█" * (filled // 8) + (BLOCKS[filled % 8 - 1] if filled % 8 else "")


def show_outages(outages: Sequence[Outage]) -> None:
    """Those that never ended."""
    for one in outages:
        typer.echo(f"{one.broker_name}: no acknowledgement any more since {one.old_master} failed", err=True)
        for why, count in sorted(one.errors.items(), key=lambda row: -row[1])[:OTHER_ERRORS]:
            typer.echo(f"  {count} × {why}", err=True)


def show_findings(findings: Findings, counts: SenderStats | None) -> None:
    """Print the findings as a table."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows: list[tuple[str, int | str, bool]] = [
        ("acknowledged", findings.acknowledged, False),
        ("lost", findings.lost, True),
        ("at another offset than acknowledged", findings.moved, True),
        ("reordered", findings.reordered, True),
        ("more often there than sent", findings.invented, True),
        ("doubled by retries", findings.doubled, False),
        ("stored, and never acknowledged", findings.unacknowledged, False),
    ]
    for name, number, wrong in rows:
        style = "" if not wrong else "bold red" if number else "green"
        table.add_row(name, Text(f"{number:,}", style=style))
    if counts is not None:
        table.add_row("sends that failed, and were tried again", f"{counts.failures:,}")
        table.add_row("longest time without an acknowledgement", f"{counts.longest_gap_ms:,.0f} ms")
    show(table)
    for kind, lines in findings.named.items():
        for line in lines:
            typer.echo(f"{kind}: {line}", err=True)
    if findings.kept:
        typer.echo("all that was acknowledged is there, in its place and in order")
