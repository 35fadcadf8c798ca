"""Hooks that set properties before a message is packed, and hear how the call ended."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perseid.client import (
    ClientError,
    Consuming,
    Hook,
    InvalidMessage,
    Message,
    OrderedProducer,
    OrderedProducerOptions,
    Outgoing,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendCall,
    SendFailed,
    Sending,
    TransactionProducer,
    TransactionState,
)
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode

from .fake import FakeServer, refuse, run, silence


class Tenant(Hook):
    """Sets one property, and keeps what it was told of."""

    def __init__(self, **own: Any) -> None:
        self.own: dict[str, Any] = own or {"tenant": "a"}
        self.outgoing: list[Outgoing] = []
        self.calls: list[SendCall] = []
        self.attempts: list[Sending] = []

    def on_send(self, outgoing: Outgoing) -> None:
        self.outgoing.append(outgoing)
        outgoing.notes["number"] = len(self.outgoing)
        outgoing.properties.update(self.own)

    def on_sent(self, call: SendCall) -> None:
        self.calls.append(call)

    def before_send(self, sending: Sending) -> None:
        self.attempts.append(sending)


async def stored(namesrv: str, topic: str, count: int) -> list[ReceivedMessage]:
    """The messages of a topic, once there are so many."""
    found: list[ReceivedMessage] = []
    async with PullConsumer(namesrv, "look", from_where="first") as consumer, asyncio.timeout(20):
        consumer.assign(await consumer.queues(topic))
        while len(found) < count:
            found += await consumer.poll()
    return found


def test_a_hook_sets_properties_of_every_kind_of_send(perseid_broker: EmbeddedBroker) -> None:
    namesrv, hook = perseid_broker.namesrv, Tenant()
    mine = {"own": "1"}

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def commit(half: Any) -> TransactionState:
        return TransactionState.COMMIT

    async def test() -> list[ReceivedMessage]:
        options = ProducerOptions(hooks=[hook])
        async with Producer(namesrv, options=options) as producer:
            await producer.send(Message("t", b"single", properties=mine))
            await producer.send(Message("t", b"keyed"), key="k")
            await producer.send_oneway(Message("t", b"one-way"))
            await producer.send_batch([Message("t", b"batched"), Message("t", b"too", properties=mine)])
        async with TransactionProducer(namesrv, "tx", check, options=options) as producer:
            await producer.send_in_transaction(Message("t", b"in a transaction"), commit)
        async with OrderedProducer(namesrv, options=OrderedProducerOptions(hooks=[hook])) as ordered:
            first = ordered.send(Message("t", b"in order"), "k")
            for n in range(3):
                await ordered.put(Message("t", b"put %d" % n), "k")
            await first
        return await stored(namesrv, "t", 10)

    found = run(test())
    assert len(found) == 10 and all(message.properties["tenant"] == "a" for message in found)
    assert mine == {"own": "1"}, "the caller's dictionary is not touched"
    assert {m.body: m.properties.get("own") for m in found}[b"single"] == "1"
    assert len(hook.outgoing) == 10, "once for each message"
    assert [len(call.messages) for call in hook.calls] == [1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert [call.batch for call in hook.calls] == [False] * 3 + [True] + [False] * 5
    for call in hook.calls:
        assert call.error is None and len(call.ids) == len(call.messages)
        if call is not hook.calls[2]:
            assert call.results is not None and [result.msg_id for result in call.results] == list(call.ids)
    assert hook.calls[2].results is None, "a one-way send has none"
    assert {id(call) for sending in hook.attempts for call in sending.calls} == {id(call) for call in hook.calls}


def test_a_hook_sets_properties_of_requests_and_replies(perseid_broker: EmbeddedBroker) -> None:
    namesrv, hook, answering = perseid_broker.namesrv, Tenant(), Tenant(by="the replier")

    async def test() -> ReceivedMessage:
        async with (
            Producer(namesrv, "ask", options=ProducerOptions(hooks=[hook])) as asking,
            Producer(namesrv, "answer", options=ProducerOptions(hooks=[answering])) as producer,
        ):
            await producer.send(Message("questions", b"made"))

            async def handle(message: ReceivedMessage) -> None:
                if message.body == b"?":
                    assert message.properties["tenant"] == "a"
                    await producer.reply(message, b"!")

            async with PushConsumer(namesrv, "g", {"questions": "*"}, handle, from_where="first"):
                return await asking.request(Message("questions", b"?"), timeout_ms=15_000)

    reply = run(test())
    assert reply.body == b"!" and reply.properties["by"] == "the replier"
    assert [call.error for call in (*hook.calls, *answering.calls)] == [None] * 3


def test_a_message_is_prepared_once_however_often_it_is_tried() -> None:
    hook = Tenant()

    async def test() -> None:
        async with FakeServer({"t": 4}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2] += [refuse(ResponseCode.SYSTEM_BUSY)] * 2
            async with Producer(server.address, options=ProducerOptions(hooks=[hook])) as producer:
                await producer.send(Message("t", b"x"))
                with pytest.raises(InvalidMessage):
                    await producer.send(Message("t", b""))
                server.script[RequestCode.SEND_MESSAGE_V2] += [silence]
                with pytest.raises(SendFailed):
                    await producer.send(Message("t", b"y"), timeout_ms=100)
            async with OrderedProducer(server.address, options=OrderedProducerOptions(hooks=[hook])) as ordered:
                server.script[RequestCode.SEND_MESSAGE_V2] += [refuse(ResponseCode.SYSTEM_BUSY)]
                await ordered.send(Message("t", b"z"), "k")
                server.script[RequestCode.SEND_MESSAGE_V2] += [refuse(ResponseCode.MESSAGE_ILLEGAL)]
                with pytest.raises(SendFailed):
                    await ordered.send(Message("t", b"z"), "k")

    run(test())
    ends = [type(call.error) for call in hook.calls]
    assert ends == [type(None), InvalidMessage, SendFailed, type(None), SendFailed]
    assert len(hook.outgoing) == 5 and len(hook.attempts) == 3 + 1 + 2 + 1
    assert all(sending.properties["tenant"] == "a" for sending in hook.attempts)
    assert [sending.results is not None for sending in hook.attempts] == [False, False, True, False, False, True, False]
    assert all(sending.results is not None or sending.error is not None for sending in hook.attempts)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"TAGS": "x"}, "property TAGS is for clients and brokers, a hook can't set it: take another name"),
        ({"UNIQ_KEY": "x"}, "property UNIQ_KEY is for clients and brokers"),
        ({"name": ""}, "names and values are texts that are not empty"),
        ({"name": 7}, "names and values are texts that are not empty"),
        ({"name": "\x02"}, "separate properties on the wire"),
    ],
)
def test_a_hook_that_sets_what_it_must_not_is_logged_and_changes_nothing(
    own: dict[str, Any], why: str, perseid_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(Hook):
        def on_send(self, outgoing: Outgoing) -> None:
            outgoing.properties.clear()
            raise ValueError("a hook that fails")

        def on_sent(self, call: SendCall) -> None:
            raise ValueError("at the end, too")

    async def test() -> list[ReceivedMessage]:
        hooks = [Tenant(), Raises(), Tenant(other="b", **own), Tenant(third="c")]
        async with Producer(perseid_broker.namesrv, options=ProducerOptions(hooks=hooks)) as producer:
            await producer.send(Message("t", b"x", tag="red", properties={"own": "1"}))
        return await stored(perseid_broker.namesrv, "t", 1)

    with caplog.at_level(logging.ERROR, "perseid.client"):
        (message,) = run(test())
    set_by_hooks = {name: message.properties.get(name) for name in ("own", "tenant", "other", "third", "TAGS")}
    assert set_by_hooks == {"own": "1", "tenant": "a", "other": None, "third": "c", "TAGS": "red"}
    assert why in caplog.text and "a hook that fails" in caplog.text and "at the end, too" in caplog.text


def test_a_hook_may_change_and_delete_properties_and_keep_those_of_the_system() -> None:
    class Renames(Hook):
        def on_send(self, outgoing: Outgoing) -> None:
            outgoing.properties["new"] = outgoing.properties.pop("old")

    async def test() -> None:
        options = ProducerOptions(hooks=[Renames()])
        async with FakeServer({"t": 1}) as server, Producer(server.address, options=options) as producer:
            packed = producer.pack(Message("t", b"x", properties={"old": "1", "UNIQ_KEY": "mine"}))
            assert packed.ids == ["mine"] and "new\x011" in packed.properties and "old" not in packed.properties

    run(test())


def test_a_stopped_client_tells_hooks_of_what_was_not_acknowledged() -> None:
    hook = Tenant()

    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2] += [silence]
            ordered = OrderedProducer(server.address, options=OrderedProducerOptions(hooks=[hook]))
            await ordered.start()
            future = ordered.send(Message("t", b"x"), "k")
            await server.until(lambda: hook.attempts)
            await ordered.stop(flush=False)
            with pytest.raises(ClientError):
                await future

    run(test())
    assert [type(call.error) for call in hook.calls] == [SendFailed]


def test_before_consume_may_set_what_the_handler_reads(perseid_broker: EmbeddedBroker) -> None:
    class Adds(Hook):
        def before_consume(self, consuming: Consuming) -> None:
            consuming.message.properties["seen by"] = consuming.group

    async def test() -> str:
        got: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def handle(message: ReceivedMessage) -> None:
            got.set_result(message.properties["seen by"])

        async with Producer(perseid_broker.namesrv) as producer:
            await producer.send(Message("t", b"x"))
        options = PushOptions(hooks=[Adds()])
        async with PushConsumer(
            perseid_broker.namesrv, "g", {"t": "*"}, handle, from_where="first", options=options
        ):
            return await got

    assert run(test()) == "g"
