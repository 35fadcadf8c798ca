"""Lite topics (200070 to 200079)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long


class PopLiteMessageRequest(Header):
    """200070: messages of the lite topics that a client reads."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0
    attempt_id: str | None = None


class PopLiteMessageResponse(Header):
    """Of 200070; the records are the body, and orderCountInfo says how often each was popped before."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class NotifyUnsubscribeLiteRequest(Header):
    """200073: a broker tells a client that it reads a lite topic no longer."""

    lite_topic: str
    consumer_group: str
    client_id: str


class GetParentTopicInfoRequest(Header):
    """200075."""

    topic: str


class GetLiteTopicInfoRequest(Header):
    """200076."""

    parent_topic: str = ""
    lite_topic: str = ""


class GetLiteClientInfoRequest(Header):
    """200077."""

    parent_topic: str = ""
    group: str = ""
    client_id: str = ""
    max_count: Int = 0


class GetLiteGroupInfoRequest(Header):
    """200078."""

    group: str
    lite_topic: str | None = None
    top_k: Int = 0


class TriggerLiteDispatchRequest(Header):
    """200079."""

    group: str
    client_id: str | None = None
