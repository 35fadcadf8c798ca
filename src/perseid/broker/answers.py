"""Answers as bytes: one place knows how a reply becomes a frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from perseid.base.machine import Buffer
from perseid.broker.config import BrokerConfig
from perseid.broker.request import Reply, Request
from perseid.wire import properties as props
from perseid.wire.command import response_head
from perseid.wire.headers.base import Header, Int, Long, quote

GATHER_BYTES = 64 * 1024
"""Pieces up to this size altogether are copied into one buffer; beyond it they are sent as they are."""


class Sent(Header):
    """The header of a send's answer: the original's, with the two fields that tracing clients look for."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    msg_region: str
    trace_on: str
    transaction_id: str | None = None

    def json_ext(self) -> str:
        """The quickest way to the text: only the client's own id has to be quoted with care."""
        transaction = "" if self.transaction_id is None else f',"transactionId":{quote(self.transaction_id)}'
        return (
            f'{{"msgId":"{self.msg_id}","queueId":"{self.queue_id}","queueOffset":"{self.queue_offset}",'
            f'"MSG_REGION":{quote(self.msg_region)},"TRACE_ON":"{self.trace_on}"{transaction}}}'
        )


class Answers:
    """Encodes the replies of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._region = config.region_id
        self._trace_on = "true" if config.trace_on else "false"
        self.own_properties = {
            props.MSG_REGION: self._region,
            props.TRACE_ON: self._trace_on,
            props.CLUSTER: config.broker_cluster_name,
        }
        """What every stored message carries besides its sender's properties."""

    def sent(self, msg_id: str, queue_id: int, queue_offset: int, unique_key: str | None) -> Sent:
        """The header that answers a send."""
        return Sent(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            msg_region=self._region,
            trace_on=self._trace_on,
            transaction_id=unique_key,
        )

    def encode(self, request: Request, reply: Reply) -> Sequence[Buffer]:
        """The frame that answers a request, in one piece or several; in the request's own serializer."""
        body = reply.buffers or (reply.body,)
        size = sum(map(len, body))
        head = response_head(
            request.command.opaque,
            reply.code,
            reply.header,
            size,
            remark=reply.remark,
            serializer=request.command.serializer,
        )
        if not size:
            return (head,)
        if size <= GATHER_BYTES:
            return (b"".join(chain((head,), body)),)
        return (head, *body)
