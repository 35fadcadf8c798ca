"""When a broker had better hear nothing for a moment: while many answers wait for other nodes."""

from pathlib import Path

from broker.harness import SMALL, Rig
from broker.replication.test_manager import SEND
from perseid.broker.kernel.acks import GATHER_FROM, GATHER_US
from perseid.replication.config import ReplicationConfig

SLAVE = 70


def test_a_broker_gathers_while_many_wait_for_its_slave_and_once_they_have_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=SMALL, replication=ReplicationConfig(in_sync_replicas=2), broker_role="SYNC_MASTER")
    rig.follow(SLAVE)
    rig.tell(*SEND)
    rig.report(SLAVE, rig.parts.store.log.end)
    assert rig.parts.acks.gathers() == 0, "one client waits for its own answer only"
    for _ in range(GATHER_FROM):
        rig.tell(*SEND)
    assert rig.parts.acks.gathers() == GATHER_US
    rig.report(SLAVE, rig.parts.store.log.end)
    assert len(rig.parts.acks) == 0 and rig.parts.acks.gathers() == GATHER_US, "they will send again together"
    rig.tell(*SEND)
    rig.report(SLAVE, rig.parts.store.log.end)
    assert rig.parts.acks.gathers() == 0


def test_a_broker_that_waits_for_nobody_never_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=SMALL)
    for _ in range(2 * GATHER_FROM):
        rig.tell(*SEND)
    assert rig.parts.acks.gathers() == 0
