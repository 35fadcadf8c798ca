"""A partition between master and slave, on real sockets: two network namespaces, and the wire between them is cut.

SYNC_MASTER with inSyncReplicas=2: while the wire is cut nothing is acknowledged, and what was acknowledged before, or
will be after, is on the slave's disk when the master's is gone for good.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from netns import DEADLINE, Processes, ip, make, processes_in
from perseid.disk.real import RealDisk
from perseid.store.config import StoreConfig
from perseid.store.store import MessageStore
from perseid.wire.host import host_from
from perseid.wire.record import decode_all

MASTER_IP, SLAVE_IP = "10.77.3.1", "10.77.3.2"
NAMESRV = f"{MASTER_IP}:9876"
BEFORE, DURING, AFTER = 60, 8, 60
"""Messages that are sent before, during and after the cut."""

PRODUCER = """
import json, sys
from perseid.client import ClientError, Message, ProducerOptions
from perseid.client.blocking import BlockingProducer
with BlockingProducer(sys.argv[1], options=ProducerOptions(timeout_ms=5000)) as producer:
    for line in sys.stdin:
        try:
            status = producer.send(Message("orders", line.strip().encode())).status.name
        except ClientError as error:
            status = type(error).__name__
        print(json.dumps([line.strip(), status]), flush=True)
"""


@pytest.fixture
def way() -> str:
    """Once: the processes take the way that is installed."""
    return "installed"


@pytest.fixture
def spaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with a wire between them; skipped where they can't be made."""
    one, two = (f"perseid-{os.getpid()}-{n}" for n in (1, 2))
    with ExitStack() as undo:
        make(one, two, undo=undo)
        try:
            ip("link", "add", "wire", "netns", one, "type", "veth", "peer", "name", "wire", "netns", two)
            for name, address in ((one, MASTER_IP), (two, SLAVE_IP)):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
                for device in ("lo", "wire"):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no wire between network namespaces here: {error.stderr.decode().strip()}")
        yield one, two


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_in(tmp_path) as started:
        yield started


def test_a_partition_loses_nothing_that_was_acknowledged(
    spaces: tuple[str, str], processes: Processes, tmp_path: Path
) -> None:
    one, two = spaces
    processes.server(one, "namesrv", "namesrv", listenPort=9876)
    common = {"brokerName": "a", "namesrvAddr": NAMESRV, "listenPort": 10911}
    master = processes.server(
        one, "broker", "master", brokerIP1=MASTER_IP, storePathRootDir=tmp_path / "master", brokerRole="SYNC_MASTER",
        inSyncReplicas=2, slaveTimeout=1000, haHousekeepingInterval=3000, haSendHeartbeatInterval=500, **common,
    )  # fmt: skip
    slave = processes.server(
        two, "broker", "slave", brokerIP1=SLAVE_IP, storePathRootDir=tmp_path / "slave", brokerRole="SLAVE",
        brokerId=1, haHousekeepingInterval=3000, haSendHeartbeatInterval=500, **common,
    )  # fmt: skip
    producer = processes.start(one, sys.executable, "-c", PRODUCER, NAMESRV, stdin=subprocess.PIPE)
    acknowledged: list[bytes] = []

    def send(word: str) -> str:
        assert producer.stdin is not None and producer.stdout is not None
        producer.stdin.write(word + "\n")
        producer.stdin.flush()
        answer = producer.stdout.readline()
        assert answer, [p.read_text() for p in tmp_path.glob("stderr-*")]
        body, status = json.loads(answer)
        if status == "SEND_OK":
            acknowledged.append(body.encode())
        return str(status)

    def until_acknowledged(word: str) -> None:
        for attempt in range(DEADLINE):
            if send(f"{word}-{attempt}") == "SEND_OK":
                return
        raise AssertionError(f"nothing was acknowledged: {[p.read_text() for p in tmp_path.glob('stderr-*')]}")

    until_acknowledged("first")
    assert [send(f"before-{n}") for n in range(BEFORE)].count("SEND_OK") > BEFORE // 2
    ip("-n", one, "link", "set", "wire", "down")
    assert [send(f"during-{n}") for n in range(DURING)] == ["FLUSH_SLAVE_TIMEOUT"] * DURING
    ip("-n", one, "link", "set", "wire", "up")
    until_acknowledged("healed")
    assert [send(f"after-{n}") for n in range(AFTER)].count("SEND_OK") > AFTER // 2
    master.send_signal(signal.SIGKILL)
    slave.send_signal(signal.SIGTERM)
    assert slave.wait(DEADLINE) == 0
    there = bodies(tmp_path / "slave")
    assert not [body for body in acknowledged if body not in there]


def bodies(folder: Path) -> set[bytes]:
    """The bodies of all messages of a store folder."""
    config = StoreConfig(
        commit_log_file_bytes=1 << 20, consume_queue_file_bytes=6000, max_hash_slot_num=1000, max_index_num=4000
    )
    store = MessageStore(RealDisk(str(folder)), config, host_from("127.0.0.1:1"))
    store.load(0)
    found = set()
    for topic, queue_id in list(store.queues.table):
        offset = store.reads.min_offset(topic, queue_id)
        while offset < store.reads.max_offset(topic, queue_id):
            result = store.reads.read(topic, queue_id, offset, 32, 1 << 20)
            found |= {record.body for record in decode_all(b"".join(result.buffers))}
            offset = result.next_offset
    store.close(0)
    return found
