"""Messages that a consumer could not handle (broker.md §5.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker.harness import NOW, Rig
from broker.requests import properties
from broker.streams import ALONE
from perseid.broker.kernel import messages
from perseid.broker.kernel.request import Reply, Request
from perseid.wire.command import Command
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.record import Record, decode_all

SEND_BACK = 36
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.send("T", 1, b"body", properties(UNIQ_KEY="ID1", TAGS="A", KEYS="k", mine="x"))
    return rig


def back(rig: Rig, **fields: Any) -> Command:
    return rig.ask(SEND_BACK, replace(ConsumerSendMsgBackRequest(offset=0, group="g", delay_level=0), **fields))


def stored(rig: Rig, topic: str, queue_id: int = 0) -> list[Record]:
    return decode_all(b"".join(rig.parts.store.reads.read(topic, queue_id, 0, 32, 1 << 24).buffers))


def test_it_comes_again_later(rig: Rig) -> None:
    assert back(rig).code == 0
    assert stored(rig, RETRY) == []
    rig.until(NOW + 9_999)
    assert stored(rig, RETRY) == []
    rig.until(NOW + 10_000)  # level 3
    (record,) = stored(rig, RETRY)
    assert record.body == b"body" and record.reconsume_times == 1
    (first,) = stored(rig, "T", 1)
    assert (record.born_host, record.born_timestamp) == (first.born_host, first.born_timestamp)
    told = {"UNIQ_KEY": "ID1", "TAGS": "A", "KEYS": "k", "mine": "x", "RETRY_TOPIC": "T"}
    assert told.items() <= record.props.items()
    assert record.props["ORIGIN_MESSAGE_ID"] == first.msg_id and record.props["WAIT"] == "false"
    unit = rig.parts.store.reads.unit(RETRY, 0, 0)
    assert unit is not None and unit.tag_code == rig.parts.store.reads.unit("T", 1, 0).tag_code  # type: ignore[union-attr]


def test_levels_rise_and_the_origin_stays(rig: Rig) -> None:
    back(rig)
    rig.until(NOW + 10_000)
    (first,) = stored(rig, RETRY)
    back(rig, offset=first.physical_offset)
    rig.until(NOW + 10_000 + 29_999)
    assert len(stored(rig, RETRY)) == 1
    rig.until(NOW + 10_000 + 30_000)  # level 4
    second = stored(rig, RETRY)[1]
    assert second.reconsume_times == 2 and second.props["RETRY_TOPIC"] == "T"
    assert second.props["ORIGIN_MESSAGE_ID"] == first.props["ORIGIN_MESSAGE_ID"]


def test_the_level_that_was_asked_for(rig: Rig) -> None:
    back(rig, delay_level=1)
    rig.until(NOW + 1_000)
    assert len(stored(rig, RETRY)) == 1


@pytest.mark.parametrize(
    ("fields", "dead"),
    [
        ({"delay_level": -1}, True),
        ({"max_reconsume_times": 0}, True),
        ({"max_reconsume_times": 1}, False),
        ({"max_reconsume_times": -1}, True),
        ({}, False),
    ],
)
def test_dead_letters(rig: Rig, fields: dict[str, int], dead: bool) -> None:
    assert back(rig, **fields).code == 0
    assert len(stored(rig, DEAD)) == dead
    row = rig.parts.topics.get(DEAD)
    assert (row is not None) is dead
    if row is not None:
        (record,) = stored(rig, DEAD)
        assert (row.read_queue_nums, row.write_queue_nums, row.perm) == (1, 1, 6)
        assert record.props["DELAY"] == "0" and record.reconsume_times == 1 and record.props["RETRY_TOPIC"] == "T"


def test_the_group_says_how_often(rig: Rig) -> None:
    assert rig.ask(200, None, b'{"groupName":"g","retryMaxTimes":0}').code == 0
    back(rig)
    assert len(stored(rig, DEAD)) == 1


def test_old_clients_have_no_limit_of_their_own(rig: Rig) -> None:
    rig.connect(1)
    header = ConsumerSendMsgBackRequest(offset=0, group="g", delay_level=0, max_reconsume_times=0)
    rig.parts.turn.now = rig.now
    request = Request(rig.parts.connections[1], Command(code=SEND_BACK, version=120), header)
    assert rig.parts.dispatch.routes[36].handler(request) == Reply()
    assert stored(rig, DEAD) == []


def test_a_message_of_a_committed_transaction(rig: Rig) -> None:
    """Its TRAN_MSG (a Java broker leaves it) begins nothing anew, not among the dead letters either."""
    (record,) = stored(rig, "T", 1)
    message = messages.seal(messages.copy_of(record), record.props | {"TRAN_MSG": "true"})
    offset = rig.parts.store.appends.append(message, rig.now).physical_offset
    assert back(rig, offset=offset).code == 0
    assert back(rig, offset=offset, delay_level=-1).code == 0
    assert len(stored(rig, DEAD)) == 1


def test_many_retry_queues(rig: Rig) -> None:
    assert rig.ask(200, None, b'{"groupName":"g","retryQueueNums":4}').code == 0
    for _ in range(40):
        back(rig, delay_level=1)
    rig.until(NOW + 1_000)
    assert all(stored(rig, RETRY, queue_id) for queue_id in range(4))


def test_no_retry_queues_no_retries(rig: Rig) -> None:
    assert rig.ask(200, None, b'{"groupName":"g","retryQueueNums":0}').code == 0
    end = rig.parts.store.log.end
    assert back(rig).code == 0
    assert rig.parts.store.log.end == end and RETRY not in rig.parts.topics


# ---- refusals ----


@pytest.mark.parametrize("offset", [-1, -(2**63), 1, 17, 10**6, 2**62])
def test_offsets_that_hold_no_message(rig: Rig, offset: int) -> None:
    answer = back(rig, offset=offset)
    assert answer.code == 1 and answer.remark == f"look message by offset failed, {offset}"
    assert not [note for note in rig.notes if note.level == "error"]


def test_a_message_within_a_body_is_none(rig: Rig) -> None:
    """The bytes of a record at another place: a client may send such a body and name its place."""
    rig.send("T", 0, bytes(rig.parts.store.reads.record_at(0) or b""))
    inner = rig.parts.store.reads.unit("T", 0, 0)
    assert inner is not None
    answer = back(rig, offset=inner.physical_offset + 88)
    assert answer.code == 1


def test_groups_and_permissions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_subscription_group=False)
    rig.send("T")
    answer = back(rig)
    assert answer.code == 26 and "subscription group not exist, g" in (answer.remark or "")
    rig.ask(200, None, b'{"groupName":"g"}')
    rig.ask(25, None, b"brokerPermission=4")
    answer = back(rig)
    assert answer.code == 16 and answer.remark == "the broker[127.0.0.1] sending message is forbidden"
    rig.ask(25, None, b"brokerPermission=6")
    row = {"topic": RETRY, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "4"}
    rig.ask(17, row | {"topicFilterType": "SINGLE_TAG", "order": "false"})
    answer = back(rig)
    assert answer.code == 16 and answer.remark == f"the topic[{RETRY}] sending message is forbidden"


def test_a_full_disk(rig: Rig) -> None:
    rig.parts.store.condition.fail("the disk is gone")
    answer = back(rig)
    assert answer.code == 1 and answer.remark == "SERVICE_NOT_AVAILABLE"
    assert rig.parts.stats.put_failed_times == 1


def test_a_client_in_unit_mode(rig: Rig) -> None:
    back(rig, unit_mode=True)
    row = rig.parts.topics.get(RETRY)
    assert row is not None and row.topic_sys_flag == 2


def test_a_group_has_it_before_it_is_acknowledged(tmp_path: Path) -> None:
    """The consumer forgets the message when it hears of it; alone, a broker answers at once, as the original does."""
    for raft, waits in ((ALONE, True), (None, False)):
        rig = Rig(tmp_path / str(waits), raft=raft)
        rig.send("T", 1, b"body", properties(UNIQ_KEY="ID1"))
        unit = rig.parts.store.reads.unit("T", 1, 0)
        assert unit is not None
        header = ConsumerSendMsgBackRequest(offset=unit.physical_offset, group="g", delay_level=0)
        assert rig.ask(SEND_BACK, header).code == 0, "its topics are there"
        rig.hold_io()
        opaque = rig.tell(SEND_BACK, header)
        assert (rig.answer(opaque) is None) == waits
        for _ in range(10):
            rig.finish_io()
        answer = rig.answer(opaque)
        assert answer is not None and answer.code == 0
