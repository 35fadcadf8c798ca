"""Requests for the logical queues of static topics: sends, pulls and offsets (`wire.mapping`).

Only the leader of a logical queue answers for it (501 else). It finds the item that a request is about, lets the
ordinary handler do it if the item is a queue of its own, else asks the item's broker, with `lo=false`: the queue id and
offset of that request are physical. Answers are made logical on their way out (`Request.finish`).

What may need another broker's answer is a generator (`_ways`): it yields an `Ask` for each question, is given the
answer, and returns the reply; None: the ordinary handler's comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from perseid.base.errors import RequestRefused
from perseid.broker.consume.pull import COMMIT_OFFSET, SUSPEND
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Handler, Route
from perseid.broker.kernel.turn import Turn
from perseid.store.reads import Reads
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import to_ext
from perseid.wire.headers.offsets import OffsetResponse, TimestampResponse
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.mapping import LogicQueueMappingItem, TopicQueueMappingDetail, find, following
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.kernel.peers import Peers
    from perseid.broker.static_topics.mappings import TopicMappings

UPPER = "UPPER"


class Ask(NamedTuple):
    """A question to another broker."""

    name: str
    code: Code
    ext: dict[str, str]


Steps: TypeAlias = Generator[Ask, Command, Reply | None]
Way: TypeAlias = Callable[[Request, TopicQueueMappingDetail, Handler], Steps]


@dataclass(slots=True, kw_only=True)
class StaticTopicRequests:
    """Requests for logical queues."""

    turn: Turn
    reads: Reads
    offsets: ConsumerOffsets
    mappings: TopicMappings
    peers: Peers
    check_reader: Callable[[Request, PullMessageRequest], object]
    """RequestRefused when a pull may not read."""

    def serve(self, request: Request, route: Route) -> Reply | None:
        """Do a request that may be for a static topic; the route's handler is the one for physical queues."""
        handler = route.handler
        if not self.mappings.rows and request.asked is None:
            return handler(request)
        if request.asked is None:
            request.asked = request.header
        request.finish = None  # a pull that waited may find another mapping
        header = request.header = msgspec.structs.replace(request.asked)
        detail = self.mappings.rows.get(header.topic)
        if detail is None or request.command.ext.get("lo", "").lower() == "false":
            return handler(request)
        if request.command.code in SENDS:
            return self._send(request, detail, handler)
        return self._step(request, self._ways()[request.command.code](request, detail, handler), None)

    def _ways(self) -> dict[int, Way]:
        """By request code."""
        return {
            Code.PULL_MESSAGE: self._pull,
            Code.LITE_PULL_MESSAGE: self._pull,
            Code.QUERY_CONSUMER_OFFSET: self._query_offset,
            Code.UPDATE_CONSUMER_OFFSET: self._update_offset,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            Code.GET_MAX_OFFSET: self._max_offset,
            Code.GET_MIN_OFFSET: self._min_offset,
            Code.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _step(self, request: Request, steps: Steps, answer: Command | Failure | None) -> Reply | None:
        """Go on until the next question, or the end."""
        try:
            if answer is None:
                ask = next(steps)
            elif isinstance(answer, Failure):
                ask = steps.throw(RequestRefused(ResponseCode.SYSTEM_ERROR, answer.reason))
            else:
                ask = steps.send(answer)
        except StopIteration as end:
            reply: Reply | None = end.value
            return reply
        request.command.keep()

        def answered(answer: Command | Failure) -> None:
            try:
                reply = self._step(request, steps, answer)
            except RequestRefused as refused:
                reply = Reply(refused.code, remark=refused.remark)
            if reply is not None:
                self.turn.reply(request, reply)

        self.peers.ask(ask.name, ask.code, {**ask.ext, "lo": "false", "bname": ask.name}, answered)
        return None

    # ---- sends ----

    def _send(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Reply | None:
        """Into the leader's queue; any that is led here when the sender leaves the choice to us."""
        header = request.header
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = next((i for i in detail.hosted_queues if detail.leads(i)), queue_id)
        leader = _items(detail, queue_id)[-1]
        header.queue_id = leader.queue_id
        request.finish = partial(_sent, queue_id, leader)
        return handler(request)

    # ---- pulls ----

    def _pull(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """From the item that has the offset. At the end of one that others follow, the reader is sent on to the
        next."""
        header: PullMessageRequest = request.header
        self.check_reader(request, header)
        items = _items(detail, header.queue_id)
        item = _find(detail, header.queue_id, header.queue_offset)
        offset = header.queue_offset = item.physical(header.queue_offset)
        _commit_with_pull(header, items, item)
        header.queue_id = item.queue_id
        if item is not items[-1]:
            header.sys_flag &= ~SUSPEND
        if item.ended:
            header.max_msg_nums = min(header.max_msg_nums, item.end_offset - item.start_offset)
        request.finish = partial(_pulled, items, item, offset)
        if item.bname == detail.bname:
            return handler(request)
        header.sys_flag &= ~(COMMIT_OFFSET | SUSPEND)
        ask = Ask(item.bname, Code.PULL_MESSAGE, to_ext(header))
        answer = yield ask
        if answer.code not in _PULL_CODES:
            raise _not_so(ask, answer)
        return Reply(answer.code, answer.header(PullMessageResponse), bytes(answer.body), answer.remark)

    # ---- a group's position ----

    def _query_offset(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """The group's offset in the last item in which it has one."""
        header = request.header
        items = _items(detail, header.queue_id)
        if len(items) == 1 and items[0].logic_offset == 0:
            header.queue_id = items[0].queue_id
            request.finish = partial(_offset_in, items[0])
            return handler(request)
        for item in reversed([item for item in items if item.decided]):
            if item.bname == detail.bname:
                offset = self.offsets.query(header.topic, header.consumer_group, item.queue_id)
            else:
                header.queue_id, header.set_zero_if_not_found = item.queue_id, False
                ask = Ask(item.bname, Code.QUERY_CONSUMER_OFFSET, to_ext(header))
                answer = yield ask
                missing = answer.code == ResponseCode.QUERY_NOT_FOUND
                offset = None if missing else _said(ask, answer, OffsetResponse).offset
            if offset is not None:
                return Reply(header=OffsetResponse(offset=item.logical(offset)))
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")

    def _update_offset(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """Where the item is that has the offset."""
        header = request.header
        item = _find(detail, header.queue_id, header.commit_offset)
        header.queue_id, header.commit_offset = item.queue_id, item.physical(header.commit_offset)
        if item.bname == detail.bname:
            return handler(request)
        answer = yield Ask(item.bname, Code.UPDATE_CONSUMER_OFFSET, to_ext(header))
        return Reply(answer.code, remark=answer.remark)

    # ---- a queue's bounds ----

    def _max_offset(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """The end of the last item that has a place yet."""
        item = _find(detail, request.header.queue_id, (1 << 63) - 1)
        offset = yield from self._bound(request, detail, item, Code.GET_MAX_OFFSET)
        return Reply(header=OffsetResponse(offset=item.logical(offset)))

    def _min_offset(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """The beginning of the first item."""
        item = _find(detail, request.header.queue_id, 0)
        offset = yield from self._bound(request, detail, item, Code.GET_MIN_OFFSET)
        return Reply(header=OffsetResponse(offset=item.logical(offset)))

    def _bound(
        self, request: Request, detail: TopicQueueMappingDetail, item: LogicQueueMappingItem, code: Code
    ) -> Generator[Ask, Command, int]:
        """The physical max or min offset of an item's queue."""
        topic = request.header.topic
        if item.bname == detail.bname:
            read = self.reads.max_offset if code == Code.GET_MAX_OFFSET else self.reads.min_offset
            return read(topic, item.queue_id)
        ask = Ask(item.bname, code, {"topic": topic, "queueId": str(item.queue_id)})
        answer = yield ask
        offset: int = _said(ask, answer, OffsetResponse).offset
        return offset

    def _earliest(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """When the first item's oldest message was stored."""
        header = request.header
        item = _find(detail, header.queue_id, 0)
        header.queue_id = item.queue_id
        if item.bname == detail.bname:
            return handler(request)
        ask = Ask(item.bname, Code.GET_EARLIEST_MSG_STORETIME, to_ext(header))
        answer = yield ask
        return Reply(header=_said(ask, answer, TimestampResponse))

    def _search(self, request: Request, detail: TopicQueueMappingDetail, handler: Handler) -> Steps:
        """The first message at or after a time, item by item; UPPER: the one before the first after it."""
        header = request.header
        upper = (header.boundary_type or "").upper() == UPPER
        timestamp = header.timestamp + upper
        item = _find(detail, header.queue_id, 0)
        found, before = 0, None
        for item in _decided(detail, header.queue_id):
            low = yield from self._bound(request, detail, item, Code.GET_MIN_OFFSET)
            high = yield from self._bound(request, detail, item, Code.GET_MAX_OFFSET)
            found = high
            if low >= high:
                continue
            if item.bname == detail.bname:
                found = self.reads.offset_by_time(header.topic, item.queue_id, timestamp)
            else:
                ext = {"topic": header.topic, "queueId": str(item.queue_id), "timestamp": str(timestamp)}
                ask = Ask(item.bname, Code.SEARCH_OFFSET_BY_TIMESTAMP, ext)
                answer = yield ask
                found = _said(ask, answer, OffsetResponse).offset
            found = max(found, low)
            if found > low:
                before = item.logical(found - 1)
            if found < high:
                break
        offset = before if upper and before is not None else item.logical(found)
        return Reply(header=OffsetResponse(offset=offset))


# ---- who leads, and what items there are ----


def _items(detail: TopicQueueMappingDetail, queue_id: int) -> list[LogicQueueMappingItem]:
    """The items of a logical queue that this broker leads; 501 when it does not."""
    if not detail.leads(queue_id):
        raise RequestRefused(
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            f"{detail.topic}-{queue_id} does not exist in request process of current broker {detail.bname}",
        )
    return detail.hosted_queues[queue_id]


def _find(detail: TopicQueueMappingDetail, queue_id: int, offset: int) -> LogicQueueMappingItem:
    item = find(_items(detail, queue_id), offset)
    if item is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{detail.topic}-{queue_id} has no logical offset yet")
    return item


def _said(ask: Ask, answer: Command, kind: type[Any]) -> Any:
    """What another broker answered; RequestRefused when it is no success."""
    if answer.code != ResponseCode.SUCCESS:
        raise _not_so(ask, answer)
    return answer.header(kind)


def _not_so(ask: Ask, answer: Command) -> RequestRefused:
    why = f"broker {ask.name} answered {answer.code} {answer.remark or ''}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, why)


def _sent(queue_id: int, leader: LogicQueueMappingItem, reply: Reply) -> Reply:
    header = reply.header
    if isinstance(header, SendMessageResponse):
        offset = leader.logical(header.queue_offset)
        reply.header = msgspec.structs.replace(header, queue_id=queue_id, queue_offset=offset)
    return reply


_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def _commit_with_pull(
    header: PullMessageRequest, items: list[LogicQueueMappingItem], item: LogicQueueMappingItem
) -> None:
    """A pull may commit what its group has read before: here if that is in the same item. If it is in another one, the
    group's next commit of its own says it."""
    if not header.sys_flag & COMMIT_OFFSET or header.commit_offset < 0:
        return
    if find(items, header.commit_offset) is item:
        header.commit_offset = item.physical(header.commit_offset)
    else:
        header.sys_flag &= ~COMMIT_OFFSET


def _pulled(items: list[LogicQueueMappingItem], item: LogicQueueMappingItem, offset: int, reply: Reply) -> Reply:
    """The answer to a pull from `item`, made logical."""
    header, code = reply.header, reply.code
    if not isinstance(header, PullMessageResponse):
        return reply
    next_offset, low, high = header.next_begin_offset, header.min_offset, header.max_offset
    after = following(items, item)
    if code != ResponseCode.SUCCESS:
        if offset >= high and after is not None:
            item, code = after, ResponseCode.PULL_RETRY_IMMEDIATELY
            next_offset = low = high = item.start_offset
        elif offset >= high and item is not items[-1]:
            code = ResponseCode.PULL_NOT_FOUND  # the next one's logical offset is not known yet
        elif offset < low:
            first = find(items, 0) is item
            next_offset = low
            code = ResponseCode.PULL_OFFSET_MOVED if first else ResponseCode.PULL_RETRY_IMMEDIATELY
    if item.ended:
        next_offset = min(next_offset, item.end_offset)
    reply.code = code
    reply.header = msgspec.structs.replace(
        header,
        next_begin_offset=item.logical(next_offset),
        min_offset=item.logical(max(low, item.start_offset)),
        max_offset=max(item.logical(high), items[-1].least_end),
        offset_delta=item.delta,
    )
    return reply


def _offset_in(item: LogicQueueMappingItem, reply: Reply) -> Reply:
    if isinstance(reply.header, OffsetResponse):
        reply.header = OffsetResponse(offset=item.logical(reply.header.offset))
    return reply


def _decided(detail: TopicQueueMappingDetail, queue_id: int) -> Iterator[LogicQueueMappingItem]:
    return (item for item in _items(detail, queue_id) if item.decided)


SENDS = frozenset({Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
