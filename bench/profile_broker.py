"""Where do the microseconds of a message go? `make profile`, or `python bench/profile_broker.py --rows closed`

Runs a Perseid broker under rows of the benchmark and writes for each a flame graph: Python functions, the compiled core
and other native code, out of samples of py-spy, which also counts a thread that wants to run and has no core. Where
perf is installed and may look (root, or kernel.perf_event_paranoid at most 1), a second one shows what the kernel does
below each system call. Prints, in µs of a message, where it is spent; all figures are scaled to what a message costs
when nobody looks. `--parts`: one table instead, of all processes (a master and its slave, the members of a group),
which adds up to what a message costs; perf alone is needed for it.
(Not called profile.py: a module of that name would stand in the way of the standard library's.)
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from flame import Stacks, draw, kind
from fleet import HEAP, discard, server_of
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rows import ROWS, Row, Sizes, sized
from run import SETTLE_SECONDS, load_command, run_row, warm_up
from servers import CORE, PLAIN, UNSYNCED, BenchError, Server, data_folder, raise_open_files
from stacks import by_file, of_perf, of_py_spy, own, parts, ways_in, whole

SAMPLES_A_SECOND = 250
PERF_SAMPLES_A_SECOND = 1999
TOOL_TIMEOUT_S = 60.0
"""Beyond the time that it samples: py-spy reads the symbols of all libraries first."""
SIZES = Sizes(large_gib=1, cold_mib=256, timers=0)
"""No number of timers: they are sent as long as somebody looks."""


class ToolFailed(Exception):
    """A profiler did not do its work; the text says why."""


def cpu_ticks(pid: int) -> dict[int, tuple[int, int]]:
    """User and system time of each thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        found[int(task.name)] = (int(fields[11]), int(fields[12]))
    return found


def used(pid: int) -> tuple[int, int]:
    """User and system time of a process."""
    threads = cpu_ticks(pid).values()
    return sum(user for user, _ in threads), sum(system for _, system in threads)


def under_load(one: Server, row: Row, tool: Sequence[str], seconds: float) -> dict[int, int]:
    """Run a tool while the row's load runs; the CPU of each of the broker's threads meanwhile, in ticks."""
    pid, limit_s = one.pids()[0], SETTLE_SECONDS + seconds + TOOL_TIMEOUT_S
    command = load_command(one, row.topics(), row.mode, **row.load, warm=0, seconds=limit_s)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as load:
        try:
            time.sleep(SETTLE_SECONDS)
            before = cpu_ticks(pid)
            done = subprocess.run(tool, capture_output=True, text=True, timeout=seconds + TOOL_TIMEOUT_S)
            spent = {number: sum(now) - sum(before.get(number, (0, 0))) for number, now in cpu_ticks(pid).items()}
            if load.poll() is not None:
                raise BenchError(f"the load of {row.name} ended: {load.stderr.read() if load.stderr else ''}")
        finally:
            load.terminate()
    if done.returncode:
        raise ToolFailed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"code {done.returncode}")
    return spent


