"""Where do the microseconds of a message go? `python bench/profile_broker.py --row pipelined`

Runs the Perseid broker under bench/sampler.py with a row of the benchmark and prints, in µs of CPU a message,
kernel and user time, then functions and lines by their own time, and functions with all that they call.
(Not called profile.py: a module of that name would stand in the way of the standard library's.)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from run import ROWS, run_load, warm_up
from servers import BenchError, Server, data_folder, perseid_command

HERE = Path(__file__).resolve().parent
SETTLE_SECONDS = 2.0
WRITE_TIMEOUT_S = 20.0

Frame = tuple[str, str, int]


def sampled_command(role: str, conf: Path, home: Path) -> list[str]:
    if role != "broker":
        return perseid_command(role, conf, home)
    return [sys.executable, str(HERE / "sampler.py"), str(home / "stacks"), role, "-c", str(conf)]


def kernel_share(pid: int, before: tuple[int, int]) -> float:
    user, system = (now - then for now, then in zip(cpu_ticks(pid), before, strict=True))
    return system / max(1, user + system)


def cpu_ticks(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]), int(fields[12])


def short(path: str) -> str:
    """The path inside of its package."""
    for mark in ("/src/perseid/", "/site-packages/", "/python3"):
        if mark in path:
            return path.split(mark)[-1]
    return path


def read_stacks(path: Path) -> list[tuple[int, list[Frame]]]:
    deadline = time.monotonic() + WRITE_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise BenchError("the broker did not write its profile")
        time.sleep(0.05)
    parsed = [json.loads(line) for line in path.read_text().splitlines()]
    return [(count, [(short(f), name, line) for f, name, line in frames]) for count, frames in parsed]


def show(console: Console, title: str, counts: Counter[str], scale: float, top: int) -> None:
    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("µs", justify="right")
    table.add_column("%", justify="right")
    table.add_column("where", no_wrap=True)
    total = sum(counts.values()) if "own" in title else None
    for name, count in counts.most_common(top):
        part = f"{100 * count / total:.1f}" if total else ""
        table.add_row(f"{count * scale:.2f}", part, name)
    console.print(table)


def report(console: Console, stacks: list[tuple[int, list[Frame]]], cpu_us: float, top: int) -> None:
    def own(key: Callable[[Frame], str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for count, frames in stacks:
            counts[key(frames[0])] += count
        return counts

    whole: Counter[str] = Counter()
    for count, frames in stacks:
        for name in {f"{file} {function}" for file, function, _ in frames}:
            whole[name] += count
    scale = cpu_us / max(1, sum(count for count, _ in stacks))
    show(console, "own time, by file", own(lambda f: f[0]), scale, top)
    show(console, "own time, by function", own(lambda f: f"{f[0]} {f[1]}"), scale, top)
    show(console, "own time, by line", own(lambda f: f"{f[0]}:{f[2]} {f[1]}"), scale, top)
    show(console, "with all that it calls", whole, scale, top)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=[r.name for r in ROWS], default="pipelined")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--top", type=int, default=30)
    args = parser.parse_args()
    row = next(r for r in ROWS if r.name == args.row)
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = data_folder()
    server = Server("Perseid", sampled_command, folder / "perseid", {}, {})
    try:
        server.start()
        warm_up(server, row, SETTLE_SECONDS)
        plain = run_load(server, row, warm=SETTLE_SECONDS, seconds=args.seconds)
        pid = server.processes["broker"].pid
        ticks = cpu_ticks(pid)
        os.kill(pid, signal.SIGUSR1)
        run_load(server, row, warm=0, seconds=args.seconds)
        os.kill(pid, signal.SIGUSR2)
        kernel = kernel_share(pid, ticks)
        stacks = read_stacks(folder / "perseid" / "stacks")
    except BenchError as error:
        console.print(f"[red]profile: {error}[/red]")
        return 1
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    cpu = plain["server_cpu_us"]
    console.print(f"{row.title}: {plain['per_second']:,.0f}/s, {cpu:.2f} µs CPU a message,", end=" ")
    console.print(f"{cpu * kernel:.2f} of them in the kernel; below, samples scaled to that figure")
    report(console, stacks, cpu, args.top)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
