"""How long rows take, before they are measured: from the last time that they were, or reckoned from what they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kept import FOLDER, seconds_of
from rows import Row, Sizes
from servers import JAVA

ROUND_S = 2.5
"""Of a round, beside its measured time: what is dirty goes to the disk, load that does not count, and checks."""
START_S, GROUP_START_S = 8.0, 25.0
"""Of a row's servers, where no other row has started them; of groups and sets of brokers."""
FILL_PER_SECOND, FILL_BYTES_PER_SECOND = 60_000, 150_000_000
OUR_WARM_S = 3.0
REST_S = {True: 24.0, False: 13.0}
"""A start and a rest: of Java, and of Perseid."""
KILL_S = {"fail": (14.0, 6.0), "hang": (55.0, 14.0), "stock": (75.0, 45.0)}
"""A kill, and what follows: Java and Perseid."""
GROW_S, CATCH_UP_S, TIMED_S, IDLE_S = 90.0, 22.0, 32.0, 16.0


@dataclass(frozen=True)
class Pace:
    """What the command line says about time."""

    seconds: float
    rounds: int
    java_warm: float
    """Of a row, as its servers were warmed before."""


def reckoned_s(row: Row, pace: Pace, sizes: Sizes, servers: Sequence[str]) -> float:
    """About how many seconds a row takes, whose servers run."""
    if row.mode in KILL_S:
        java, ours = KILL_S[row.mode]
        if row.mode == "stock":
            return sum(sizes.stock_kills * (java if name == JAVA else ours) for name in servers)
        return sum(sizes.kills_of(row, name) * (java if name == JAVA else ours) for name in servers)
    if row.mode == "grow":
        return GROW_S * len(servers)
    if row.mode == "start":
        return pace.rounds * sum(REST_S[name == JAVA] for name in servers)
    fill = row.fill
    fill_s = 0.0 if fill is None else fill.messages / FILL_PER_SECOND + fill.bytes / FILL_BYTES_PER_SECOND
    each_s = pace.seconds + ROUND_S
    if row.mode == "catchup":
        each_s = CATCH_UP_S
    elif row.timed:
        each_s = TIMED_S
    elif row.load.get("idle"):
        each_s += IDLE_S
    warm_s = sum(pace.java_warm if name == JAVA else OUR_WARM_S for name in servers)
    return warm_s + len(servers) * (fill_s + pace.rounds * each_s)


def start_s(row: Row) -> float:
    """Of one server that no other row has started."""
    return GROUP_START_S if row.members or row.replicas or row.role else START_S


def expected_s(rows: Sequence[Row], reckoned: float, folder: Path = FOLDER) -> float:
    """Of rows that are measured together: as long as the last time, or what was reckoned."""
    return seconds_of([row.name for row in rows], folder) or reckoned


def minutes(seconds: float) -> str:
    """In words."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
