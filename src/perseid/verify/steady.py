"""A sender that never gives up: messages at a given rate, each tried until it is acknowledged.

One task a queue sends its next message when the one before is acknowledged, so the order within a queue is known.
The tasks start one after the other, so that together they keep the rate; they don't catch up after an outage.

While sends to a broker set fail, or one has waited `STALL_MS` for its answer, one task, the prober, asks the name
server every few milliseconds where the master is, and tries there; the others wait for it. An attempt at a master that
is no longer the route's is given up. So an outage ends when a message is acknowledged, not when a timer says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from perseid.client.errors import ClientError, NoRoute, RequestTimeout, ServerRefused, code_name
from perseid.client.model import Message, MessageQueue, SendResult, SendStatus
from perseid.client.producer import STORED_CODES, Packed, Producer
from perseid.client.session import Session
from perseid.verify.ledger import Entry, Ledger
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command

POLL_MS = 5
STALL_MS = 100
"""An answer that is later counts as trouble, though it is waited for."""
TRY_TIMEOUT_MS = 3500
"""Of one attempt: a little more than a broker waits for its slaves."""
DRAIN_S = 5.0
"""At the end: how long acknowledgements of what was sent are waited for."""
PERMANENT_REFUSALS = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Refusals that no other try would change."""


class Observer(Protocol):
    """Is called when an outage of a broker set begins and ends, and with what happens in it."""

    def outage_began(self, broker_name: str, master: str, last_ack: float, time_ms: int) -> None:
        """No answer from `master`, or an error. `last_ack`: of this broker set, by the monotonic clock; `time_ms`: the
        same since 1970."""

    def attempt_failed(self, broker_name: str, why: str) -> None:
        """An attempt failed."""

    def route_answered(self, broker_name: str, master: str | None) -> None:
        """The name server answered, during an outage; None: it knows no master."""

    def outage_ended(self, broker_name: str, master: str) -> None:
        """A message is acknowledged again."""


@dataclass(slots=True)
class _BrokerSet:
    """One broker set, as the tasks of its queues see it."""

    last_ack: float
    last_ack_ms: int
    master: str = ""
    outage_over: asyncio.Event | None = None
    """During an outage; set at its end."""
    prober: int | None = None
    """The number of the task that probes."""


@dataclass(slots=True)
class SenderStats:
    """Counts of a sender. `longest_gap_ms`: between two acknowledgements, of whatever queue."""

    acknowledged: int = 0
    attempts: int = 0
    failures: int = 0
    stored_only: int = 0
    """Answers that a message is stored, but not as safely as the broker's mode promises; it is sent again."""
    longest_gap_ms: float = 0.0
    last_ack: float = field(default=0.0, repr=False)


