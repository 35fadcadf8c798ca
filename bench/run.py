"""Perseid beside the Java broker: `make bench`, or `python bench/run.py --help`.

Perseid runs with the compiled core and without it, and for some rows in two shards. All brokers run on this machine
with the same configuration. For each row (rows.py), rounds alternate between them; those that are not measured are
stopped with SIGSTOP, so the server, its idle name server and the load generator (bench/load.c, one thread) have the
machine to themselves. Nothing is pinned to a core. Figures are medians over the rounds, with the lowest and highest.
CPU is utime + stime of all threads of the broker's process over the measured time, divided by the messages of that
time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cold import evict
from figures import QUIET_CORES, Rounds, goals, load_share, others_busy, summarise
from machine import describe_machine
from report import show, write_docs
from rich.console import Console
from rows import ROWS, Fill, Row, Sizes, groups, sized
from servers import (
    CORE,
    JAVA,
    PLAIN,
    SHARDS,
    TOPIC_QUEUES,
    BenchError,
    Server,
    data_folder,
    load_program,
    raise_open_files,
    server,
)

HEAP = {"namesrv": "256m", "broker": "512m"}
SETTLE_SECONDS = 1.0
"""Of load, or of idling, before each measurement."""
START_SETTLE_SECONDS, JAVA_START_SETTLE_SECONDS = 3.0, 14.0
"""Before a broker that has just started is called idle: Java keeps a core busy for ten seconds more."""
PERSEID_WARM_SECONDS = 2.0
REST_SECONDS = 4.0
HANG_UP_SECONDS = 3.0
"""So long a broker has to hear that 10,000 connections are gone, before it is stopped or gets new ones."""
LOAD_TIMEOUT_S = 600.0
FILL_TIMEOUT_S = 3600.0
FILL_BATCH = 32
RECORD_BYTES = 250
"""Of a message in the log, beyond its body."""
SPARE_BYTES = 8 << 30
MOST_OF_DISK = 0.8
"""Both kinds of broker begin to remove old files above that."""
SPARE_FILES = 600

FleetKey = tuple[str, str, str]
"""Server, flush, store."""


# ---- one run of the load generator ----


def load_command(server: Server, topics: Sequence[str], mode: str, /, **options: float | str) -> list[str]:
    """What runs the load generator."""
    name = topics[0].removesuffix("-0000") if len(topics) > 1 else topics[0]
    command = [str(load_program()), mode, ",".join(map(str, server.ports)), "--topic", name]
    command += ["--pids", ",".join(map(str, server.pids()))]
    return command + [str(x) for k, v in options.items() for x in (f"--{k}", v)]


def run_load(
    server: Server, topics: Sequence[str], mode: str, timeout_s: float = LOAD_TIMEOUT_S, /, **options: float | str
) -> dict[str, Any]:
    """What the load generator says; checks that what was acknowledged is stored."""
    command, name = load_command(server, topics, mode, **options), topics[0]
    before = server.stored(topics)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{name} on {server.name}: the load generator did not end within {timeout_s:.0f} s") from None
    if done.returncode:
        raise BenchError(f"{name} on {server.name}: {done.stderr.strip() or done.stdout.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    if options.get("idle"):
        time.sleep(HANG_UP_SECONDS)
    expected = before + result["sent_from_start"]
    if (found := server.await_stored(topics, expected)) != expected:
        raise BenchError(f"{server.name} acknowledged {expected} messages of {name} and holds {found}")
    return result


def run_row(server: Server, row: Row, **options: float) -> dict[str, Any]:
    """A run with a row's load; checks that pulls brought what they had to."""
    result = run_load(server, row.topics(), row.mode, **{**row.load, **options})
    if row.mode == "pull":
        found, wanted = result["matched"] / result["requests"], int(row.load["batch"])
        share, expected = result["matched"] / result["messages"], 1 / int(row.load.get("tags", 1))
        if found < 0.99 * wanted or abs(share - expected) > 0.05 * expected:
            raise BenchError(
                f"{server.name} answered {found:.1f} messages a pull, {share:.3f} of those that it looked at; "
                f"{wanted} and {expected:.3f} were expected"
            )
    return result


