"""Options of clients: frozen objects, so that one can be shared, and changed with `dataclasses.replace`.

    options = PushOptions(concurrency=5, hooks=[Tracer()])
    PushConsumer(namesrv, "billing", {"orders": "*"}, handle, mode=ConsumeMode.ORDERED, options=options)

For one client, the same as keywords: `PushConsumer(…, handle, concurrency=5)` (`perseid.client.keywords`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from perseid.client.hooks import Hook
from perseid.client.model import MAX_BODY_BYTES
from perseid.client.pulling import HOLD_MS, PULL_BATCH

SEND_TIMEOUT_MS = 3000
DEFAULT_QUEUES = 4


class ConsumeMode(Enum):
    """How the members of a group share queues, and in which order each handles their messages."""

    CONCURRENT = "concurrent"
    """Each queue belongs to one member (clustering); several messages are handled at a time, in no certain order."""
    ORDERED = "ordered"
    """Each queue belongs to one member, which locks it at its broker; its messages are handled one by one."""
    BROADCAST = "broadcast"
    """Each member gets all queues (broadcasting), handles several messages at a time, and keeps its own offsets."""
    BROADCAST_ORDERED = "broadcast, ordered"
    """Each member gets all queues, and handles the messages of each one by one."""

    @property
    def is_ordered(self) -> bool:
        """The messages of a queue are handled one by one."""
        return self in (ConsumeMode.ORDERED, ConsumeMode.BROADCAST_ORDERED)

    @property
    def is_broadcast(self) -> bool:
        """Each member gets all queues."""
        return self in (ConsumeMode.BROADCAST, ConsumeMode.BROADCAST_ORDERED)

    @property
    def needs_locks(self) -> bool:
        """Queues are locked at their brokers."""
        return self is ConsumeMode.ORDERED


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much may be buffered of each queue before pulling pauses (the Java client's defaults)."""

    max_messages: int = 1000
    """Messages of one queue."""
    max_bytes: int = 100 * 1024 * 1024
    """Bytes of them, as they are stored."""
    max_span: int = 2000
    """Distance between the lowest and the highest offset buffered; not looked at by ordered consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """How a `PushConsumer` pulls and handles messages."""

    concurrency: int = 20
    """Handlers that run at a time; in ordered modes, each for another queue."""
    max_reconsume_times: int = -1
    """After so many retries a message goes to the dead letters; -1: 16, and in ordered modes practically never."""
    suspend_ms: int = 1000
    """Ordered modes: the pause before a message whose handler failed is handled again."""
    consume_timeout_ms: int = 15 * 60 * 1000
    """How long one call of the handler may take."""
    dedupe: bool = False
    """Leave out what a stamped writer sent again (`perseid.client.stamps`; Perseid's Spark sink is one). Messages that
    this group itself is given again, after a crash or a failed handler, still come."""
    limits: FlowLimits = FlowLimits()
    """How much is read ahead of each queue before pulling pauses."""
    pull_batch: int = PULL_BATCH
    """Messages that one pull asks for."""
    pull_interval_ms: int = 0
    """A pause between two pulls of a queue."""
    offsets_folder: Path | None = None
    """Broadcast modes: where the offsets are kept; by default in ~/.perseid/offsets."""
    hooks: Sequence[Hook] = ()
    """Called around each call of the handler (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How a `PullConsumer` reads ahead."""

    buffer_messages: int = 1000
    """Read ahead of each assigned queue, at most."""
    buffer_bytes: int = 100 * 1024 * 1024
    """The same in bytes, as messages are stored."""
    hold_ms: int = HOLD_MS
    """How long a broker may hold a pull that finds nothing new (long polling)."""
    dedupe: bool = False
    """`poll()` and `read()` leave out what a stamped writer sent again (`perseid.client.stamps`; Perseid's Spark sink
    is one)."""
    hooks: Sequence[Hook] = ()
    """Told of what is received (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOptions:
    """How a `PopConsumer` receives."""

    ordered: bool = False
    """Of each queue one batch at a time is out in the group."""
    hooks: Sequence[Hook] = ()
    """Told of what is received, and called around each call of `run`'s handler (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a `Producer` sends."""

    timeout_ms: int = SEND_TIMEOUT_MS
    """How long a send may take, with all its attempts."""
    retries: int = 2
    """Attempts after the first one, at other queues."""
    retry_when_not_stored_ok: bool = False
    """Try again also when the broker has stored a message, but not flushed or replicated it in time."""
    compress_above_bytes: int = 4096
    """Bodies of this size and more are compressed."""
    compress_level: int = 5
    """How hard zlib tries, from 1 (quick) to 9 (small)."""
    max_body_bytes: int = MAX_BODY_BYTES
    """A longer body is refused with `InvalidMessage`. A larger limit needs a larger `maxMessageSize` of the brokers,
    too."""
    default_queues: int = DEFAULT_QUEUES
    """Queues of a topic that the first send creates, where brokers create topics."""
    avoid_slow_brokers: bool = False
    """Prefer brokers that have answered quickly."""
    linger_ms: float = 0
    """How long a message waits for others that leave in the same batch (`perseid.client.batching`); 0: not at all."""
    max_batch_messages: int = 256
    """Of a batch that is collected: it leaves when it has so many messages, or bytes."""
    max_batch_bytes: int = 256 * 1024
    """The same in bytes of bodies."""
    buffer_messages: int = 50_000
    """With `linger_ms`: messages that may be collected or under way before `send()` waits for room, up to
    `timeout_ms`."""
    buffer_bytes: int = 64 * 1024 * 1024
    """The same in bytes of bodies."""
    hooks: Sequence[Hook] = ()
    """Called for each message and around each attempt (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedProducerOptions:
    """How an `OrderedProducer` batches, buffers and bears outages."""

    deadline_ms: int = 120_000
    """How long one batch is tried before it fails: how long an outage of a broker is borne."""
    timeout_ms: int = SEND_TIMEOUT_MS
    """How long one attempt may take."""
    max_batch_messages: int = 256
    """Of a batch: it leaves when it has so many."""
    max_batch_bytes: int = 256 * 1024
    """The same in bytes of bodies."""
    buffer_messages: int = 50_000
    """Messages that may wait to be acknowledged before `put()` waits and `send()` refuses."""
    buffer_bytes: int = 64 * 1024 * 1024
    """The same in bytes of bodies."""
    max_body_bytes: int = MAX_BODY_BYTES
    """A longer body is refused with `InvalidMessage`."""
    default_queues: int = DEFAULT_QUEUES
    """Queues of a topic that the first send creates, where brokers create topics."""
    hooks: Sequence[Hook] = ()
    """Called for each message and around each attempt (`perseid.client.hooks`)."""


PUSH_DEFAULTS = PushOptions()
PULL_DEFAULTS = PullOptions()
POP_DEFAULTS = PopOptions()
PRODUCER_DEFAULTS = ProducerOptions()
ORDERED_PRODUCER_DEFAULTS = OrderedProducerOptions()
