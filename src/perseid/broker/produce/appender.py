"""Putting a message into the store: the checks and changes that every way in shares (broker.md §4.1, §7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer, ConnId
from perseid.broker.kernel import messages
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.turn import Turn
from perseid.store import lmq
from perseid.store.results import Appended, AppendRefused, PutStatus
from perseid.store.store import MessageStore
from perseid.wire import properties as props
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.record import MAX_TOPIC_BYTES, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, Message

T = TypeVar("T")

UNUSUAL = re.compile(rb"(?:^|\x02)(%s)\x01" % "|".join(props.CHANGING_NAMES).encode())
"""Properties that change what is stored."""

TIMER_REQUESTS = frozenset((props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS))
REDIRECTING = frozenset(name.encode() for name in (*TIMER_REQUESTS, props.TRAN_MSG))
"""Of those that `UNUSUAL` finds: a message with no other ones keeps its properties as they came."""

ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {body}B, msg properties length limit 32KB."
)
LMQ_ROOM_BYTES = 1_024
"""Of the properties of a message for light queues, for what delays and transactions add until it stands there."""
UNAVAILABLE = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full [{why}], "
    "messages are put to the slave, message store has been shut down, etc."
)


class Appender:
    """Puts messages into the store of one broker, and says when they may be acknowledged."""

    def __init__(self, turn: Turn, store: MessageStore, durability: Durability, stats: Counts) -> None:
        self._turn = turn
        self._store = store
        self._durability = durability
        self._stats = stats

    # ---- may it be stored? ----

    def check_load(self) -> None:
        """Refuse a send: 2 while more answers than can be held wait for the disk; 1 while too few replicas are in
        sync."""
        refused = self.overload()
        if refused is not None:
            raise refused

    def overload(self) -> RequestRefused | None:
        """Why no send is taken; None when sends are taken."""
        too_few, acks = self._durability.too_few, self._durability.acks
        if too_few:
            return RequestRefused(ResponseCode.SYSTEM_ERROR, too_few)
        if acks.full:
            why = f"[OVERLOAD]system busy, start flow control for a while: {len(acks)} sends wait for the disk"
            return RequestRefused(ResponseCode.SYSTEM_BUSY, why)
        return None

    def refusal(self, refused: AppendRefused) -> RequestRefused:
        """The code and remark for a status of the store (broker.md §4.2)."""
        status = refused.status
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            text = ILLEGAL.format(body=self._store.config.max_message_size)
            return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"{text} {refused}")
        if status == PutStatus.SERVICE_NOT_AVAILABLE:
            return RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE.format(why=self._store.appends.why_not_writable)
            )
        if status == PutStatus.CREATE_MAPPED_FILE_FAILED:
            return RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"create mapped file failed, server is busy or broken. {refused}"
            )
        return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{status.name} {refused}")

    def check_light(self, topic: str, properties: bytes) -> None:
        """RequestRefused when a message can't stand in the light queues that it names: 13, and 2017 for one too
        many."""
        fault = lmq.names_fault(topic, properties, LMQ_ROOM_BYTES)
        if fault:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, fault)
        config, store = self._store.config, self._store
        if config.enable_lmq_quota:
            new = [name for name in lmq.names(topic, properties) if store.queues.get(name, lmq.LMQ_QUEUE_ID) is None]
            count = sum(lmq.is_lmq(name) for name, _ in store.queues.table) if new else 0
            if new and count + len(new) > config.max_lmq_consume_queue_num:
                raise RequestRefused(
                    ResponseCode.LMQ_QUOTA_EXCEEDED,
                    "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded. "
                    f"{new[0]} would be one more than maxLmqConsumeQueueNum, {config.max_lmq_consume_queue_num}",
                )

    def check_batch(self, header: SendMessageRequest, size: int, own: bytes) -> None:
        """RequestRefused (13) when no batch of this size, and with these properties of its own, can be taken."""
        if len(header.topic) > MAX_TOPIC_BYTES:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
        if header.topic.startswith(RETRY_PREFIX):
            why = f"batch request does not support retry group {header.topic}"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
        if header.sys_flag & SYS_TRANSACTION_MASK:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be part of a transaction")
        if size > self._store.config.max_message_size:
            raise self.refusal(AppendRefused(PutStatus.MESSAGE_ILLEGAL, f"a batch of {size} bytes"))
        batchable(own)

    # ---- store, and acknowledge ----

    def store(self, message: Message) -> Appended:
        """Store one message whose properties are final. AppendRefused: nothing has happened."""
        return self._counted(lambda: self._store.appends.append(message, self._turn.now))

    def store_batch(self, batch: list[Message]) -> list[Appended]:
        """Store messages of one queue next to one another. AppendRefused: nothing has happened."""
        return self._counted(lambda: self._store.appends.append_batch(batch, self._turn.now))

    def _counted(self, append: Callable[[], T]) -> T:
        try:
            return append()
        except AppendRefused:
            self._stats.put_failed()
            raise
        except OSError as error:
            raise AssertionError(f"an append ended in the middle: {error}") from error

    def acknowledge(self, request: Request, reply: Reply, end_offset: int, wait: bool) -> Reply | None:
        """The reply to a stored message: now, or (None) once the message is as durable as the mode promises."""
        return self._durability.acknowledge(request, reply, end_offset, wait=wait)

    def confirm(self, request: Request, reply: Reply, stored: Appended | None) -> Reply | None:
        """The same for what was stored now, or (None) by an earlier request, whose answer may still wait."""
        if stored is None:
            return self._durability.confirm(request, reply)
        return self.acknowledge(request, reply, stored.physical_offset + stored.size, wait=True)

    def confirm_frames(self, conn: ConnId, answers: bytes, count: int, stored: Appended | None) -> None:
        """The same for `count` requests of a connection, whose answers are frames already: they leave when they may."""
        end = None if stored is None else stored.physical_offset + stored.size
        self._durability.confirm_frames(conn, answers, count, end)

    def acknowledge_pieces(self, conn: ConnId, answer: list[Buffer], end_offset: int) -> None:
        """The same for one request whose answer is a frame in pieces, and whose message ends there in the log."""
        self._durability.acknowledge_pieces(conn, answer, end_offset)


class Timers(Protocol):
    """What a message for a time needs."""

    def redirect(self, message: Message, properties: dict[str, str]) -> None:
        """Send it to where it waits. RequestRefused: a time that can't be."""


