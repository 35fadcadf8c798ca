"""Request and reply between our clients, on our broker and on one that does what the test says."""

import asyncio

import pytest

from perseid.client import (
    Admin,
    InvalidMessage,
    Message,
    NoReply,
    Producer,
    PushConsumer,
    ReceivedMessage,
    ServerRefused,
    request_reply,
)
from perseid.client.blocking import BlockingProducer
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode
from perseid.wire.headers.send import PushReplyMessageRequest

from .fake import FakeServer, run

PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


def pushed(correlation_id: str, **fields: object) -> PushReplyMessageRequest:
    usual: dict[str, object] = {
        "producer_group": "p", "topic": "C_REPLY_TOPIC", "default_topic": "", "default_topic_queue_nums": 4,
        "queue_id": 0, "sys_flag": 0, "born_timestamp": 7, "flag": 0, "born_host": "10.0.0.1:5",
        "store_host": "10.0.0.2:10911", "store_timestamp": 8, "properties": f"CORRELATION_ID\x01{correlation_id}\x02",
    }  # fmt: skip
    return PushReplyMessageRequest(**{**usual, **fields})  # type: ignore[arg-type]


def test_a_request_is_replied_to(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as asker, Producer(namesrv) as replier:
            await admin.create_topic("t", 2)

            async def handle(message: ReceivedMessage) -> None:
                sent = await replier.reply(message, b"re: " + message.body, keys="k")
                assert sent.offset_msg_id and sent.queue.topic.endswith("_REPLY_TOPIC")

            async with PushConsumer(namesrv, "g", {"t": "*"}, handle, from_where="first"):
                asked = [asker.request(Message("t", b"%d" % n), timeout_ms=30_000) for n in range(50)]
                replies = await asyncio.gather(*asked)
            assert [reply.body for reply in replies] == [b"re: %d" % n for n in range(50)]
            first = replies[0]
            assert first.keys == ["k"] and first.properties["MSG_TYPE"] == "reply" and first.store_timestamp > 0
            assert not request_reply.replies_of(asker.session)._waiting

    run(test())


def test_no_reply_in_time_and_one_that_comes_late(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        asked: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        async with Admin(namesrv) as admin, Producer(namesrv) as asker, Producer(namesrv) as replier:
            await admin.create_topic("t", 1)
            async with PushConsumer(namesrv, "g", {"t": "*"}, asked.put, from_where="first"):
                waiting = asyncio.ensure_future(asker.request(Message("t", b"?"), timeout_ms=3000))
                message = await asked.get()
                with pytest.raises(NoReply, match="no reply to the request in t within 3000 ms"):
                    await waiting
            assert (await replier.reply(message, b"late")).queue_offset == 0, "taken, and dropped by who asked"
            await asker.stop()
            with pytest.raises(ServerRefused, match="not found"):
                await replier.reply(message, b"too late")

    run(test())


def test_a_message_that_asks_for_no_reply(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic("t", 1)
            sent = await producer.send(Message("t", b"plain"))
            message = await admin.view_message(sent.offset_msg_id)
            with pytest.raises(InvalidMessage, match="wants no reply"):
                await producer.reply(message, b"x")

    run(test())


def test_a_broker_that_was_restarted_is_told_again_who_asks(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Admin(namesrv) as admin, Producer(namesrv) as asker, Producer(namesrv) as replier:
            await admin.create_topic("t", 1)

            async def handle(message: ReceivedMessage) -> None:
                await replier.reply(message, b"re: " + message.body)

            async with PushConsumer(namesrv, "g", {"t": "*"}, handle, from_where="first"):
                assert (await asker.request(Message("t", b"1"), timeout_ms=30_000)).body == b"re: 1"
                await asyncio.to_thread(perseid_broker.stop)
                await asyncio.to_thread(perseid_broker.start)
                assert (await asker.request(Message("t", b"2"), timeout_ms=60_000)).body == b"re: 2"

    run(test())


def test_blocking_clients(perseid_broker: EmbeddedBroker) -> None:
    with BlockingProducer(perseid_broker.namesrv) as asker, pytest.raises(NoReply):
        asker.request(Message("t", b"?"), timeout_ms=200)


def test_pushes_are_answered_whatever_they_say() -> None:
    async def test() -> None:
        server = FakeServer({"t": 1})
        await server.start()
        async with Producer(server.address) as producer:
            await producer.send(Message("t", b"x"))
            request_reply.replies_of(producer.session)
            server.ask_clients(PUSH, pushed("nobody"), b"reply", oneway=False)
            server.ask_clients(PUSH, pushed("x", born_host="nowhere"), b"reply", oneway=False)
            server.ask_clients(PUSH, None, b"reply", oneway=False)
            await server.until(lambda: len(server.answers) == 3)
            assert [answer.code for answer in server.answers] == [0, 1, 1]
        await server.stop()

    run(test())


def test_so_many_requests_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_reply, "MAX_WAITING", 1)

    async def test() -> None:
        server = FakeServer({"t": 1})
        await server.start()
        async with Producer(server.address) as producer:
            first = asyncio.ensure_future(producer.request(Message("t", b"1"), timeout_ms=5000))
            await server.until(lambda: server.count(RequestCode.SEND_MESSAGE_V2))
            with pytest.raises(request_reply.ClientError, match="wait for replies already"):
                await producer.request(Message("t", b"2"))
            properties = server.headers[0].properties
            correlation_id = properties.split("CORRELATION_ID\x01")[1].partition("\x02")[0]
            assert f"REPLY_TO_CLIENT\x01{producer.session.client_id}\x02" in properties and "TTL\x015000" in properties
            server.ask_clients(PUSH, pushed(correlation_id), b"reply", oneway=False)
            assert (await first).body == b"reply"
        await server.stop()

    run(test())
