"""A broker is killed twice while a Java producer sends: nothing that was acknowledged is lost or out of order."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import rig
import ways

pytestmark = pytest.mark.interop

COUNT = 5000
QUEUES = 4
BROKERS = {
    "on_java": ways.Each(("java", "java", "ASYNC_FLUSH")),
    "on_perseid_async": ways.Each(("perseid", "perseid", "ASYNC_FLUSH")),
    "on_perseid_sync": ways.Each(("perseid", "perseid", "SYNC_FLUSH")),
}


@pytest.mark.parametrize(
    ("cluster", "impl", "flush"),
    ways.in_ci(BROKERS, "on_perseid_sync"),
    indirect=["cluster"],
)
def test_two_kills(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, impl: str, flush: str) -> None:
    broker = rig.broker(impl, workshop / f"killed-{name}", cluster.namesrv, flushDiskType=flush)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        made = java.mqadmin("updateTopic", "-b", broker.address, "-t", name, "-r", str(QUEUES), "-w", str(QUEUES))
        assert "success" in made
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
        java("flood.start", name=name, topic=name, count=COUNT, pauseMs=4)  # it must not be over before the kills
        for acked in (COUNT // 5, COUNT // 2):
            assert java("flood.await", name=name, acked=acked, timeoutMs=240_000, wait=270) >= acked
            broker.kill()
            broker.start()
        done = java("flood.end", name=name, timeoutMs=240_000, wait=270)
        assert len(done["acked"]) == COUNT, f"{len(done['acked'])} acknowledged, {done['retries']} retries"
        assert done["retries"] > 0, "nobody noticed the kills"
        rig.until("route again", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
        got = java.consume(name, f"g_{name}", COUNT, 60, ordered=True)
        numbers = defaultdict(list)
        for m in sorted(got, key=lambda m: m["queueOffset"]):
            numbers[m["queueId"]].append(m["keys"])
        assert len({m["keys"] for m in got}) == COUNT, "acknowledged messages are missing"
        for queue_id, keys in numbers.items():
            firsts = list(dict.fromkeys(keys))
            assert firsts == [f"{broker.folder.name}/{queue_id}-{i}" for i in range(COUNT // QUEUES)]
    finally:
        broker.kill()
