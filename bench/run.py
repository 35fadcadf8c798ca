"""Perseid beside the Java broker: `make bench`, or `python bench/run.py --help`.

Both brokers run on this machine with the same configuration. For each row, rounds alternate between them;
the one that is not measured is stopped with SIGSTOP, so the server, its idle name server and the load
generator (bench/load.c, one thread) have the machine to themselves. Nothing is pinned to a core. Figures
are medians over the rounds, with the lowest and highest. CPU is utime + stime of all threads of the
broker's process over the measured time, divided by the messages of that time.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import describe_machine
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from servers import BenchError, Server, data_folder, java_command, load_program, perseid_command

HEAP = {"namesrv": "256m", "broker": "512m"}
SETTLE_SECONDS = 2.0
FILL_MESSAGES = 400_000
LOAD_TIMEOUT_S = 600.0
QUIET_CORES = 0.1
RANGES_WIDTH = 130
"""Columns of a terminal that has room for lowest and highest."""


@dataclass(frozen=True)
class Row:
    """One kind of load. `goal`: Perseid's CPU a message may be at most this part of Java's."""

    name: str
    title: str
    mode: str
    connections: int
    window: int
    size: int
    goal: float | None = None

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def arguments(self) -> list[str]:
        numbers = {"--connections": self.connections, "--window": self.window, "--size": self.size}
        return [str(x) for pair in numbers.items() for x in pair]


ROWS = (
    Row("pipelined", "send, 16 connections × 64 in flight, 128 B", "send", 16, 64, 128, goal=0.5),
    Row("closed", "send, 64 connections × 1, 128 B", "send", 64, 1, 128, goal=1.0),
    Row("closed1k", "send, 16 connections × 1, 1 KiB", "send", 16, 1, 1024),
    Row("pull", "pull 32 at a time, 16 connections × 1, 128 B", "pull", 16, 1, 128),
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


def warm_up(server: Server, row: Row, seconds: float) -> None:
    server.create_topic(row.topic)
    if row.mode == "pull":
        fill = Row(row.name, row.title, "send", 16, 64, row.size)
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
            seconds = min(args.warm, 5.0) if server.name == "Perseid" else args.warm / (1 if first else 3)
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


def summarise(results: dict[str, Any]) -> dict[str, Any]:
    """{row: {title, servers: {name: {figure: spread}}, ratio, goal, met}}; no ratio with one server only."""
    summary: dict[str, Any] = {}
    for row in (r for r in ROWS if r.name in results):
        rounds = results[row.name]
        servers = {name: {f: spread(rounds[name], f) for f in FIGURES} for name in rounds}
        found: dict[str, Any] = {"title": row.title, "servers": servers, "goal": row.goal}
        found["ratio"] = found["met"] = None
        if len(servers) == 2:
            ratio = servers["Perseid"]["server_cpu_us"][0] / servers["Java"]["server_cpu_us"][0]
            found["ratio"] = ratio
            if row.goal is not None:
                found["met"] = ratio < 1 and ratio <= row.goal
        summary[row.name] = found
    return summary


COLUMNS = ("row", "broker", "k/s", "µs CPU", "cores", "p50/p99 ms", "load", "other", "ratio")
COLUMN_TEXT = (
    "k/s: thousand messages a second; µs CPU: the broker's, a message; cores that the broker, the load generator "
    "and all other processes kept busy; ratio: Perseid's CPU a message over Java's."
)


def table_rows(summary: dict[str, Any], *, ranges: bool) -> Iterator[list[str]]:
    """The cells of the result table: medians; with `ranges` the lowest and highest behind them."""

    def cell(values: Sequence[float], digits: int) -> str:
        median, low, high = (f"{v:,.{digits}f}" for v in values)
        return f"{median} ({low}–{high})" if ranges else median

    for name, row in summary.items():
        servers = list(row["servers"].items())
        for server, figures in servers:
            last = server == servers[-1][0] and row["ratio"] is not None
            yield [
                name if server == servers[0][0] else "",
                server,
                cell([v / 1000 for v in figures["per_second"]], 1),
                cell(figures["server_cpu_us"], 2),
                f"{figures['server_cores'][0]:.2f}",
                f"{figures['p50_ms'][0]:.2f}/{figures['p99_ms'][0]:.1f}",
                f"{figures['load_cores'][0]:.2f}",
                f"{figures['other_cores'][0]:.2f}",
                f"{row['ratio']:.2f}" if last else "",
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
        console.print(line)
    if (busy := others_busy(summary)) > QUIET_CORES:
        console.print(f"[red]other processes kept up to {busy:.2f} cores busy: repeat this on a quiet machine[/red]")


def others_busy(summary: dict[str, Any]) -> float:
    """Cores that other processes used, at the worst median."""
    return max(f["other_cores"][0] for row in summary.values() for f in row["servers"].values())


def goals(summary: dict[str, Any]) -> Iterator[str]:
    for row in summary.values():
        if row["met"] is not None:
            limit = f"at most {row['goal']:g} of" if row["goal"] < 1 else "less than"
            verdict = "met" if row["met"] else "missed"
            yield f"{row['title']}: goal {limit} Java's CPU a message; measured {row['ratio']:.2f}: {verdict}"


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = [r.name for r in ROWS]
    parser.add_argument("--rows", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured in each round")
    parser.add_argument("--warm", type=float, default=45.0, help="seconds of load before Java is measured")
    parser.add_argument("--only", choices=("java", "perseid"), help="leave the other one out")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--write", action="store_true", help="also docs/benchmarks.md and its plot")
    args = parser.parse_args()
    unknown = set(args.rows.split(",")) - set(names)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if args.write and args.only:
        parser.error("--write needs both brokers")
    return args


def main() -> int:
    args = parse_arguments()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [r for r in ROWS if r.name in args.rows.split(",")]
    folder = data_folder()
    servers: list[Server] = []
    try:
        if args.only != "perseid":
            servers.append(Server("Java", java_command(HEAP), folder / "java"))
            servers[-1].start()
        if args.only != "java":
            servers.append(Server("Perseid", perseid_command, folder / "perseid"))
            servers[-1].start()
        results = measure(servers, rows, args, console)
    except BenchError as error:
        console.print(f"[red]bench: {error}[/red]")
        return 1
    finally:
        for server in servers:
            server.stop()
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
