"""Message traces: a hook that records sends and calls of handlers, in RocketMQ's format and topic.

`ProducerOptions(hooks=[Tracer()])`, `PushOptions(hooks=[Tracer()])`. `mqadmin queryMsgTraceById`, RocketMQ's dashboard
and `perseid spark trace` read the traces. As in RocketMQ, a send that failed writes no trace, and neither does a
message if its broker switches traces off (`traceOn=false`).

Traces are sent when there are 100, or when the first one is a second old. At most 2,048 are buffered: further ones are
dropped and counted. They are sent once, in messages of up to 128 kB whose keys are the ids and keys of the traced
messages. Traces that can't be sent are logged and counted as dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from perseid.base.errors import PerseidError
from perseid.client.errors import UsageError
from perseid.client.hooks import EXCEPTION, SUCCESS, Consuming, Hook, Sending
from perseid.client.model import Message, SendStatus
from perseid.client.options import ProducerOptions
from perseid.client.producer import Producer
from perseid.client.session import Session
from perseid.client.surroundings import now_ms
from perseid.wire import properties as props
from perseid.wire import trace
from perseid.wire.names import TRACE_TOPIC
from perseid.wire.trace import Trace

log = logging.getLogger("perseid.client")

GROUP = "_INNER_TRACE_PRODUCER"
MAX_WAITING = 2048
BATCH = 100
FLUSH_MS = 1000
STOP_TIMEOUT_MS = 5000
"""How long the last traces may take when the client stops."""
SEND_TIMEOUT_MS = 5000
MAX_BODY_CHARS = 32_000
"""Of one message: even at four bytes a character no more than the original's 128,000."""
MAX_KEYS_CHARS = 16_000
_TRANSACTIONAL = "TRAN_MSG"
_DELAYED = frozenset({"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})


class Tracer(Hook):
    """Traces one client: make one for each client. `topic` is the topic of the traces."""

    def __init__(self, topic: str = TRACE_TOPIC) -> None:
        self.topic = topic
        self.sent = 0
        """Traces that a broker has."""
        self.dropped = 0
        """Traces that found the buffer full, or could not be sent."""
        self._waiting: list[Trace] = []
        self._ready = asyncio.Event()
        self._producer: Producer | None = None
        self._loop: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, session: Session, group: str) -> None:
        """Begin to send what is traced, over the client's own connections."""
        if self._producer is not None:
            raise UsageError("this Tracer is in use by another client: make one for each")
        self._stopping = False
        self._producer = Producer(
            session=session, group=f"{GROUP}-{group}", options=ProducerOptions(timeout_ms=SEND_TIMEOUT_MS)
        )
        await self._producer.start()
        self._loop = session.spawn(self._run(self._producer), f"traces of {group}")

    async def stop(self) -> None:
        """Send what waits, within 5 s."""
        producer, loop = self._producer, self._loop
        if producer is None or loop is None:
            return
        self._stopping = True
        self._ready.set()
        _, late = await asyncio.wait({loop}, timeout=STOP_TIMEOUT_MS / 1000)
        if late:
            loop.cancel()
            log.warning("the last traces were not sent within %d ms, and are dropped", STOP_TIMEOUT_MS)
        self._producer = self._loop = None
        await producer.stop()

    # ---- what is traced ----

    def before_send(self, sending: Sending) -> None:
        """Nothing yet: the original writes one trace, after the send."""

    def after_send(self, sending: Sending) -> None:
        """A Pub, when the send was stored."""
        results = sending.results
        if results is None or sending.region is None or not sending.trace_on or sending.topic == self.topic:
            return
        its = sending.properties
        kind = "HALF" if _TRANSACTIONAL in its else "DELAY" if _DELAYED & its.keys() else "NORMAL"
        self._add(
            Trace(
                trace.PUB, sending.started_ms, group=sending.group, topic=sending.topic, msg_id=",".join(sending.ids),
                tags=its.get("TAGS"), keys=its.get("KEYS"), store_host=sending.address, body_bytes=sending.body_bytes,
                cost_ms=max(0, now_ms() - sending.started_ms), message_type=kind, region=sending.region,
                ok=results[0].status == SendStatus.SEND_OK,
                offset_msg_id=",".join(result.offset_msg_id for result in results),
            )
        )  # fmt: skip

    def before_consume(self, consuming: Consuming) -> None:
        """A SubBefore; also for a message out of a batch, which has no region and which the original leaves out."""
        message = consuming.message
        its = message.properties
        if its.get(props.TRACE_ON) == "false":
            return
        assert self._producer is not None, "a tracer is started before its client"
        request_id = self._producer.session.unique_ids.next(consuming.started_ms)
        begun = consuming.notes[self._note] = Trace(
            trace.BEFORE, consuming.started_ms, group=consuming.group, topic=message.topic, msg_id=message.msg_id,
            keys=its.get("KEYS"), request_id=request_id, retries=message.reconsume_times,
            region=its.get(props.MSG_REGION),
        )  # fmt: skip
        self._add(begun)

    def after_consume(self, consuming: Consuming) -> None:
        """A SubAfter, if there was a SubBefore."""
        begun: Trace | None = consuming.notes.get(self._note)
        if begun is None:
            return
        now = now_ms()
        self._add(
            Trace(
                trace.AFTER, now, group=begun.group, topic=begun.topic, msg_id=begun.msg_id, keys=begun.keys,
                request_id=begun.request_id, cost_ms=max(0, now - consuming.started_ms), region=begun.region,
                ok=consuming.outcome == SUCCESS, code=consuming.outcome or EXCEPTION,
            )
        )  # fmt: skip

    # ---- inside ----

    @property
    def _note(self) -> str:
        return f"trace {id(self)}"

    def _add(self, one: Trace) -> None:
        if len(self._waiting) >= MAX_WAITING:
            if self.dropped == 0:
                log.warning("%d traces wait to be sent to %s: more are dropped", MAX_WAITING, self.topic)
            self.dropped += 1
            return
        self._waiting.append(one)
        if len(self._waiting) == 1 or len(self._waiting) >= BATCH:
            self._ready.set()

    async def _run(self, producer: Producer) -> None:
        """Flush when the first trace is a second old, a batch is there, or the client stops; then end."""
        while not self._stopping:
            await self._ready.wait()
            self._ready.clear()
            if len(self._waiting) < BATCH and not self._stopping:
                try:
                    async with asyncio.timeout(FLUSH_MS / 1000):
                        await self._ready.wait()
                except TimeoutError:
                    pass
                self._ready.clear()
            await self._flush(producer)

    async def _flush(self, producer: Producer) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            for body, keys, count in _messages(batch):
                try:
                    await producer.send(Message(self.topic, body.encode(), keys=keys))
                    self.sent += count
                except PerseidError as error:
                    self.dropped += count
                    log.warning("%d traces were not sent to %s: %s", count, self.topic, error)


def _messages(traces: Sequence[Trace]) -> Iterator[tuple[str, list[str], int]]:
    """Body, keys and number of traces of each message: one topic's traces, not more than one message can have."""
    topics: dict[str | None, list[Trace]] = {}
    for one in traces:
        topics.setdefault(one.topic, []).append(one)
    for those in topics.values():
        body, keys, count = "", dict[str, None](), 0
        for one in those:
            text = trace.encode(one)
            own = dict.fromkeys([*(one.msg_id or "").split(","), *(one.keys or "").split()])
            if count and (len(body) + len(text) > MAX_BODY_CHARS or _chars(keys | own) > MAX_KEYS_CHARS):
                yield body, list(keys), count
                body, keys, count = "", {}, 0
            body, keys, count = body + text, keys | own, count + 1
        yield body, list(keys), count


def _chars(keys: dict[str, None]) -> int:
    return sum(map(len, keys)) + len(keys)
