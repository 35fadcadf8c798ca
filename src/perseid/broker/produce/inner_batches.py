"""Batches for topics with `queue.type` BatchCQ: stored as they come, as one record (store.md §3.7).

So it is with a batch that has a unique key of its own, as the Java client's have since 5.0; others are split into
records, as for any topic. Who knows how may also send a batch as one message, with the flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.produce import appender as put
from perseid.store import inner, lmq
from perseid.store.results import AppendRefused
from perseid.wire import batch, ids
from perseid.wire import properties as props
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.ids import UniqueIds
from perseid.wire.record import SYS_COMPRESSED, SYS_INNER_BATCH, SYS_NEED_UNWRAP, Message

if TYPE_CHECKING:
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.produce.appender import Appender


def is_inner(header: SendMessageRequest, sys_flag: int) -> bool:
    """Is a send to such a topic a batch that is stored as one record?"""
    keyed = header.batch and props.get(header.properties.encode("utf-8", "replace"), props.UNIQ_KEY) is not None
    return keyed or sys_flag & SYS_INNER_BATCH != 0


@dataclass(slots=True, kw_only=True)
class InnerBatches:
    """Batches that are stored as one record."""

    turn: Turn
    settings: Settings
    appender: Appender
    stats: Counts
    answers: Answers
    unique_ids: UniqueIds

    def send(self, request: Request, header: SendMessageRequest, queue_id: int, sys_flag: int) -> Reply | None:
        """Store a batch in one record; it has as many queue offsets as messages. The sender is told that it is one
        record when its batch has a key (`batchUniqId`)."""
        unique_key = props.get(header.properties.encode("utf-8", "replace"), props.UNIQ_KEY)
        body, own = request.command.body, header.properties.encode("utf-8", "replace")
        properties = props.decode(own)
        stated = properties.pop(props.INNER_NUM, None)
        properties.pop(props.INNER_BASE, None)
        self.appender.check_batch(header, len(body), props.encode(properties))
        count = _count(body, sys_flag)
        if stated is not None and stated != str(count):
            raise _refused(f"INNER_NUM says {stated[:20]!r}, the batch has {count} messages")
        if lmq.MARK in own:
            raise _refused("a batch can't stand in light queues")
        if unique_key is None:
            properties[props.UNIQ_KEY] = self.unique_ids.next(self.turn.now)
        properties.update(self.answers.own_properties)
        properties[props.INNER_NUM] = str(count)
        message = Message(
            topic=header.topic,
            body=body,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=sys_flag | SYS_INNER_BATCH | SYS_NEED_UNWRAP,
            born_timestamp=header.born_timestamp,
            born_host=request.conn.born_host,
            store_host=self.settings.store_host,
            reconsume_times=header.reconsume_times,
            properties=props.encode(properties),
        )
        try:
            stored = self.appender.store(message)
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        self.stats.put(header.topic, count - 1, 0)
        msg_id = ids.offset_message_id(self.settings.store_host, stored.physical_offset)
        answer = self.answers.sent(msg_id, queue_id, stored.queue_offset, properties[props.UNIQ_KEY])
        answer.batch_uniq_id = unique_key if header.batch else None
        return self.appender.acknowledge(
            request, Reply(header=answer), stored.physical_offset + stored.size, put.waits(own)
        )


def _count(body: Buffer, sys_flag: int) -> int:
    """How many messages a batch has; refused (13) when it has none or too many, or can't be read."""
    if sys_flag & SYS_COMPRESSED:
        raise _refused("a batch is not compressed as a whole")
    try:
        items = batch.decode(body)
    except RemoteProtocolError as error:
        raise _refused(f"the batch body can't be read: {error}") from None
    if not 1 <= len(items) <= inner.MAX_COUNT:
        raise _refused(f"a batch of {len(items)} messages; 1 to {inner.MAX_COUNT} are possible")
    for item in items:
        put.batchable(item.properties)
    return len(items)


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
