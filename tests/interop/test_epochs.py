"""A Java broker and ours in one set, with epochs of no byte, of one message, and of more than one packet holds.

A packet is 32 KiB, and the original labels an epoch's last one wrongly (B10); an epoch without a byte leaves an entry
that the original keeps (B9). So what counts is what a master writes between two elections: nothing, a little, about as
much as a packet, 40 KiB. Nothing acknowledged is lost, and all logs are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import rig
from broker_sets import EPOCH_FILE, BrokerSet, Load
from controllers import CLUSTER, ELECT, MILLIS

from perseid.wire.ha_auto import EpochEntry, encode_epoch_file

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(900, 3_600), func_only=True)]

KIB = 1 << 10
BYTES = (0, 0, 300, 40 * KIB, 1_000, 32 * KIB, 0, 8 * KIB, 36 * KIB, 100)
"""Of bodies, between one change of masters and the next."""
CHANGES = rig.many(7, 60)
KILLED = 3
"""Each change of this number is a SIGKILL amidst the sends; the others are ordered."""
BODY = 4 * KIB
HUNDREDS = rig.many(300, 990)
"""No more than 1,000 fit a Java master's buffer."""
THOUSANDS = rig.many(1_200, 3_400)
"""40 KiB of entries."""
QUEUES = 4
END = 1 << 30
ALL_SECONDS = rig.PATIENCE * 60
RECORD_SIZE = struct.Struct(">i")


@pytest.fixture
def client(perseid_cluster: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    made = rig.Client(java_agent, perseid_cluster)
    yield made
    made.close()


@pytest.fixture
def both(perseid_cluster: rig.Cluster, workshop: Path, name: str) -> Iterator[BrokerSet]:
    made = BrokerSet(perseid_cluster, workshop / f"epochs-{name}", ("java",), ("java", "perseid"))
    try:
        yield made.start()
    finally:
        made.kill()


def load_of(client: rig.Client, topic: str, prefix: str, size: int) -> tuple[Load, int]:
    """About so many bytes of bodies, and how many messages."""
    count = QUEUES * max(1, size // BODY // QUEUES)
    return Load(client, topic, count=count, bodySize=size // count, prefix=prefix, pauseMs=0), count


def send_and_change(of: BrokerSet, client: rig.Client, topic: str, number: int, size: int) -> dict[str, str]:
    """Have so many bytes acknowledged, and another master then, or amidst; what was acknowledged."""
    kill = number % KILLED == KILLED - 1
    master = of.await_master()
    load, count = load_of(client, topic, f"{number}:", size) if size else (None, 0)
    if load is not None and kill:
        load.reach(count // 2)
    elif load is not None:
        acked = load.end(ALL_SECONDS)
    if kill:
        master.kill()
        of.await_master(gone=master)
        if load is not None:
            acked = load.end(ALL_SECONDS)
        master.start()
        of.await_in_sync()
    else:
        of.elect(next(broker for broker in of.all if broker is not master))
    if load is None:
        return {}
    assert len(acked) == count, f"{len(acked)} of {count} acknowledged"
    return acked


@pytest.mark.long
def test_masters_change_with_epochs_of_0_to_40_kib(both: BrokerSet, client: rig.Client, name: str) -> None:
    java, ours = both.all
    both.make_topic(client, name)
    acked: dict[str, str] = {}
    for number in range(CHANGES):
        acked |= send_and_change(both, client, name, number, BYTES[number % len(BYTES)])
    both.check_lost(client, name, acked)
    both.check_same()
    entries, end = both.epochs()[1], len(both.logs()[1])
    sizes = [after.start - entry.start for entry, after in pairwise([*entries, EpochEntry(END, end)])]
    assert min(sizes) < 2 * KIB and max(sizes) > 32 * KIB, sizes
    assert len(entries) < both.epoch(), "epochs without a byte leave no entry"
    both.elect(ours)  # who is new learns all epochs: a Java replica by the labels of our packets
    both.add("java")
    both.elect(java)  # ours by a Java master's handshake
    both.add("perseid")
    both.check_same()
    print(
        f"{CHANGES} changes of masters, {CHANGES // KILLED} by SIGKILL, {len(acked)} acknowledged, epoch"
        f" {both.epoch()}, bytes of epochs {sizes}, explained: {dict(+both.named) or 'nothing'}"
    )


# ---- many of them to compare ----


def seed(of: BrokerSet, client: rig.Client, topic: str, count: int) -> dict[str, str]:
    """Have the files of all replicas name so many epochs, each of one message, and the controllers be beyond them;
    what was acknowledged. All are stopped afterwards."""
    of.make_topic(client, topic)
    acked = Load(client, topic, count=-(-count // QUEUES) * QUEUES, prefix="old:", pauseMs=0).end(ALL_SECONDS)
    of.check_same()
    for broker in of.all:
        broker.kill()
    log = of.logs()[1]
    entries, at = [], 0
    for epoch in range(1, count + 1):
        entries.append(EpochEntry(epoch, at))
        at += RECORD_SIZE.unpack_from(log, at)[0]
    for broker in of.all:
        for path in (EPOCH_FILE, f"{EPOCH_FILE}.bak"):
            (broker.folder / "store" / path).write_bytes(encode_epoch_file(entries))
    ext: dict[str, object] = {"brokerName": of.name, "clusterName": CLUSTER, "brokerId": -1, "invokeTime": MILLIS}
    rig.until("nobody is master", lambda: of.controllers.info(of.name)[0] is None, 60)
    while of.epoch() <= count:  # a Java controller counts one more with each election that elects nobody (B23)
        for _ in range(100):
            rig.call(of.controllers.members[0].address, ELECT, ext)
    return acked


@pytest.mark.long
def test_masters_change_with_hundreds_of_epochs_to_compare(both: BrokerSet, client: rig.Client, name: str) -> None:
    acked = seed(both, client, name, HUNDREDS)
    for broker in both.all:
        broker.start()
    both.await_in_sync()
    for number, size in enumerate((8 * KIB, 0, 40 * KIB, 300)):
        acked |= send_and_change(both, client, name, number, size)
    both.check_lost(client, name, acked)
    both.check_same()
    assert HUNDREDS < len(both.epochs()[1]) <= both.epoch()
    print(f"{HUNDREDS} epochs and 4 more, {len(acked)} acknowledged, explained: {dict(+both.named) or 'nothing'}")


@pytest.mark.long
def test_a_java_slave_is_told_of_thousands_of_epochs(both: BrokerSet, client: rig.Client, name: str) -> None:
    """By ours alone: a Java master with so many answers no handshake at all."""
    java, ours = both.all
    acked = seed(both, client, name, THOUSANDS)
    ours.start()
    both.await_master(gone=java)
    for number, size in enumerate((8 * KIB, 40 * KIB)):
        java.start()
        both.await_in_sync()
        acked |= load_of(client, name, f"both-{number}:", size)[0].end(ALL_SECONDS)
        java.kill()
        acked |= load_of(client, name, f"alone-{number}:", size)[0].end(ALL_SECONDS)
    java.start()
    both.await_in_sync()
    both.check_lost(client, name, acked)
    both.check_same()
    assert len(both.epochs()[1]) > THOUSANDS
    print(f"{THOUSANDS} epochs, {len(acked)} acknowledged, explained: {dict(+both.named) or 'nothing'}")
