"""One pull: messages of one queue from an offset on. Both kinds of consumer are built on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from enum import Enum

from perseid.base.errors import PerseidError
from perseid.client.answers import header_of, pulled
from perseid.client.connection import Header
from perseid.client.deduplicator import Deduplicator
from perseid.client.errors import ClientError, ConnectFailed, ServerRefused
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.pulled import AnswerReader
from perseid.client.routes import TopicRoute
from perseid.client.session import Session
from perseid.client.stamps import placed, runs, sent_on
from perseid.client.subscription import Subscription
from perseid.wire.bodies import MASTER_ID, CheckClientRequestBody
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.offsets import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetByTimestampRequest,
    UpdateConsumerOffsetRequest,
)
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse

HOLD_MS = 15_000
"""How long a broker may hold a pull that finds nothing new."""
GRACE_MS = 15_000
"""How much longer than the hold the client waits for the answer (30 s in all, as the Java client)."""
PULL_BATCH = 32
READ_BATCH = 256
"""Asked for in one pull of a read; brokers answer with fewer (the original's with 32)."""
SUSPEND, SUBSCRIPTION = 2, 4


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "found"
    NO_NEW = "no new message"
    NO_MATCH = "nothing that the subscription wants"
    MOVED = "the offset is outside of the queue"


_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.MOVED,
}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of one pull."""

    status: PullStatus
    """Whether there were messages, or why not."""
    messages: list[ReceivedMessage]
    """The messages that match the filter, in order."""
    next_offset: int
    """The offset for the next pull."""
    min_offset: int
    """The queue's first offset."""
    max_offset: int
    """The offset after the queue's last message."""


