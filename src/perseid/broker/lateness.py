"""Answers to messages that are stored, but not as safely as the mode promises, when time for that is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.acks import Waiting
from perseid.wire import command as wire
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageResponse

if TYPE_CHECKING:
    from perseid.broker.node import Broker


def answer(broker: Broker, late: Waiting) -> None:
    """Say what is missing: the disk, or other replicas."""
    replicated = broker.replicas.replicated() >= late.end_offset
    code = ResponseCode.FLUSH_DISK_TIMEOUT if replicated else ResponseCode.FLUSH_SLAVE_TIMEOUT
    if broker.group is not None:
        code = ResponseCode.SYSTEM_ERROR
    answer_instead(broker, late, code, "IN_SYNC_REPLICAS_NOT_ENOUGH: no quorum had the message in time")


def answer_instead(broker: Broker, late: Waiting, code: int, remark: str) -> None:
    """Answer what waits with another code. The remark is for codes that senders take for a failure."""
    broker.stats.put_took(broker.now - late.since, late.count)
    if late.request is not None and late.reply is not None:
        late.reply.code = code
        if code == ResponseCode.SYSTEM_ERROR:
            late.reply.remark = remark
        broker.reply(late.request, late.reply)
    for sent in wire.decode_each(late.frames):
        header = sent.header(SendMessageResponse)
        broker.write(late.conn, wire.encode_response(sent.opaque, code, header))