def fill(server: Server, row: Row, fill: Fill) -> None:
    """Put into the row's log what has to be there."""
    count = fill.messages or max(FILL_BATCH, fill.bytes // (fill.size + RECORD_BYTES))
    if fill.topic not in row.topics():
        server.create_topics([fill.topic])
        server.await_stored([fill.topic], 1)
    common = {"connections": 16, "size": fill.size, "tags": fill.tags, "messages": count}
    if fill.bytes:
        run_load(server, [fill.topic], "send", FILL_TIMEOUT_S, batch=FILL_BATCH, window=4, **common)
    else:
        run_load(server, [fill.topic], "send", window=64, **common)


def warm_up(server: Server, row: Row, seconds: float) -> None:
    """The topics of a row, what they hold, and some load."""
    topics, queues = row.topics(), range(TOPIC_QUEUES)
    server.create_topics(topics, queues)  # all: a load that is short may not get to each of 8,000 queues
    stored = len(topics) * len(queues) * len(server.ports)
    server.await_stored(topics, stored)  # what is counted from now on comes on top of it
    if row.fill:
        fill(server, row, row.fill)
    run_row(server, row, warm=0, seconds=seconds)


def measured(server: Server, row: Row, seconds: float) -> dict[str, float]:
    """One round of a row."""
    if row.cold:
        evict(server.pids(), server.folder / "store")
    idle: dict[str, float] = {}
    if connections := row.load.get("idle"):
        idle = at_rest(server, row.topics(), int(connections), SETTLE_SECONDS)
    result = run_row(server, row, warm=SETTLE_SECONDS, seconds=seconds)
    if row.cold:
        result["read_mb_s"] = result["read_mb"] / result["seconds"]
    return {**result, **idle}


def at_rest(server: Server, topics: Sequence[str], connections: int, settle_s: float) -> dict[str, float]:
    """CPU and memory of a broker with idle connections."""
    options = {"connections": 0, "idle": connections, "warm": settle_s, "seconds": REST_SECONDS}
    result = run_load(server, topics, "send", **options)
    return {"idle_percent": 100 * result["server_cores"], "memory_mb": result["memory_mb"]}


# ---- the brokers ----


@contextlib.contextmanager
def alone(server: Server, others: Iterable[Server]) -> Iterator[None]:
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


class Fleet:
    """The brokers that run, each with a store of its own."""

    def __init__(self, folder: Path, only: Sequence[str]) -> None:
        """`only`: the servers that may run; none named, all."""
        self.folder, self.only = folder, only
        self.running: dict[FleetKey, Server] = {}

    def wanted(self, row: Row) -> list[str]:
        return [name for name in row.servers if not self.only or name in self.only]

    def keys(self, rows: Iterable[Row]) -> set[FleetKey]:
        return {(n, row.flush, row.store) for row in rows if row.mode != "start" for n in self.wanted(row)}

    def of(self, row: Row) -> dict[str, Server]:
        """The servers of a row, started."""
        found = {}
        for name in self.wanted(row):
            key = (name, row.flush, row.store)
            if key not in self.running:
                self.running[key] = self.new(name, "-".join(filter(None, key)), row.flush)
                self.running[key].start()
            found[name] = self.running[key]
        return found

    def new(self, name: str, folder: str, flush: str) -> Server:
        return server(name, self.folder / folder.replace(" ", "-"), flush, HEAP)

    def keep(self, keys: set[FleetKey]) -> None:
        """End all others, and remove what they stored."""
        for key in [key for key in self.running if key not in keys]:
            discard(self.running.pop(key))

    def pause(self) -> None:
        for one in self.running.values():
            one.pause()


def discard(server: Server) -> None:
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


# ---- all rows ----

MAX_TRIES = 4
"""Of one round that others disturb."""


class Bench:
    """Measures rows, one group after the other."""

    def __init__(self, args: argparse.Namespace, folder: Path, console: Console) -> None:
        self.args, self.folder, self.console = args, folder, console
        self.fleet = Fleet(folder, args.only or [])
        self.results: Rounds = {}

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]")

    def run(self, rows: Sequence[Row]) -> None:
        try:
            for number, group in enumerate(parts := list(groups(rows))):
                self.fleet.keep(self.fleet.keys(row for some in parts[number:] for row in some))
                self.check_disk()
                self.starts(group[0]) if group[0].mode == "start" else self.group(group)
        finally:
            self.fleet.keep(set())

    def check_disk(self) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < SPARE_BYTES:
            raise BenchError(
                f"{self.folder} has {free >> 30} GiB free, {SPARE_BYTES >> 30} are needed: measure fewer --rows at a "
                "time, or set PERSEID_CACHE to a folder of a larger disk"
            )

    def group(self, rows: Sequence[Row]) -> None:
        """Warm up all servers of all rows, then measure them in turn."""
        for row in rows:
            servers = self.fleet.of(row)
            for name, one in servers.items():
                seconds = self.warm_seconds(one, row)
                self.say(f"{row.name}: warming {name} up for {seconds:.0f} s")
                with alone(one, self.fleet.running.values()):
                    warm_up(one, row, seconds)
            self.results[row.name] = {name: [] for name in servers}
        for number in range(self.args.rounds):
            for row in rows:
                for name, one in self.fleet.of(row).items():
                    with alone(one, self.fleet.running.values()):
                        result = self.quiet(one, row)
                    self.results[row.name][name].append(result)
                    cost = f"{result['per_second']:,.0f}/s, {result['server_cpu_us']:.2f} µs"
                    if row.cold:
                        cost += f", cold read {result['read_mb_s']:.0f} MB/s"
                    self.say(f"{row.name}, round {number + 1}, {name}: {cost}, p99 {result['p99_ms']:.2f} ms")

    def quiet(self, one: Server, row: Row) -> dict[str, float]:
        """Measure once; again while other processes are busy, and the quietest of these counts."""
        found = [measured(one, row, self.args.seconds)]
        while found[-1]["other_cores"] > QUIET_CORES and len(found) < MAX_TRIES:
            self.say(f"{row.name}, {one.name}: others kept {found[-1]['other_cores']:.2f} cores busy: measured again")
            found.append(measured(one, row, self.args.seconds))
        return min(found, key=lambda result: result["other_cores"])

    def warm_seconds(self, one: Server, row: Row) -> float:
        if one.name != JAVA:
            return min(float(self.args.warm), PERSEID_WARM_SECONDS)
        kind = "pull" if row.mode == "pull" else "send"
        first = kind not in one.warmed
        one.warmed.add(kind)
        return float(self.args.warm) / (1 if first else 3)

    def starts(self, row: Row) -> None:
        """A new broker of each kind in turn: how long it took to start, and what it costs when nothing happens."""
        self.fleet.pause()
        results: dict[str, list[dict[str, float]]] = {name: [] for name in self.fleet.wanted(row)}
        for number in range(self.args.rounds):
            for name, rounds in results.items():
                os.sync()
                one = self.fleet.new(name, f"start-{name}", row.flush)
                try:
                    one.start()
                    settle_s = JAVA_START_SETTLE_SECONDS if name == JAVA else START_SETTLE_SECONDS
                    result = {"start_s": one.start_s, **at_rest(one, ["bench"], 1, settle_s)}
                finally:
                    discard(one)
                rounds.append(result)
                memory = f"{result['memory_mb']:.0f} MB, {result['idle_percent']:.2f} % of a core"
                self.say(f"{row.name}, round {number + 1}, {name}: {result['start_s']:.2f} s, {memory}")
        self.results[row.name] = results


