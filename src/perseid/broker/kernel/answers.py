"""Answers as bytes: one place knows how a reply becomes a frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from perseid.base.errors import LocalProtocolError
from perseid.base.machine import Buffer
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.request import Reply, Request
from perseid.wire import properties as props
from perseid.wire.codes import ResponseCode
from perseid.wire.command import response_head
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.properties import encode as encode_properties

GATHER_BYTES = 64 * 1024
"""Pieces up to this size altogether are copied into one buffer; beyond it they are sent as they are."""


class Answers:
    """Encodes the replies of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self.reconfigure(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Answer by these settings from now on."""
        self._region = config.region_id
        self._trace_on = config.trace_on
        self.own_properties = {
            props.MSG_REGION: self._region,
            props.TRACE_ON: "true" if self._trace_on else "false",
            props.CLUSTER: config.broker_cluster_name,
        }
        """What every message that was sent alone carries besides its sender's properties."""
        self.encoded_properties: bytes = encode_properties(self.own_properties)
        """The same as a record carries them."""
        self.refused_send = {name: self.own_properties[name] for name in (props.MSG_REGION, props.TRACE_ON)}
        """The header of a refusal."""

    def sent(
        self, msg_id: str, queue_id: int, queue_offset: int, unique_key: str | None, recall_handle: str | None = None
    ) -> SendMessageResponse:
        """The header that answers a send."""
        return SendMessageResponse(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            msg_region=self._region,
            trace_on=self._trace_on,
            transaction_id=unique_key,
            recall_handle=recall_handle,
        )

    def encode(self, request: Request, reply: Reply) -> Sequence[Buffer]:
        """The frame that answers a request, in one piece or several; in the request's own serializer.

        An answer that is too long for a frame becomes an error (code 1) that says so.
        """
        body = reply.buffers or (reply.body,)
        size = sum(map(len, body))
        opaque, serializer, remark = request.command.opaque, request.command.serializer, reply.remark
        try:
            head = response_head(opaque, reply.code, reply.header, size, remark=remark, serializer=serializer)
        except LocalProtocolError as error:
            code = ResponseCode.SYSTEM_ERROR
            return (response_head(opaque, code, remark=f"the answer can't be sent: {error}", serializer=serializer),)
        if not size:
            return (head,)
        if size <= GATHER_BYTES:
            return (b"".join(chain((head,), body)),)
        return (head, *body)
