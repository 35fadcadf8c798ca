"""A group's log that does not take an entry: it is said at once, nothing has happened, and who comes next is served."""

from __future__ import annotations

import pytest
from tests.controller.harness import CLUSTER, SET, Client, Group, register
from tests.controller.test_requests import Stage
from tests.controller.test_writes import ask_id, code_of, ids_of

from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.dledger import Code as Raft

ANSWERS = {
    Raft.NOT_LEADER: Code.CONTROLLER_NOT_LEADER,
    Raft.LEADER_TRANSFERRING: Code.CONTROLLER_NOT_LEADER,
    Raft.LEADER_PENDING_FULL: Code.SYSTEM_BUSY,
    Raft.LEADER_NOT_READY: Code.SYSTEM_BUSY,
    Raft.DISK_FULL: Code.SYSTEM_ERROR,
}
each = pytest.mark.parametrize(("why", "code"), ANSWERS.items(), ids=lambda one: str(int(one)))


@each
def test_a_write(why: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    with monkeypatch.context() as patch:
        patch.setattr(cell.node.raft, "append", lambda body, then: why)
        asked = [ask_id(client, 1), ask_id(client, 1)]
        assert [code_of(client, one) for one in asked] == [code, code] and not ids_of(cell)
    again = ask_id(client, 1)
    group.pass_time(100)
    assert code_of(client, again) == 0 and ids_of(cell) == {1}


@each
def test_an_answer_for_which_one_has_to_lead(why: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a broker is unknown makes it throw away its id: only who leads says so."""
    group = Group(3)
    cell = group.start()
    client = Client(cell)
    ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "brokerAddress": "h:1", "invokeTime": group.now}
    with monkeypatch.context() as patch:
        patch.setattr(cell.node.raft, "append", lambda body, then: why)
        assert code_of(client, client.send(Ask.CONTROLLER_REGISTER_BROKER, ext)) == code
    asked = [client.send(Ask.CONTROLLER_REGISTER_BROKER, ext), ask_id(client, 1)]
    group.pass_time(100)
    assert [code_of(client, one) for one in asked] == [Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, 0]


@each
def test_a_read_that_waits_for_the_group(why: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(3, config={"is_process_read_event": True})
    cell = group.start()
    client = Client(cell)
    register(client, 1)
    with monkeypatch.context() as patch:
        patch.setattr(cell.node.raft, "append", lambda body, then: why)
        assert code_of(client, client.send(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})) == code
    asked = client.send(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})
    group.pass_time(100)
    assert code_of(client, asked) == 0


def test_no_room_for_all_entries_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(1, 2)
    stage.elect(1)
    before = stage.state
    with monkeypatch.context() as patch:
        patch.setattr(stage.cell.node.raft, "has_room", lambda count: False)
        ext = {"brokerName": SET, "masterBrokerId": 1, "masterEpoch": 1}
        body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
        assert (
            code_of(stage.tools, stage.tools.send(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)) == Code.SYSTEM_BUSY
        )
    assert stage.state == before
    assert code_of(stage.tools, stage.tools.send(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)) == 0
    assert stage.state != before
