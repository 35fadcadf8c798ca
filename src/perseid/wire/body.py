"""What a JSON body is: a msgspec struct that is read from and written as fastjson's text.

`bodies` has the types; this is how they work.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.wire import fastjson
from perseid.wire.fastjson import JsonError
from perseid.wire.headers.base import SYSTEM_ERROR, Int

B = TypeVar("B", bound="Body")


@lru_cache(maxsize=256)
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def refused(kind: type[Any], why: str) -> RequestRefused:
    """The error for a body that can't be read as a `kind`."""
    return RequestRefused(SYSTEM_ERROR, f"the body is no {kind.__name__}: {why}")


def load(kind: type[Any], source: Buffer | str | Mapping[str, Any]) -> Any:
    """The JSON object that a body is; RequestRefused when it is none."""
    if not isinstance(source, Mapping):
        try:
            source = fastjson.loads(source)
        except JsonError as error:
            raise refused(kind, str(error)) from None
        if not isinstance(source, dict):
            raise refused(kind, "it is no JSON object")
    return source


def convert(value: Any, kind: type[Any]) -> Any:
    """A typed value out of builtins, null counting as absent; RequestRefused when that can't be."""
    try:
        return msgspec.convert(_without_nulls(value), kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise refused(kind, str(error)[:300]) from None


class Body(msgspec.Struct, rename="camel"):
    """The base of all body types."""

    @classmethod
    def from_json(cls: type[B], source: Buffer | str | Mapping[str, Any]) -> B:
        if not isinstance(source, Mapping):
            try:
                quick: B = _decoder(cls).decode(source)
                return quick
            except (ValueError, RecursionError):
                pass
        slow: B = convert(load(cls, source), cls)
        return slow

    def to_json(self) -> bytes:
        return fastjson.dumps(self)


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """Also stands as a key in maps."""

    topic: str
    broker_name: str
    queue_id: Int

    @classmethod
    def from_json(cls, source: Buffer | str | Mapping[str, Any]) -> MessageQueue:
        queue: MessageQueue = convert(load(cls, source), cls)
        return queue

    def to_json(self) -> bytes:
        return fastjson.dumps(self)


class ByQueue(Body):
    """A body whose `offsetTable` has message queues as keys. `row` is the type of its values."""

    row: ClassVar[Any]

    @classmethod
    def from_json(cls: type[B], source: Buffer | str | Mapping[str, Any]) -> B:
        members = dict(load(cls, source))
        table = by_queue(members.pop("offsetTable", None), cls.row, cls)  # type: ignore[attr-defined]
        body: B = convert(members, cls)
        body.offset_table = table  # type: ignore[attr-defined]
        return body


def by_queue(table: Any, row: Any, kind: type[Any]) -> dict[MessageQueue, Any]:
    """A map that has message queues as keys, out of one that `fastjson.loads` made."""
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise refused(kind, "the table is no JSON object")
    rows = [(key, value) for key, value in table.items() if value is not None]
    return {MessageQueue.from_json(key): convert(value, row) for key, value in rows}
