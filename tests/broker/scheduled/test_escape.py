"""What a slave that acts for its master sends to another master (`enableRemoteEscape`): delayed messages, messages for
a time, halves; what comes of them when that one does not take them, and when the master is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.harness import records
from broker.replication.test_acting import OTHER, SECOND, World, acts
from perseid.broker.kernel import messages
from perseid.broker.scheduled import escape, timer_escape
from perseid.broker.scheduled.timer_escape import Escaped
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.names import HALF_TOPIC, TIMER_TOPIC
from perseid.wire.record import Record

LEVEL_3_MS = 10 * SECOND


@pytest.fixture
def world(tmp_path: Path) -> World:
    return serving(World(tmp_path, enable_remote_escape=True, transaction_check_interval=5 * SECOND))


def serving(world: World) -> World:
    """A master with a slave, and another master; all have the topic."""
    for number in (0, 1, OTHER):
        world.begin(number)
        world.later()
    for number in (0, OTHER):
        world.rigs[number].send("T")
    world.later(4 * SECOND)
    return world


def encoded(**values: str) -> str:
    return str(props.encode(values), "utf-8")


def send(world: World, count: int, **properties: str) -> int:
    """As many to the master, which dies when its slave has them; when they were sent."""
    sent_at = world.now
    for number in range(count):
        unique = encoded(UNIQ_KEY=f"ID{number}", PGROUP="producers", **properties)
        world.rigs[0].send("T", body=b"m%d" % number, properties=unique)
    world.later(4 * SECOND)
    world.kill(0)
    return sent_at


def there(world: World, number: int = OTHER) -> list[Record]:
    """What came of them to the topic of a broker."""
    queues = world.rigs[number].parts.topics.rows["T"].write_queue_nums
    found = [record for queue_id in range(queues) for record in records(world.rigs[number], "T", queue_id)]
    return [record for record in found if record.body != b"hello"]


DELAYS: dict[str, dict[str, str]] = {
    "a delay level": {"DELAY": "3"},
    "a time of their own": {"TIMER_DELAY_SEC": "10"},
}


@pytest.mark.parametrize("kind", DELAYS)
def test_what_is_due_goes_to_another_master_and_the_master_does_not_deliver_it_again(world: World, kind: str) -> None:
    sent_at = send(world, 3, **DELAYS[kind])
    world.later(sent_at + LEVEL_3_MS - 100 - world.now)
    slave = world.rigs[1].parts
    end = slave.store.log.end
    assert acts(world) and not there(world), "not yet"
    world.later(3 * SECOND)
    assert {record.body for record in there(world)} == {b"m0", b"m1", b"m2"}
    assert all(record.store_timestamp >= sent_at + LEVEL_3_MS for record in there(world))
    assert {record.props["UNIQ_KEY"] for record in there(world)} == {"ID0", "ID1", "ID2"}
    assert slave.store.log.end == end, "who acts writes nothing"
    assert slave.escape.sent == 3
    world.begin(0)
    world.later(20 * SECOND)
    assert not acts(world) and not world.rigs[0].parts.roles.is_slave
    assert not there(world, 0) and len(there(world)) == 3, "nothing is delivered twice"


def test_what_a_slave_that_acts_could_not_send_the_master_delivers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave's log may have lost a message that its wheel knows: it claims no slot from there on."""
    send(world, 3, TIMER_DELAY_SEC="10")
    real = messages.stored_at

    def stored_at(reads: Any, offset: int) -> Any:
        found = real(reads, offset)
        return None if found is not None and found.unique_key == "ID1" else found

    with monkeypatch.context() as patch:
        patch.setattr(messages, "stored_at", stored_at)
        world.later(13 * SECOND)
        assert acts(world) and sorted(record.body for record in there(world)) == [b"m0", b"m2"]
    world.begin(0)
    world.later(20 * SECOND)
    assert b"m1" in [record.body for record in there(world, 0)]


