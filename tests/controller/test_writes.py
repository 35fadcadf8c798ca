"""Requests through the group: one after the other for a set, answered when applied, and never without the group."""

import json
from collections import deque
from random import Random

from tests.controller.harness import CLUSTER, SET, Cell, Client, Group, address, register
from tests.controller.test_requests import Stage

from perseid.base.machine import Shutdown
from perseid.controller import writes
from perseid.sim.disk import SimDisk
from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.command import Command


def ids_of(cell: Cell) -> set[int]:
    info = cell.node.tables.replicas.get(SET)
    return set(info.brokers) if info is not None else set()


def ask_id(client: Client, number: int, code: str = "") -> int:
    ext = {"clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": number}
    return client.send(Ask.CONTROLLER_APPLY_BROKER_ID, {**ext, "registerCheckCode": code or f"h:{number};1"})


def code_of(client: Client, opaque: int) -> int | None:
    answer: Command | None = client.answer(opaque)
    return answer.code if answer is not None else None


def test_the_answer_waits_for_the_disk() -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    cell.hold = True
    asked = ask_id(client, 1)
    assert code_of(client, asked) is None and not ids_of(cell)
    cell.release()
    assert code_of(client, asked) == 0 and ids_of(cell) == {1}


def test_b24_two_brokers_that_want_the_same_id_at_once() -> None:
    group = Group()
    cell = group.start()
    first, second = Client(cell), Client(cell)
    cell.hold = True
    asked = [ask_id(first, 1, "a:1;1"), ask_id(second, 1, "b:1;1")]
    cell.release()
    assert (code_of(first, asked[0]), code_of(second, asked[1])) == (0, Code.CONTROLLER_BROKER_ID_INVALID)
    assert cell.node.tables.address(SET, 1) == "a:1"


def test_b25_two_sets_in_sync_on_the_same_epoch() -> None:
    """The second is decided when the first is applied, and finds another epoch."""
    stage = Stage(1, 2, 3)
    stage.elect(1)
    stage.cell.hold = True
    ext = {"brokerName": SET, "masterBrokerId": 1, "masterEpoch": 1}
    asked = []
    for members in ([1, 2], [1, 3]):
        body = json.dumps({"syncStateSet": members, "syncStateSetEpoch": 1}).encode()
        asked.append(stage.tools.send(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body))
    stage.cell.release()
    assert code_of(stage.tools, asked[0]) == 0
    assert code_of(stage.tools, asked[1]) == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert stage.state == (1, 1, [1, 2], 2)


def test_different_sets_share_a_flush() -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    cell.hold = True
    asked = []
    for number in range(50):
        ext = {"clusterName": CLUSTER, "brokerName": f"s{number}", "appliedBrokerId": 1}
        asked.append(client.send(Ask.CONTROLLER_APPLY_BROKER_ID, {**ext, "registerCheckCode": "h:1;1"}))
    assert len(cell.held) == 1
    cell.release()
    assert {code_of(client, one) for one in asked} == {0}


def test_there_are_only_so_many_that_wait() -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    cell.hold = True
    asked = [ask_id(client, 1)]
    cell.node.writes.count = writes.MAX_WAITING - 1
    cell.node.writes._sets["other"] = deque([None] * (writes.MAX_WAITING - 1))  # type: ignore[list-item]
    asked += [ask_id(client, 2), ask_id(client, 3)]
    assert [code_of(client, one) for one in asked] == [None, None, Code.SYSTEM_BUSY]


def test_a_request_that_waited_for_too_long_is_not_begun() -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    cell.hold = True
    asked = [ask_id(client, 1), ask_id(client, 2)]
    group.now += writes.TIMEOUT_MS + 1  # nobody ticks: the clock jumps while the disk hangs
    cell.hold = False
    held = list(cell.held)
    cell.held.clear()
    for effect in held:
        cell._make_durable(effect)
    while cell._effects:
        cell._carry_out(cell._effects.popleft())
    assert code_of(client, asked[1]) == Code.SYSTEM_ERROR and 2 not in ids_of(cell)


def test_who_does_not_lead_refuses() -> None:
    group = Group(3)
    active = group.start()
    register(Client(active), 1)
    for cell in group.cells.values():
        if cell is active:
            continue
        client = Client(cell)
        for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
            answer = client.ask(code, {"brokerName": SET}, b"{}")
            assert (answer.code, answer.remark) == (Code.CONTROLLER_NOT_LEADER, writes.NOT_LEADER), code
        for code in (1005, 1009, 1010):
            assert client.ask(code).code == 0
        client.beat(1)
        assert cell.node.live.alive(CLUSTER, SET, 1) is not None


def test_a_leader_without_a_quorum_answers_nothing_as_done() -> None:
    group = Group(3)
    active = group.start()
    client = Client(active)
    register(client, 1)
    group.unreachable.add(address(active.name))
    asked = [ask_id(client, 2), ask_id(client, 3)]
    group.pass_time(1_000)
    assert [code_of(client, one) for one in asked] == [None, None]
    group.pass_time(20_000)
    assert code_of(client, asked[0]) == Code.SYSTEM_ERROR, "nobody knows"
    assert code_of(client, asked[1]) == Code.CONTROLLER_NOT_LEADER, "not begun"
    assert not active.node.active and ids_of(active) == {1}
    assert code_of(client, client.send(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})) == 2007
    other = next(cell for cell in group.cells.values() if cell is not active and cell.node.active)
    assert ids_of(other) == {1}
    group.unreachable.clear()
    group.pass_time(10_000)
    assert Client(other).ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, {"brokerName": SET}).ext["nextBrokerId"] == "2"
    assert ids_of(active) == {1}, "what was never committed is gone"


