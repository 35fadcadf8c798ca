"""Perseid beside the Java broker: `make bench`, or `python bench/run.py --help`.

Perseid runs twice, with the compiled core and without it. All brokers run on this machine with the same
configuration. For each row, rounds alternate between them; those that are not measured are stopped with SIGSTOP, so the
server, its idle name server and the load generator (bench/load.c, one thread) have the machine to themselves. Nothing
is pinned to a core. Figures are medians over the rounds, with the lowest and highest. CPU is utime + stime of all
threads of the broker's process over the measured time, divided by the messages of that time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine import describe_machine
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from servers import (
    CORE,
    JAVA,
    PLAIN,
    BenchError,
    Server,
    data_folder,
    java_command,
    load_program,
    perseid_command,
)

HEAP = {"namesrv": "256m", "broker": "512m"}
SETTLE_SECONDS = 2.0
FILL_MESSAGES = 400_000
LOAD_TIMEOUT_S = 600.0
QUIET_CORES = 0.1
RANGES_WIDTH = 130
"""Columns of a terminal that has room for lowest and highest."""


@dataclass(frozen=True)
class Goals:
    """What a row asks of Perseid, as parts of Java's figures in the same run: CPU a message at most `cpu`,
    messages a second at least `speed`, p99 at most `p99` times; without the compiled core, CPU at most `plain`."""

    cpu: float
    speed: float | None = None
    p99: float | None = None
    plain: float = 1.0


@dataclass(frozen=True)
class Row:
    """One kind of load."""

    name: str
    title: str
    mode: str
    connections: int
    window: int
    size: int
    goals: Goals
    flush: str = "ASYNC_FLUSH"

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def arguments(self) -> list[str]:
        numbers = {"--connections": self.connections, "--window": self.window, "--size": self.size}
        return [str(x) for pair in numbers.items() for x in pair]


PIPELINED = Goals(cpu=1 / 8, speed=5, plain=0.5)
CLOSED = Goals(cpu=1 / 3, speed=2, p99=1 / 3)
PULL = Goals(cpu=1 / 4, speed=2, p99=1 / 2)
SYNC = Goals(cpu=1 / 3, speed=1, p99=1)
ROWS = (
    Row("pipelined", "send, 16 connections × 64 in flight, 128 B", "send", 16, 64, 128, PIPELINED),
    Row("pipelined1k", "send, 16 connections × 64 in flight, 1 KiB", "send", 16, 64, 1024, PIPELINED),
    Row("closed", "send, 64 connections × 1, 128 B", "send", 64, 1, 128, CLOSED),
    Row("closed16", "send, 16 connections × 1, 128 B", "send", 16, 1, 128, CLOSED),
    Row("closed1k", "send, 16 connections × 1, 1 KiB", "send", 16, 1, 1024, CLOSED),
    Row("pull", "pull 32 at a time, 16 connections × 1, 128 B", "pull", 16, 1, 128, PULL),
    Row("sync", "send with SYNC_FLUSH, 64 connections × 1, 128 B", "send", 64, 1, 128, SYNC, flush="SYNC_FLUSH"),
)


def run_load(server: Server, row: Row, *, mode: str = "", **options: float) -> dict[str, Any]:
    """One run of the load generator; checks that what was acknowledged is stored."""
    mode = mode or row.mode
    pids = ",".join(map(str, server.pids()))
    command = [str(load_program()), mode, str(server.port), "--topic", row.topic, "--pids", pids]
    command += row.arguments()
    command += [str(x) for k, v in options.items() for x in (f"--{k}", v)]
    before = server.stored(row.topic)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    if done.returncode:
        raise BenchError(f"{row.name} on {server.name}: {done.stderr.strip() or done.stdout.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    if mode == "send":
        server.check_stored(row.topic, before + result["messages_from_start"])
    elif result["messages"] < 0.99 * 32 * result["requests"]:
        found = result["messages"] / result["requests"]
        raise BenchError(f"{server.name} answered {found:.1f} messages a pull, not 32")
    return result


@contextlib.contextmanager
def alone(server: Server, others: Sequence[Server]) -> Iterator[None]:
    """Only `server` runs; what others wrote has left for the disk."""
    for other in others:
        if other is not server:
            other.pause()
    os.sync()
    server.resume()
    try:
        yield
    finally:
        server.pause()


@contextlib.contextmanager
def running(flush: str, only: Sequence[str] | None, folder: Path) -> Iterator[list[Server]]:
    """The servers with one kind of flush, started."""
    servers: list[Server] = []
    try:
        for name in (JAVA, CORE, PLAIN):
            if not only or name in only:
                command = java_command(HEAP) if name == JAVA else perseid_command
                environment = {"PERSEID_CORE": "off"} if name == PLAIN else {}
                home = folder / f"{name.replace(' ', '-')}-{flush}"
                servers.append(Server(name, command, home, {"flushDiskType": flush}, environment))
                servers[-1].start()
        yield servers
    finally:
        for server in servers:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)


def warm_up(server: Server, row: Row, seconds: float) -> None:
    server.create_topic(row.topic)
    server.await_stored(row.topic)  # what is counted from now on comes on top of it
    if row.mode == "pull":
        fill = replace(row, mode="send", connections=16, window=64)
        run_load(server, fill, messages=FILL_MESSAGES)
    run_load(server, row, warm=0, seconds=seconds)


def measure(
    servers: Sequence[Server], rows: Sequence[Row], args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """{row: {server: [result of each round]}}"""
    results: dict[str, Any] = {}
    warmed: set[str] = set()
    for row in rows:
        first = row.mode not in warmed
        warmed.add(row.mode)
        for server in servers:
            seconds = args.warm / (1 if first else 3) if server.name == JAVA else min(args.warm, 5.0)
            console.print(f"[dim]{row.name}: warming {server.name} up for {seconds:.0f} s[/dim]")
            with alone(server, servers):
                warm_up(server, row, seconds)
        results[row.name] = {server.name: [] for server in servers}
        for number in range(args.rounds):
            for server in servers:
                with alone(server, servers):
                    result = run_load(server, row, warm=SETTLE_SECONDS, seconds=args.seconds)
                    result["memory_mb"] = server.memory_mb()
                results[row.name][server.name].append(result)
                cost = f"{result['per_second']:,.0f}/s, {result['server_cpu_us']:.2f} µs"
                console.print(f"[dim]{row.name}, round {number + 1}, {server.name}: {cost}[/dim]")
    return results


FIGURES = (
    *("per_second", "server_cpu_us", "server_cores", "memory_mb"),
    *("load_cores", "other_cores", "load_cpu_us", "p50_ms", "p99_ms"),
)


def spread(rounds: Sequence[dict[str, float]], figure: str) -> list[float]:
    """Median, lowest, highest."""
    values = [r[figure] for r in rounds]
    return [statistics.median(values), min(values), max(values)]


RATIOS = {"cpu": "server_cpu_us", "speed": "per_second", "p99": "p99_ms"}


def summarise(results: dict[str, Any]) -> dict[str, Any]:
    """{row: {title, servers: {name: {figure: spread}}, ratios: {name: {what: Perseid's over Java's}}}}"""
    summary: dict[str, Any] = {}
    for row in (r for r in ROWS if r.name in results):
        rounds = results[row.name]
        servers = {name: {f: spread(rounds[name], f) for f in FIGURES} for name in rounds}
        ratios = {
            name: {what: figures[f][0] / servers[JAVA][f][0] for what, f in RATIOS.items()}
            for name, figures in servers.items()
            if name != JAVA and JAVA in servers
        }
        summary[row.name] = {"title": row.title, "servers": servers, "ratios": ratios}
    return summary


COLUMNS = ("row", "broker", "k/s", "µs CPU", "cores", "p50/p99 ms", "load", "other", "CPU", "speed")
COLUMN_TEXT = (
    "k/s: thousand messages a second; µs CPU: the broker's, a message; cores that the broker, the load generator "
    "and all other processes kept busy; CPU and speed: Perseid's CPU a message and messages a second over Java's; "
    f"{PLAIN}: Perseid without the compiled core (PERSEID_CORE=off)."
)


def table_rows(summary: dict[str, Any], *, ranges: bool) -> Iterator[list[str]]:
    """The cells of the result table: medians; with `ranges` the lowest and highest behind them."""

    def cell(values: Sequence[float], digits: int) -> str:
        median, low, high = (f"{v:,.{digits}f}" for v in values)
        return f"{median} ({low}–{high})" if ranges else median

    for name, row in summary.items():
        servers = list(row["servers"].items())
        for server, figures in servers:
            ratios = row["ratios"].get(server)
            yield [
                name if server == servers[0][0] else "",
                server,
                cell([v / 1000 for v in figures["per_second"]], 1),
                cell(figures["server_cpu_us"], 2),
                f"{figures['server_cores'][0]:.2f}",
                f"{figures['p50_ms'][0]:.2f}/{figures['p99_ms'][0]:.1f}",
                f"{figures['load_cores'][0]:.2f}",
                f"{figures['other_cores'][0]:.2f}",
                f"{ratios['cpu']:.2f}" if ratios else "",
                f"{ratios['speed']:.2f}" if ratios else "",
            ]


def show(summary: dict[str, Any], console: Console) -> None:
    table = Table(title="Perseid beside Java RocketMQ 5.5.0, medians", box=SIMPLE_HEAD, padding=0)
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if i < 2 else "right", no_wrap=True)
    for cells in table_rows(summary, ranges=console.width >= RANGES_WIDTH):
        table.add_row(*cells)
    console.print(table)
    console.print(f"[dim]{COLUMN_TEXT}[/dim]")
    for name, row in summary.items():
        console.print(f"[dim]{name}: {row['title']}[/dim]")
    for line in goals(summary):
        console.print(line.replace("**", ""))
    if (busy := others_busy(summary)) > QUIET_CORES:
        console.print(f"[red]other processes kept up to {busy:.2f} cores busy: repeat this on a quiet machine[/red]")


def others_busy(summary: dict[str, Any]) -> float:
    """Cores that other processes used, at the worst median."""
    return max(f["other_cores"][0] for row in summary.values() for f in row["servers"].values())


def goals(summary: dict[str, Any]) -> Iterator[str]:
    """One line for each row and server: each goal, and whether it was met."""
    for row in (r for r in ROWS if r.name in summary):
        ratios = summary[row.name]["ratios"]
        if CORE in ratios:
            wanted = {"cpu": row.goals.cpu, "speed": row.goals.speed, "p99": row.goals.p99}
            parts = [_verdict(what, ratios[CORE][what], limit) for what, limit in wanted.items() if limit is not None]
            yield f"**{row.name}**: " + ", ".join(parts)
        if PLAIN in ratios:
            yield f"**{row.name}**, {PLAIN}: " + _verdict("cpu", ratios[PLAIN]["cpu"], row.goals.plain)


def _verdict(what: str, ratio: float, limit: float) -> str:
    met = ratio >= limit if what == "speed" else ratio <= limit
    name = {"cpu": "CPU a message", "speed": "messages a second", "p99": "p99"}[what]
    goal = f"goal {'≥' if what == 'speed' else '≤'} {limit:.3g}"
    return f"{name} {ratio:.2f} of Java's ({goal}: {'met' if met else 'missed'})"


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = [r.name for r in ROWS]
    parser.add_argument("--rows", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured in each round")
    parser.add_argument("--warm", type=float, default=45.0, help="seconds of load before Java is measured")
    parser.add_argument("--only", choices=(JAVA, CORE, PLAIN), action="append", help="leave the others out")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--write", action="store_true", help="also docs/benchmarks.md and its plot")
    args = parser.parse_args()
    unknown = set(args.rows.split(",")) - set(names)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if args.write and args.only:
        parser.error("--write needs all brokers")
    return args


def main() -> int:
    args = parse_arguments()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [r for r in ROWS if r.name in args.rows.split(",")]
    folder = data_folder()
    results: dict[str, Any] = {}
    try:
        for flush in dict.fromkeys(row.flush for row in rows):
            with running(flush, args.only, folder) as servers:
                results |= measure(servers, [row for row in rows if row.flush == flush], args, console)
    except BenchError as error:
        console.print(f"[red]bench: {error}[/red]")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summary = summarise(results)
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "command": " ".join(["bench/run.py", *sys.argv[1:]]),
    }
    report |= {"warm_seconds": args.warm, "summary": summary, "rounds": results}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n")
    show(summary, console)
    if args.write and others_busy(summary) > QUIET_CORES:
        console.print("[red]docs/benchmarks.md was not written[/red]")
        return 1
    if args.write:
        from report import write_docs

        write_docs(report, COLUMNS, COLUMN_TEXT, list(table_rows(summary, ranges=True)), list(goals(summary)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