def test_what_a_slave_that_acts_has_no_more_the_master_delivers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave whose disk was too full removed what its master still has (simulator, `acting`, swarm, seed 8715710)."""
    send(world, 3, TIMER_DELAY_SEC="10")
    store = world.rigs[1].parts.store
    real = store.reads.min_offset

    def min_offset(topic: str, queue_id: int) -> int:
        return 2 if topic == TIMER_TOPIC else real(topic, queue_id)

    monkeypatch.setattr(store.reads, "min_offset", min_offset)
    world.later(13 * SECOND)
    assert acts(world)
    world.begin(0)
    world.later(20 * SECOND)
    assert sorted(record.body for record in there(world, 0)) == [b"m0", b"m1"]


@pytest.mark.parametrize("kind", DELAYS)
def test_what_is_not_yet_due_is_the_masters_again(world: World, kind: str) -> None:
    sent_at = send(world, 3, **DELAYS[kind])
    world.later(SECOND)
    world.begin(0)
    world.later(sent_at + LEVEL_3_MS + 3 * SECOND - world.now)
    assert sorted(record.body for record in there(world, 0)) == [b"m0", b"m1", b"m2"] and not there(world)
    assert all(record.store_timestamp >= sent_at + LEVEL_3_MS for record in there(world, 0))


@pytest.mark.parametrize("kind", DELAYS)
def test_without_another_master_it_waits_for_its_own(world: World, kind: str) -> None:
    send(world, 2, **DELAYS[kind])
    world.kill(OTHER)
    world.later(20 * SECOND)
    notes = [note.text for note in world.rigs[1].notes if "no other master has a queue of T" in note.text]
    assert len(notes) == 1, "one line, and not one for each attempt"
    world.begin(0)
    world.later(10 * SECOND)
    assert len(there(world, 0)) == 2


@pytest.mark.parametrize("kind", DELAYS)
def test_what_another_master_refuses_is_tried_again(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send(world, 2, **DELAYS[kind])
    other = world.rigs[OTHER]
    real = other.ask

    def ask(asked: int, *given: Any, **more: Any) -> Any:
        return real(9_999) if asked == Code.SEND_MESSAGE_V2 else real(asked, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(other, "ask", ask)
        world.later(15 * SECOND)
        assert not there(world) and acts(world)
    assert sum("did not store a message of T" in note.text for note in world.rigs[1].notes) == 1, "said once"
    world.later(10 * SECOND)
    assert len(there(world)) == 2


@pytest.mark.parametrize("kind", DELAYS)
@pytest.mark.parametrize("code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SYSTEM_BUSY, 999])
def test_anything_but_success_is_not_counted(
    world: World, kind: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the original: stored there, and not known to be safe, it comes twice."""
    send(world, 1, **DELAYS[kind])
    other = world.rigs[OTHER]
    real, answers = other.ask, [code]

    def ask(asked: int, *given: Any, **more: Any) -> Any:
        answer = real(asked, *given, **more)
        if asked == Code.SEND_MESSAGE_V2 and answers:
            answer.code = answers.pop()
        return answer

    monkeypatch.setattr(other, "ask", ask)
    world.later(20 * SECOND)
    assert [record.body for record in there(world)] == [b"m0", b"m0"]


def test_messages_of_a_level_keep_their_order(world: World) -> None:
    send(world, 20, DELAY="3")
    world.later(20 * SECOND)
    found = sorted(there(world), key=lambda record: record.physical_offset)
    assert [record.body for record in found] == [b"m%d" % number for number in range(20)]
    assert {record.queue_id for record in found} == {0, 1, 2, 3}, "one queue after the other"
    assert all("DELAY" not in record.props and record.props["REAL_TOPIC"] == "T" for record in found)


def test_a_route_that_can_not_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    send(world, 1, DELAY="3")
    real = world.server.ask
    bad = [b"[", b"7", b"\xff" * 9, b'{"brokerDatas":7}']

    def ask(asked: int, *given: Any, **more: Any) -> Any:
        answer = real(asked, *given, **more)
        if asked == Code.GET_ROUTEINFO_BY_TOPIC and bad:
            answer.body = bad.pop()
        return answer

    monkeypatch.setattr(world.server, "ask", ask)
    world.later(30 * SECOND)
    assert not bad and len(there(world)) == 1