def test_a_deposed_controller_calls_no_broker_unknown() -> None:
    """Seed 510125 of the HA model: the broker was registered with the new leader, asked the old one, which did not know
    yet that it was deposed, and was told to give up its id. It was the only one in sync."""
    group = Group(3)
    old = group.start()
    group.unreachable.add(address(old.name))
    old.stopped = "its process stands still"
    others = [cell for cell in group.cells.values() if cell is not old]
    for _ in range(500):
        group.pass_time(10)
        if active := [cell for cell in others if cell.node.active]:
            break
    register(Client(active[0]), 1)
    old.stopped = None
    assert old.node.active, "it has not noticed yet"
    ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "brokerAddress": "h:1", "invokeTime": group.now}
    client = Client(old)
    asked = client.send(Ask.CONTROLLER_REGISTER_BROKER, ext)
    assert code_of(client, asked) is None
    group.unreachable.clear()
    group.pass_time(5_000)
    assert code_of(client, asked) in (Code.SYSTEM_ERROR, Code.CONTROLLER_NOT_LEADER)
    assert Client(group.until_active()).ask(Ask.CONTROLLER_REGISTER_BROKER, ext).code == Code.SUCCESS


def test_an_unknown_broker_is_told_so_by_a_leader() -> None:
    group = Group(3)
    client = Client(group.start())
    ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "brokerAddress": "h:1", "invokeTime": group.now}
    both = [client.send(Ask.CONTROLLER_REGISTER_BROKER, ext) for _ in range(2)]
    claim = ask_id(client, 1)
    group.pass_time(100)
    assert [code_of(client, one) for one in both] == [Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED] * 2
    assert code_of(client, claim) == 0, "who waited behind them is served"


def test_b25_after_an_outcome_that_nobody_knows_nothing_is_decided_until_it_is_known() -> None:
    group = Group(3, max_wait_ack_time_ms=1_000, heart_beat_time_interval_ms=5_000)
    active = group.start()
    client = Client(active)
    register(client, 1)
    group.unreachable.add(address(active.name))
    asked = ask_id(client, 2)
    group.pass_time(1_100)
    assert code_of(client, asked) == Code.SYSTEM_ERROR and active.node.raft.member.is_leader
    assert not active.node.active
    assert client.ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, {"brokerName": SET}).code == Code.CONTROLLER_NOT_LEADER
    group.unreachable.clear()
    group.pass_time(5_000)
    assert active.node.active and ids_of(active) == {1, 2}, "it has happened after all, and is known"
    assert code_of(client, ask_id(client, 2)) == 0, "the same code again"
    assert client.ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, {"brokerName": SET}).ext["nextBrokerId"] == "3"


def test_reads_that_wait_for_the_group() -> None:
    group = Group(3, config={"is_process_read_event": True})
    active = group.start()
    client = Client(active)
    register(client, 1)
    end = active.node.raft.committed
    assert client.ask(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET}).code == 0
    assert active.node.raft.committed == end + 1
    group.unreachable.add(address(active.name))
    asked = client.send(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})
    group.pass_time(20_000)
    assert code_of(client, asked) == Code.SYSTEM_ERROR, "a deposed one does not say what it believes"


def test_what_is_applied_survives_a_power_cut() -> None:
    group = Group(snapshot_threshold=20)
    cell = group.start()
    client = Client(cell)
    register(client, *range(1, 31))
    client.beat(1)
    assert client.ask(Ask.CONTROLLER_ELECT_MASTER, {"brokerName": SET, "brokerId": 1}).code == 0
    before = cell.node.tables
    assert cell.disk.read("dledger-n0/state.snapshot") is not None
    cell.kill(power=True)
    cell.start()
    group.until_active()
    after = cell.node.tables
    assert (after.replicas, after.in_sync) == (before.replicas, before.in_sync) and len(ids_of(cell)) == 30
    assert any("is taken from" in note for note in cell.notes), cell.notes


def test_b26_a_member_that_lost_its_disk_gets_everything() -> None:
    group = Group(3, snapshot_threshold=10)
    active = group.start()
    register(Client(active), *range(1, 41))
    other = next(cell for cell in group.cells.values() if cell is not active)
    other.kill()
    other.disk = SimDisk(Random(99))
    other.node = other._new()
    other.start()
    group.pass_time(1_000)
    register(Client(active), 41)  # a leader that was told of entries looks again when it is told that they are gone
    group.pass_time(1_000)
    assert len(other.node.tables.replicas[SET].brokers) == 41
    assert other.node.tables.replicas == active.node.tables.replicas


def test_a_controller_that_is_told_to_end_ends() -> None:
    group = Group()
    cell = group.start()
    client = Client(cell)
    register(client, 1)
    cell.do(Shutdown())
    assert cell.stopped == ""
    assert cell.node.next_deadline() is None
