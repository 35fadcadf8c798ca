"""Calls of a node: each ends exactly once, whatever the network does."""

import pytest

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Close, Closed, Connect, ConnectFailed, Effect, Opened, Tick, Write
from perseid.wire.command import Command, decode, encode_response
from perseid.wire.rpc import MAX_BACKOFF_MS, MAX_WAITING, Caller, Failure

A = "127.0.0.1:9876"


class Calls:
    """A caller with a record of how its calls ended."""

    def __init__(self) -> None:
        self.caller = Caller()
        self.ended: list[tuple[int, str]] = []

    def call(self, n: int, now: int = 0, timeout_ms: int = 1000, address: str = A) -> list[Effect]:
        def on_reply(reply: Command | Failure, now: int) -> list[Effect]:
            self.ended.append((n, reply.reason if isinstance(reply, Failure) else f"code {reply.code}"))
            return []

        return self.checked(self.caller.call(address, 105, {"n": str(n)}, b"", now, timeout_ms, on_reply))

    def handle(self, event: object, now: int = 0) -> list[Effect]:
        return self.checked(self.caller.handle(event, now))

    def checked(self, effects: list[Effect]) -> list[Effect]:
        self.caller.validate()
        return effects


def opened(conn: int = 5) -> Opened:
    return Opened(conn, A, "127.0.0.1:1", dialled=A)


def asked(effects: list[Effect]) -> list[Command]:
    return [decode(e.data) for e in effects if isinstance(e, Write)]


def response(opaque: int) -> Command:
    return decode(encode_response(opaque, 17))


def test_the_first_call_dials_and_later_ones_wait_with_it() -> None:
    it = Calls()
    assert it.call(1) == [Connect(A)]
    assert it.call(2) == []
    first, second = asked(it.handle(opened()))
    assert (first.ext, second.ext) == ({"n": "1"}, {"n": "2"})
    assert it.caller.owns(5) and it.caller.connected(A)
    (third,) = asked(it.call(3))
    for command in (second, third, first):
        assert it.caller.answered(5, response(command.opaque), 1) == []
    assert it.ended == [(2, "code 17"), (3, "code 17"), (1, "code 17")]


def test_a_second_answer_and_a_strangers_answer_count_nothing() -> None:
    it = Calls()
    it.call(1)
    (command,) = asked(it.handle(opened()))
    assert it.caller.answered(6, response(command.opaque), 1) == []
    assert it.caller.answered(5, response(command.opaque + 1), 1) == []
    assert it.ended == []
    it.caller.answered(5, response(command.opaque), 1)
    it.caller.answered(5, response(command.opaque), 1)
    assert it.ended == [(1, "code 17")]


def test_a_failed_dial_fails_the_calls_and_the_next_dial_waits_longer_each_time() -> None:
    it = Calls()
    now, waits = 0, []
    it.call(0, now)
    for n in range(1, 12):
        it.handle(ConnectFailed(A, "refused"), now)
        assert it.ended[-1] == (n - 1, f"no connection to {A}: refused")
        assert it.call(n, now, timeout_ms=60_000) == []
        deadline = it.caller.next_deadline()
        assert deadline is not None
        assert it.handle(Tick(), deadline - 1) == []
        assert it.handle(Tick(), deadline) == [Connect(A)]
        waits.append(deadline - now)
        now = deadline
    assert waits[:4] == [100, 200, 400, 800] and waits[-1] == MAX_BACKOFF_MS
    it.handle(opened(), now)
    it.handle(Closed(5, "gone"), now)
    assert it.call(99, now) == [Connect(A)]


def test_no_answer_in_time() -> None:
    it = Calls()
    it.call(1, timeout_ms=50)
    it.call(2, timeout_ms=80)
    (first, _) = asked(it.handle(opened()))
    assert it.caller.next_deadline() == 50
    it.handle(Tick(), 50)
    assert it.ended == [(1, "no answer in time")]
    it.caller.answered(5, response(first.opaque), 60)
    assert len(it.ended) == 1
    it.handle(Tick(), 80)
    assert it.ended[1:] == [(2, "no answer in time")]
    assert it.caller.next_deadline() is None


def test_a_call_that_timed_out_while_dialling_is_not_sent() -> None:
    it = Calls()
    it.call(1, timeout_ms=50)
    it.handle(Tick(), 50)
    assert it.handle(opened(), 60) == []
    assert it.ended == [(1, "no answer in time")]


def test_a_lost_connection_fails_its_calls_and_the_next_call_dials_again() -> None:
    it = Calls()
    it.call(1)
    it.handle(opened())
    it.handle(Closed(6, "another"))
    assert it.ended == []
    it.handle(Closed(5, "reset"))
    assert it.ended == [(1, "the connection was lost: reset")]
    assert it.call(2) == [Connect(A)]


def test_oneway_has_no_end() -> None:
    it = Calls()
    assert it.caller.oneway(A, 34, None, b"x", 0, 100) == [Connect(A)]
    (command,) = asked(it.handle(opened()))
    assert command.is_oneway
    (command,) = asked(it.caller.oneway(A, 34, None, b"x", 0, 100))
    assert command.is_oneway
    assert it.caller.next_deadline() is None


def test_asking_the_peer_of_an_accepted_connection() -> None:
    it = Calls()
    ended: list[object] = []
    effects = it.caller.call_on(9, 307, None, b"", 0, 100, lambda reply, now: [ended.append(reply)][:0])
    (command,) = asked(effects)
    it.caller.answered(9, response(command.opaque), 1)
    assert [r.code for r in ended] == [17]
    it.caller.call_on(9, 307, None, b"", 0, 100, lambda reply, now: [ended.append(reply)][:0])
    it.handle(Closed(9, "gone"))
    assert ended[1] == Failure("the connection was lost: gone")


def test_an_answer_that_cannot_be_understood_is_a_failure() -> None:
    caller = Caller()
    ended: list[str] = []

    def on_reply(reply: Command | Failure, now: int) -> list[Effect]:
        if isinstance(reply, Failure):
            ended.append(reply.reason)
            return []
        raise RemoteProtocolError("nonsense")

    (command,) = asked(caller.call_on(3, 1, None, b"", 0, 100, on_reply))
    assert caller.answered(3, response(command.opaque), 1) == [Close(3, "nonsense")]
    assert ended == ["nonsense"]


@pytest.mark.parametrize("more", [1, 5])
def test_waiting_calls_have_a_bound(more: int) -> None:
    it = Calls()
    for n in range(MAX_WAITING + more):
        it.call(n)
    assert len(it.ended) == more
    assert len(asked(it.handle(opened()))) == MAX_WAITING