class Transformer:
    """Applies what the properties of a message ask for."""

    def __init__(self, store: MessageStore, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def transform(self, message: Message, properties: dict[str, str]) -> None:
        """Apply what the properties of a message ask for, and put them into the message.

        Refused: a time that can't be (13, 1), and inner batches (13).
        """
        if props.INNER_NUM in properties:
            raise inner_batch_refused()
        level = messages.delay_level(properties)
        if message.sys_flag & SYS_TRANSACTION_MASK in (0, SYS_TRANSACTION_COMMIT):
            if level > 0:
                messages.redirect_delayed(message, properties, level, len(self._store.appends.levels))
            elif props.TIMER_OUT_MS not in properties and not TIMER_REQUESTS.isdisjoint(properties):
                self._timers.redirect(message, properties)
        messages.seal(message, properties)


def check_key(properties: bytes) -> None:
    """RequestRefused (13) when a message of a compacted topic has no key."""
    if not (props.get(properties, props.KEYS) or "").strip():
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")


def inner_batch_refused() -> RequestRefused:
    """The refusal of a batch that is to be stored as one record."""
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL, "an inner batch needs a topic with queue.type BatchCQ, and says so in its sysFlag"
    )


def waits(properties: bytes) -> bool:
    """Does the sender want to hear of its message only when it is durable? Yes, unless it says no."""
    return props.get(properties, props.WAIT) != "false"


def batchable(properties: bytes) -> bytes:
    """The properties of a message in a batch, or of the batch; refused (13) when a batch can't do what they ask."""
    if UNUSUAL.search(properties):
        found = props.decode(properties)
        timed = props.TIMER_OUT_MS not in found and any(name in found for name in TIMER_REQUESTS)
        if messages.delay_level(found) > 0 or timed or props.TRAN_MSG in found or props.INNER_NUM in found:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch can't hold delayed or transactional messages or inner batches"
            )
    return properties
