"""Answers that wait for the disk: the table, and SYNC_FLUSH on a broker whose disk the test holds in its hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import SMALL, Rig
from broker.requests import properties, send_header
from perseid.base.machine import Flush, Frames
from perseid.broker.kernel import acks
from perseid.broker.kernel.acks import Acks
from perseid.broker.kernel.request import Connection, Reply, Request
from perseid.wire import batch, command
from perseid.wire.command import Command

SYNC = replace(SMALL, flush_disk_type="SYNC_FLUSH")
SEND = 310
TIMEOUT_MS = 5_000


def request(opaque: int) -> Request:
    return Request(Connection(1, "10.0.0.1:1", ""), Command(opaque=opaque), None)


# ---- the table ----


def test_a_flush_releases_a_prefix() -> None:
    table = Acks()
    for n in range(4):
        table.wait(100 * (n + 1), 1_000 + n, 50, request(n), Reply())
    assert [w.request.command.opaque for w in table.release(250)] == [0, 1]
    table.validate(250)
    assert table.next_deadline() == 1_052
    assert [w.request.command.opaque for w in table.release(400)] == [2, 3]
    assert table.next_deadline() is None and table.release(900) == []


def test_deadlines_are_kept_in_order_when_the_setting_changes() -> None:
    table = Acks()
    table.wait(1, 1_000, 500, request(0), Reply())
    table.wait(2, 1_001, 10, request(1), Reply())
    table.validate(0)
    assert table.expire(1_499) == []
    assert [w.request.command.opaque for w in table.expire(1_500)] == [0, 1]
    assert len(table) == 0


def test_acknowledgements_out_of_log_order_are_a_defect() -> None:
    table = Acks()
    table.wait(2, 0, 1, request(0), Reply())
    with pytest.raises(AssertionError, match="in log order"):
        table.wait(1, 0, 1, request(1), Reply())
    with pytest.raises(AssertionError, match="left behind"):
        table.validate(2)


def test_where_what_is_waited_for_begins() -> None:
    table = Acks()
    table.turn(700)
    assert table.begin == 700, "what this turn stores may come to be waited for"
    table.wait(800, 0, 50, request(0), Reply())
    table.turn(800)
    table.wait(900, 1, 50, request(1), Reply())
    assert table.begin == 700
    table.release(850)
    assert table.begin == 800
    table.turn(900)
    table.expire(100)
    assert table.begin == 900


# ---- the broker ----


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, store=SYNC, sync_flush_timeout=TIMEOUT_MS)
    rig.send("T")  # the topic is there and saved
    rig.hold_io()
    return rig


def test_a_send_is_answered_when_it_is_durable(rig: Rig) -> None:
    sent = rig.tell(SEND, send_header(), b"one")
    assert rig.answer(sent) is None and rig.parts.store.log.flushed < rig.parts.store.log.end
    rig.finish_io()
    answer = rig.answer(sent)
    assert answer is not None and answer.code == 0 and answer.ext["queueOffset"] == "1"
    assert rig.parts.store.log.flushed == rig.parts.store.log.end


def test_what_comes_during_a_flush_shares_the_next_one(rig: Rig) -> None:
    sent = [rig.tell(SEND, send_header(), b"%d" % n) for n in range(10)]
    flushes = [effect for effect in rig.io if isinstance(effect, Flush)]
    assert len(flushes) == 1, "one flush is under way at a time"
    rig.finish_io()
    assert [rig.answer(opaque) is not None for opaque in sent] == [True] + [False] * 9
    assert len(rig.io) == 1
    rig.finish_io()
    assert all(rig.answer(opaque) is not None for opaque in sent)
    assert not rig.io


def test_who_does_not_wait_is_answered_at_once(rig: Rig) -> None:
    answer = rig.ask(SEND, send_header(properties=properties(UNIQ_KEY="A", WAIT="false")), b"quick")
    assert answer.code == 0
    assert not rig.io, "and asks for no flush"


def test_a_late_flush_is_code_10_and_the_message_is_stored(rig: Rig) -> None:
    sent = rig.tell(SEND, send_header(), b"late")
    rig.until(rig.now + TIMEOUT_MS - 1)
    assert rig.answer(sent) is None
    rig.until(rig.now + 1)
    answer = rig.answer(sent)
    assert answer is not None and answer.code == 10 and answer.ext["queueOffset"] == "1", "the header is there as well"
    rig.finish_io()
    assert rig.answer(sent) is answer, "no second answer"
    assert rig.parts.store.reads.max_offset("T", 0) == 2
    assert "[5~10s]:1 " in rig.parts.stats.put_distribution()


def test_a_clean_stop_answers_what_waits(rig: Rig) -> None:
    sent = rig.tell(SEND, send_header(), b"last")
    rig._io_held = False
    rig.stop()
    answer = rig.answer(sent)
    assert answer is not None and answer.code == 0


def test_a_failed_flush_ends_the_node_and_answers_nobody(rig: Rig) -> None:
    sent = rig.tell(SEND, send_header(), b"lost?")
    rig.fail_io("EIO")
    assert rig.stopped is not None and "EIO" in rig.stopped
    assert rig.answer(sent) is None


def test_a_connection_that_closes_while_its_send_waits(rig: Rig) -> None:
    rig.tell(SEND, send_header(), b"gone", client=2)
    other = rig.tell(SEND, send_header(), b"stays", client=3)
    rig.leave(2)
    rig.finish_io()
    rig.finish_io()
    assert rig.answer(other, client=3) is not None


def test_a_batch_waits_for_its_last_message(rig: Rig) -> None:
    body = batch.encode([(0, b"a", b""), (0, b"b", b"")])
    sent = rig.tell(320, send_header(batch=True), body)
    assert rig.answer(sent) is None
    rig.finish_io()
    answer = rig.answer(sent)
    assert answer is not None and answer.ext["msgId"].count(",") == 1


def test_too_many_waiting_sends_are_refused_with_2(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "MAX_WAITING", 3)
    for n in range(3):
        rig.tell(SEND, send_header(), b"%d" % n)
    end = rig.parts.store.log.end
    answer = rig.ask(SEND, send_header(), b"too much")
    assert answer.code == 2 and (answer.remark or "").startswith("[OVERLOAD]system busy")
    assert rig.parts.store.log.end == end, "it was not stored"
    rig.finish_io()
    rig.finish_io()
    assert len(rig.parts.acks) == 0


def test_the_network_buffer_may_be_reused(rig: Rig) -> None:
    """What waits must not point into received bytes."""
    rig.connect(1)
    data = bytearray(command.encode_request(SEND, 77, send_header(), b"body"))
    rig.handle(Frames(1, data))
    data[:] = bytes(len(data))
    rig.finish_io()
    assert rig.answer(77) is not None
