"""Reading answers: what can't be read is a `BadAnswer`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from perseid.base.errors import PerseidError
from perseid.client.errors import BadAnswer
from perseid.client.model import ReceivedMessage
from perseid.client.pulled import AnswerReader
from perseid.wire import record
from perseid.wire.body import Body
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.record import Record

H = TypeVar("H", bound=Header)
B = TypeVar("B", bound=Body)
T = TypeVar("T")
P = ParamSpec("P")


def header_of(answer: Command, kind: type[H]) -> H:
    """An answer's header."""
    return _read(answer.header, kind)


def body_of(answer: Command, kind: type[B]) -> B:
    """An answer's JSON body."""
    return _read(kind.from_json, bytes(answer.body))


def records_of(answer: Command) -> list[Record]:
    """The stored messages in an answer's body."""
    return _read(record.decode_all, answer.body)


def pulled(reader: AnswerReader, answer: Command, offset: int) -> list[ReceivedMessage]:
    """The messages in an answer to a pull from `offset`, batches taken apart."""
    return _read(reader.messages, answer.body, offset)


def _read(read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    try:
        return read(*given, **named)
    except PerseidError as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> BadAnswer:
    """The error for an answer that `error` came of."""
    return BadAnswer(f"an answer can't be read: {error}; is it RocketMQ's or Perseid's server, and of a known version?")
