"""Growth: what a message, the memory and a start cost when a broker has more and more of something.

    make bench ROWS=growth                              # a short run of all axes
    make bench ROWS=growth ARGS="--axes topics --full"  # one axis, all of its sizes
    make bench ROWS=growth ARGS="--full --resume --keep --minutes 20"   # for docs/benchmarks.md, in pieces

Each size of each axis (axes.py) is a point: the broker grows to it, is left alone, gets a closed loop of sends (64
connections × 1, 128 B, to a topic that does not grow), is stopped and started, and killed and started. Perseid counts
the turns of its event loop that took 20 ms or more: under this load there may be none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from axes import AXES, Axis
from fleet import HEAP
from kept import Kept, clean_commit
from machine import describe_machine
from pairs import cpu_s
from plan import minutes
from report import COLOURS, markdown_table
from rich.console import Console
from rich.markup import escape
from run import at_rest, run_load
from servers import CORE, JAVA, TOPIC_QUEUES, BenchError, Remote, Server, data_folder, parts_of, raise_open_files

PART = "growth"
CLOSED: dict[str, float | str] = {"connections": 64, "window": 1, "size": 128}
TOPIC = "bench-closed"
JAVA_WARM_S, OUR_WARM_S = 15.0, 2.0
SETTLE_S, MEASURED_S = 0.5, 2.0
POINT_S, RESTARTS_S = 14.0, {JAVA: 16.0, CORE: 6.0}
OURS_QUICKER = 0.3
"""Of the time in which Java grows."""
GET_RUNTIME_INFO, LONG_TURNS = 28, "loopLongTurns"
NOISE = 0.15
"""Of a figure at the smallest size: so much may it grow by chance."""
FIGURES = {
    "server_cpu_us": "µs CPU",
    "p99_ms": "p99 ms",
    "max_ms": "longest ms",
    "long_turns": "long turns",
    "memory_mb": "MB",
    "idle_percent": "idle %",
    "start_s": "start s",
    "start_cpu_s": "start CPU s",
    "recovery_s": "after a kill s",
    "recovery_cpu_s": "after a kill CPU s",
}
"""Of a point, and what the table calls it."""
JUDGED = ("server_cpu_us", "memory_mb", "start_s", "start_cpu_s", "recovery_s", "recovery_cpu_s")
"""What may not grow by more than Java's."""

Points = dict[str, dict[int, dict[str, float]]]
"""{server: {size: figures}}"""


# ---- measuring ----


def point(server: Server, axis: Axis, size: int) -> dict[str, float]:
    """The figures of a broker of this size, which runs; it runs afterwards."""
    idle = size if axis.idle else 1
    rest = at_rest(server, [TOPIC], idle, SETTLE_S)
    before = long_turns(server)
    load = {**CLOSED, "warm": SETTLE_S, "seconds": MEASURED_S, **({"idle": size} if axis.idle else {})}
    result = run_load(server, [TOPIC], "send", **load)
    found = {name: float(result[name]) for name in FIGURES if name in result} | rest
    found["other_cores"] = float(result["other_cores"])
    if before is not None:
        found["long_turns"] = (long_turns(server) or 0.0) - before
    if not axis.idle:
        server.stop()
        server.start()
        found["start_s"], found["start_cpu_s"] = server.start_s, cpu_s(server.pids())
        os.kill(server.pids()[0], signal.SIGKILL)
        server.stop()
        server.start()
        found["recovery_s"], found["recovery_cpu_s"] = server.start_s, cpu_s(server.pids())
    return found


def long_turns(server: Server) -> float | None:
    """How many turns of the broker's event loop were long ones, since its start; None: it does not count them."""
    with Remote(server.ports[0]) as remote:
        table = json.loads(remote.ask(GET_RUNTIME_INFO, {})[1])["table"]
    return float(table[LONG_TURNS]) if LONG_TURNS in table else None


def grow(server: Server, axis: Axis, before: int, size: int) -> None:
    """Make it a broker of this size."""
    if size == before:
        return
    if axis.stopped:
        server.stop()
        axis.grow(server, before, size)
        server.start()
    else:
        axis.grow(server, before, size)


