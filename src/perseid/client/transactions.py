"""Send messages that are delivered only if a local transaction of yours has succeeded.

    async with TransactionProducer("host:9876", "orders-tx", check) as producer:
        result = await producer.send_in_transaction(message, lambda half: save(order))

1. The broker stores the message as a *half message*: no consumer sees it.
2. Your local transaction runs, and returns COMMIT, ROLLBACK or UNKNOWN.
3. The producer tells the broker, which delivers the half message, or drops it.

If the broker does not hear the outcome (UNKNOWN, a crash, a lost connection), it asks any producer of the group, and
repeats this until it gets an answer. `check` is called with the message, and must answer from durable data, such as
your database, because another process may have begun the transaction. After `transactionCheckMax` unanswered checks
the half message is set aside.

At least once: a message whose acknowledgement was lost may be stored twice, as with every producer. A master that
dies between a commit and its record of it asks and delivers again. Both copies have the same `msg_id`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Unpack

from perseid.base.errors import RemoteProtocolError
from perseid.client.connection import Connection
from perseid.client.errors import ClientError, InvalidMessage, ServerRefused, UsageError
from perseid.client.keywords import ProducerKeywords
from perseid.client.lifecycle import call, is_async
from perseid.client.model import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from perseid.client.options import PRODUCER_DEFAULTS, ProducerOptions
from perseid.client.producer import Packed, Producer, by_key
from perseid.client.session import Session
from perseid.client.tls import ClientTls
from perseid.wire import ids, record
from perseid.wire import properties as props
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import CheckTransactionStateRequest, EndTransactionRequest
from perseid.wire.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK

log = logging.getLogger("perseid.client")

CHECKS_AT_ONCE = 8
MAX_CHECKS_WAITING = 2_000
"""Questions beyond these are left unanswered: the broker asks again."""
TAKEN_CODES = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)
"""A word was taken, though not as safely as the mode promises."""
OWN_PROPERTIES = (props.TRAN_MSG, props.PGROUP)


class TransactionState(IntEnum):
    """The outcome of a local transaction. UNKNOWN: it is not known yet, and the broker shall ask later."""

    UNKNOWN = 0
    COMMIT = SYS_TRANSACTION_COMMIT
    ROLLBACK = SYS_TRANSACTION_ROLLBACK


@dataclass(slots=True, frozen=True)
class TransactionResult:
    """The result of a transaction: its half message and its outcome."""

    half: SendResult
    """Where the half message was stored."""
    state: TransactionState
    """What the local transaction returned."""
    told: bool
    """Whether the broker has acknowledged the outcome. If not, nothing is lost: the broker asks for it."""


Local = Callable[[SendResult], "TransactionState | Awaitable[TransactionState]"]
Check = Callable[[ReceivedMessage], "TransactionState | Awaitable[TransactionState]"]


class TransactionProducer(Producer):
    """A `Producer` that also sends in transactions.

    `check(message)` returns the outcome of a transaction for which a broker asks. A plain function runs in a thread, an
    `async def` on the event loop. All producers of one group must be able to answer for each other. With `topics`, the
    producer registers with the brokers of these topics at the start, so that they can ask about transactions that an
    earlier process left open.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        check: Check,
        *,
        topics: Sequence[str] = (),
        options: ProducerOptions = PRODUCER_DEFAULTS,
        session: Session | None = None,
        tls: ClientTls | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        if not group:
            raise UsageError("a transactional producer needs the name of its group: brokers ask any member of it")
        super().__init__(namesrv, group, options=options, session=session, tls=tls, **keywords)
        self._check = check
        self._topics = tuple(topics)
        self._checking = asyncio.Semaphore(CHECKS_AT_ONCE)
        self.waiting = 0
        """Questions that have no answer yet."""
        self._threads: ThreadPoolExecutor | None = None

    # ---- lifecycle ----

    async def start(self) -> None:
        """Start the client, and answer brokers that ask for outcomes."""
        if self._started:
            return
        checkers = self.session.checkers
        if self.group in checkers:
            raise UsageError(f"this session has a transactional producer of group {self.group} already")
        await super().start()
        checkers[self.group] = self
        self.session.handlers[RequestCode.CHECK_TRANSACTION_STATE] = (
            lambda connection, command: _asked(checkers, connection, command)
        )
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix=f"transactions {self.group}")
        try:
            for topic in self._topics:
                await self._route(topic)
            if self._topics:
                await self.session.heartbeat()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Leave the group. Brokers ask its other members about open transactions."""
        if not self._started:
            return
        self.session.checkers.pop(self.group, None)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        await super().stop()

    # ---- sending ----

    async def send_in_transaction(
        self,
        message: Message,
        local: Local,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Store a half message, run `local` with its result, and tell the broker the outcome that `local` returns.

        `queue` and `key` choose the queue of the message as in `Producer.send`.

        If the half message is stored less safely than the broker's mode promises (`half.status`), it is rolled back,
        and `local` does not run. An exception of `local` is raised here; then the transaction stays open, and the
        broker asks for its outcome.
        """
        half = await self.begin(message, queue=queue, key=key, timeout_ms=timeout_ms)
        if half.status is not SendStatus.SEND_OK:
            return await self.end(half, TransactionState.ROLLBACK, timeout_ms=timeout_ms)
        state = await self._run(local, half)
        return await self.end(half, state, timeout_ms=timeout_ms)

    async def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Store a half message; `end` takes the result. It can't be delayed. `queue` and `key` as in
        `Producer.send`."""
        self._check_started()
        return (await self._send(self.pack_half(message), queue, by_key(key), timeout_ms))[0]

    async def end(
        self, half: SendResult, state: TransactionState, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Tell the broker the outcome of a transaction. With UNKNOWN the broker asks later."""
        self._check_started()
        if state is TransactionState.UNKNOWN:
            return TransactionResult(half, state, told=False)
        topic = half.queue.topic
        try:
            commit_log_offset = ids.parse_offset_message_id(half.offset_msg_id)[1]
        except RemoteProtocolError as error:
            raise UsageError(f"{half.offset_msg_id!r} is no half of this producer's: {error}") from None
        header = EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=commit_log_offset,
            commit_or_rollback=int(state),
            msg_id=half.msg_id,
            topic=topic,
            transaction_id=half.transaction_id or None,
        )
        try:
            address = await self.session.leader(half.queue)
            timeout_ms = self.options.timeout_ms if timeout_ms is None else timeout_ms
            code = RequestCode.END_TRANSACTION
            answer = await self.session.connections.call(address, code, header, b"", timeout_ms)
            if answer.code not in TAKEN_CODES:
                raise ServerRefused(answer.code, answer.remark, address)
        except ClientError as error:
            log.warning("%s of %s is not acknowledged, the broker will ask: %s", state.name, half.msg_id, error)
            return TransactionResult(half, state, told=False)
        return TransactionResult(half, state, told=True)

    def pack_half(self, message: Message) -> Packed:
        """As `pack`, for a half."""
        if message.delay_level:
            raise InvalidMessage(f"message for {message.topic}: a message of a transaction can't be delayed")
        message.check_no_priority("a message of a transaction")
        if any(name in message.properties for name in OWN_PROPERTIES):
            raise InvalidMessage(f"properties {' and '.join(OWN_PROPERTIES)} are the transaction's own")
        packed = self.pack(message)
        packed.properties += str(props.encode({props.TRAN_MSG: "true", props.PGROUP: self.group}), "utf-8")
        packed.sys_flag |= SYS_TRANSACTION_PREPARED
        return packed

    # ---- questions ----

    async def answer(self, message: ReceivedMessage) -> TransactionState:
        """The result of `check` for a message; UNKNOWN when it fails, or when too many questions wait."""
        if self.waiting >= MAX_CHECKS_WAITING:
            log.warning("%r is left for the next question: %d wait", message, self.waiting)
            return TransactionState.UNKNOWN
        self.waiting += 1
        try:
            async with self._checking:
                return await self._run(self._check, message)
        except Exception:  # a check may raise anything; the broker asks again
            log.exception("the check of group %s failed with %r", self.group, message)
            return TransactionState.UNKNOWN
        finally:
            self.waiting -= 1

    async def _run(self, function: Callable[[Any], Any], given: SendResult | ReceivedMessage) -> TransactionState:
        """The state that a function of the user's says."""
        state = await call(function, given, None if is_async(function) else self._threads)
        if not isinstance(state, TransactionState):
            raise UsageError(f"{function!r} returned {state!r}: return a TransactionState")
        return state


async def _asked(checkers: dict[str, Any], connection: Connection, command: Command) -> None:
    """CHECK_TRANSACTION_STATE: find the producer, ask its `check`, and tell the broker over the same connection."""
    header = command.header(CheckTransactionStateRequest)
    message = ReceivedMessage(record.decode(command.body), header.broker_name or "")
    group = message.properties.get(props.PGROUP, "")
    producer: TransactionProducer | None = checkers.get(group)
    if producer is None:
        log.warning("%s asks about a transaction of group %r, which has no producer here", connection.address, group)
        return
    state = await producer.answer(message)
    if state is TransactionState.UNKNOWN:
        return
    word = EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=int(state),
        msg_id=message.msg_id,
        topic=header.topic,
        from_transaction_check=True,
        transaction_id=header.transaction_id,
    )
    connection.oneway(RequestCode.END_TRANSACTION, word)
