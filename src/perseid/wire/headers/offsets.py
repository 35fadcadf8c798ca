"""Offsets of queues and groups (remoting.md §12)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long


class QueryConsumerOffsetRequest(Header):
    """14: what a group has committed."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class OffsetResponse(Header):
    """Of codes 14, 29, 30 and 31."""

    offset: Long


class UpdateConsumerOffsetRequest(Header):
    """15: commit an offset."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetByTimestampRequest(Header):
    """29: the offset at a time."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    """LOWER (also when absent) or UPPER, in any case."""
    lite_topic: str | None = None


class GetMaxOffsetRequest(Header):
    """30: one more than the last offset."""

    topic: str
    queue_id: Int
    committed: bool = False


class GetMinOffsetRequest(Header):
    """31: the first offset that is still there."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeRequest(Header):
    """32: when the first message that is still there was stored."""

    topic: str
    queue_id: Int


class TimestampResponse(Header):
    """Of code 32; −1: there is none."""

    timestamp: Long


class ResetOffsetRequest(Header):
    """To a broker (222), and from it to the clients (220)."""

    group: str
    topic: str
    timestamp: Long
    queue_id: Int = 0
    offset: Long | None = None
    is_force: bool = False


class GetConsumerStatusRequest(Header):
    """To a broker (223), and from it to the clients (221)."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequest(Header):
    """314: copy a group's offsets to another group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetRequest(Header):
    """308: the offsets of other groups that are behind one group."""

    compare_group: str
    topic: str
    filter_groups: str | None = None
