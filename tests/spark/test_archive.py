"""The archive: exactly once, also when it is killed at any point."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import fill

from perseid.spark.jobs.archive import archive, read
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

KILLED = """
import os, signal, sys
import perseid.spark
from perseid.spark.jobs import archive as module

namesrv, topic, table, where, batch = sys.argv[1:]
plain = module._Files.rename

def rename(self, old, new):
    if new.endswith(f"batch={int(batch):08d}"):
        if where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, old, new)
        os.kill(os.getpid(), signal.SIGKILL)
    plain(self, old, new)

module._Files.rename = rename
spark = perseid.spark.session("killed", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
module.archive(spark, nameserver=namesrv, topic=topic, table=table, max_offsets_per_trigger=40)
"""


def places(spark: Any, table: Path) -> list[tuple[str, int, int]]:
    return [(r.brokerName, r.queueId, r.queueOffset) for r in read(spark, str(table)).collect()]


def test_a_topic_lands_once_and_a_second_run_adds_only_what_is_new(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "landed", 100)
    table = tmp_path / "table"
    done = archive(spark, nameserver=broker.namesrv, topic="landed", table=str(table), max_offsets_per_trigger=60)
    assert (done.batches, done.rows) == (2, 100)
    fill(broker, "landed", 30, start=100)
    done = archive(spark, nameserver=broker.namesrv, topic="landed", table=str(table), max_offsets_per_trigger=60)
    assert done.rows == 30
    found = places(spark, table)
    assert len(found) == len(set(found)) == 130
    assert sum(pq.read_table(part).num_rows for part in sorted(table.glob("batch=*"))) == 130


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_run_that_is_killed_around_its_rename_leaves_nothing_half_and_nothing_twice(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, where: str
) -> None:
    topic = f"killed-{where}"
    fill(broker, topic, 100)
    table = tmp_path / "table"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, broker.namesrv, topic, str(table), where, "1"],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=500,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    visible = places(spark, table)
    assert len(visible) == len(set(visible)) == (40 if where == "before" else 80)
    archive(spark, nameserver=broker.namesrv, topic=topic, table=str(table), max_offsets_per_trigger=40)
    found = places(spark, table)
    assert len(found) == len(set(found)) == 100
