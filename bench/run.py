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
import functools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import crowd
from cold import evict
from figures import QUIET_CORES, Rounds, Summary, load_share, others_busy, summarise
from fleet import Fleet, alone, discard
from frames import Target, frame_named, template
from growth import REPLICAS, Crowd, LoneController
from kept import Kept, Settings, clean_commit
from machine import describe_machine
from pairs import Lag, Pair, busy_s, catch_up, cpu_s
from plan import Pace, expected_s, minutes, reckoned_s, start_s
from report import PART_TITLES, missing, show, write_docs
from retrying import RetryingClient
from rich.console import Console
from rich.markup import escape
from rows import OWN, ROWS, Fill, Row, Sizes, groups, sized
from servers import (
    JAVA,
    SERVERS,
    TOPIC_QUEUES,
    BenchError,
    Server,
    data_folder,
    load_program,
    raise_open_files,
)
from sets import TOPIC, BrokerSet, loss, without_master
from stock import StockProducers, stock_outages
from trios import Trio, refill, without_leader

PARTS = {part: {row.name for row in ROWS if row.part == part} for part in PART_TITLES}
"""The rows that stand together in docs/benchmarks.md."""
ALL = "all"
SETTLE_SECONDS = 0.5
"""Of load, or of idling, before each measurement."""
START_SETTLE_SECONDS, JAVA_START_SETTLE_SECONDS = 3.0, 14.0
"""Before a broker that has just started is called idle: Java keeps a core busy for ten seconds more."""
PERSEID_WARM_SECONDS = 2.0
NEW_ROAD_SHARE, KNOWN_ROAD_SHARE = 1 / 3, 1 / 8
"""Of the time for which a Java broker is warmed that was warmed for other rows; and for rows like the next one."""
CAPACITY_SECONDS = 2.0
SLOW_SHARE = 0.1
"""Of what is sent, that a slow consumer reads."""
REST_SECONDS = 4.0
HANG_UP_SECONDS = 3.0
"""So long a broker has to hear that 10,000 connections are gone, before it is stopped or gets new ones."""
LOAD_TIMEOUT_S = 600.0
FILL_TIMEOUT_S = 3600.0
FILL_BATCH, GROUP_BATCH = 32, 16
"""Messages; a Java group refuses what has not gone around within 2.5 s."""
RECORD_BYTES = 250
"""Of a message in the log, beyond its body."""
SPARE_BYTES = 8 << 30
MOST_OF_DISK = 0.8
"""Both kinds of broker begin to remove old files above that."""
SPARE_FILES = 600
DELAYED_TOPIC, DELAYED_QUEUE = "SCHEDULE_TOPIC_XXXX", 17
"""Where sends of the highest delay level (18) are stored until they are due."""


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
    return counted_load(server, topics, mode, topics, range(TOPIC_QUEUES), timeout_s, **options)


def counted_load(
    server: Server,
    topics: Sequence[str],
    mode: str,
    stored: Sequence[str],
    queues: Sequence[int],
    timeout_s: float = LOAD_TIMEOUT_S,
    /,
    **options: float | str,
) -> dict[str, Any]:
    """The same, where the messages are stored in these queues of other topics."""
    command, name = load_command(server, topics, mode, **options), topics[0]
    before = server.stored(stored, queues=queues)
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
    if (found := server.await_stored(stored, expected, queues)) != expected:
        raise BenchError(f"{server.name} acknowledged {expected} messages of {name} and holds {found}")
    return result


def frame_file(server: Server, row: Row) -> Path:
    """The template of a row's frame, for this server."""
    target = Target(row.topic, size=int(row.load["size"]))
    path = server.folder / f"{row.name}.frame"
    path.write_text(str(template(frame_named(row.frame), target)))
    return path