class Puller:
    """Pulls for one group; remembers which replica each queue is best read from."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._suggested: dict[MessageQueue, int] = {}
        self._readers: dict[str, AnswerReader] = {}
        """By the names of brokers."""

    def _reader(self, broker_name: str) -> AnswerReader:
        reader = self._readers.get(broker_name)
        if reader is None:
            reader = self._readers[broker_name] = AnswerReader(broker_name)
        return reader

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        max_messages: int = PULL_BATCH,
        max_bytes: int | None = None,
        hold_ms: int = HOLD_MS,
        with_subscription: bool = True,
    ) -> PullResult:
        """Pull from `offset` on; waits up to `hold_ms` at the broker when there is nothing new.

        `with_subscription` sends the filter along (needed for groups that send no heartbeats).
        """
        address = await self.address(queue)
        flag = (SUSPEND if hold_ms > 0 else 0) | (SUBSCRIPTION if with_subscription else 0)
        request = PullMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            max_msg_bytes=max_bytes,
            sys_flag=flag,
            commit_offset=0,
            suspend_timeout_millis=hold_ms,
            subscription=subscription.text if with_subscription else None,
            sub_version=subscription.version,
            expression_type=subscription.kind,
        )
        try:
            answer = await self._session.connections.call(
                address, RequestCode.PULL_MESSAGE, request, timeout_ms=hold_ms + GRACE_MS
            )
        except ClientError:
            self._suggested.pop(queue, None)
            await self._session.routes.refresh(queue.topic)
            raise
        status = _STATUS.get(ResponseCode(answer.code)) if answer.code in _KNOWN else None
        if status is None:
            if answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                await self._session.routes.refresh(queue.topic)
            raise ServerRefused(answer.code, answer.remark, address)
        header = header_of(answer, PullMessageResponse)
        self._suggested[queue] = header.suggest_which_broker_id or MASTER_ID
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = pulled(self._reader(queue.broker_name), answer, offset)
            if header.offset_delta is not None:
                for message in messages:
                    message.put_into(queue, header.offset_delta)
            if subscription.tags:
                messages = [message for message in messages if subscription.wants(message.tag)]
        return PullResult(status, messages, header.next_begin_offset, header.min_offset, header.max_offset)

    async def read(
        self, queue: MessageQueue, start: int, end: int, subscription: Subscription, *, max_messages: int = READ_BATCH
    ) -> AsyncGenerator[list[ReceivedMessage]]:
        """All messages with start ≤ offset < end, in lists, in order; one pull is always under way.

        Ends early when the queue ends before `end`.
        """
        at = start
        waiting: asyncio.Task[PullResult] | None = None

        def ask() -> asyncio.Task[PullResult]:
            return asyncio.ensure_future(self.pull(queue, at, subscription, max_messages=max_messages, hold_ms=0))

        try:
            waiting = ask() if at < end else None
            while waiting is not None:
                result = await waiting
                waiting = None
                moved_on = result.next_offset > at
                at = max(at, result.next_offset)
                if at < end and moved_on and result.status is not PullStatus.NO_NEW:
                    waiting = ask()
                wanted = [m for m in result.messages if start <= m.queue_offset < end]
                if wanted:
                    yield wanted
        finally:
            if waiting is not None:
                waiting.cancel()

    async def check(self, subscription: Subscription, route: TopicRoute) -> None:
        """Let the brokers of a topic read an SQL expression; ClientError when one does not take it.

        A pull does not tell: Java's brokers find nothing for an expression that they can't read.
        """
        body = CheckClientRequestBody(self._session.client_id, self._group, None, subscription.data()).to_json()
        for ids in route.brokers.values():
            try:
                await self._session.connections.ask(ids[min(ids)], RequestCode.CHECK_CLIENT_CONFIG, None, body)
            except ServerRefused as error:
                raise ClientError(
                    f"topic {subscription.topic}: the broker does not take the expression"
                    f" {subscription.text!r}: {error}"
                ) from error

    async def fresh(
        self,
        deduplicator: Deduplicator,
        queue: MessageQueue,
        messages: list[ReceivedMessage],
        subscription: Subscription,
    ) -> list[ReceivedMessage]:
        """The messages of a pull that are no repeats; reads back in the queue where that is needed to tell."""
        cut = runs(placed(messages))
        for run in cut:
            back = deduplicator.look_back(run)
            if back is not None:
                async for earlier in self.read(queue, *back, subscription):
                    deduplicator.learn(runs(placed(earlier)))
                deduplicator.learnt(back[0])
        again = {offset for run in cut for offset in deduplicator.repeated(run, lambda: sent_on(messages))}
        return [message for message in messages if message.queue_offset not in again] if again else messages

    async def address(self, queue: MessageQueue) -> str:
        """`host:port` of the replica that a pull of this queue goes to now."""
        routes = self._session.routes
        broker_id = self._suggested.get(queue, MASTER_ID)
        for again in (False, True):
            name = routes.home(queue)
            address = routes.address(name, broker_id)
            if address is not None:
                return address
            address = routes.address(name, only_this=False)
            if address is not None:
                return address
            if not again:
                await routes.refresh(queue.topic)
        raise ConnectFailed(queue.broker_name, "the name servers know no broker of that name")


_KNOWN = frozenset(int(code) for code in ResponseCode)


class Offsets:
    """The offsets that brokers keep: a queue's bounds, and what groups have committed.

    While a set of brokers has no master, a slave is told and asked what groups have committed, as it is what they read
    from. Where a queue ends it isn't asked: it may lag, and who holds its answer against an earlier one would take
    messages for lost.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def min(self, queue: MessageQueue) -> int:
        """The oldest offset that can still be read."""
        header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return await self._ask_reader(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max(self, queue: MessageQueue) -> int:
        """One more than the newest offset."""
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, committed=True)
        return await self._ask(queue, RequestCode.GET_MAX_OFFSET, header)

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time; with `upper` the last one at or before it."""
        header = SearchOffsetByTimestampRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type="UPPER" if upper else "LOWER",
        )
        return await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(self, group: str, queue: MessageQueue, *, zero_if_young: bool = True) -> int | None:
        """The offset that a group has committed; None: none.

        With `zero_if_young` a broker may answer 0 for a young queue although nothing was committed.
        """
        header = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_young else False,
        )
        try:
            return await self._ask_reader(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except ServerRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset for a group and wait until the broker has it."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        address = await self._session.reader(queue)
        await self._session.connections.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def commit_all(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, PerseidError | None]:
        """Commit several at once: for each queue None, or what was refused.

        The first queue of each topic and broker goes ahead of the others: the original's broker makes a group's table
        with its first offset, and of two first ones at once it may lose one that it has acknowledged.
        """
        done: dict[MessageQueue, PerseidError | None] = {}

        async def save(queue: MessageQueue) -> None:
            try:
                await self.commit(group, queue, offsets[queue])
                done[queue] = None
            except PerseidError as error:
                done[queue] = error

        firsts = dict.fromkeys({(queue.topic, queue.broker_name): queue for queue in offsets}.values())
        for part in (firsts, [queue for queue in offsets if queue not in firsts]):
            await asyncio.gather(*map(save, part))
        return done

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        return await self._ask_at(await self._session.leader(queue), code, header)

    async def _ask_reader(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        return await self._ask_at(await self._session.reader(queue), code, header)

    async def _ask_at(self, address: str, code: RequestCode, header: Header) -> int:
        answer = await self._session.connections.ask(address, code, header)
        return header_of(answer, OffsetResponse).offset
