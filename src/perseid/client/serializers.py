"""Serializers turn objects into bodies, and bodies into objects.

    ORDERS = Json(Order)                                       # a dataclass, a msgspec.Struct, a TypedDict, …

    await producer.send(ORDERS.message("orders", Order(7, "tea"), tag="new"))

    async for message in consumer:
        order = message.decode(ORDERS)                         # mypy knows: an Order

`message()` writes the format into the property `contentType`, the name that Spring uses, so that clients in other
languages can read it. A value that can't be written raises `InvalidMessage`, before anything is sent.

A body that can't be read raises `InvalidBody`. If this leaves the handler or loop, the message is retried like any
other that failed, and ends in the dead letters. Since a retry does not help, you can send it there at once:

    try:
        order = message.decode(ORDERS)
    except InvalidBody as error:
        raise RetryLater(str(error), delay_level=-1) from error
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from perseid.client.errors import InvalidMessage
from perseid.client.model import CONTENT_TYPE, Message

T = TypeVar("T")


class MessageFields(TypedDict, total=False):
    """The fields of a `Message` beside its topic and body."""

    tag: str | None
    keys: str | Sequence[str]
    properties: Mapping[str, str]
    delay_level: int
    flag: int
    wait_stored: bool
    delay_ms: int
    deliver_at_ms: int
    priority: int | None
    lite_topic: str


class Serializer(ABC, Generic[T]):
    """A format of bodies. For your own format, override `dumps` and `loads`, or use `Functions`."""

    content_type = "application/octet-stream"
    """What the property `contentType` of its messages says."""

    @abstractmethod
    def dumps(self, value: T) -> bytes:
        """The body for a value."""

    @abstractmethod
    def loads(self, data: bytes) -> T:
        """The value in a body; raises if the body can't be read."""

    def message(self, topic: str, value: T, **fields: Unpack[MessageFields]) -> Message:
        """A message with this value as its body; `fields` are those of `Message`."""
        try:
            body = self.dumps(value)
        except Exception as error:  # each format has its own
            kind = type(value).__name__
            raise InvalidMessage(
                f"message for {topic}: a value of type {kind} can't be written as {self.content_type}: {error}"
            ) from error
        fields["properties"] = {CONTENT_TYPE: self.content_type, **fields.get("properties", {})}
        return Message(topic, body, **fields)


class Json(Serializer[T]):
    """JSON. `Json(Order)` reads only what fits the type: a dataclass, a `msgspec.Struct`, a `TypedDict`, …
    `Json()` reads dictionaries, lists, strings, numbers, true, false and null."""

    content_type = "application/json"

    @overload
    def __init__(self: Json[Any]) -> None: ...
    @overload
    def __init__(self, of: type[T]) -> None: ...

    def __init__(self, of: Any = Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(of)

    def dumps(self, value: T) -> bytes:
        """The value as JSON."""
        return self._encoder.encode(value)

    def loads(self, data: bytes) -> T:
        """The value, of the type that was given."""
        return self._decoder.decode(data)


class Msgpack(Serializer[T]):
    """MessagePack: smaller and faster than JSON, but not readable. Takes a type as `Json` does."""

    content_type = "application/vnd.msgpack"

    @overload
    def __init__(self: Msgpack[Any]) -> None: ...
    @overload
    def __init__(self, of: type[T]) -> None: ...

    def __init__(self, of: Any = Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(of)

    def dumps(self, value: T) -> bytes:
        """The value as MessagePack."""
        return self._encoder.encode(value)

    def loads(self, data: bytes) -> T:
        """The value, of the type that was given."""
        return self._decoder.decode(data)


class GeneratedMessage(Protocol):
    """What a class that protoc has generated has."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


G = TypeVar("G", bound=GeneratedMessage)


class Protobuf(Serializer[G]):
    """Protocol Buffers: `Protobuf(orders_pb2.Order)`, a class that protoc has generated.

    A message whose fields all have their defaults would have an empty body, which brokers do not accept.
    """

    content_type = "application/x-protobuf"

    def __init__(self, of: type[G]) -> None:
        self._of = of

    def dumps(self, value: G) -> bytes:
        """The message in the format of Protocol Buffers."""
        return value.SerializeToString()

    def loads(self, data: bytes) -> G:
        """A message of the class that was given."""
        return self._of.FromString(data)


class Functions(Serializer[T]):
    """A format of your own, as two functions, such as Pydantic's:
    `Functions(Order.model_dump_json, Order.model_validate_json, "application/json")`.

    `dumps` may give a `str`, which is sent as UTF-8.
    """

    def __init__(
        self,
        dumps: Callable[[T], bytes | str],
        loads: Callable[[bytes], T],
        content_type: str = Serializer.content_type,
    ) -> None:
        self._dumps = dumps
        self._loads = loads
        self.content_type = content_type

    def dumps(self, value: T) -> bytes:
        """What the first function gives."""
        body = self._dumps(value)
        if isinstance(body, str):
            return body.encode()
        if not isinstance(body, bytes):
            raise TypeError(f"{self._dumps!r} gave {type(body).__name__}, and a body is bytes or str")
        return body

    def loads(self, data: bytes) -> T:
        """What the second function gives."""
        return self._loads(data)
