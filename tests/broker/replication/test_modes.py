"""Which mode of replication a broker has, and what follows from it for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.harness import Rig
from perseid.broker.replication.modes.alone import Alone
from perseid.broker.replication.modes.classic import Classic
from perseid.broker.replication.modes.controlled import Controlled
from perseid.broker.replication.modes.dledger import DLedger
from perseid.broker.replication.modes.mode import ReplicationMode
from perseid.raft.config import RaftConfig
from perseid.replication.config import ReplicationConfig

MEMBER = RaftConfig(group="g", self_id="n0", peers="n0-127.0.0.1:40911")
ACTING: dict[str, Any] = {"enable_slave_acting_master": True}
CONTROLLED: dict[str, Any] = {"enable_controller_mode": True, "controller_addr": "10.0.0.9:9878"}


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, Alone),
        ({"broker_role": "SYNC_MASTER"}, Classic),
        ({"broker_role": "SLAVE", "broker_id": 1}, Classic),
        (ACTING, Classic),
        ({"broker_role": "SYNC_MASTER", **ACTING}, Classic),
        (CONTROLLED, Controlled),
        ({"broker_role": "SYNC_MASTER", **CONTROLLED}, Controlled),
        ({"raft": MEMBER}, DLedger),
    ],
)
def test_it_is_chosen_by_the_configuration(
    tmp_path: Path, settings: dict[str, Any], mode: type[ReplicationMode]
) -> None:
    parts = Rig(tmp_path, **settings).parts
    assert type(parts.mode) is mode and parts.store is parts.mode.store


@pytest.mark.parametrize(
    ("settings", "slave", "elects", "counts", "by_quorum"),
    [
        ({}, False, False, False, False),
        ({"broker_role": "SYNC_MASTER"}, False, False, True, False),
        ({"broker_role": "SLAVE", "broker_id": 1}, True, False, False, False),
        (CONTROLLED, True, True, True, False),
        ({"raft": MEMBER}, False, True, False, True),
    ],
)
def test_what_follows_from_it(
    tmp_path: Path, settings: dict[str, Any], slave: bool, elects: bool, counts: bool, by_quorum: bool
) -> None:
    """A group of one member elects it; nobody has told a broker of a controller that is away."""
    rig = Rig(tmp_path, replication=ReplicationConfig(in_sync_replicas=2), **settings)
    mode = rig.parts.mode
    assert (rig.parts.roles.is_slave, mode.elects) == (slave, elects)
    assert (mode.nodes.counts, mode.nodes.synchronous, mode.nodes.by_quorum) == (counts, counts, by_quorum)
    assert rig.parts.durability.waits == (counts or by_quorum)
