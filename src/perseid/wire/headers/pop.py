"""POP consumption (remoting.md §11). These codes travel with JSON headers only."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long


class PopMessageRequest(Header):
    """200050: messages that are invisible to others until they are acknowledged."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponse(Header):
    """Of 200050 and 200052; the records are the body."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequest(Header):
    """200052: look without taking."""

    topic: str
    consumer_group: str
    queue_id: Int = 0
    max_msg_nums: Int = 0


class AckMessageRequest(Header):
    """200051: a popped message is consumed."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None


class ChangeInvisibleTimeRequest(Header):
    """200053: more time for a popped message."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponse(Header):
    """Parts of the new handle."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0


class NotificationRequest(Header):
    """200054: waits until there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponse(Header):
    """Of 200054."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequest(Header):
    """200055: how many wait."""

    consumer_group: str
    topic: str
    queue_id: Int = 0


class PollingInfoResponse(Header):
    """Of 200055."""

    polling_num: Int
