"""Reading answers: what can't be read is a `BadAnswer`, and nothing else."""

from __future__ import annotations

from typing import TypeVar

from perseid.base.errors import PerseidError
from perseid.client.errors import BadAnswer
from perseid.wire import inner, record
from perseid.wire.body import Body
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.record import Record

H = TypeVar("H", bound=Header)
B = TypeVar("B", bound=Body)


def header_of(answer: Command, kind: type[H]) -> H:
    """An answer's header."""
    try:
        return answer.header(kind)
    except PerseidError as error:
        raise unreadable(error) from error


def body_of(answer: Command, kind: type[B]) -> B:
    """An answer's JSON body."""
    try:
        return kind.from_json(bytes(answer.body))
    except PerseidError as error:
        raise unreadable(error) from error


def records_of(answer: Command) -> list[Record]:
    """The stored messages in an answer's body."""
    try:
        return record.decode_all(answer.body)
    except PerseidError as error:
        raise unreadable(error) from error


def pulled_records(answer: Command, offset: int) -> list[Record]:
    """The stored messages in an answer to a pull from `offset`, batches taken apart."""
    try:
        return inner.unwrapped(answer.body, offset)
    except PerseidError as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> BadAnswer:
    """The error for an answer that `error` came of."""
    return BadAnswer(f"an answer can't be read: {error}; is it RocketMQ's or Perseid's server, and of a known version?")