def run_row(server: Server, row: Row, **options: float | str) -> dict[str, Any]:
    """A run with a row's load; checks that pulls brought what they had to."""
    load: dict[str, float | str] = {**row.load, **options}
    if row.frame:
        load["frame"] = str(frame_file(server, row))
    stored = ([DELAYED_TOPIC], [DELAYED_QUEUE]) if row.delayed else (row.topics(), range(TOPIC_QUEUES))
    result = counted_load(server, row.topics(), row.mode, *stored, **load)
    if row.mode == "pull":
        found, wanted = result["matched"] / result["requests"], int(row.load["batch"])
        share, expected = result["matched"] / result["messages"], 1 / int(row.load.get("tags", 1))
        if found < 0.99 * wanted or abs(share - expected) > 0.05 * expected:
            raise BenchError(
                f"{server.name} answered {found:.1f} messages a pull, {share:.3f} of those that it looked at; "
                f"{wanted} and {expected:.3f} were expected"
            )
    if row.fill and row.mode == "pop" and result["popped"] >= row.fill.messages:
        raise BenchError(f"{server.name} gave out all messages of {row.name}: fewer --seconds, or less --warm")
    return result


def fill(server: Server, row: Row, fill: Fill) -> None:
    """Put into the row's log what has to be there."""
    count = fill.messages or max(FILL_BATCH, fill.bytes // (fill.size + RECORD_BYTES))
    if fill.topic not in row.topics():
        server.create_topics([fill.topic])
        server.await_stored([fill.topic], 1)
    common: dict[str, float | str] = {"connections": 16, "size": fill.size, "tags": fill.tags, "messages": count}
    common |= row.guard_options
    if fill.bytes:
        batches = {"batch": FILL_BATCH, "window": 4} if not row.members else {"batch": GROUP_BATCH, "window": 1}
        run_load(server, [fill.topic], "send", FILL_TIMEOUT_S, **batches, **common)
    else:
        run_load(server, [fill.topic], "send", window=64, **common)


def warm_up(server: Server, row: Row, seconds: float) -> None:
    """The topics of a row, what they hold, and some load."""
    topics, queues = [row.fill.topic] if row.mode == "catchup" and row.fill else row.topics(), range(TOPIC_QUEUES)
    server.create_topics(topics, queues)  # all: a load that is short may not get to each of 8,000 queues
    stored = len(topics) * len(queues) * len(server.ports)
    server.await_stored(topics, stored)  # what is counted from now on comes on top of it
    if row.fill:
        fill(server, row, row.fill)
    if row.crowded:
        crowd.fill(server)
    if row.mode != "catchup":
        run_row(server, row, warm=0, seconds=seconds, **({"messages": 0} if row.timed else {}))


def capacity(server: Server, row: Row) -> float:
    """Messages a second that a server takes of a row's sends when as many as may be are in flight."""
    result: dict[str, float] = run_row(server, row, warm=SETTLE_SECONDS, seconds=CAPACITY_SECONDS)
    return result["per_second"]


def measured(server: Server, row: Row, seconds: float, per_second: float = 0.0) -> dict[str, float]:
    """One round of a row; `per_second`: how many sends come, where that is not the server's to say."""
    if row.mode == "catchup":
        assert isinstance(server, Trio | Pair)
        topics = row.topics()
        return refill(server, topics) if isinstance(server, Trio) else catch_up(server, topics)
    if row.role:
        assert isinstance(server, Pair)
        with Lag(server) as lag:
            result = run_row(server, row, warm=SETTLE_SECONDS, seconds=seconds)
        server.await_follower()
        return {**result, **lag.figures()}
    if row.timed:
        return until_delivered(server, row)
    if row.cold:
        evict(server.pids(), server.folder / "store")
    idle: dict[str, float] = {}
    with crowd.consumers(server) if row.crowded else contextlib.nullcontext():
        if connections := row.load.get("idle"):
            idle = at_rest(server, row.topics(), int(connections), SETTLE_SECONDS, **row.guard_options)
        result = run_row(server, row, warm=SETTLE_SECONDS, seconds=seconds, **arrivals(row, per_second))
    if row.cold:
        result["read_mb_s"] = result["read_mb"] / result["seconds"]
    return {**result, **idle}


def arrivals(row: Row, per_second: float) -> dict[str, float | str]:
    """Options of the load generator for sends that come at random, and for the slow consumer beside them."""
    if not per_second:
        return {}
    options: dict[str, float | str] = {"poisson": 1, "rate": per_second}
    if row.slow_reader:
        options |= {"readers": 1, "read-topic": row.topic, "read-rate": per_second * SLOW_SHARE}
    return options


def until_delivered(server: Server, row: Row) -> dict[str, float]:
    """A round of sends for a later time: CPU until the last of them is in its queue."""
    pids, began = server.pids(), time.monotonic()
    before = cpu_s(pids), busy_s(), time.process_time()
    result = run_row(server, row)
    took_s = time.monotonic() - began
    cpu, busy, own = (b - a for a, b in zip(before, (cpu_s(pids), busy_s(), time.process_time()), strict=True))
    own += result["load_cores"] * result["seconds"]
    return result | {
        "seconds": took_s,
        "per_second": result["messages"] / took_s,
        "server_cpu_us": cpu * 1e6 / result["messages"],
        "server_cores": cpu / took_s,
        "load_cores": own / took_s,
        "other_cores": max(0.0, busy - cpu - own) / took_s,
    }


def at_rest(
    server: Server, topics: Sequence[str], connections: int, settle_s: float, **guards: float | str
) -> dict[str, float]:
    """CPU and memory of a broker with idle connections."""
    options = {"connections": 0, "idle": connections, "warm": settle_s, "seconds": REST_SECONDS}
    result = run_load(server, topics, "send", **options, **guards)
    return {"idle_percent": 100 * result["server_cores"], "memory_mb": result["memory_mb"]}


# ---- all rows ----

MAX_SETS = 5
"""Of Java brokers, in one row that kills masters."""
SEED = 7
"""Of when leaders are killed."""
PHASES_S = (1.0, 3.0)
"""Sends before a kill: a heartbeat of the default timing, so that it comes at any moment between two."""


def in_short(result: Mapping[str, float]) -> str:
    """A round, in a line."""
    if "joined_s" in result:
        return (
            f"none acknowledged for {result['gap_s']:.3f} s, master named after {result['named_s']:.3f} s; in sync "
            f"{result['back_s']:.2f} s after its start, {result['joined_s']:.2f} s after its first connection"
        )
    if "elect_s" in result:
        return (
            f"{result['beats_per_s']:,.0f} heartbeats/s: {result['beat_cores']:.3f} cores; "
            f"elected within {result['elect_s']:.2f} s, {result['elect_cpu_s']:.2f} s of CPU; "
            f"{result['redialled']:.0f} brokers were hung up on"
        )
    if "gap_s" in result:
        return f"no leader for {result['gap_s']:.2f} s; back and following after {result['follows_s']:.2f} s"
    if "mb_s" in result:
        cpu = f"from whom {result['master_s_gib']:.2f}, to whom {result['slave_s_gib']:.2f} s/GiB"
        return f"first byte after {result['first_byte_s']:.2f} s, {result['mb_s']:.0f} MB/s, {cpu}"
    text = f"{result['per_second']:,.0f}/s, {result['server_cpu_us']:.2f} µs, p99 {result['p99_ms']:.2f} ms"
    if "read_mb_s" in result:
        text += f", cold read {result['read_mb_s']:.0f} MB/s"
    if "lag_mb" in result:
        text += f", lag {result['lag_mb']:.1f} MB, most {result['lag_most_mb']:.1f}"
    return text


class Bench:
    """Measures rows, one group after the other."""

    def __init__(
        self, args: argparse.Namespace, sizes: Sizes, folder: Path, console: Console, kept: Kept | None = None
    ) -> None:
        """`kept`: where rows go as soon as they are measured."""
        self.args, self.sizes, self.folder, self.console, self.kept = args, sizes, folder, console, kept
        self.fleet = Fleet(folder, args.only or [])
        self.results: Rounds = {}
        self.capacities: dict[tuple[str, str], float] = {}
        """By row and server: messages a second."""

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]")

    def run(self, rows: Sequence[Row], deadline_s: float = math.inf) -> list[Row]:
        """Measure rows; the rows of groups that would not end by `deadline_s` (monotonic) are returned."""
        parts, expected = list(groups(rows)), self.expected_s(rows)
        self.say(f"{len(rows)} rows, {len(parts)} groups of them, in about {minutes(sum(expected))}")
        try:
            for number, group in enumerate(parts):
                began = time.monotonic()
                if began + expected[number] > deadline_s:
                    return [row for some in parts[number:] for row in some]
                self.fleet.keep(self.fleet.keys(row for some in parts[number:] for row in some))
                self.check_disk()
                self.measure(group[0])(group)
                self.keep(group, took_s := time.monotonic() - began)
                left = minutes(sum(expected[number + 1 :]))
                self.say(f"[{number + 1}/{len(parts)}] {group[0].name}: {minutes(took_s)}; about {left} are left")
        finally:
            self.fleet.keep(set())
        return []

    def keep(self, rows: Sequence[Row], took_s: float) -> None:
        if self.kept is not None:
            settings = {row.name: self.settings(row) for row in rows}
            self.kept.save(settings, self.results, self.machine, took_s)

    @functools.cached_property
    def machine(self) -> dict[str, str]:
        return describe_machine()

    def settings(self, row: Row) -> Settings:
        return Settings(self.args.seconds, self.rounds(row), self.warm(row), row.title)

    def rounds(self, row: Row) -> int:
        return int(self.args.rounds or row.rounds)

    def warm(self, row: Row) -> float:
        return float(row.warm_s if self.args.warm is None else self.args.warm)

    def expected_s(self, rows: Sequence[Row]) -> list[float]:
        """About how long each group takes."""
        started: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        found = []
        for group in groups(rows):
            total = 0.0
            for row in group:
                names, warm_s = self.fleet.wanted(row), 0.0
                for name in [] if row.own_servers else names:
                    key = self.fleet.key(name, row)
                    total += 0.0 if key in started else start_s(row)
                    roads = started.setdefault(key, set())
                    warm_s = warm_share(roads, row) * self.warm(row) if name == JAVA else warm_s
                    roads.add(row.road)
                total += reckoned_s(row, Pace(self.args.seconds, self.rounds(row), warm_s), self.sizes, names)
            found.append(expected_s(group, total) if self.kept else total)
        return found

    def measure(self, row: Row) -> Callable[[Sequence[Row]], None]:
        """How a row, or a group of such, is measured."""
        kills = self.switches if row.replicas else self.fails
        some = {"start": self.starts, "fail": kills, "hang": kills, "stock": self.stock, "grow": self.grows}
        return some.get(row.mode, self.group)

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
            if row.half_of:
                self.measure_capacity(row, servers)
        for number in range(self.rounds(rows[0])):
            for row in rows:
                for name, one in self.fleet.of(row).items():
                    with alone(one, self.fleet.running.values()):
                        result = self.quiet(one, row)
                    self.results[row.name][name].append(result)
                    self.say(f"{row.name}, round {number + 1}, {name}: {in_short(result)}")

    def quiet(self, one: Server, row: Row) -> dict[str, float]:
        """Measure once; again while other processes are busy, and the quietest of these counts."""
        rate = self.rate(one, row)
        found = [measured(one, row, self.args.seconds, rate)]
        while found[-1]["other_cores"] > QUIET_CORES and len(found) < self.args.tries:
            self.say(f"{row.name}, {one.name}: others kept {found[-1]['other_cores']:.2f} cores busy: measured again")
            found.append(measured(one, row, self.args.seconds, rate))
        return min(found, key=lambda result: result["other_cores"])

    def measure_capacity(self, row: Row, servers: Mapping[str, Server]) -> None:
        for name, one in servers.items():
            with alone(one, self.fleet.running.values()):
                self.capacities[row.name, name] = capacity(one, row)
            self.say(f"{row.name}: {name} takes {self.capacities[row.name, name]:,.0f}/s")

    def rate(self, one: Server, row: Row) -> float:
        """Sends a second that come to a server; 0: it is the load's to say."""
        if not row.half_of:
            return 0.0
        whose = one.name if row.half_of == OWN else row.half_of
        return self.capacities.get((row.name, whose), self.capacities[row.name, one.name]) / 2

    def warm_seconds(self, one: Server, row: Row) -> float:
        if one.name != JAVA:
            return min(self.warm(row), PERSEID_WARM_SECONDS)
        share = warm_share(one.warmed, row)
        one.warmed.add(row.road)
        return share * self.warm(row)

    def fails(self, rows: Sequence[Row]) -> None:
        """A new group of each kind in turn, whose leader is killed again and again."""
        self.fleet.pause()
        for row in rows:
            results = self.results[row.name] = {name: [] for name in self.fleet.wanted(row)}
            for name, kills in results.items():
                draw = random.Random(SEED)
                one = self.fleet.new(name, f"fail-{name}", row)
                assert isinstance(one, Trio)
                try:
                    one.start()
                    for number in range(self.args.kills):
                        kills.append(without_leader(one, draw.uniform(*PHASES_S), silent=row.mode == "hang"))
                        self.say(f"{row.name}, kill {number + 1}, {name}: {in_short(kills[-1])}")
                finally:
                    discard(one)

    def new_ones(self, row: Row) -> Iterator[tuple[Server, list[dict[str, float]]]]:
        """New servers of each kind in turn, started, and where their rounds go; they end when the next is asked for."""
        self.fleet.pause()
        results = self.results[row.name] = {name: [] for name in self.fleet.wanted(row)}
        for name, rounds in results.items():
            one = self.fleet.new(name, f"{row.mode}-{name}", row)
            try:
                one.start()
                yield one, rounds
            finally:
                discard(one)

    def switches(self, rows: Sequence[Row]) -> None:
        """A broker set of each kind in turn, whose master is killed again and again. A Java set that does not come back
        gives way to a new one; ours may not fail."""
        (row,) = rows
        self.fleet.pause()
        results = self.results[row.name] = {name: [] for name in self.fleet.wanted(row)}
        for name, kills in results.items():
            wanted, draw = self.sizes.kills_of(row, name), random.Random(SEED)
            for number in range(MAX_SETS):
                one = self.fleet.new(name, f"{row.mode}-{name}-{number}", row)
                assert isinstance(one, BrokerSet)
                try:
                    one.start()
                    self.kill_masters(row, one, kills, wanted, draw)
                    break
                except BenchError as error:
                    if name != JAVA or number == MAX_SETS - 1:
                        raise
                    self.say(f"{row.name}, {name}: begun anew with another set, for {str(error).splitlines()[0]}")
                finally:
                    discard(one)

    def kill_masters(
        self, row: Row, one: BrokerSet, kills: list[dict[str, float]], wanted: int, draw: random.Random
    ) -> None:
        """Kill until there are `wanted` kills; to each of this set's belongs what was lost in all of them."""
        first = len(kills)
        nothing = {"acked": 0.0, "lost": 0.0, "moved": 0.0}
        with RetryingClient(one.namesrv_port, TOPIC) as client:
            while len(kills) < wanted:
                found = without_master(one, client, draw.uniform(*PHASES_S), silent=row.mode == "hang")
                kills.append(found | nothing)
                self.say(f"{row.name}, kill {len(kills)}, {one.name}: {in_short(found)}")
            verdict = loss(one, client)
        for kill in kills[first:]:
            kill |= {"acked": verdict.acked, "lost": verdict.lost, "moved": verdict.moved}
        more = f"; {one.started_anew} replicas that stayed out of sync started anew" if one.started_anew else ""
        self.say(f"{row.name}, {one.name}: {verdict.lost} of {verdict.acked} lost, {verdict.moved} moved{more}")

    def stock(self, rows: Sequence[Row]) -> None:
        """The same, as stock Java producers see it."""
        (row,) = rows
        for one, outages in self.new_ones(row):
            assert isinstance(one, BrokerSet)
            with StockProducers(one.namesrv_address) as producers:
                for number in range(self.sizes.stock_kills):
                    outages += (found := stock_outages(one, producers))
                    seen = ", ".join(f"{outage['outage_s']:.1f}" for outage in found)
                    self.say(f"{row.name}, kill {number + 1}, {one.name}: none acknowledged for {seen} s")

    def grows(self, rows: Sequence[Row]) -> None:
        """One controller of each kind in turn, with thousands of brokers."""
        (row,) = rows
        for one, rounds in self.new_ones(row):
            assert isinstance(one, LoneController)
            with Crowd(one.ports[0], self.sizes.sets) as crowd:
                crowd.connect()
                crowd.register()
                crowd.turn_for(self.warm(row) if one.name == JAVA else PERSEID_WARM_SECONDS)
                for number in range(self.rounds(row)):
                    result = crowd.beating(one, self.args.seconds)
                    dying = range(number * self.sizes.dying, (number + 1) * self.sizes.dying)
                    rounds.append(result | crowd.electing(one, dying))
                    self.say(f"{row.name}, round {number + 1}, {one.name}: {in_short(rounds[-1])}")

    def starts(self, rows: Sequence[Row]) -> None:
        """A new broker of each kind in turn: how long it took to start, and what it costs when nothing happens."""
        self.fleet.pause()
        (row,) = rows
        results = self.results[row.name] = {name: [] for name in self.fleet.wanted(row)}
        for number in range(self.rounds(row)):
            for name, rounds in results.items():
                os.sync()
                one = self.fleet.new(name, f"start-{name}", row)
                try:
                    one.start()
                    settle_s = JAVA_START_SETTLE_SECONDS if name == JAVA else START_SETTLE_SECONDS
                    result = {"start_s": one.start_s, **at_rest(one, ["bench"], 1, settle_s)}
                finally:
                    discard(one)
                rounds.append(result)
                memory = f"{result['memory_mb']:.0f} MB, {result['idle_percent']:.2f} % of a core"
                self.say(f"{row.name}, round {number + 1}, {name}: {result['start_s']:.2f} s, {memory}")


