"""Answers that wait, when the right to write is lost in the middle of a turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from perseid.broker.kernel.acks import Acks
from perseid.broker.kernel.durability import Durability
from perseid.wire.codes import ResponseCode
from perseid.wire.command import decode_all, encode_response
from perseid.wire.headers.send import SendMessageResponse

STORED = encode_response(7, 0, SendMessageResponse("ID", 1, 2, "KEY"))
LOST = "another broker became master"


class Turns:
    """What a turn writes, by connection."""

    now = 1_000

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}

    def write(self, conn: int, data: bytes) -> None:
        self.written[conn] = self.written.get(conn, b"") + data

    def write_each(self, answers: Any) -> None:
        for conn, data in answers:
            self.write(conn, data)


def _durability() -> tuple[Durability, Turns, Any]:
    turn = Turns()
    store: Any = SimpleNamespace(log=SimpleNamespace(end=100, flushed=0), appends=SimpleNamespace(end=100))
    nodes: Any = SimpleNamespace(synchronous=False, by_quorum=False, wait_ms=5_000, replicated=lambda: 100)
    settings: Any = SimpleNamespace(current=SimpleNamespace(sync_flush_timeout=5_000))
    counts: Any = SimpleNamespace(put_took=lambda *_: None)
    made = Durability(turn, settings, store, nodes, Acks(), counts, sync_flush=True)  # type: ignore[arg-type]
    return made, turn, store


def _codes(turn: Turns, conn: int) -> list[int]:
    return [one.code for one in decode_all(turn.written.get(conn, b""))]


def test_what_is_held_back_after_the_loss_is_not_acknowledged_either() -> None:
    durability, turn, store = _durability()
    durability.begin()
    durability.give_up(LOST)  # a request of this turn says so, after sends of this turn were stored
    durability.acknowledge_frames([(1, STORED)], 1)
    assert _codes(turn, 1) == [ResponseCode.SYSTEM_ERROR]
    assert LOST in (decode_all(turn.written[1])[0].remark or "")
    store.log.flushed = 100
    durability.release()
    assert _codes(turn, 1) == [ResponseCode.SYSTEM_ERROR]


def test_the_next_turn_waits_as_ever() -> None:
    durability, turn, store = _durability()
    durability.begin()
    durability.give_up(LOST)
    durability.begin()
    durability.confirm_frames(1, STORED, 1, 100)
    assert not turn.written
    store.log.flushed = 100
    durability.release()
    assert _codes(turn, 1) == [0]
