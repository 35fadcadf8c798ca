"""Acknowledgements that can't be given as they were meant: time is up, or nobody knows what becomes of the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.acks import Waiting
from perseid.wire import command
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageResponse

if TYPE_CHECKING:
    from perseid.broker.node import Broker


def answer_late(broker: Broker, late: Waiting) -> None:
    """The message is stored, but not as safely as the mode promises, and time is up."""
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
    for answer in command.decode_each(late.frames):
        header = answer.header(SendMessageResponse)
        broker.write(late.conn, command.encode_response(answer.opaque, code, header))
