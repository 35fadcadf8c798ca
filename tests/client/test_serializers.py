"""Bodies out of objects and back, and what becomes of those that are neither."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import msgspec
import pytest
from google.protobuf.struct_pb2 import Struct

from perseid.client import (
    Consumer,
    Functions,
    InvalidBody,
    InvalidMessage,
    Json,
    Message,
    Msgpack,
    Producer,
    Protobuf,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
    Serializer,
)
from perseid.client.serializers import MessageFields
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import properties, record

from .fake import FakeServer, run


@dataclass
class Order:
    number: int
    item: str = "tea"


class Line(msgspec.Struct):
    count: int


def received(message: Message) -> ReceivedMessage:
    """The message as a consumer has it."""
    stored = record.Message(
        topic=message.topic, body=message.body, properties=properties.encode(message.properties)
    )
    return ReceivedMessage(record.decode(bytes(record.encode(stored))), "b")


def struct(**values: Any) -> Struct:
    made = Struct()
    made.update(values)
    return made


def as_text(value: object) -> str:
    return f"<{value}>"


@pytest.mark.parametrize(
    ("serializer", "value", "content_type", "body"),
    [
        (Json(), {"a": [1, None, "é"]}, "application/json", '{"a":[1,null,"é"]}'.encode()),
        (Json(Order), Order(7), "application/json", b'{"number":7,"item":"tea"}'),
        (Json(Line), Line(3), "application/json", b'{"count":3}'),
        (Msgpack(Order), Order(7), "application/vnd.msgpack", None),
        (Msgpack(), [1, b"raw"], "application/vnd.msgpack", None),
        (Protobuf(Struct), struct(a=1.0), "application/x-protobuf", None),
        (Functions(pickle.dumps, pickle.loads), Order(7), "application/octet-stream", None),
        (Functions(as_text, lambda body: body.decode()[1:-1], "text/x-mine"), "é", "text/x-mine", "<é>".encode()),
    ],
)
def test_a_value_is_written_and_read_back(
    serializer: Serializer[Any], value: object, content_type: str, body: bytes | None
) -> None:
    message = serializer.message("orders", value, tag="new", keys="7", properties={"mine": "1"})
    assert (message.topic, message.tag, message.keys) == ("orders", "new", "7")
    assert message.properties == {"contentType": content_type, "mine": "1"}
    assert body is None or message.body == body
    assert received(message).decode(serializer) == value


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (Json(), object()),
        (Protobuf(Struct), "no message"),
        (Functions(lambda value: 7, pickle.loads), "x"),  # type: ignore[arg-type, return-value]
    ],
)
def test_a_value_that_cannot_be_written_is_an_invalid_message(serializer: Serializer[Any], value: object) -> None:
    with pytest.raises(InvalidMessage, match=f"a value of type {type(value).__name__} can't be written as "):
        serializer.message("orders", value)


@pytest.mark.parametrize("serializer", [Json(Order), Msgpack(Order), Protobuf(Struct)])
def test_a_body_that_cannot_be_read_says_so_and_what_its_sender_says(serializer: Serializer[Any]) -> None:
    with pytest.raises(InvalidBody, match=r"its sender gave it no contentType\)"):
        received(Message("orders", b"\xff\xff")).decode(serializer)
    with pytest.raises(InvalidBody, match=r"\(its sender says contentType=text/plain\)"):
        received(Message("orders", b"\xff\xff", properties={"contentType": "text/plain"})).decode(serializer)


def test_any_object_with_loads_decodes() -> None:
    assert received(Message("orders", b"[1]")).decode(json) == [1]


def test_the_fields_of_a_message_are_those_of_its_class() -> None:
    theirs = get_type_hints(Message)
    ours = get_type_hints(MessageFields)
    assert ours == {field.name: theirs[field.name] for field in fields(Message) if field.name not in ("topic", "body")}


def test_a_broken_body_goes_the_way_of_a_failed_handler() -> None:
    async def test() -> None:
        orders, read = Json(Order), []

        async def handle(message: ReceivedMessage) -> None:
            read.append(message.decode(orders))

        async def skip(message: ReceivedMessage) -> None:
            try:
                message.decode(orders)
            except InvalidBody as error:
                raise RetryLater(str(error), delay_level=-1) from error

        for handler, level in ((handle, 0), (skip, -1)):
            async with FakeServer({"t": 1}) as server:
                server.store("t", 0, b"broken")
                async with PushConsumer(server.address, "g", {"t": "*"}, handler, from_where="first"):
                    await server.until(lambda: server.sent_back)
                assert server.sent_back[0].delay_level == level and read == []

    run(test())


def test_values_travel_through_a_real_broker(perseid_broker: EmbeddedBroker) -> None:
    orders = Json(Order)

    async def test() -> list[Order]:
        found = []
        async with (
            Producer(perseid_broker.namesrv) as producer,
            Consumer(
                perseid_broker.namesrv, "g", {"orders": "*"}, from_where="first", options=PushOptions(concurrency=1)
            ) as consumer,
            asyncio.timeout(20),
        ):
            for number in range(3):
                await producer.send(orders.message("orders", Order(number)), key="one queue")
            async for message in consumer:
                assert message.properties["contentType"] == "application/json"
                found.append(message.decode(orders))
                if len(found) == 3:
                    break
        return found

    assert run(test()) == [Order(0), Order(1), Order(2)]


def test_protobuf_is_not_imported_with_the_client() -> None:
    code = "import sys, perseid.client; print(sorted(m for m in sys.modules if m.startswith('google')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