@contextlib.contextmanager
def started(name: str, folder: Path, warm_s: float) -> Iterator[Server]:
    """A new broker, warmed up."""
    server = Server(name, *parts_of(name, HEAP), folder, {})
    try:
        server.start()
        server.create_topics([TOPIC], range(TOPIC_QUEUES))
        server.await_stored([TOPIC], TOPIC_QUEUES)
        run_load(server, [TOPIC], "send", **CLOSED, warm=0, seconds=warm_s)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Growth:
    """Measures axes, point after point; says how far it is."""

    def __init__(self, folder: Path, console: Console, servers: Sequence[str], java_warm_s: float) -> None:
        self.folder, self.console, self.servers = folder, console, servers
        self.warm_s = {JAVA: java_warm_s, CORE: OUR_WARM_S}
        self.expected = self.done = self.spent = 0.0

    def expected_s(self, axis: Axis, sizes: Sequence[int]) -> float:
        """About how long an axis takes."""
        restarts = 0.0 if axis.idle else 1.0
        return sum(
            self.warm_s[name] + sum(self._point_s(axis, size, name, restarts) for size in sizes)
            for name in self.servers
        )

    @staticmethod
    def _point_s(axis: Axis, size: int, name: str, restarts: float) -> float:
        return POINT_S + restarts * RESTARTS_S[name] + size * axis.each_s * (1 if name == JAVA else OURS_QUICKER)

    def measure(self, axis: Axis, sizes: Sequence[int]) -> Points:
        """All points of an axis; those that a broker does not reach are missing, with a line that says why."""
        found: Points = {name: {} for name in self.servers}
        for name in self.servers:
            try:
                with started(name, self.folder / f"{axis.name}-{name}", self.warm_s[name]) as server:
                    self._walk(server, axis, sizes, found[name])
            except BenchError as error:
                self.console.print(f"[red]{axis.name}, {name}: ends here: {escape(str(error))}[/red]")
                if name != JAVA:
                    raise
        return found

    def _walk(self, server: Server, axis: Axis, sizes: Sequence[int], points: dict[int, dict[str, float]]) -> None:
        before = 0
        for size in sizes:
            began = time.monotonic()
            grow(server, axis, before, size)
            points[size], before = point(server, axis, size), size
            self.spent += time.monotonic() - began
            self.done += self._point_s(axis, size, server.name, 0.0 if axis.idle else 1.0)
            left = max(0.0, self.expected - self.done) * self.spent / self.done
            share = min(1.0, self.done / self.expected)
            bar = "█" * round(20 * share) + "░" * (20 - round(20 * share))
            figures = ", ".join(f"{points[size][f]:,.2f} {word}" for f, word in FIGURES.items() if f in points[size])
            text = f"{bar} {share:4.0%}, about {minutes(left)} left; {size:,} {axis.unit}, {server.name}: {figures}"
            self.console.print(f"[dim]{text}[/dim]")


# ---- judging ----


def increase(points: dict[int, dict[str, float]], figure: str) -> float:
    """From the smallest size to the largest; 0 where that is less than noise."""
    sizes = sorted(points)
    first, last = points[sizes[0]][figure], points[sizes[-1]][figure]
    return last - first if last > first * (1 + NOISE) else 0.0


def verdicts(axis: str, points: Points) -> Iterator[tuple[str, bool]]:
    """Each goal, in words, and whether it was met."""
    ours = points.get(CORE, {})
    if len(ours) < 2:
        return
    java = points.get(JAVA, {})
    if len(java) > 1:
        both = {size: figures for size, figures in ours.items() if size in java}
        for figure in JUDGED:
            if figure in both[min(both)]:
                own, other = increase(both, figure), increase(java, figure)
                words = f"{axis}: {FIGURES[figure]} grows by {own:,.2f}, Java's by {other:,.2f}"
                yield words, own <= max(other, NOISE * both[min(both)][figure])
        if fewer := sorted(set(ours) - set(java)):
            yield f"{axis}: Java's broker did not come to {', '.join(f'{size:,}' for size in fewer)}", True
    turns = sum(figures["long_turns"] for figures in ours.values())
    yield f"{axis}: {turns:.0f} turns of the event loop took 20 ms or more, none may", turns == 0


COLUMNS = ("axis", "broker", "size", *FIGURES.values())


def rows_of(axis: str, points: Points) -> Iterator[list[str]]:
    """The cells of COLUMNS."""
    first = axis
    for server, curve in points.items():
        whose = server
        for size, figures in sorted(curve.items()):
            cells = [f"{figures[name]:,.2f}" if name in figures else "" for name in FIGURES]
            yield [first, whose, f"{size:,}", *cells]
            first = whose = ""


def part_text(found: dict[str, Points], date: str) -> str:
    """What the page says."""
    table = markdown_table(COLUMNS, [cells for axis, points in found.items() for cells in rows_of(axis, points)])
    judged = [one for axis, points in found.items() for one in verdicts(axis, points)]
    lines = "\n".join(f"- {words}: {'met' if met else 'missed'}" for words, met in judged)
    return (
        f'## Growth\n`make bench ROWS=growth ARGS="--full --keep"`, on {date}. '
        f"Of the goals {sum(met for _, met in judged)} of {len(judged)} are met.\n\n"
        "![CPU a message, memory and start over topics, connections, log, groups and timers](img/growth.png)\n\n"
        f"{table}\n\n"
        "Sends in a closed loop (64 connections × 1, 128 B) beside what the axis says; MB: resident memory without "
        "file pages, before that load; start s: from the spawn to the first accepted send, after an orderly stop and "
        "after SIGKILL; long turns: of Perseid's event loop, 20 ms or more, under that load. Log: files that hold "
        "nothing but a mark that they are full. Goals: no figure grows by more "
        f"than Java's, or by {NOISE:.0%} of what it is at first.\n\n{lines}\n"
    )


