"""Sending, replies, transactions (remoting.md §5, 10, 14)."""

from __future__ import annotations

from msgspec import field
from msgspec.structs import fields

from perseid.wire.headers.base import FALSE, TRUE, Header, Int, Long, json_ext, quote


class SendMessageRequest(Header):
    """Long names: codes 10 and 324."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None
    broker_name: str | None = field(default=None, name="bname")


class SendMessageRequestV2(SendMessageRequest):
    """The same fields under short names: codes 310, 320 and 325."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str = field(default="", name="i")
    reconsume_times: Int = field(default=0, name="j")
    unit_mode: bool = field(default=False, name="k")
    max_reconsume_times: Int | None = field(default=None, name="l")
    batch: bool = field(default=False, name="m")
    broker_name: str | None = field(default=None, name="n")


SEND_FIELDS = tuple(
    (letter, {field.name: field.encode_name for field in fields(SendMessageRequest)}[one.name], one.required)
    for letter, one in sorted((one.encode_name, one) for one in fields(SendMessageRequestV2))
)
"""Of a send, in the order of their letters: the short name, the long one, and whether each send has the field."""


class SendMessageResponse(Header):
    """Of all kinds of sends. `msg_id` is a list joined by commas after a batch."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(default=None, name="MSG_REGION")
    trace_on: bool | None = field(default=None, name="TRACE_ON")

    def json_ext(self) -> str:
        """As `base.json_ext`, but quicker for the usual fields: this is written once for every message."""
        unique_key, region, trace_on = self.transaction_id, self.msg_region, self.trace_on
        unusual = self.batch_uniq_id is not None or self.recall_handle is not None
        if unusual or unique_key is None or region is None or trace_on is None:
            return json_ext(self)
        return (
            f'{{"msgId":{quote(self.msg_id)},"queueId":"{self.queue_id}","queueOffset":"{self.queue_offset}",'
            f'"transactionId":{quote(unique_key)},"MSG_REGION":{quote(region)},'
            f'"TRACE_ON":{TRUE if trace_on else FALSE}}}'
        )


class PushReplyMessageRequest(Header):
    """A reply on its way to the client that asked: code 326."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    store_timestamp: Long = 0
    properties: str = ""
    reconsume_times: Int | None = None
    unit_mode: bool = False


class RecallMessageRequest(Header):
    """370: take a timed message back."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessageResponse(Header):
    """The id of what 370 took back."""

    msg_id: str
    msg_region: str | None = field(default=None, name="MSG_REGION")


class EndTransactionRequest(Header):
    """37: commit (8) or roll back (12) a half message."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequest(Header):
    """39: asks a producer what became of a transaction; the body is the message."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")