def possible(rows: Sequence[Row], sizes: Sizes, folder: Path, console: Console) -> list[Row]:
    """The rows that this machine has room for; says which it has not."""
    usage = shutil.disk_usage(folder)
    room_gib = max(0.0, (MOST_OF_DISK * (usage.used + usage.free) - usage.used) / 2 / (1 << 30))
    if sizes.large_gib > room_gib:
        console.print(f"[yellow]large: the disk holds {room_gib:.1f} GiB twice, not {sizes.large_gib:g}[/yellow]")
        sizes = Sizes(large_gib=float(int(room_gib)), cold_mib=sizes.cold_mib)
    if not sizes.large_gib and any(row.group == "large" for row in rows):
        console.print(
            "[yellow]empty and large are left out: name a size with --large-gib (20, if there is room)[/yellow]"
        )
    files, found = raise_open_files(), []
    for row in sized(rows, sizes):
        idle = int(row.load.get("idle", 0))
        if idle + SPARE_FILES > files:
            console.print(
                f"[yellow]{row.name} is left out: {idle + SPARE_FILES} open files are needed, this system allows "
                f"{files}: ulimit -Hn {idle + SPARE_FILES}[/yellow]"
            )
        else:
            found.append(row)
    return found


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = [r.name for r in ROWS]
    parser.add_argument("--rows", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured in each round")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of load before Java is measured")
    parser.add_argument("--large-gib", type=float, default=0.0, help="log of the row `large`; 0: no such row")
    parser.add_argument("--cold-mib", type=int, default=1024, help="of log that the row `cold` reads")
    parser.add_argument("--only", choices=(JAVA, CORE, PLAIN, SHARDS), action="append", help="leave the others out")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--write", action="store_true", help="also docs/benchmarks.md and its plot")
    args = parser.parse_args()
    unknown = set(args.rows.split(",")) - set(names)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if args.write and (args.only or set(args.rows.split(",")) != set(names)):
        parser.error("--write needs all brokers and all rows")
    return args


def main() -> int:
    args, began = parse_arguments(), time.monotonic()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = data_folder()
    chosen = [r for r in ROWS if r.name in args.rows.split(",")]
    bench = Bench(args, folder, console)
    try:
        rows = possible(chosen, Sizes(args.large_gib, args.cold_mib), folder, console)
        bench.run(rows)
    except BenchError as error:
        console.print(f"[red]bench: {error}[/red]")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summary = summarise(bench.results, {row.name: row.title for row in rows})
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "command": " ".join(["bench/run.py", *sys.argv[1:]]),
    }
    report |= {"warm_seconds": args.warm, "summary": summary, "rounds": bench.results}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n")
    show(summary, console)
    console.print(f"[dim]{(time.monotonic() - began) / 60:.1f} minutes; all figures: {args.json}[/dim]")
    if args.write and (others_busy(summary) > QUIET_CORES or load_share(summary)[1]):
        console.print("[red]docs/benchmarks.md was not written[/red]")
        return 1
    if args.write:
        write_docs(report, list(goals(summary)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