class SteadySender:
    """Sends numbered messages to all queues of a topic, within `async with`, until `run()`'s time is up.

    Acknowledged messages go to `ledger`. `rate`: messages a second, of all queues together. `on_ack` is called with
    each.
    """

    def __init__(
        self,
        session: Session,
        ledger: Ledger,
        *,
        rate: float,
        body_bytes: int = 100,
        poll_ms: float = POLL_MS,
        observer: Observer | None = None,
        on_ack: Callable[[Entry], None] | None = None,
    ) -> None:
        self.stats = SenderStats()
        self.stop = asyncio.Event()
        self._session = session
        self._producer = Producer(session=session, group="PERSEID_VERIFY")
        self._ledger = ledger
        self._rate = rate
        self._body_bytes = body_bytes
        self._poll_s = poll_ms / 1000
        self._observer = observer
        self._on_ack = on_ack
        self._sets: dict[str, _BrokerSet] = {}

    async def run(self, seconds: float | None = None) -> None:
        """Send for so long, or until `stop` is set; ClientError when the topic has no queue, or takes no message."""
        async with self._producer:
            queues = await self._producer.queues(self._ledger.topic)
            start = time.monotonic()
            for queue in queues:
                self._sets.setdefault(queue.broker_name, _BrokerSet(start, _now_ms()))
            step = len(queues) / self._rate
            tasks = [
                asyncio.create_task(self._send_in_order(number, queue, start + number / self._rate, step))
                for number, queue in enumerate(queues)
            ]
            stopped = asyncio.create_task(self.stop.wait())
            try:
                await asyncio.wait({stopped, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                self.stop.set()
                await asyncio.wait(tasks, timeout=DRAIN_S)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for one in (stopped, *tasks):
                    one.cancel()
                await asyncio.gather(stopped, *tasks, return_exceptions=True)

    # ---- one queue ----

    async def _send_in_order(self, number: int, queue: MessageQueue, due: float, step: float) -> None:
        sequence = 0
        while await self._due(due):
            key = f"{self._ledger.run}-{number}-{sequence}"
            body = f"{key} ".encode().ljust(self._body_bytes, b".")
            packed = self._producer.pack(Message(queue.topic, body, keys=[key]))
            result, sends = await self._deliver(number, queue, packed)
            entry = Entry(key, result.queue, result.queue_offset, _now_ms(), sends, result.offset_msg_id)
            self._ledger.add(entry)
            if self._on_ack is not None:
                self._on_ack(entry)
            sequence += 1
            due = max(due + step, time.monotonic())

    async def _due(self, due: float) -> bool:
        """Wait until then; False when nothing more is to be sent."""
        wait = due - time.monotonic()
        if wait > 0 and not self.stop.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self.stop.wait()
            except TimeoutError:
                pass
        return not self.stop.is_set()

    async def _deliver(self, number: int, queue: MessageQueue, packed: Packed) -> tuple[SendResult, int]:
        """The acknowledgement of a message, and after how many sends it came."""
        state, sends = self._sets[queue.broker_name], 0
        while True:
            address = self._session.routes.address(queue.broker_name)
            if address is not None and state.prober in (None, number):
                sends += 1
                self.stats.attempts += 1
                result = await self._attempt(number, queue, packed, address)
                if result is not None:
                    self._acknowledged(queue.broker_name, address)
                    return result, sends
            await self._wait(number, queue, address or state.master)

    async def _attempt(self, number: int, queue: MessageQueue, packed: Packed, address: str) -> SendResult | None:
        """One send; None when it failed, or was given up because the route names another master."""
        header = packed.header(self._producer.group, queue, self._producer.options.default_queues)
        call = asyncio.ensure_future(
            self._session.connections.call(address, packed.code, header, packed.body, TRY_TIMEOUT_MS)
        )
        try:
            await asyncio.wait({call}, timeout=STALL_MS / 1000)
            while not call.done():
                await self._wait(number, queue, address, call)
                if not call.done() and self._session.routes.address(queue.broker_name) not in (None, address):
                    self._failure(queue.broker_name, f"no answer from {address}, no longer the master")
                    return None
            answer = call.result()
            if answer.code in PERMANENT_REFUSALS:
                raise ServerRefused(answer.code, answer.remark, address)
            if answer.code not in STORED_CODES:
                self._failure(queue.broker_name, f"{address}: {code_name(answer.code)} {answer.remark or ''}")
                return None
            result = packed.result(answer, queue)[0]
            if result.status is SendStatus.SEND_OK:
                return result
            self.stats.stored_only += 1
            self._failure(queue.broker_name, f"{address}: {result.status.name}")
            return None
        except ServerRefused:
            raise
        except RequestTimeout as error:
            self._session.connections.retire(address)  # lost packets may come again much later
            self._failure(queue.broker_name, str(error))
            return None
        except ClientError as error:
            self._failure(queue.broker_name, str(error))
            return None
        finally:
            call.cancel()

    # ---- outages ----

    async def _wait(
        self, number: int, queue: MessageQueue, address: str, call: asyncio.Future[Command] | None = None
    ) -> None:
        """Wait until a try may succeed: for the prober, or as the prober."""
        state = self._sets[queue.broker_name]
        if state.outage_over is None and call is not None and time.monotonic() - state.last_ack < STALL_MS / 1000:
            await asyncio.wait({call}, timeout=STALL_MS / 1000)  # others are answered: only this one is late
            return
        if state.outage_over is None:
            state.outage_over = asyncio.Event()
            if self._observer is not None:
                self._observer.outage_began(queue.broker_name, address, state.last_ack, state.last_ack_ms)
        if state.prober is None:
            state.prober = number
        if state.prober != number:
            over = asyncio.ensure_future(state.outage_over.wait())
            waited: set[asyncio.Future[Any]] = {over} if call is None else {over, call}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            return
        next_look = time.monotonic() + self._poll_s
        master = await self._look(queue)
        if master is not None and master != address:
            return
        pause = max(0.0, next_look - time.monotonic())
        if call is not None:
            await asyncio.wait({call}, timeout=pause)
        else:
            await asyncio.sleep(pause)

    async def _look(self, queue: MessageQueue) -> str | None:
        """Ask the name server where the master is; None when it knows none, or does not answer."""
        routes, name = self._session.routes, queue.broker_name
        try:
            async with asyncio.timeout(STALL_MS / 1000):  # one that hangs goes on being asked behind this
                await routes.fetch(queue.topic)
            master = routes.address(name)
        except NoRoute:
            master = None
        except (ClientError, TimeoutError) as error:
            if self._observer is not None:
                self._observer.attempt_failed(name, f"no route: {str(error) or 'the name server does not answer'}")
            return None
        if self._observer is not None:
            self._observer.route_answered(name, master)
        return master

    def _failure(self, broker_name: str, why: str) -> None:
        self.stats.failures += 1
        if self._observer is not None:
            self._observer.attempt_failed(broker_name, why)

    def _acknowledged(self, broker_name: str, address: str) -> None:
        state, counts, now = self._sets[broker_name], self.stats, time.monotonic()
        counts.acknowledged += 1
        if counts.last_ack:
            counts.longest_gap_ms = max(counts.longest_gap_ms, 1000 * (now - counts.last_ack))
        counts.last_ack = state.last_ack = now
        state.last_ack_ms = _now_ms()
        state.master = address
        if state.outage_over is not None:
            state.outage_over.set()
            state.outage_over, state.prober = None, None
            if self._observer is not None:
                self._observer.outage_ended(broker_name, address)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
