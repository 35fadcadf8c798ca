"""Exactly once, however often something is killed: an archive and a sink run while messages come in, and the driver
with its JVM, Python workers of Spark, and the broker set's master are killed at drawn moments.

    python -m tests.spark.kills.soak [--kills 50] [--seed N] [--jobs archive,sink] [--folder DIR]

`make soak` runs it so; tests/spark/kills/test_kills.py with three kills. Driver and workers go on, or are started
again; a master comes back as a slave of the next one. At the end the table holds each message of the topic once, at its
place and as it was, and so do the copies that readers see in the sink's topic, in their order.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.spark.kills.check import Found, check
from tests.spark.kills.cluster import Cluster
from tests.spark.kills.driver import SOURCE, STOP, TARGET
from tests.spark.kills.load import Load
from tests.spark.kills.victims import POLL_S, Driver

KINDS = ("driver", "worker", "master")
JOBS = ("archive", "sink")
QUEUES = 4
PER_SECOND = 500
MOST_PAUSE_S = 4.0
"""Before a kill,"""
EARLY = 0.25
"""a part of which come any time after the driver is up, the others when it has brought a batch to its end since."""
BATCH_S = 90.0
"""That this is waited for."""
BACK_AFTER_S = (0.5, 4.0)
DONE_S = 900.0


@dataclass
class Outcome:
    """What one run came to."""

    seed: int
    kills: Counter[str]
    failed: Counter[str]
    """Runs of each job that failed, and were begun again by the driver that they failed in."""
    batches: int
    found: Found
    retries: int
    seconds: float

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        failed = ", ".join(f"{job} {self.failed[job]}" for job in JOBS)
        return (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s\n"
            f"source: {self.found.source:,} messages, {self.found.acknowledged:,} of them acknowledged, "
            f"{self.retries} sends repeated\n"
            f"runs that failed and were begun again: {failed}\n"
            f"table: each message once; the sink's topic: each once for readers that drop repeats, which were "
            f"{self.found.repeats:,}"
        )


def run(folder: Path, kills: int, seed: int, jobs: Sequence[str] = JOBS) -> Outcome:
    """Kill so many times, then compare; AssertionError when what is there is not what it should be."""
    print(f"seed {seed}", flush=True)
    random, begun = Random(seed), time.monotonic()
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    random.shuffle(kinds)
    never = threading.Event()
    with Cluster(folder / "cluster") as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, QUEUES)
        load = Load(cluster.namesrv, SOURCE, PER_SECOND)
        driver = Driver(cluster.namesrv, folder, list(jobs))
        try:
            load.start()
            driver.start()
            for number, kind in enumerate(kinds, 1):
                driver.await_event("up")
                if random.random() >= EARLY:
                    await_batch(driver)
                never.wait(random.uniform(0, MOST_PAUSE_S))
                whom = _kill(kind, driver, cluster, random)
                print(f"{time.monotonic() - begun:6.1f} s  kill {number}: {kind} {whom}", flush=True)
            cluster.await_in_sync()
            load.end()
            (folder / STOP).touch()
            driver.await_event("done", DONE_S)
            found = check(cluster.namesrv, folder, load.acknowledged, jobs)
        finally:
            driver.end()
            load.end()
    failed = Counter(event["job"] for event in driver.events if event["event"] == "failed")
    batches = sum(event["batches"] for event in driver.events if event["event"] == "archived")
    return Outcome(seed, Counter(kinds), failed, batches, found, load.retries, time.monotonic() - begun)


def await_batch(driver: Driver) -> None:
    """Wait until the driver has brought one more batch to its end; not for long, for what it waits for may be dead."""
    never, before = threading.Event(), driver.heard("batch")
    for _ in range(int(BATCH_S / POLL_S)):
        if driver.heard("batch") > before:
            return
        never.wait(POLL_S)


def _kill(kind: str, driver: Driver, cluster: Cluster, random: Random) -> str:
    if kind == "master":
        return cluster.kill_master(random.uniform(*BACK_AFTER_S))
    if kind == "worker":
        return driver.kill_worker(random)
    driver.kill()
    driver.start()
    return ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, help="of what is killed, and when; drawn if not given")
    options.add_argument("--jobs", default=",".join(JOBS))
    options.add_argument("--folder", type=Path, help="empty, or not there yet; kept afterwards")
    given = options.parse_args()
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory(prefix="perseid-kills-") as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        outcome = run(folder, given.kills, seed, given.jobs.split(","))
    print(outcome)
    if "sink" in given.jobs and given.kills >= len(KINDS) * 5:
        assert outcome.found.repeats, "nothing was sent twice: the kills came at moments that prove nothing"


if __name__ == "__main__":
    main()
