"""Real Spark for the runs of a history. A process holds one session, with its JVM, and forks a child for each run: the
run is the archive's own job on real brokers, and can be killed with SIGKILL while the JVM, and with it what the run's
tasks were doing, lives on.

    python -m tests.spark.landing.driver ADDRESS [DEFECT]

A child stands at the points of `hooks` that were asked for until it is told to go on: meanwhile anything can happen.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import perseid.spark
from perseid.base.errors import PerseidError
from perseid.spark.jobs.archive import archive, compact, job
from perseid.spark.jobs.archive.files import Target, Written
from perseid.spark.jobs.archive.run import Archived, Looked
from perseid.spark.jobs.options import ArchiveOptions

from .hooks import Hooks, installed
from .landing import Asked
from .topic import TOPIC

SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.python.worker.reuse": "true"}
SETTLE_S = 120.0
POLL_S = 0.02
DEADLINE_MS = 5_000
"""How long a run waits for a broker that is away."""
UP, AT, LOOKED, DONE, REFUSED, CRASHED, SETTLED = "up", "at", "looked", "done", "refused", "crashed", "settled"


@dataclass(frozen=True)
class Job:
    """A run of the archive, or, with `keep_hours`, of its compaction; it stands at these points."""

    table: Path
    form: str
    namesrv: str
    asked: Asked
    points: tuple[int, ...] = ()
    keep_hours: int | None = None


def hooked(hooks: Hooks, told: Connection) -> type[job.Brokers]:
    """The archive's own port to brokers and Spark, with points, and told what it sees."""

    class Hooked(job.Brokers):
        def look(self, *, begun: bool) -> Looked:
            hooks.point("before look")
            looked = super().look(begun=begun)
            told.send((LOOKED, looked, begun))
            hooks.point("after look")
            return looked

        def stored_ms(self, ends: Any) -> dict[str, int]:
            hooks.point("before stored_ms")
            return super().stored_ms(ends)

        def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
            hooks.point("before stored_ms")
            return super().first_kept(name, offset)

        def write(self, parts: Any, target: Target) -> Written:
            hooks.point("before write")
            written = super().write(parts, target)
            hooks.point("after write")
            return written

    return Hooked


def play(spark: Any, one: Job, told: Connection) -> None:
    """Run it; say what became of it."""
    hooks = Hooks()

    def stand() -> None:
        (kind,) = hooks.kinds
        told.send((AT, hooks.passed - 1, kind))
        told.recv()
        hooks.kinds.clear()

    job.Brokers = hooked(hooks, told)  # type: ignore[misc]
    with installed(hooks, one.form), hooks.run(dict.fromkeys(one.points, stand)):
        try:
            done = run(spark, one)
        except PerseidError as error:
            told.send((REFUSED, hooks.passed, str(error)))
        except BaseException:
            told.send((CRASHED, hooks.passed, traceback.format_exc()))
        else:
            told.send((DONE, hooks.passed, done))


def run(spark: Any, one: Job) -> Archived:
    """As `perseid spark archive` and `perseid spark compact` do it."""
    if one.keep_hours is not None:
        return Archived(compacted=compact(spark, table=str(one.table), keep_hours=one.keep_hours))
    allowed = one.asked.allowed
    source_options = {"deadlineMs": str(DEADLINE_MS)}
    if one.asked.latest:
        source_options["startingOffsets"] = "latest"
    options = ArchiveOptions(
        format=one.form, batch_offsets=one.asked.batch_offsets, accept_table=allowed.changed_table,
        new_generation=allowed.new_generation, fail_on_data_loss=not allowed.gaps, source_options=source_options,
    )  # fmt: skip
    return archive(spark, nameserver=one.namesrv, topic=TOPIC, table=str(one.table), options=options)


def forked(spark: Any, address: str, work: Callable[[Connection], None]) -> int:
    """Do some work in a child, which has a connection of its own to who asks for it."""
    child = os.fork()
    if child:
        return child

    def do() -> None:
        try:
            spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
            with Client(address) as told:
                told.send(os.getpid())
                work(told)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    thread = threading.Thread(target=do)  # a thread has a connection of its own to the JVM
    thread.start()
    thread.join()
    os._exit(1)


def settle(spark: Any, children: list[int]) -> None:
    """Wait until no child is there, and the JVM has nothing to do for one that is dead."""
    for child in children:
        os.waitpid(child, 0)
    children.clear()
    never, tracker = threading.Event(), spark.sparkContext.statusTracker()
    end = time.monotonic() + SETTLE_S
    while tracker.getActiveJobsIds():
        if time.monotonic() > end:
            raise TimeoutError(f"Spark's jobs of a run that was killed were not done within {SETTLE_S:.0f} s")
        never.wait(POLL_S)


def main() -> None:
    address, planted = sys.argv[1], "".join(sys.argv[2:])
    import deltalake  # noqa: F401  # imported once, not in each child
    import pyiceberg.catalog.sql  # noqa: F401

    spark = perseid.spark.session("landing", master="local[2]", config=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    if planted:
        import pytest
        from tests.spark.landing import planted as defects

        getattr(defects, planted)(pytest.MonkeyPatch())
    children: list[int] = []
    with Client(address) as orders:
        orders.send((UP, os.getpid()))
        while True:
            try:
                order = orders.recv()
            except EOFError:
                break
            if order == SETTLED:
                settle(spark, children)
                orders.send(SETTLED)
            else:
                children.append(forked(spark, address, partial(play, spark, order)))
    spark.stop()


if __name__ == "__main__":
    main()
