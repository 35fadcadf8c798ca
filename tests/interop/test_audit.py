"""The audit on the folders of a master and its slave, one Java's and one ours, while both run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import ways
from test_replication import PAIRS, Replicated

import perseid.spark
from perseid.spark.jobs.audit import audit, lines

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("audit"), pytest.mark.timeout(1200, func_only=True)]
COUNT = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = perseid.spark.session("interop", master="local[1]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.mark.parametrize("kind", ways.in_ci(ways.IDS, "perseid_to_java"))
def test_a_java_replica_and_ours_agree_and_a_changed_byte_is_found(
    spark: Any, perseid_cluster: rig.Cluster, java_agent: rig.Agent, workshop: Path, tmp_path: Path, name: str,
    kind: str,
) -> None:  # fmt: skip
    pair = Replicated(perseid_cluster, workshop / f"audit-{name}", *PAIRS[kind])
    producer = rig.Client(java_agent, perseid_cluster)
    try:
        pair.start()
        made = producer.mqadmin("updateTopic", "-b", pair.master.address, "-t", name, "-r", "2", "-w", "2")
        assert "success" in made
        rig.until("route", lambda: rig.call(perseid_cluster.namesrv, 105, {"topic": name}).code == 0)
        producer.send(name, [f"message {number}" for number in range(COUNT)], tags="red", keys="k")
        rig.until("the slave has caught up", lambda: pair.log(pair.master)[1] == pair.log(pair.slave)[1], 60)
        folders = [str(broker.folder / "store") for broker in (pair.master, pair.slave)]
        found = audit(spark, folders=folders)
        assert found.is_equal, lines(found)
        assert [replica.topics[name] for replica in found.replicas] == [COUNT, COUNT]
        copy = tmp_path / "commitlog"
        shutil.copytree(Path(folders[1]) / "commitlog", copy)
    finally:
        producer.close()
        pair.kill()
    first = sorted(copy.iterdir())[0]
    data = bytearray(first.read_bytes())
    place = data.index(b"message 123")
    data[place] ^= 1
    first.write_bytes(bytes(data))
    found = audit(spark, folders=[folders[0], str(copy)])
    assert not found.is_equal and found.pairs[0].count("differing") == 1
    assert found.pairs[0].findings[0].fields == ("body",) and found.replicas[1].corrupt == 1
    assert found.pairs[0].first is not None and 0 < place - (found.pairs[0].first - int(first.name)) < 100
