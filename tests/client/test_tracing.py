"""Hooks around sends and handlers, and the traces that one of them writes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from perseid.base.errors import PerseidError
from perseid.client import (
    Admin,
    ConsumeMode,
    Consuming,
    Hook,
    Message,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
    SendFailed,
    Sending,
    Session,
    Tracer,
)
from perseid.client.blocking import BlockingProducer
from perseid.client.tracing import BATCH, MAX_BODY_CHARS, MAX_KEYS_CHARS, MAX_WAITING, _messages
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import trace
from perseid.wire.names import TRACE_TOPIC
from perseid.wire.trace import Trace

from .fake import run


class Diary(Hook):
    """Writes down what it is told; `bad` fails each time."""

    def __init__(self, name: str, seen: list[Any], bad: bool = False) -> None:
        self.name, self.seen, self.bad = name, seen, bad

    def _note(self, what: str, thing: Sending | Consuming) -> None:
        self.seen.append((self.name, what, thing))
        if self.bad:
            raise ValueError("a hook that fails")

    async def start(self, session: Session, group: str) -> None:
        self.seen.append((self.name, "start", group))

    async def stop(self) -> None:
        self.seen.append((self.name, "stop", None))

    def before_send(self, sending: Sending) -> None:
        assert sending.results is None and sending.error is None
        self._note("before", sending)

    def after_send(self, sending: Sending) -> None:
        self._note("after", sending)

    def before_consume(self, consuming: Consuming) -> None:
        assert consuming.outcome is None
        self._note("before", consuming)

    def after_consume(self, consuming: Consuming) -> None:
        self._note("after", consuming)


async def traces(namesrv: str, least: int) -> list[Trace]:
    """All that is in the trace topic, once there are so many."""
    found: list[Trace] = []
    async with PullConsumer(namesrv, "look", from_where="first") as consumer, asyncio.timeout(30):
        consumer.assign(await consumer.queues(TRACE_TOPIC))
        while len(found) < least:
            found += [one for message in await consumer.poll() for one in trace.decode(message.body)]
    return found


def test_hooks_are_told_of_sends_and_change_nothing(
    perseid_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    async def test() -> None:
        hooks = [Diary("a", seen, bad=True), Diary("b", seen)]
        async with Producer(perseid_broker.namesrv, "g", options=ProducerOptions(hooks=hooks)) as producer:
            await producer.send(Message("hooked", b"one", tag="x", keys="k"))
            await producer.send_oneway(Message("hooked", b"two"))
            await asyncio.to_thread(perseid_broker.stop)
            with pytest.raises(SendFailed):
                await producer.send(Message("hooked", b"three"), timeout_ms=200)

    with caplog.at_level(logging.ERROR, "perseid.client"):
        run(test())
    assert caplog.text.count("a hook that fails") >= 4
    assert seen[:2] == [("a", "start", "g"), ("b", "start", "g")]
    assert seen[-2:] == [("b", "stop", None), ("a", "stop", None)]
    told = [(name, what) for name, what, _ in seen[2:6]]
    assert told == [("a", "before"), ("b", "before"), ("b", "after"), ("a", "after")]
    first, oneway = seen[2][2], seen[6][2]
    assert (first.group, first.topic, first.body_bytes, first.properties["TAGS"]) == ("g", "hooked", 3, "x")
    assert first.results[0].msg_id == first.ids[0] and first.region and first.error is None
    assert oneway.results is None and oneway.error is None
    assert all(thing.error is not None and thing.results is None for _, _, thing in seen[10:-2])


def test_hooks_are_told_how_handlers_end(perseid_broker: EmbeddedBroker) -> None:
    seen: list[Any] = []
    done = asyncio.Event()

    class Last(Diary):
        def after_consume(self, consuming: Consuming) -> None:
            super().after_consume(consuming)
            if sum(what == "after" for _, what, _ in seen) == 5:
                done.set()

    async def handle(message: ReceivedMessage) -> object:
        if message.body == b"later":
            raise RetryLater("later", delay_level=-1)
        if message.body == b"slow":
            await asyncio.Event().wait()
        if message.body == b"bad":
            raise KeyError("no such thing")
        return message.body != b"no"

    async def test() -> None:
        namesrv = perseid_broker.namesrv
        async with Producer(namesrv) as producer:
            for body in (b"good", b"later", b"bad", b"no", b"slow"):
                await producer.send(Message("handled", body))
        options = PushOptions(max_reconsume_times=0, consume_timeout_ms=300, hooks=[Last("a", seen)])
        consumer = PushConsumer(
            namesrv, "g", {"handled": "*"}, handle, from_where="first", options=options,
        )  # fmt: skip
        async with consumer, asyncio.timeout(30):
            await done.wait()

    run(test())
    ends = {thing.message.body: thing for _, what, thing in seen if what == "after"}
    assert {body: thing.outcome for body, thing in ends.items()} == {
        b"good": "SUCCESS", b"later": "FAILED", b"bad": "EXCEPTION", b"no": "FAILED", b"slow": "TIME_OUT"
    }  # fmt: skip
    assert isinstance(ends[b"bad"].error, KeyError) and ends[b"good"].error is None
    assert isinstance(ends[b"slow"].error, TimeoutError) and isinstance(ends[b"later"].error, RetryLater)


def test_sends_and_handlers_are_traced(perseid_broker: EmbeddedBroker) -> None:
    async def test() -> list[Trace]:
        namesrv, tracer = perseid_broker.namesrv, Tracer()
        async with Producer(namesrv, "p", options=ProducerOptions(hooks=[tracer])) as producer:
            sent = await producer.send(Message("t", b"12345", tag="red", keys=["k1", "k2"]))
            delayed = await producer.send(Message("t", b"x", delay_level=1))
            await producer.send_batch([Message("t", b"b1"), Message("t", b"b2")])
        assert (tracer.sent, tracer.dropped) == (3, 0), "the last ones are sent by stop()"
        failures = [b"12345"]

        def handle(message: ReceivedMessage) -> bool:
            return message.body not in failures or failures.remove(message.body) is not None

        again = Tracer()
        options = PushOptions(hooks=[again])
        async with PushConsumer(
            namesrv, "c", {"t": "*"}, handle, from_where="first", mode=ConsumeMode.ORDERED, options=options
        ):
            found = await traces(namesrv, 3 + 2 * 5)
        async with Admin(namesrv) as admin:
            for key in ("k1", sent.msg_id):
                assert await admin.query_messages(TRACE_TOPIC, key), key
        pubs = [one for one in found if one.kind == trace.PUB]
        assert Counter(one.message_type for one in pubs) == {"NORMAL": 2, "DELAY": 1}
        (pub,) = (one for one in pubs if one.msg_id == sent.msg_id)
        assert (pub.group, pub.topic, pub.tags, pub.keys, pub.body_bytes, pub.ok) == ("p", "t", "red", "k1 k2", 5, True)
        assert (pub.offset_msg_id, pub.region) == (sent.offset_msg_id, "DefaultRegion")
        assert any(one.msg_id == delayed.msg_id and one.message_type == "DELAY" for one in pubs)
        assert any((one.msg_id or "").count(",") == 1 for one in pubs), "a batch leaves one, as in the original"
        return found

    found = run(test())
    before = {one.request_id: one for one in found if one.kind == trace.BEFORE}
    after = {one.request_id: one for one in found if one.kind == trace.AFTER}
    assert len(before) == 5 and before.keys() == after.keys()
    assert Counter((one.ok, one.code) for one in after.values()) == {(False, "FAILED"): 1, (True, "SUCCESS"): 4}
    assert Counter(one.retries for one in before.values()) == {0: 4, 1: 1}


def test_a_tracer_serves_one_client_and_blocking_ones_too(perseid_broker: EmbeddedBroker) -> None:
    tracer = Tracer("my-traces")
    with BlockingProducer(perseid_broker.namesrv, options=ProducerOptions(hooks=[tracer])) as producer:
        producer.send(Message("t", b"x"))
        with pytest.raises(PerseidError, match="make one for each"):
            BlockingProducer(perseid_broker.namesrv, options=ProducerOptions(hooks=[tracer])).start()
        producer.send(Message("t", b"y"))
    assert tracer.sent == 2


def test_traces_that_can_not_be_sent_are_dropped_and_counted(perseid_broker: EmbeddedBroker) -> None:
    tracer = Tracer("%bad topic")

    async def test() -> None:
        async with Producer(perseid_broker.namesrv, options=ProducerOptions(hooks=[tracer])) as producer:
            await producer.send(Message("t", b"x"))

    run(test())
    assert (tracer.sent, tracer.dropped) == (0, 1)
    for _ in range(MAX_WAITING + 3):
        tracer._add(Trace(trace.PUB))
    assert tracer.dropped == 4, "and three that found the buffer full"


def test_a_stop_waits_for_traces_that_are_being_sent(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were taken from the buffer, and were lost once when the stop came just then."""
    tracer_stops = asyncio.Event()

    class Told(Tracer):
        async def stop(self) -> None:
            tracer_stops.set()
            await super().stop()

    tracer = Told()

    async def test() -> None:
        under_way, go_on, send = asyncio.Event(), asyncio.Event(), Producer.send

        async def slow(producer: Producer, message: Message) -> Any:
            if message.topic == TRACE_TOPIC:
                under_way.set()
                await go_on.wait()
            return await send(producer, message)

        monkeypatch.setattr(Producer, "send", slow)
        async with Producer(perseid_broker.namesrv, options=ProducerOptions(hooks=[tracer])) as producer:
            for _ in range(BATCH):
                await producer.send(Message("t", b"x"))
            await under_way.wait()
            await producer.send(Message("t", b"x"))
            stopping = asyncio.ensure_future(producer.stop())
            await tracer_stops.wait()
            go_on.set()
            await stopping

    run(test())
    assert (tracer.sent, tracer.dropped) == (BATCH + 1, 0)


def test_messages_of_traces_keep_to_their_limits() -> None:
    long = [
        Trace(
            trace.PUB, 1, topic=f"t{n % 2}", msg_id=f"{n}", keys=f"a{n} " * 60, tags="x" * 900, body_bytes=1,
            cost_ms=1, ok=True,
        )
        for n in range(BATCH)
    ]  # fmt: skip
    made = list(_messages(long))
    assert sum(count for _, _, count in made) == BATCH and len(made) > 2
    assert all(len(body) <= MAX_BODY_CHARS and sum(map(len, keys)) <= MAX_KEYS_CHARS for body, keys, _ in made)
    topics = [{one.topic for one in trace.decode(body.encode())} for body, _, _ in made]
    assert all(len(those) == 1 for those in topics)
