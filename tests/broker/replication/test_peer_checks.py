"""Who is taken for a controller, a name server, a master or a replica: those at their machines, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.broker.replication.modes.controlled import Controlled as ControlledMode
from perseid.broker.replication.peer_checks import ASK_MS, TELL_MS, PeersOfSet, PeersWithoutController
from perseid.replication.config import ReplicationConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from perseid.wire.headers import controller as headers

from .test_manager import CONTROLLER, Controlled

STRANGER = "10.9.9.9:4000"
LEADER = "10.0.0.78:9878"
"""A controller that the configuration does not name."""


def peers(made: Controlled) -> PeersOfSet:
    mode = made.rig.parts.mode
    assert isinstance(mode, ControlledMode)
    return mode.manager.peers


def warnings(rig: Rig) -> list[str]:
    return [note.text for note in rig.notes if note.level == "warning"]


@pytest.fixture
def made(tmp_path: Path) -> Controlled:
    return Controlled(tmp_path)


def test_the_controllers_are_those_that_are_named_and_the_one_that_leads(made: Controlled) -> None:
    found, rig = peers(made), made.rig
    made.say(Code.CONTROLLER_GET_METADATA_INFO, headers.GetMetaDataResponse(controller_leader_address=LEADER))
    assert found.is_controller("10.0.0.77:1", rig.now) and not found.is_controller("10.0.0.78:1", rig.now)
    made.wait(1_000)
    controllers = found._controllers
    assert controllers.leader == LEADER and controllers.addresses == [CONTROLLER, LEADER]
    for peer, known in (("10.0.0.77:1", True), ("10.0.0.78:1", True), ("10.0.0.78:9", True), (STRANGER, False)):
        assert found.is_controller(peer, rig.now) is known
    made.say(Code.CONTROLLER_GET_METADATA_INFO, headers.GetMetaDataResponse(controller_leader_address=CONTROLLER))
    controllers.leader = None
    made.wait(1_000)
    assert controllers.addresses == [CONTROLLER], "each once"


def test_a_strangers_notices_are_worth_a_line_a_minute(made: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    found, now = peers(made), made.rig.now
    notes: list[str] = []
    monkeypatch.setattr(made.rig.parts.turn, "note", lambda level, text: notes.append(text))
    told = []
    for at in (0, 1, TELL_MS - 1, TELL_MS, TELL_MS + 1, 2 * TELL_MS):
        notes.clear()
        assert not found.is_controller(STRANGER, now + at)
        told.append(any("10.9.9.9" in text and "checkPeerAddresses" in text for text in notes))
    assert told == [True, False, False, True, False, True]


def test_who_is_not_known_lets_the_controllers_be_asked_once_in_a_while(made: Controlled) -> None:
    found = peers(made)
    made.wait(2_000)
    rows = [ReplicaIdentity(broker_name="b", broker_id=2, broker_address="10.0.0.2:10911")]
    late = [ReplicaIdentity(broker_name="b", broker_id=3, broker_address="10.0.0.3:10911")]
    info = BrokerReplicasInfo({"b": ReplicasInfo(in_sync_replicas=rows, not_in_sync_replicas=late)})
    made.say(Code.CONTROLLER_GET_SYNC_STATE_DATA, body=info.to_json())
    made.asked.clear()
    assert not found.is_replica(2, "10.0.0.2:77", made.rig.now)
    made.wait(2 * ASK_MS)
    assert made.asked.count(Code.CONTROLLER_GET_SYNC_STATE_DATA) == 1, "once is enough, if nobody else is asked for"
    for number, peer, known in (
        (2, "10.0.0.2:78", True), (3, "10.0.0.3:1", True), (2, "10.0.0.3:1", False), (4, "10.0.0.2:1", False),
        (2, STRANGER, False),
    ):  # fmt: skip
        assert found.is_replica(number, peer, made.rig.now) is known
    made.asked.clear()
    for _ in range(100):
        assert not found.is_replica(2, STRANGER, made.rig.now)
        made.wait(50)
    assert 5 <= made.asked.count(Code.CONTROLLER_GET_SYNC_STATE_DATA) <= 5_000 // ASK_MS + 1


def test_everybody_is_believed_where_nobody_is_to_be_checked(tmp_path: Path) -> None:
    made = Controlled(tmp_path, ReplicationConfig(check_peer_addresses=False))
    found = peers(made)
    assert found.is_replica(2, STRANGER, made.rig.now) and found.is_controller(STRANGER, made.rig.now)
    assert any("whoever reaches" in text for text in warnings(made.rig))


@pytest.mark.parametrize("checks", [True, False])
def test_neighbours_are_the_name_servers_and_the_master_that_there_was(tmp_path: Path, checks: bool) -> None:
    rig = Rig(tmp_path, replication=ReplicationConfig(check_peer_addresses=checks))
    found = PeersWithoutController(rig.parts.turn, rig.parts.mode)
    found.start(["10.0.0.50:9876", "10.0.0.51:9876"])
    now = rig.now
    assert found.is_master(STRANGER, now), "there was none"
    assert found.is_name_server("10.0.0.51:5", now) and found.is_name_server(STRANGER, now) is not checks
    found.has_master(None)
    found.has_master("10.0.0.1:10911")
    found.has_master(None)
    assert found.is_master("10.0.0.1:6", now) and found.is_master(STRANGER, now) is not checks, "it is away"
    found.has_master("10.0.0.3:10911")
    assert found.is_master("10.0.0.3:6", now) and found.is_master("10.0.0.1:6", now) is not checks
    found.reconfigure(["10.0.0.52:9876"])
    assert found.is_name_server("10.0.0.52:5", now) and found.is_name_server("10.0.0.51:5", now) is not checks