def plot(found: dict[str, Points], path: Path) -> None:
    """A row of panels for each axis: CPU a message, memory, start."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = ("server_cpu_us", "memory_mb", "start_s")
    figure, axes = pyplot.subplots(len(found), 3, figsize=(11, 2.6 * len(found)), layout="constrained", squeeze=False)
    for row, (axis, points) in zip(axes, found.items(), strict=True):
        for panel, name in zip(row, panels, strict=True):
            for server, curve in points.items():
                sizes = [size for size in sorted(curve) if name in curve[size]]
                values = [curve[size][name] for size in sizes]
                panel.plot(sizes, values, "o-", color=COLOURS[server], label=server, markersize=3)
            panel.set_xscale("symlog", linthresh=1)
            panel.set_ylim(bottom=0)
            panel.set_title(f"{FIGURES[name]}, by {axis}", fontsize=9)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


# ---- the command ----


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [axis.name for axis in AXES]
    parser.add_argument("--axes", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--full", action="store_true", help="all sizes, not only those of a short run")
    parser.add_argument("--sizes", help="these instead, of one axis: 10,1000")
    parser.add_argument("--only", choices=(JAVA, CORE), help="leave the other out")
    parser.add_argument("--warm", type=float, default=JAVA_WARM_S, help="seconds of load before Java is measured")
    parser.add_argument("--plan", action="store_true", help="say how long it takes, and end")
    parser.add_argument("--keep", action="store_true", help="for docs/benchmarks.md, by commit (kept.py)")
    parser.add_argument("--resume", action="store_true", help="leave out the axes that this commit has")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no axis that would end later than that")
    parser.add_argument("--json", type=Path, default=Path("build/growth.json"), help="where the figures go")
    args = parser.parse_args()
    args.axes = args.axes.split(",")
    if unknown := [name for name in args.axes if name not in names]:
        parser.error(f"no such axis: {', '.join(unknown)}")
    if args.sizes and len(args.axes) != 1:
        parser.error("--sizes are of one axis: name it with --axes")
    if (args.keep or args.resume) and (args.only or args.sizes or not args.full):
        parser.error("--keep and --resume are for both brokers and --full sizes")
    return args


def sizes_of(axis: Axis, args: argparse.Namespace) -> tuple[int, ...]:
    """The sizes that are measured, the smallest first."""
    if args.sizes:
        return tuple(sorted(int(size) for size in args.sizes.split(",")))
    return axis.full if args.full else axis.short


def save(args: argparse.Namespace, kept: Kept | None, found: dict[str, Points]) -> None:
    """The figures as they are by now; the page's part when it has all axes."""
    machine = describe_machine()
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine, "growth": found}, indent=1) + "\n")
    if kept is None:
        return
    for axis, points in found.items():
        kept.keep_figures(f"{PART}-{axis}", {"machine": machine, "points": points})
    if {*found} == {axis.name for axis in AXES}:
        kept.keep_text(PART, part_text(found, machine["date"]))
        plot(found, kept.folder / f"{PART}.png")


def kept_points(kept: Kept, axis: Axis) -> Points | None:
    """What was kept of an axis, with sizes as numbers."""
    found: dict[str, Any] | None = kept.figures(f"{PART}-{axis.name}")
    if found is None:
        return None
    return {name: {int(size): one for size, one in curve.items()} for name, curve in found["points"].items()}


def measure(args: argparse.Namespace, folder: Path, console: Console) -> bool:
    """Measure what is asked for; False when a broker of ours did not come to a size."""
    began = time.monotonic()
    kept = Kept(clean_commit()) if args.keep or args.resume else None
    axes = [axis for axis in AXES if axis.name in args.axes]
    found: dict[str, Points] = {}
    if kept is not None and args.resume:
        found = {axis.name: points for axis in axes if (points := kept_points(kept, axis))}
    growth = Growth(folder, console, [args.only] if args.only else [JAVA, CORE], args.warm)
    todo = {axis.name: growth.expected_s(axis, sizes_of(axis, args)) for axis in axes if axis.name not in found}
    growth.expected = sum(todo.values())
    for name, seconds in todo.items():
        console.print(f"[dim]{minutes(seconds):>7}  {name}[/dim]")
    console.print(f"{len(todo)} axes: about {minutes(growth.expected)}")
    if args.plan:
        return True
    met = True
    for axis in axes:
        if axis.name not in todo or time.monotonic() + todo[axis.name] > began + 60 * args.minutes:
            continue
        try:
            found[axis.name] = growth.measure(axis, sizes_of(axis, args))
        except BenchError:
            met = False
            continue
        ordered = {axis.name: found[axis.name] for axis in axes if axis.name in found}
        save(args, kept if args.keep else None, ordered)
    if left := [axis.name for axis in axes if axis.name not in found]:
        console.print(f"left: {', '.join(left)}: the same command with --resume goes on")
    for name, points in found.items():
        for words, well in verdicts(name, points):
            console.print(f"{words}: {'met' if well else '[red]missed[/red]'}")
    return met


def main() -> int:
    args, console = parse_arguments(), Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_open_files()
    folder = data_folder()
    try:
        return 0 if measure(args, folder, console) else 1
    except BenchError as error:
        console.print(f"[red]bench: {escape(str(error))}[/red]")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