def warm_share(roads: set[tuple[str, ...]], row: Row) -> float:
    """Of the seconds for which Java is warmed: all, when it was for nothing; less, when for others, or such rows."""
    if not roads:
        return 1.0
    return KNOWN_ROAD_SHARE if row.road in roads else NEW_ROAD_SHARE


def possible(rows: Sequence[Row], sizes: Sizes, folder: Path, console: Console) -> list[Row]:
    """The rows that this machine has room for; says which it has not."""
    usage = shutil.disk_usage(folder)
    room_gib = max(0.0, (MOST_OF_DISK * (usage.used + usage.free) - usage.used) / 2 / (1 << 30))
    if sizes.large_gib > room_gib:
        console.print(f"[yellow]large: the disk holds {room_gib:.1f} GiB twice, not {sizes.large_gib:g}[/yellow]")
        sizes = replace(sizes, large_gib=float(int(room_gib)))
    if not sizes.large_gib and any(row.group == "large" for row in rows):
        console.print(
            "[yellow]empty and large are left out: name a size with --large-gib (20, if there is room)[/yellow]"
        )
    files, found = raise_open_files(), []
    for row in sized(rows, sizes):
        idle = REPLICAS * sizes.sets if row.mode == "grow" else int(row.load.get("idle", 0))
        needed = SPARE_FILES + idle + (crowd.OPEN_FILES if row.crowded else 0)
        if needed > files:
            console.print(
                f"[yellow]{row.name} is left out: {needed} open files are needed, this system allows {files}: "
                f"ulimit -Hn {needed}[/yellow]"
            )
        else:
            found.append(row)
    return found


