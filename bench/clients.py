"""Our Python client beside the stock Java client, against one Perseid broker: `make bench ROWS=client`.

    make bench ROWS=client                          # all kinds, three rounds
    make bench ROWS=client ARGS="--kinds pull,push --rounds 1"
    make bench ROWS=client ARGS=--keep              # for docs/benchmarks.md, by commit

What each kind of load is, says client_load.py. A round is one process of each client, in turn: it warms up with WARM
passes, and the median of PASSES more counts. CPU is that of the client's whole process, for a message of 100 bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet import HEAP
from kept import Kept, clean_commit
from machine import describe_machine
from report import markdown_table
from rich.console import Console
from servers import CORE as PERSEID
from servers import HERE, JAVA, JAVA_OPTIONS, BenchError, Server, data_folder, java_jars, parts_of

from perseid.client import Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer

PART = "client"
TO_SEND, TO_READ = "bench-client-sent", "bench-client-read"
QUEUES = 8
STORED = 200_000
"""Messages of the topic that is read."""
FILL_BATCH = 1000
WARM, PASSES = 2, 3
PASS_S = 120.0
"""One pass of one client, at most."""

Figures = dict[str, dict[str, list[float]]]
"""{client: {"per_second" or "cpu_us": [of each round]}}"""


@dataclass(frozen=True)
class Kind:
    """One kind of load: how many messages a pass has, and what is to be reached a second and core."""

    name: str
    title: str
    messages: int
    goal: int = 0
    java: bool = True


KINDS = (
    Kind("send", "sends one by one, 512 at a time", 20_000),
    Kind("linger", "the same, collected by the producer within 5 ms (Java: autoBatch)", 100_000, 400_000),
    Kind("batch", "batches of 32, 16 at a time", 200_000, 400_000),
    Kind("pull", "assigned queues, polled", STORED, 400_000),
    Kind("push", "a function is called for each message (Java: for a list)", 50_000),
    Kind("loop", "`async for message in consumer`", 50_000, java=False),
)


def passes(command: list[str]) -> list[tuple[float, float]]:
    """Messages/s and µs of CPU a message of each pass; BenchError when the client fails."""
    count = WARM + PASSES
    try:
        done = subprocess.run([*command, str(count)], capture_output=True, text=True, timeout=count * PASS_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(command[-5:])} did not end within {count * PASS_S:.0f} s") from None
    lines = [line.split() for line in done.stdout.splitlines()]
    found = [[int(word) for word in line] for line in lines if len(line) == 3 and all(map(str.isdigit, line))]
    if done.returncode or len(found) != count:
        raise BenchError(f"{' '.join(command[-5:])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return [(messages / nanos * 1e9, cpu / messages / 1e3) for messages, nanos, cpu in found]


def command_of(client: str, kind: Kind, namesrv: str) -> list[str]:
    """What runs a client, but for the number of passes."""
    if client == JAVA:
        program = ["java", "-Xmx512m", *JAVA_OPTIONS, "-cp", f"{java_jars()}/*", str(HERE / "Clients.java")]
    else:
        program = [sys.executable, str(HERE / "client_load.py")]
    topic = TO_SEND if kind.name in ("send", "linger", "batch") else TO_READ
    return [*program, kind.name, namesrv, topic, str(kind.messages)]


def fill(namesrv: str) -> None:
    """Make the topics, and put into one what is read."""
    with BlockingAdmin(namesrv) as admin, BlockingProducer(namesrv) as producer:
        for topic in (TO_SEND, TO_READ):
            admin.create_topic(topic, QUEUES)
        batch = [Message(TO_READ, b"x" * 100)] * FILL_BATCH
        for _ in range(STORED // FILL_BATCH):
            producer.send_batch(batch)


def measure(kinds: list[Kind], rounds: int, namesrv: str, console: Console) -> dict[str, Figures]:
    """All kinds, one after the other; the clients take turns."""
    found: dict[str, Figures] = {}
    for kind in kinds:
        found[kind.name] = {client: {"per_second": [], "cpu_us": []} for client in ((JAVA,) * kind.java + (PERSEID,))}
        for number in range(rounds):
            for client, figures in found[kind.name].items():
                counted = passes(command_of(client, kind, namesrv))[WARM:]
                rate, cpu = (statistics.median(values) for values in zip(*counted, strict=True))
                figures["per_second"].append(rate)
                figures["cpu_us"].append(cpu)
                console.print(f"[dim]{kind.name}, round {number + 1}, {client}: {rate:,.0f}/s, {cpu:.2f} µs[/dim]")
    return found


def rows_of(found: dict[str, Figures]) -> list[list[str]]:
    """The cells of the table."""
    rows = []
    for kind in KINDS:
        for client, figures in found.get(kind.name, {}).items():
            rate, cpu = statistics.median(figures["per_second"]), statistics.median(figures["cpu_us"])
            rows.append([kind.name, client, f"{rate:,.0f}", f"{cpu:.2f}", f"{1e6 / cpu:,.0f}"])
    return rows


def verdicts(found: dict[str, Figures]) -> list[tuple[str, bool]]:
    """The goals in words, and whether they are met."""
    told = []
    for kind in KINDS:
        if kind.name not in found or not kind.goal:
            continue
        reached = 1e6 / statistics.median(found[kind.name][PERSEID]["cpu_us"])
        told.append((f"`{kind.name}`: {reached:,.0f} a second and core (goal ≥ {kind.goal:,})", reached >= kind.goal))
    return told


COLUMNS = ["load", "client", "messages/s", "CPU µs a message", "a second and core"]


def part_text(found: dict[str, Figures], date: str) -> str:
    """What the page says."""
    told = verdicts(found)
    lines = "\n".join(f"- {words}: {'met' if met else 'missed'}" for words, met in told)
    titles = "; ".join(f"**{kind.name}**: {kind.title}" for kind in KINDS)
    return (
        f"## Clients\n`make bench ROWS=client ARGS=--keep`, on {date}. "
        f"Of the goals {sum(met for _, met in told)} of {len(told)} are met.\n\n"
        f"{markdown_table(COLUMNS, rows_of(found))}\n\n"
        "The Python client and the stock Java client with the same Perseid broker; bodies of 100 bytes, CPU of the "
        f"client's process. {titles}.\n\n{lines}\n"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [kind.name for kind in KINDS]
    parser.add_argument("--kinds", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="for docs/benchmarks.md, by commit (kept.py)")
    parser.add_argument("--json", type=Path, default=Path("build/clients.json"), help="where the figures go")
    args = parser.parse_args()
    wanted = args.kinds.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no such kind: {', '.join(unknown)}")
    args.kinds = [kind for kind in KINDS if kind.name in wanted]
    if args.keep and len(args.kinds) < len(KINDS):
        parser.error("--keep is for all kinds")
    return args


def main() -> int:
    args, console = parse_arguments(), Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = Kept(clean_commit()) if args.keep else None
    folder = data_folder()
    command, environment = parts_of(PERSEID, HEAP)
    server = Server(PERSEID, command, environment, folder / "client", {})
    try:
        server.start()
        fill(server.namesrv_address)
        found = measure(args.kinds, args.rounds, server.namesrv_address, console)
    except BenchError as error:
        console.print(f"clients: {error}", style="red", markup=False)
        return 1
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    machine: dict[str, Any] = describe_machine()
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine, PART: found}, indent=1) + "\n")
    if kept is not None:
        kept.keep_figures(PART, {"machine": machine, "figures": found})
        kept.keep_text(PART, part_text(found, machine["date"]))
    console.print(markdown_table(COLUMNS, rows_of(found)), markup=False)
    for words, met in verdicts(found):
        console.print(f"{words}: {'met' if met else '[red]missed[/red]'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