def test_halves_go_to_another_master_which_asks_their_producers(world: World) -> None:
    send(world, 3, TRAN_MSG="true", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    world.later(2 * SECOND)
    assert not records(world.rigs[OTHER], HALF_TOPIC), "not before transactionCheckInterval"
    world.later(10 * SECOND)
    halves = records(world.rigs[OTHER], HALF_TOPIC)
    assert [half.body for half in halves] == [b"m0", b"m1", b"m2"] and not there(world)
    assert all(half.props["REAL_TOPIC"] == "T" and half.props["PGROUP"] == "producers" for half in halves)
    assert len(world.rigs[OTHER].parts.transactions) == 3, "they are open there"
    world.begin(0)
    world.later(5 * SECOND)
    master = world.rigs[0].parts
    assert not master.roles.is_slave and len(master.transactions) == 0, "and here no more"
    word = {
        "producerGroup": "producers", "tranStateTableOffset": "0",
        "commitLogOffset": str(records(world.rigs[0], HALF_TOPIC)[0].physical_offset), "commitOrRollback": "8",
        "fromTransactionCheck": "false", "msgId": "ID0", "transactionId": "ID0", "topic": "T",
    }  # fmt: skip
    assert world.rigs[0].ask(Code.END_TRANSACTION, word).code != 0
    assert not there(world, 0)


def test_decided_halves_stay(world: World) -> None:
    world.rigs[0].send("T", body=b"m0", properties=encoded(UNIQ_KEY="A", PGROUP="p", TRAN_MSG="true"))
    place = records(world.rigs[0], HALF_TOPIC)[0].physical_offset
    word = {
        "producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": str(place), "commitOrRollback": "12",
        "fromTransactionCheck": "false", "msgId": "A", "transactionId": "A", "topic": "T",
    }  # fmt: skip
    assert world.rigs[0].ask(Code.END_TRANSACTION, word).code == 0
    world.later(4 * SECOND)
    world.kill(0)
    world.later(15 * SECOND)
    assert acts(world) and not records(world.rigs[OTHER], HALF_TOPIC)


@pytest.mark.parametrize("kind", DELAYS)
def test_without_the_setting_nothing_is_sent_away(tmp_path: Path, kind: str) -> None:
    world = serving(World(tmp_path))
    send(world, 2, **DELAYS[kind])
    world.later(20 * SECOND)
    assert acts(world) and not there(world)
    world.begin(0)
    world.later(10 * SECOND)
    assert len(there(world, 0)) == 2


def test_an_answer_that_comes_when_the_master_is_back_counts_for_nothing(world: World) -> None:
    send(world, 1, DELAY="3")
    world.later(2 * SECOND)
    slave = world.rigs[1]
    slave.parts.escape.switch(True)
    told: list[str] = []
    message = slave.parts.delay._real(3, records(slave, "SCHEDULE_TOPIC_XXXX", 2)[0].physical_offset)
    assert message is not None
    slave.parts.escape.send(message, {"UNIQ_KEY": "X"}, lambda why, now: told.append(why))
    slave.parts.escape.switch(False)
    world.carry()
    assert told == [] and not slave.parts.escape.on


def test_without_a_name_server_there_is_nowhere_to_go(world: World) -> None:
    send(world, 1, DELAY="3")
    slave = world.rigs[1].parts
    slave.registration._servers.clear()
    world.later(12 * SECOND)
    assert any("there is no name server" in note.text for note in world.rigs[1].notes)


# ---- what a master that comes back is told of timers ----

GOOD = dict(zip(timer_escape.FIELDS, ("1000", "5000", "7", "2"), strict=True))


@pytest.mark.parametrize("value", ["", "-1", "x", "9" * 30, "٣", "1.5"])
@pytest.mark.parametrize("field", timer_escape.FIELDS)
def test_fields_that_make_no_sense_leave_nothing_out(field: str, value: str) -> None:
    assert timer_escape.read({**GOOD, field: value}) == timer_escape.NOTHING
    assert timer_escape.read({name: text for name, text in GOOD.items() if name != field}) == timer_escape.NOTHING


def test_what_is_left_out() -> None:
    escaped = timer_escape.read(GOOD)
    assert escaped == Escaped(1_000, 5_000, 7, 2) and timer_escape.read(dict(escaped.fields())) == escaped  # type: ignore[arg-type]
    assert escaped.has(1_000, 6) and escaped.has(4_999, 2)
    assert not escaped.has(4_999, 1)
    assert not escaped.has(999, 6) and not escaped.has(5_000, 6) and not escaped.has(2_000, 7)


def test_times() -> None:
    assert escape.RETRY_MS < escape.TIMEOUT_MS < escape.ROUTE_MS
