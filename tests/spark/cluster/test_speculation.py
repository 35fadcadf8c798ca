"""Tasks that run twice at the same time, on a cluster that speculates: no row is there twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.spark.cluster.sending import BATCH_ROWS, bodies, fill_much, held, until
from tests.spark.cluster.session import Driver
from tests.spark.cluster.standalone import WORKERS, Standalone, connected, opened, within
from tests.spark.jobs.tables import FORMATS, places_outside

from perseid.testing.embedded import EmbeddedBroker

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark cluster"), pytest.mark.timeout(600)
]  # fmt: skip

SETTINGS = {
    "spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.5",
    "spark.speculation.interval": "50ms", "spark.speculation.minTaskRuntime": "50ms",
}  # fmt: skip
"""Of Spark, for the driver of this module."""
CLOSED_S, POLL_S = 60.0, 0.05


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_a_task_and_its_speculative_copy_land_each_row_once(
    cluster: Standalone, driver: Driver, broker: EmbeddedBroker, tmp_path: Path, form: str
) -> None:
    count, topic, table = 20_000, f"speculated-{form}", tmp_path / "t"
    fill_much(broker, topic, count, 2)
    words = (topic, table, "-n", broker.namesrv, "--format", form, "--json")
    driver.archive(*words)
    _, slow, begun = cluster.stop_one_that_writes(".parquet")
    said = driver.answer()
    assert said["status"] == 0 and json.loads(said["out"].splitlines()[-1])["rows"] == count, said
    assert len(places_outside(table)) == len(set(places_outside(table))) == count, "by the copy, while the task stands"
    go_on(slow)
    driver.archive(*words)
    said = driver.answer()
    assert said["status"] == 0 and json.loads(said["out"].splitlines()[-1])["rows"] == 0, said
    found = places_outside(table)
    assert len(found) == len(set(found)) == count and begun.name not in {path.name for path in table.rglob("*.parquet")}


@pytest.mark.long
def test_a_task_of_a_sink_and_its_speculative_copy_are_one_for_readers(
    cluster: Standalone, driver: Driver, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    count, target = 2 * BATCH_ROWS, "copied-twice"
    fill_much(broker, "sink-speculated", count, 2)
    broker.create_topic(target, 2)
    driver.copy(broker.namesrv, "sink-speculated", target, tmp_path / "checkpoint", BATCH_ROWS, 1)
    until(lambda: held(broker, target) > 0.6 * BATCH_ROWS)  # more than one task has: so both have sent some
    slow = stop_one_that_is_connected(cluster, int(broker.address.rpartition(":")[2]))
    driver.answer()
    cluster.signal(slow, signal.SIGCONT, "pyspark.worker")
    assert held(broker, target) > count, "the copy sent again what the task had sent"
    assert bodies(broker, target) == sorted(b"body %d" % i for i in range(count))


def stop_one_that_is_connected(cluster: Standalone, port: int) -> int:
    """Stop the Python of a worker that sends to this port. The worker's number."""
    for number in WORKERS:
        if any(connected(pid, port) for pid in cluster.processes(number, "pyspark.worker")):
            cluster.signal(number, signal.SIGSTOP, "pyspark.worker")
            return number
    raise AssertionError(f"no worker is connected to port {port}")


def go_on(pid: int) -> None:
    """Have a process that stands go on, until it has ended its file, or was ended by Spark."""
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
    for _ in within(CLOSED_S, POLL_S):
        if not opened(pid, ".parquet"):
            return
    raise AssertionError(f"process {pid} has its file open for {CLOSED_S:.0f} s")