def with_parts(text: str) -> set[str]:
    """Names of rows, those of a part in its place; `all` are those of all parts."""
    if text == ALL:
        return {row.name for row in ROWS}
    return {name for word in text.split(",") for name in PARTS.get(word, {word})}


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    names = ",".join(row.name for row in ROWS)
    parser.add_argument("--rows", default="broker", help=f"some of {names}; all of {', '.join(PARTS)}; or {ALL}")
    parser.add_argument(
        "--rounds", type=int, help="of each server; 3, of `secured` and `sends` 2, of DLedger's groups 5"
    )
    parser.add_argument("--tries", type=int, default=4, help="at most, of one round that others disturb")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured in each round")
    parser.add_argument("--warm", type=float, help="seconds of load before Java is measured; 30, DLedger's groups 60")
    parser.add_argument("--large-gib", type=float, default=0.0, help="log of the row `large`; 0: no such row")
    parser.add_argument("--cold-mib", type=int, default=1024, help="of log that the row `cold` reads")
    parser.add_argument("--catch-mib", type=int, default=512, help="of log that the row `dlcatch` copies")
    parser.add_argument("--kills", type=int, default=6, help="of leaders and masters, in rows that kill")
    parser.add_argument("--sets", type=int, default=2_000, help="of brokers that the controller of `hagrow` has")
    parser.add_argument("--timers", type=int, default=400_000, help="that a round of `timed` sends")
    parser.add_argument("--only", choices=SERVERS, action="append", help="leave the others out")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--plan", action="store_true", help="say how long the rows take, and end")
    parser.add_argument("--resume", action="store_true", help="leave out what was measured at this commit")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing that would end later than that")
    parser.add_argument("--write", action="store_true", help="docs/benchmarks.md, when this commit has all its rows")
    parser.add_argument("--busy", action="store_true", help="write it though other processes were busy; it says so")
    args = parser.parse_args()
    args.rows = with_parts(args.rows)
    if unknown := args.rows - {row.name for row in ROWS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if (args.write or args.resume) and args.only:
        parser.error("--write and --resume are for all brokers")
    return args


def save(args: argparse.Namespace, bench: Bench, summary: Summary, broken: str) -> None:
    """The report, as a file; `broken`: why the run ended before its time."""
    report: dict[str, Any] = {
        "machine": bench.machine,
        "command": " ".join(["bench/run.py", *sys.argv[1:]]),
        "summary": summary,
        "rounds": bench.results,
    }
    if broken:
        report["broken_off"] = broken
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n")


def kept_figures(args: argparse.Namespace, console: Console) -> Kept | None:
    """Where the figures of this commit are kept; None where the tree is of no commit, or some brokers are left out."""
    if args.only:
        return None
    try:
        return Kept(clean_commit())
    except BenchError as error:
        if args.write or args.resume:
            raise
        console.print(f"[dim]nothing is kept: {escape(str(error))}[/dim]")
        return None


def left_to_measure(bench: Bench, rows: Sequence[Row]) -> list[Row]:
    """The rows that this commit has no figures of; those of the others go to the results."""
    left = []
    for group in groups(rows):
        assert bench.kept is not None
        if bench.kept.have({row.name: bench.settings(row) for row in group}):
            bench.results |= {row.name: bench.kept.rounds(row.name) for row in group}
        else:
            left += group
    return left


def write(bench: Bench, console: Console, *, busy_too: bool) -> bool:
    """Write the page, when all of its rows and parts are there; else say what is missing."""
    assert bench.kept is not None
    rows = sized(ROWS, bench.sizes)
    summary = bench.kept.summary(row.name for row in rows)
    why = missing(bench.kept, [row.name for row in rows])
    if worse := load_share(summary)[1]:
        why.append(f"the load generator took more CPU than the broker: {', '.join(worse)}")
    if not busy_too and (busy := others_busy(summary)) > QUIET_CORES:
        why.append(f"other processes kept up to {busy:.2f} cores busy; --busy writes it all the same")
    for reason in why:
        console.print(f"[red]docs/benchmarks.md was not written: {escape(reason)}[/red]")
    if not why:
        write_docs(bench.kept, rows)
    return not why


def main() -> int:
    args, began = parse_arguments(), time.monotonic()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sizes = Sizes(args.large_gib, args.cold_mib, args.catch_mib, args.kills, args.sets, args.timers)
    folder = data_folder()
    rows, left, broken = [r for r in ROWS if r.name in args.rows], [], ""
    bench = Bench(args, sizes, folder, console)
    try:
        bench.kept = kept_figures(args, console)
        rows = possible(rows, sizes, folder, console)
        todo = left_to_measure(bench, rows) if args.resume else rows
        if args.plan:
            show_plan(bench, todo)
            return 0
        left = bench.run(todo, began + 60 * args.minutes)
    except BenchError as error:
        broken = str(error)
    except (KeyboardInterrupt, SystemExit):
        broken = "ended before its time"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summary = summarise(bench.results, {row.name: row.title for row in rows})
    if broken:
        console.print(f"[red]bench: {escape(broken)}[/red]")
        if not summary:
            return 1
    save(args, bench, summary, broken)
    show(summary, console)
    console.print(f"[dim]{(time.monotonic() - began) / 60:.1f} minutes; all figures: {args.json}[/dim]")
    if broken:
        console.print("[red]the run was broken off: these are the figures as far as it went[/red]")
        return 1
    if left:
        more = minutes(sum(bench.expected_s(left)))
        console.print(f"{len(left)} rows are left, of about {more}: the same command with --resume goes on")
        return 0
    return 0 if not args.write or write(bench, console, busy_too=args.busy) else 1


def show_plan(bench: Bench, rows: Sequence[Row]) -> None:
    """How long each group takes, and all."""
    expected = bench.expected_s(rows)
    for group, seconds in zip(groups(rows), expected, strict=True):
        bench.say(f"{minutes(seconds):>7}  {', '.join(row.name for row in group)}")
    bench.console.print(f"{len(rows)} rows: about {minutes(sum(expected))}")


if __name__ == "__main__":
    raise SystemExit(main())
