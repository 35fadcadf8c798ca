"""Histories of landings with real Spark and real brokers, drawn and judged as the model's are.

    python -m tests.spark.landing.soak [--count 50] [--seed N] [--formats parquet,delta,iceberg] [--story]
                                       [--planted DEFECT]

A run is a process: the archive's own job on a Spark session, killed by SIGKILL at a drawn point, or while its tasks
write. Brokers are on loopback. The formats take turns; a history that breaks a promise is printed with the command that
plays it again. `NEVER…` are the steps that are not played here. A defect of `planted` shows that one would be.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from . import driver
from .brokers import BrokerWorld
from .driver import Job
from .history import FORMATS, History, Played, play_on
from .hooks import Hooks, Killed
from .landing import DONE, KILLED, REFUSALS, Asked, Failure, Landing, Outcome, refused
from .topic import Seen, World

ROOT = Path(__file__).parents[3]
UP_S, RUN_S = 240, 180
LATER, LATER_MS = 0.4, 600
"""Of the runs that are killed, this part goes on from its point for up to so long: its tasks write by then, most often.
So do all whose tasks are about to."""
REAL_REFUSALS = {
    **REFUSALS,
    "messages gone while they were read": "were to be read, the broker has",
    "no broker": "all of its brokers are away|no route for topic|can't connect to|no broker has it",
}
NEVER = frozenset({"executors elsewhere"})
"""Takes machines that share no folder: tests/spark/cluster has them."""
NEVER_COMPACTED = frozenset({"retention", "tail lost"})
"""A compacted queue holds what its log has lost, and ends where it likes."""
NEVER_PLAIN = frozenset({"holes"})
"""No broker of ours loses a message in the middle of a queue."""


class Driver:
    """The process with Spark, which runs jobs in children."""

    def __init__(self, folder: Path, planted: str = "") -> None:
        self._folder, self._planted = folder, planted
        self._listener = Listener(str(folder / "driver"), "AF_UNIX")

    def __enter__(self) -> Self:
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.landing.driver", str(self._listener.address), self._planted],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
        self._orders = self._accept()
        self._heard(self._orders, UP_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        self._listener.close()
        try:
            self._process.wait(UP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _accept(self) -> Connection:
        self._listener._listener._socket.settimeout(UP_S)  # type: ignore[attr-defined]
        return self._listener.accept()

    def _heard(self, connection: Connection, seconds: float) -> Any:
        if not connection.poll(seconds):
            raise TimeoutError(f"the driver said nothing for {seconds:.0f} s: see {self._folder / 'driver.log'}")
        return connection.recv()

    @contextmanager
    def running(self, job: Job) -> Iterator[tuple[int, Connection]]:
        """A child that runs a job: its process, and what it says."""
        self._orders.send(job)
        with self._accept() as told:
            yield self._heard(told, UP_S), told

    def settle(self) -> None:
        """Wait until nothing of a run that was killed goes on."""
        self._orders.send(driver.SETTLED)
        self._heard(self._orders, driver.SETTLE_S + UP_S)


class SparkLanding(Landing):
    """A table, and the runs over it in processes of real Spark."""

    world: BrokerWorld

    def __init__(self, path: Path, form: str, world: World, hooks: Hooks, spark: Driver) -> None:
        super().__init__(path, form, world, hooks)
        self._spark, self._random = spark, Random(str(path))

    def archive(self, asked: Asked, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        self.topic = Seen(self.world)
        return self._played(Job(self.path, self.form, self.world.namesrv, asked, tuple(at or ())), at or {})

    def compact(self, keep_hours: int, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        return self._played(
            Job(self.path, self.form, self.world.namesrv, Asked(), tuple(at or ()), keep_hours), at or {}
        )

    def _played(self, job: Job, at: dict[int, Callable[[], None]]) -> Outcome:
        topic = self.topic
        self.world.settle()
        with self._spark.running(job) as (pid, told):
            while True:
                try:
                    what, *rest = self._spark._heard(told, RUN_S)
                except EOFError:
                    self._spark.settle()
                    return Outcome(KILLED)
                if what == driver.LOOKED:
                    self._looked(topic, *rest)
                elif what == driver.AT:
                    self._stands(pid, told, at, *rest)
                else:
                    self.hooks.passed = rest[0]
                    return self._ended(what, rest[1])

    def _looked(self, topic: Seen | None, looked: Any, begun: bool) -> None:
        differs = self.world.differs(looked)
        if differs:
            raise Failure(differs)
        assert topic is not None
        topic.note(looked, begun=begun)

    def _stands(self, pid: int, told: Connection, at: dict[int, Callable[[], None]], point: int, kind: str) -> None:
        """Something happens while it stands; or it is killed there, or in the middle of what comes next."""
        self.hooks.passed = point + 1
        self.hooks.kinds[kind] += 1
        try:
            at[point]()
            self.world.settle()
        except Killed:
            if kind == "before write" or self._random.random() < LATER:
                told.send(None)
                threading.Event().wait(self._random.uniform(0, LATER_MS) / 1000)
            os.kill(pid, signal.SIGKILL)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        else:
            told.send(None)

    def _ended(self, what: str, said: Any) -> Outcome:
        if what == driver.DONE:
            return Outcome(DONE, said)
        if what == driver.CRASHED:
            raise Failure(f"a run crashed: {said}")
        return refused(said, REAL_REFUSALS)


class Real:
    """Real Spark and real brokers, in a folder."""

    def __init__(self, folder: Path, spark: Driver) -> None:
        self._folder, self._spark = folder, spark
        self.worlds: list[BrokerWorld] = []

    def world(self, *, compacted: bool) -> World:
        self.worlds.append(BrokerWorld(self._folder / "brokers", compacted=compacted))
        return self.worlds[-1]

    def landing(self, path: Path, form: str, world: World, hooks: Hooks) -> Landing:
        return SparkLanding(path, form, world, hooks, self._spark)

    def never(self, *, compacted: bool) -> frozenset[str]:
        return NEVER | (NEVER_COMPACTED if compacted else NEVER_PLAIN)

    def close(self) -> None:
        for world in self.worlds:
            world.close()


def played(seed: int, form: str, spark: Driver) -> Played:
    """A history in a folder of its own, which is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="landing-"))
    stage = Real(place, spark)
    try:
        history = History(seed, form, place, stage)
        play_on(history)
    finally:
        stage.close()
        spark.settle()
        shutil.rmtree(place)
    return history.played


