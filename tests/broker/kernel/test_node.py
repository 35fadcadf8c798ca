"""The node: routing, connections, what breaks a connection and what must not break the node."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import pull_header, send_header
from broker.scheduled.test_timers import crashed
from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Close, Effect, Frames, Opened, Shutdown, Tick, Write
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel import asks
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route, route_table
from perseid.broker.node import SOON_MS, Broker
from perseid.disk.real import RealDisk
from perseid.wire import command
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.command import MAX_REMARK_BYTES
from perseid.wire.frame import MAX_FRAME_BYTES

SEND, PULL, MAX_OFFSET = 310, 11, 30


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.send("T")
    rig.connect(1)
    return rig


def sends(*opaques: int) -> bytes:
    return b"".join(command.encode_request(SEND, opaque, send_header(), b"x") for opaque in opaques)


# ---- routing ----


@pytest.mark.parametrize("serializer", list(Serializer))
@pytest.mark.parametrize("code", [0, 9, 999, 10_010, -1])
def test_a_code_without_a_row(rig: Rig, code: int, serializer: Serializer) -> None:
    rig.handle(Frames(1, command.encode_request(code, 7, serializer=serializer)))
    answer = rig.answer(7)
    assert answer is not None and answer.serializer == serializer
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_the_vip_port_leaves_pulls_to_the_main_one(rig: Rig) -> None:
    rig.handle(Opened(9, "10.0.0.9:1", "10.0.0.9:10909", "vip"))
    codes = sorted(code for code, route in rig.parts.dispatch.routes.items() if not route.on_vip)
    assert len(codes) == 7
    for code in codes:
        answer = rig.ask(code, pull_header(), client=9)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
    assert rig.ask(SEND, send_header(), b"x", client=9).code == 0


def test_a_code_has_one_row(rig: Rig) -> None:
    row = rig.parts.dispatch.routes[SEND]
    with pytest.raises(AssertionError, match="two rows"):
        route_table((row, row))
    assert all(code == int(row.code) for code, row in rig.parts.dispatch.routes.items())


def test_a_header_that_lacks_a_field(rig: Rig) -> None:
    answer = rig.ask(MAX_OFFSET, {"topic": "T"})
    assert answer.code == 1 and "queueId" in (answer.remark or "")
    answer = rig.ask(MAX_OFFSET, {"topic": "T", "queueId": "x"})
    assert answer.code == 1 and "queueId" in (answer.remark or "")


def test_one_write_a_connection_and_turn(rig: Rig) -> None:
    effects = rig.broker.handle(Frames(1, sends(1, 2) + command.encode_request(999, 3) + sends(4)), rig.now)
    assert [type(effect) for effect in effects] == [Write]


def test_answers_in_the_requests_own_serializer(rig: Rig) -> None:
    raw = command.encode_request(MAX_OFFSET, 5, {"topic": "T", "queueId": "0"}, serializer=Serializer.ROCKETMQ)
    rig.handle(Frames(1, raw))
    answer = rig.answer(5)
    assert answer is not None and answer.serializer == Serializer.ROCKETMQ and answer.ext["offset"] == "1"


# ---- what breaks a connection ----

BROKEN_HEAD = b'{"code":310,"extFields":{"a":"\xff\xfe"},"opaque":5'
BROKEN_FRAME = (4 + len(BROKEN_HEAD)).to_bytes(4, "big") + len(BROKEN_HEAD).to_bytes(4, "big") + BROKEN_HEAD


def late(opaque: int) -> bytes:
    """A frame whose command can be read, but not its ext fields."""
    head = b'{"code":30,"flag":0,"opaque":%d,"extFields":{"topic":"\xff"}}' % opaque
    return (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head


def test_a_frame_that_is_none_closes_its_connection(rig: Rig) -> None:
    rig.connect(2)
    rig.handle(Frames(1, BROKEN_FRAME))
    assert rig.closed == [1] and 1 not in rig.parts.connections
    assert [note.level for note in rig.notes if "it is closed" in note.text] == ["warning"]
    assert rig.ask(MAX_OFFSET, {"topic": "T", "queueId": "0"}, client=2).code == 0


def test_what_stood_before_it_is_done_and_answered(rig: Rig) -> None:
    create = command.encode_request(SEND, 2, send_header(topic="New"), b"x")
    rig.handle(Frames(1, sends(1) + create + late(3) + sends(4)))
    assert {answer.opaque: answer.code for answer in rig.sent[1]} == {1: 0, 2: 0}
    assert rig.closed == [1]
    assert rig.parts.store.reads.max_offset("T", 0) == 2, "what stood behind it was not looked at"
    assert "New" in rig.parts.topics and rig.saved[-1] == "config/topics.json"
    assert not [note for note in rig.notes if note.level == "error"]


def test_the_close_comes_after_the_answers(rig: Rig) -> None:
    effects = rig.broker.handle(Frames(1, sends(1) + late(2)), rig.now)
    assert [type(effect) for effect in effects if isinstance(effect, Write | Close)] == [Write, Close]
    rig.broker.validate()


def test_a_handler_that_finds_bytes_that_break_the_protocol(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def finds(request: Request) -> Reply:
        raise RemoteProtocolError("what is this?")

    monkeypatch.setitem(rig.parts.dispatch.routes, 999, Route(RequestCode.HEART_BEAT, None, finds, asks.nothing))
    rig.handle(Frames(1, command.encode_request(999, 1)))
    assert rig.closed == [1]


def test_answers_to_nothing_and_unknown_connections(rig: Rig) -> None:
    rig.handle(Frames(1, command.encode_response(77, 0)))
    rig.handle(Frames(55, sends(1)))
    assert rig.closed == [] and 55 not in rig.sent


# ---- what must not break the node ----


def test_a_defect_in_a_handler_is_code_1_and_a_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: Request) -> Reply:
        raise ZeroDivisionError("by zero")

    monkeypatch.setitem(rig.parts.dispatch.routes, 999, Route(RequestCode.HEART_BEAT, None, fails, asks.nothing))
    answer = rig.ask(999)
    assert (answer.code, answer.remark) == (1, "ZeroDivisionError: by zero")
    assert any("Traceback" in note.text for note in rig.notes if note.level == "error")
    assert rig.ask(SEND, send_header(), b"x").code == 0


def test_a_broken_invariant_breaks_the_node(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: Request) -> Reply:
        raise AssertionError("never")

    monkeypatch.setitem(rig.parts.dispatch.routes, 999, Route(RequestCode.HEART_BEAT, None, fails, asks.nothing))
    with pytest.raises(AssertionError, match="never"):
        rig.ask(999)


def test_an_append_that_ends_in_the_middle_breaks_the_node(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("EIO")

    monkeypatch.setattr(rig.parts.store.appends, "append", fails)
    with pytest.raises(AssertionError, match="in the middle"):
        rig.ask(SEND, send_header(topic="New"), b"x")


def test_remarks_are_cut(rig: Rig) -> None:
    answer = rig.ask(SEND, send_header(topic="/" * 1_000_000), b"x")
    assert answer.code == 29 and len(answer.remark or "") == MAX_REMARK_BYTES + 1


@pytest.mark.parametrize("serializer", list(Serializer))
def test_an_answer_too_long_for_a_frame(rig: Rig, monkeypatch: pytest.MonkeyPatch, serializer: Serializer) -> None:
    def long(request: Request) -> Reply:
        return Reply(body=bytes(MAX_FRAME_BYTES))

    monkeypatch.setitem(rig.parts.dispatch.routes, 999, Route(RequestCode.HEART_BEAT, None, long, asks.nothing))
    rig.handle(Frames(1, command.encode_request(999, 1, serializer=serializer)))
    answer = rig.answer(1)
    assert answer is not None and answer.code == 1 and "can't be sent" in (answer.remark or "")


def test_a_peer_without_an_address(rig: Rig) -> None:
    rig.handle(Opened(8, "somewhere", "10.0.0.9:10911", "main"))
    assert rig.ask(SEND, send_header(), b"x", client=8).code == 0
    assert any("without an address" in note.text for note in rig.notes)


def test_an_event_that_is_none(rig: Rig) -> None:
    class Odd(NamedTuple):
        a: int

    with pytest.raises(AssertionError, match="no event of a broker"):
        rig.broker.handle(Odd(1), rig.now)


# ---- life ----


def test_before_the_start_and_after_the_end(tmp_path: Path) -> None:
    broker = Broker(BrokerConfig(), SMALL, RealDisk(str(tmp_path)), Random(1))
    assert broker.next_deadline() is None
    stopped: list[Effect] = broker.handle(Shutdown(), NOW)
    assert [getattr(effect, "reason", None) for effect in stopped] == [""]
    assert broker.handle(Tick(), NOW) == []


def test_a_broker_that_is_ending_refuses(rig: Rig) -> None:
    rig.hold_io()
    rig.handle(Shutdown())
    answer = rig.ask(SEND, send_header(), b"x")
    assert (answer.code, answer.remark) == (14, "the broker is shutting down")
    assert rig.broker.next_deadline() is None
    rig.finish_io()
    rig.finish_io()
    assert rig.stopped == ""


def test_pulls_that_wait_at_the_end_are_refused_or_dropped_but_never_answered_twice(rig: Rig) -> None:
    waiting = rig.tell(PULL, pull_header(queue_offset=1))
    rig.stop()
    assert rig.answer(waiting) is None
    assert rig.broker.handle(Frames(1, sends(9)), rig.now) == []


def test_after_plain_sends_the_next_look_is_soon(rig: Rig) -> None:
    rig.until(NOW + 10)
    rig.handle(Frames(1, sends(1, 2)))
    rig.handle(Frames(1, sends(3)))
    due = rig.broker.next_deadline()
    assert due is not None and due <= rig.now + SOON_MS
    rig.handle(Tick())
    due = rig.broker.next_deadline()
    assert due is not None and due > rig.now


def test_a_disk_that_fails_within_a_cut_ends_the_node_and_a_start_takes_up_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "first")
    places = [rig.send("T", body=b"%d" % number) for number in range(350)]
    store = rig.parts.store
    end = store.reads.unit("T", 0, places[50].queue_offset).physical_offset  # type: ignore[union-attr]
    remove, removed = rig.disk.remove, []

    def failing(path: str) -> None:
        removed.append(path)
        if len(removed) > 1:
            raise OSError(5, "no", path)
        remove(path)

    monkeypatch.setattr(rig.disk, "remove", failing)
    for effect in store.truncation.begin(end, []):
        rig._carry_out([effect])
    assert rig.stopped is not None and f"could not be cut at {end}: [Errno 5] no" in rig.stopped
    again = crashed(rig, tmp_path, "again").parts.store
    again_end = again.reads.max_offset("T", 0)
    assert again.log.end == end and again_end == 50, (again.log.end, again_end)


def test_a_failed_flush_of_what_nobody_waits_for_ends_the_node_too(rig: Rig) -> None:
    rig.hold_io()
    rig.until(NOW + 11_000)
    while not [effect for effect in rig.io if hasattr(effect, "files")]:
        rig.until(rig.now + 1_000)
    while not hasattr(rig.io[0], "files"):
        rig.io.popleft()
    rig.fail_io("EIO")
    assert rig.stopped is not None and "restart to recover" in rig.stopped
