"""Options of clients. They are frozen dataclasses: share one between clients, or copy it with `dataclasses.replace`.

    options = PushOptions(concurrency=5, hooks=[Tracer()])
    PushConsumer(namesrv, "billing", {"orders": "*"}, handle, mode=ConsumeMode.ORDERED, options=options)

Each option is also a keyword of the client: `PushConsumer(…, handle, concurrency=5)` (`perseid.client.keywords`).
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
    """How the members of a consumer group share the queues, and in which order each member handles messages."""

    CONCURRENT = "concurrent"
    """Each queue belongs to one member (clustering). It handles several messages at a time, in no certain order."""
    ORDERED = "ordered"
    """Each queue belongs to one member, which locks it at the broker and handles its messages one by one."""
    BROADCAST = "broadcast"
    """Each member gets all queues (broadcasting), handles several messages at a time, and keeps its own offsets."""
    BROADCAST_ORDERED = "broadcast, ordered"
    """Each member gets all queues, and handles the messages of each queue one by one."""

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
    """How much of each queue a consumer buffers before it stops pulling (the defaults are the Java client's)."""

    max_messages: int = 1000
    """Buffered messages of one queue, at most."""
    max_bytes: int = 100 * 1024 * 1024
    """Bytes of these messages, at most, as they are stored in the broker's log."""
    max_span: int = 2000
    """Distance between the lowest and the highest buffered offset, at most. Ordered consumers ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """How a `PushConsumer` pulls and handles messages."""

    concurrency: int = 20
    """Handlers that run at a time. In ordered modes, each handles another queue."""
    max_reconsume_times: int = -1
    """After this number of retries a message goes to the dead letters. -1: 16 retries, in ordered modes 2**31 - 1."""
    suspend_ms: int = 1000
    """In ordered modes: the pause before a message whose handler failed is handled again."""
    consume_timeout_ms: int = 15 * 60 * 1000
    """How long one call of the handler may take. Then it counts as failed."""
    dedupe: bool = False
    """Skip messages that a stamping writer sent twice (`perseid.client.stamps`; Perseid's Spark sink is such a writer).
    Messages that are delivered to this group again, after a crash or a failed handler, are not skipped."""
    limits: FlowLimits = FlowLimits()
    """How much of each queue is buffered before pulling pauses."""
    pull_batch: int = PULL_BATCH
    """The number of messages that one pull requests."""
    pull_interval_ms: int = 0
    """The pause between two pulls of a queue."""
    offsets_folder: Path | None = None
    """In broadcast modes: the folder of the offsets. Default: ~/.perseid/offsets."""
    hooks: Sequence[Hook] = ()
    """Hooks around each call of the handler (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How a `PullConsumer` reads ahead."""

    buffer_messages: int = 1000
    """Buffered messages of each assigned queue, at most."""
    buffer_bytes: int = 100 * 1024 * 1024
    """Bytes of these messages, at most, as they are stored in the broker's log."""
    hold_ms: int = HOLD_MS
    """How long a broker may hold a pull that finds nothing new (long polling)."""
    dedupe: bool = False
    """`poll()` and `read()` skip messages that a stamping writer sent twice (`perseid.client.stamps`; Perseid's Spark
    sink is such a writer)."""
    hooks: Sequence[Hook] = ()
    """Hooks that are called with received messages (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOptions:
    """How a `PopConsumer` receives."""

    ordered: bool = False
    """Keep the order of each queue: the group gets its next batch only when the last one is acknowledged."""
    hooks: Sequence[Hook] = ()
    """Hooks that are called with received messages, and around calls of `run`'s handler (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a `Producer` sends."""

    timeout_ms: int = SEND_TIMEOUT_MS
    """How long a send may take, including all its attempts."""
    retries: int = 2
    """Attempts after the first one, each at another queue."""
    retry_when_not_stored_ok: bool = False
    """Retry also if the broker has stored a message but not flushed or replicated it in time."""
    compress_above_bytes: int = 4096
    """Bodies of this size and more are compressed."""
    compress_level: int = 5
    """The level of zlib, from 1 (fast) to 9 (small)."""
    max_body_bytes: int = MAX_BODY_BYTES
    """A longer body is refused with `InvalidMessage`. To raise it, also raise `maxMessageSize` on the brokers."""
    default_queues: int = DEFAULT_QUEUES
    """The number of queues of a topic that the first send creates, if brokers create topics automatically."""
    avoid_slow_brokers: bool = False
    """Prefer brokers that answered quickly before."""
    linger_ms: float = 0
    """How long a message may wait for others, to be sent with them in one batch (`perseid.client.batching`). 0: no
    batches."""
    max_batch_messages: int = 256
    """With `linger_ms`: a batch is sent when it has this number of messages."""
    max_batch_bytes: int = 256 * 1024
    """With `linger_ms`: a batch is sent when its bodies have this number of bytes."""
    buffer_messages: int = 50_000
    """With `linger_ms`: unacknowledged messages, at most. `send()` waits up to `timeout_ms` for room, then raises
    `BufferFull`."""
    buffer_bytes: int = 64 * 1024 * 1024
    """With `linger_ms`: the limit of `buffer_messages`, in bytes of bodies."""
    hooks: Sequence[Hook] = ()
    """Called for each message and around each attempt (`perseid.client.hooks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedProducerOptions:
    """How an `OrderedProducer` batches and buffers messages, and retries them during outages."""

    deadline_ms: int = 120_000
    """How long one batch is retried before it fails: the longest outage of a broker without an error."""
    timeout_ms: int = SEND_TIMEOUT_MS
    """How long one attempt may take."""
    max_batch_messages: int = 256
    """A batch is sent when it has this number of messages."""
    max_batch_bytes: int = 256 * 1024
    """A batch is sent when its bodies have this number of bytes."""
    buffer_messages: int = 50_000
    """Unacknowledged messages, at most. Then `put()` waits for room, and `send()` raises `BufferFull`."""
    buffer_bytes: int = 64 * 1024 * 1024
    """The limit of `buffer_messages`, in bytes of bodies."""
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