def command(one: Played) -> str:
    """What plays it again."""
    return f"python -m tests.spark.landing.soak --seed {one.seed} --count 1 --formats {one.form} --story"


def main() -> int:
    """The exit status: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="histories, of all formats together")
    parser.add_argument("--seed", type=int, help="of the first one; drawn if not given")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--story", action="store_true", help="tell each history")
    parser.add_argument("--planted", default="", help="a defect of planted.py, which the runs have")
    asked = parser.parse_args()
    first = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(4), "big")
    print(f"seed {first}", flush=True)
    forms = asked.formats.split(",")
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="landing-soak-") as folder, Driver(Path(folder), asked.planted) as spark:
        for number in range(asked.count):
            form, begun = forms[number % len(forms)], time.monotonic()
            one = played(first + number // len(forms), form, spark)
            counts[form].update(one.counts)
            counts[form].update(histories=1, broken=bool(one.failure), ms=round((time.monotonic() - begun) * 1000))
            if asked.story:
                print("\n".join(one.story))
            print(f"{form} {one.seed}: {(time.monotonic() - begun):.0f} s {one.failure}", flush=True)
            if one.failure:
                print(f"    {command(one)}", flush=True)
    print(table(counts))
    return 1 if any(found["broken"] for found in counts.values()) else 0


def table(counts: dict[str, Counter[str]]) -> str:
    """A line a format, and how often each step was played."""
    ends = ("run done", "run killed", "run refused")
    lines = [f"{'':10}{'histories':>10}{'done':>8}{'killed':>8}{'refused':>8}{'seconds':>9}{'broken':>8}"]
    for form, found in counts.items():
        runs = "".join(f"{found[end]:8}" for end in ends)
        lines.append(f"{form:10}{found['histories']:10}{runs}{found['ms'] / 1000:9.0f}{found['broken']:8}")
    total = sum(counts.values(), Counter())
    steps = sorted(name for name in total if name not in (*ends, "histories", "ms", "broken"))
    return "\n".join([*lines, *(f"    {name:48}{total[name]:6}" for name in steps)])


if __name__ == "__main__":
    sys.exit(main())