def by_py_spy(one: Server, row: Row, seconds: float, us: float, raw: Path) -> Stacks:
    """Python functions, the core and other native code; `us` is what a message costs."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise BenchError("py-spy is not installed: make setup")
    options = ["--native", "--threads", "--format", "raw", "--output", str(raw)]
    times = ["--duration", f"{seconds:.0f}", "--rate", str(SAMPLES_A_SECOND)]
    try:
        cpu = under_load(one, row, [program, "record", "--pid", str(one.pids()[0]), *options, *times], seconds)
    except ToolFailed as failed:
        raise BenchError(f"py-spy: {failed} (it has to be root, or kernel.yama.ptrace_scope 0)") from None
    return of_py_spy(raw.read_text(), cpu, us)


def by_perf(one: Server, row: Row, seconds: float, us: float, data: Path) -> Stacks:
    """What the kernel does below each system call, and native functions; ToolFailed where perf can't tell."""
    if shutil.which("perf") is None:
        raise ToolFailed("it is not installed")
    record = ["perf", "record", "-g", "-F", str(PERF_SAMPLES_A_SECOND), "-o", str(data), "-p", str(one.pids()[0])]
    under_load(one, row, [*record, "--", "sleep", f"{seconds:.0f}"], seconds)
    script = ["perf", "script", "-i", str(data), "-F", "comm,tid,time,ip,sym,dso"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    found = of_perf(done.stdout, us)
    if not any(kind(frame) == "kernel" for stack in found for frame in stack):
        raise ToolFailed("it may not look into the kernel: sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0")
    return found


def by_part(one: Server, row: Row, seconds: float, costs: Mapping[int, float]) -> dict[int, dict[str, float]]:
    """µs of a message in each part of each process, which all work under one load; `costs`: what a message costs each.
    ToolFailed where perf can't tell."""
    if shutil.which("perf") is None:
        raise ToolFailed("it is not installed")
    files = {pid: one.folder / f"perf-{pid}.data" for pid in costs}
    record = f"perf record -q -g -F {PERF_SAMPLES_A_SECOND}"
    each = [f"{record} -o {file} -p {pid} -- sleep {seconds:.0f}" for pid, file in files.items()]
    under_load(one, row, ["sh", "-c", " & ".join([*each, "wait"])], seconds)
    found = {}
    for pid, file in files.items():
        script = ["perf", "script", "-i", str(file), "-F", "comm,tid,time,ip,sym,dso"]
        done = subprocess.run(script, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
        found[pid] = parts(of_perf(done.stdout, costs[pid]))
        if not found[pid]:
            raise ToolFailed(f"it has no samples of process {pid}: {done.stderr.strip()[-200:]}")
    return found


def show_parts(console: Console, title: str, found: Mapping[int, Mapping[str, float]]) -> None:
    """One column a process, the master or leader first."""
    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("µs CPU a message", no_wrap=True)
    for number in range(len(found)):
        table.add_column("master, leader" if number == 0 else f"other {number}", justify="right", no_wrap=True)
    table.add_column("all", justify="right")
    sums: dict[str, float] = {}
    for one in found.values():
        for name, us in one.items():
            sums[name] = sums.get(name, 0.0) + us
    for name in sorted(sums, key=lambda name: -sums[name]):
        table.add_row(name, *(f"{one.get(name, 0.0):.2f}" for one in found.values()), f"{sums[name]:.2f}")
    whole_us = [sum(one.values()) for one in found.values()]
    table.add_row("all of it", *(f"{us:.2f}" for us in whole_us), f"{sum(whole_us):.2f}")
    console.print(table)


def show(console: Console, title: str, sums: Mapping[str, float], us: float, top: int) -> None:
    table = Table(title=title, title_justify="left", show_edge=False)
    for column in ("µs", "%"):
        table.add_column(column, justify="right", no_wrap=True, min_width=5)
    table.add_column("where", no_wrap=True, overflow="ellipsis")
    for name, part in sorted(sums.items(), key=lambda item: -item[1])[:top]:
        table.add_row(f"{part:.2f}", f"{100 * part / us:.1f}", Text(name))
    console.print(table)
    console.print()


def profile(one: Server, row: Row, args: argparse.Namespace, console: Console) -> None:
    """Measure a row, look into it, draw it and print where its time goes."""
    warm_up(one, row, SETTLE_SECONDS)
    pids = one.pids()
    before = [used(pid) for pid in pids]
    plain = run_row(one, row, warm=SETTLE_SECONDS, seconds=args.seconds)
    ticks = [(u - u0, s - s0) for (u, s), (u0, s0) in zip(map(used, pids), before, strict=True)]
    (user, system), together = ticks[0], sum(map(sum, ticks))
    us: float = plain["server_cpu_us"] * (user + system) / max(1, together)
    kernel_us = us * system / max(1, user + system)
    title = f"{row.name}: {us:.2f} µs CPU a message, {kernel_us:.2f} of them in the kernel"
    console.rule(row.name)
    console.print(f"{row.title}: {plain['per_second']:,.0f}/s; {title}")
    if len(pids) > 1:
        all_us = plain["server_cpu_us"]
        console.print(f"all {len(pids)} processes: {all_us:.2f} µs; what follows is of the master, or leader, alone")
    if args.parts:
        costs = {pid: plain["server_cpu_us"] * sum(t) / max(1, together) for pid, t in zip(pids, ticks, strict=True)}
        try:
            show_parts(console, f"{row.name}: {row.title}", by_part(one, row, args.seconds, costs))
        except ToolFailed as failed:
            console.print(f"[yellow]no parts: perf: {failed}[/yellow]")
        return
    found = by_py_spy(one, row, args.seconds, us, one.folder / "py-spy.txt")
    picture = args.out / f"{row.name}.svg"
    draw(picture, title, "py-spy: what the kernel does counts for its caller; so does waiting for a core", found)
    show(console, "own time, by file", by_file(own(found)), us, args.top)
    show(console, "own time, by function", own(found), us, args.top)
    show(console, "with all that it calls", whole(found), us, args.top)
    console.print(f"flame graph: {picture}")
    try:
        found = by_perf(one, row, args.seconds, us, one.folder / "perf.data")
    except ToolFailed as failed:
        console.print(f"[yellow]no kernel: perf: {failed}[/yellow]")
        return
    picture = args.out / f"{row.name}-kernel.svg"
    draw(picture, title, "perf: native functions, and the kernel below those that called it", found)
    show(console, "perf: in the kernel, by the way in", ways_in(found), us, args.top)
    show(console, "perf: kernel and native functions, own time", own(found), us, args.top)
    console.print(f"flame graph with the kernel: {picture}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.name for row in ROWS if CORE in row.servers and row.mode in ("send", "pull", "tail", "pop")]
    parser.add_argument("--rows", default="closed,pipelined", help=f"some of {','.join(names)}")
    parser.add_argument("--seconds", type=float, default=6.0, help="of samples")
    parser.add_argument("--top", type=int, default=20, help="lines of each table")
    parser.add_argument("--out", type=Path, default=Path("build/profile"), help="folder for the pictures")
    parser.add_argument("--no-core", action="store_true", help="without the compiled core")
    parser.add_argument("--parts", action="store_true", help="one table of all processes, and nothing else")
    parser.add_argument("--not-synced", action="store_true", help="syncBeforeAnswer=false, in rows of a DLedger group")
    args = parser.parse_args()
    if unknown := set(args.rows.split(",")) - set(names):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return args


def main() -> int:
    args = parse_arguments()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_open_files()
    folder = data_folder()
    try:
        for row in (row for row in sized(ROWS, SIZES) if row.name in args.rows.split(",")):
            name = PLAIN if args.no_core else UNSYNCED if args.not_synced else CORE
            one = server_of(name, folder / row.name, row, HEAP)
            try:
                one.start()
                profile(one, row, args, console)
            finally:
                discard(one)
    except BenchError as error:
        console.print(f"[red]profile: {error}[/red]")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
