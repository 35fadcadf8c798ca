"""Long polling: who waits, who wakes, and who leaves early."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from broker.requests import properties, pull_header
from perseid.base.machine import Frames
from perseid.broker.consume import held_pulls as hold
from perseid.broker.consume import pull
from perseid.broker.consume.held_pulls import Holds
from perseid.broker.kernel.request import Connection, Request
from perseid.wire import command
from perseid.wire.command import Command
from perseid.wire.hashing import tag_code
from perseid.wire.record import decode_all

PULL = 11
WAIT_MS = 15_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.send("T")
    return rig


def held(rig: Rig, client: int = 1, **fields: object) -> int:
    before = len(rig.parts.holds)
    opaque = rig.tell(PULL, pull_header(**({"queue_offset": 1} | fields)), client=client)
    assert len(rig.parts.holds) == before + 1 and rig.answer(opaque, client) is None
    return opaque


def test_a_message_wakes_a_pull(rig: Rig) -> None:
    waiting = held(rig, client=2)
    rig.send("T", body=b"news")
    answer = rig.answer(waiting, 2)
    assert answer is not None and answer.code == 0 and answer.remark == "FOUND"
    assert [record.body for record in decode_all(answer.body)] == [b"news"]
    assert answer.ext["nextBeginOffset"] == "2"
    assert len(rig.parts.holds) == 0


def test_other_queues_and_topics_wake_nobody(rig: Rig) -> None:
    waiting = held(rig)
    rig.send("T", queue_id=1)
    rig.send("Other")
    assert rig.answer(waiting) is None


def test_only_a_wanted_tag_wakes(rig: Rig) -> None:
    waiting = held(rig, subscription="TagA || TagB")
    rig.send("T", properties=properties(TAGS="TagC"))
    assert rig.answer(waiting) is None
    rig.send("T", properties=properties(TAGS="TagB"))
    answer = rig.answer(waiting)
    assert answer is not None and [record.tag for record in decode_all(answer.body)] == ["TagB"]
    assert answer.ext["nextBeginOffset"] == "3", "what it didn't want is behind it"


def test_the_deadline_brings_code_19(rig: Rig) -> None:
    waiting = held(rig)
    rig.until(rig.now + WAIT_MS - 1)
    assert rig.answer(waiting) is None
    rig.until(rig.now + 1)
    answer = rig.answer(waiting)
    assert answer is not None and answer.code == 19 and answer.ext["nextBeginOffset"] == "1"


def test_unwanted_messages_that_came_are_passed_at_the_deadline(rig: Rig) -> None:
    waiting = held(rig, subscription="TagA")
    rig.send("T", properties=properties(TAGS="TagC"))
    rig.until(rig.now + WAIT_MS)
    answer = rig.answer(waiting)
    assert answer is not None and answer.code == 20 and answer.ext["nextBeginOffset"] == "2"


def test_all_who_wait_at_a_queue_wake(rig: Rig) -> None:
    waiting = [held(rig, client=client, consumer_group=f"g{client}") for client in (1, 2, 3)]
    rig.send("T")
    assert all(rig.answer(opaque, client) is not None for client, opaque in zip((1, 2, 3), waiting, strict=True))


def test_a_pull_of_an_empty_queue_waits_too(rig: Rig) -> None:
    waiting = held(rig, queue_id=2, queue_offset=0)
    rig.send("T", queue_id=2)
    answer = rig.answer(waiting)
    assert answer is not None and answer.code == 0


def test_a_closed_connection_takes_its_pulls_along(rig: Rig) -> None:
    held(rig, client=2)
    held(rig, client=2, queue_id=1, queue_offset=0)
    stays = held(rig, client=3)
    rig.leave(2)
    assert len(rig.parts.holds) == 1
    rig.send("T")
    assert rig.answer(stays, 3) is not None
    assert not rig.sent.get(2)


def test_a_full_table_answers_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    held(rig, client=2)
    monkeypatch.setattr(hold, "MAX_HELD", 1)
    assert rig.ask(PULL, pull_header(queue_offset=1)).code == 19


def test_who_does_not_want_to_wait_does_not(rig: Rig) -> None:
    assert rig.ask(PULL, pull_header(queue_offset=1, sys_flag=4)).code == 19
    assert rig.ask(PULL, pull_header(queue_offset=1, suspend_timeout_millis=0)).code == 19
    assert rig.ask(PULL, pull_header(queue_offset=5)).code == 21, "beyond the end: no waiting"


def test_nobody_waits_longer_than_the_limit(rig: Rig) -> None:
    waiting = held(rig, suspend_timeout_millis=2**62)
    rig.until(rig.now + pull.MAX_SUSPEND_MS)
    answer = rig.answer(waiting)
    assert answer is not None and answer.code == 19


def test_short_polling(tmp_path: Path) -> None:
    rig = Rig(tmp_path, long_polling_enable=False, short_polling_time_mills=1_000)
    rig.send("T")
    waiting = held(rig)
    rig.until(rig.now + 999)
    assert rig.answer(waiting) is None
    rig.until(rig.now + 1)
    assert rig.answer(waiting) is not None


def test_a_topic_that_is_deleted_meanwhile(rig: Rig) -> None:
    waiting = held(rig)
    rig.ask(215, {"topic": "T"})
    rig.until(rig.now + WAIT_MS)
    answer = rig.answer(waiting)
    assert answer is not None and answer.code == 17


def test_the_network_buffer_may_be_reused(rig: Rig) -> None:
    rig.connect(1)
    data = bytearray(command.encode_request(PULL, 9, pull_header(queue_offset=1, subscription="TagA")))
    rig.handle(Frames(1, data))
    data[:] = bytes(len(data))
    rig.send("T", properties=properties(TAGS="TagA"))
    answer = rig.answer(9)
    assert answer is not None and answer.code == 0


def test_a_commit_counts_once(rig: Rig) -> None:
    """The pull commits when it comes; when it is looked at again, its offset may be an old one."""
    waiting = held(rig, sys_flag=7, commit_offset=1)
    rig.ask(15, {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "7"})
    rig.send("T")
    assert rig.answer(waiting) is not None
    assert rig.parts.offsets.query("T", "g", 0) == 7


def test_delivered_delayed_messages_wake(rig: Rig) -> None:
    waiting = held(rig)
    rig.send("T", properties=properties(DELAY="1"))
    assert rig.answer(waiting) is None
    rig.until(rig.now + 1_000)
    assert rig.answer(waiting) is not None


# ---- the table ----


def request(opaque: int, conn: int = 1) -> Request:
    return Request(Connection(conn, "", ""), Command(opaque=opaque), None)


def test_old_deadlines_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "MAX_STALE", 4)
    holds = Holds()
    for n in range(100):
        holds.hold(request(n), ("T", 0), 0, None, 1_000_000 + n)
        holds.arrived("T", 0, 0, 0)
        assert len(holds.take_ready(0)) == 1
    assert len(holds._deadlines) < 20
    assert len(holds) == 0 and holds.next_deadline() is None
    holds.validate()


def test_an_earlier_offset_than_wanted_wakes_nobody() -> None:
    holds = Holds()
    holds.hold(request(1), ("T", 0), 5, None, 10)
    holds.arrived("T", 0, 4, 0)
    assert holds.take_ready(0) == []
    holds.arrived("T", 0, 5, 0)
    (ready,) = holds.take_ready(0)
    assert ready.may_hold is False


def test_ready_and_closed_in_one_turn() -> None:
    holds = Holds()
    holds.hold(request(1, conn=1), ("T", 0), 0, None, 10)
    holds.hold(request(2, conn=2), ("T", 0), 0, lambda code, _: code == tag_code("A"), 10)
    holds.arrived("T", 0, 0, tag_code("A"))
    holds.connection_closed(1)
    assert [r.conn.id for r in holds.take_ready(0)] == [2]
    holds.validate()
