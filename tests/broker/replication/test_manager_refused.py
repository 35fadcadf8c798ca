"""Controllers that refuse a step of a broker, or answer it with what can't be: asked again, said once, gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.base.machine import Closed, ConnectFailed
from perseid.broker.replication.controllers import SOON_MS
from perseid.broker.replication.identity import CLAIM_PATH, PATH, WIPED_PATH
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.controller import SyncStateSet
from perseid.wire.headers import controller as headers
from perseid.wire.headers.base import Header

from .test_manager import Controlled, master

NO_ID = headers.GetNextBrokerIdResponse(next_broker_id=0)
REFUSED = {
    "no id": (Code.CONTROLLER_GET_NEXT_BROKER_ID, 0, NO_ID, "offers the id 0"),
    "an id that is none": (
        Code.CONTROLLER_GET_NEXT_BROKER_ID, 0, headers.GetNextBrokerIdResponse(next_broker_id=-4), "offers the id -4",
    ),
    "the id": (Code.CONTROLLER_GET_NEXT_BROKER_ID, ResponseCode.SYSTEM_ERROR, None, "claiming"),
    "the claim": (Code.CONTROLLER_APPLY_BROKER_ID, ResponseCode.SYSTEM_ERROR, None, "claiming"),
    "a registration": (Code.CONTROLLER_REGISTER_BROKER, ResponseCode.SYSTEM_ERROR, None, "registering"),
    "an id that they forgot": (
        Code.CONTROLLER_REGISTER_BROKER, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, None,
        f"does not know the id 1. Restore the controllers, or remove {PATH}",
    ),
    "who is master": (Code.CONTROLLER_GET_REPLICA_INFO, ResponseCode.SYSTEM_ERROR, None, "answer 1"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "status", "header", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_step_that_is_refused_is_tried_again(
    tmp_path: Path, code: int, status: int, header: Header | None, words: str
) -> None:
    made = Controlled(tmp_path)
    made.elects(1)
    good = made.answers[code]
    made.say(code, header, status=status)
    made.wait(30_000)
    assert made.rig.parts.roles.is_slave and 3 <= made.asked.count(code) <= 30_000 // SOON_MS + 1
    assert sum(words in note.text for note in made.rig.notes) == 1
    assert len(made.rig.notes) < 20, "nor is anything else said at each attempt"
    made.answers[code] = good
    made.wait(12_000)
    assert not made.rig.parts.roles.is_slave
    assert (tmp_path / PATH).read_text() == "C#b#1" and not (tmp_path / CLAIM_PATH).exists()


def test_a_claim_of_an_earlier_life_is_gone_on_with(tmp_path: Path) -> None:
    """The controller may have heard of it: the same id, and the same code."""
    made = Controlled(tmp_path)
    del made.answers[Code.CONTROLLER_APPLY_BROKER_ID]
    made.wait(300)
    claim = (tmp_path / CLAIM_PATH).read_text()
    made.rig.disk.unlock("lock")
    again = Controlled(tmp_path)
    again.say(Code.CONTROLLER_GET_NEXT_BROKER_ID, headers.GetNextBrokerIdResponse(next_broker_id=9))
    del again.answers[Code.CONTROLLER_APPLY_BROKER_ID]
    again.wait(100)
    assert (tmp_path / CLAIM_PATH).read_text() == claim
    again.rig.handle(Closed(again.conn, "lost"))
    again.say(Code.CONTROLLER_APPLY_BROKER_ID)
    again.elects(1)
    again.wait(3_000)
    assert Code.CONTROLLER_GET_NEXT_BROKER_ID not in again.asked
    assert (tmp_path / PATH).read_text() == "C#b#1" and not again.rig.parts.roles.is_slave


def test_controllers_that_lost_their_state_are_registered_with_again(tmp_path: Path) -> None:
    made = master(tmp_path)
    good = made.answers[Code.CONTROLLER_GET_REPLICA_INFO]
    made.say(Code.CONTROLLER_GET_REPLICA_INFO, status=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
    made.asked.clear()
    made.wait(12_000)
    assert Code.CONTROLLER_REGISTER_BROKER in made.asked
    assert not made.rig.parts.roles.is_slave, "its role stays meanwhile"
    made.answers[Code.CONTROLLER_GET_REPLICA_INFO] = good
    made.wait(12_000)
    assert made.rig.send("T").queue_offset == 0


def test_a_first_heartbeat_that_is_not_heard_holds_nothing_up(tmp_path: Path) -> None:
    made = Controlled(tmp_path)
    made.elects(1)
    made.say(Code.BROKER_HEARTBEAT, status=ResponseCode.SYSTEM_ERROR)
    made.wait(3_000)
    assert not made.rig.parts.roles.is_slave


def test_a_wiped_disk_that_others_do_not_count_on_is_as_any_other(tmp_path: Path) -> None:
    """It was told once that it is in sync, and has nothing; meanwhile the controllers took it out."""
    (tmp_path / PATH).write_text("C#b#1")
    made = Controlled(tmp_path)
    made.registered([1, 2], epoch=4)
    made.wait(3_000)
    assert (tmp_path / WIPED_PATH).read_bytes() and "wiped" in made.notes()
    made.rig.disk.unlock("lock")
    again = Controlled(tmp_path)
    again.registered([2], epoch=4, master=2)
    again.asked.clear()
    again.wait(3_000)
    assert not (tmp_path / WIPED_PATH).read_bytes() and "wiped" not in again.notes()
    assert Code.BROKER_HEARTBEAT in again.asked


def test_a_controller_that_is_not_there_is_dialled_again(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.rig.handle(Closed(made.conn, "lost"))
    made.rig.sent.clear()
    for _ in range(3):
        made.rig.until(made.rig.now + 3_000)
        dialled, made.rig.dialled = made.rig.dialled, []
        for address in dialled:
            made.rig.handle(ConnectFailed(address, "nobody is there"))
    assert dialled and not made.rig.parts.roles.is_slave
    made.asked.clear()
    body = SyncStateSet(sync_state_set=[1], sync_state_set_epoch=1).to_json()
    info = headers.GetReplicaInfoResponse(master_broker_id=1, master_address=made.own, master_epoch=1)
    made.say(Code.CONTROLLER_GET_REPLICA_INFO, info, body)
    made.wait(12_000)
    assert Code.CONTROLLER_GET_REPLICA_INFO in made.asked and Code.BROKER_HEARTBEAT in made.asked
