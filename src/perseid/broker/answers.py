"""Answers as bytes: one place knows how a reply becomes a frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from perseid.base.machine import Buffer
from perseid.broker.config import BrokerConfig
from perseid.broker.request import Reply, Request
from perseid.wire import properties as props
from perseid.wire.command import response_head
from perseid.wire.headers.send import SendMessageResponse

GATHER_BYTES = 64 * 1024
"""Pieces up to this size altogether are copied into one buffer; beyond it they are sent as they are."""


class Answers:
    """Encodes the replies of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._region = config.region_id
        self._trace_on = config.trace_on
        self.own_properties = {
            props.MSG_REGION: self._region,
            props.TRACE_ON: "true" if self._trace_on else "false",
            props.CLUSTER: config.broker_cluster_name,
        }
        """What every stored message carries besides its sender's properties."""

    def sent(self, msg_id: str, queue_id: int, queue_offset: int, unique_key: str | None) -> SendMessageResponse:
        """The header that answers a send."""
        return SendMessageResponse(
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
