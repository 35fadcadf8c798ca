"""Looking messages up (remoting.md §10)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int, Long

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""An ext field that a client adds when the key is a unique id."""


class QueryMessageRequest(Header):
    """12: the messages of a topic with a key."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponse(Header):
    """How far the index is; the records are the body."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageByIdRequest(Header):
    """33: one message by its place in the commit log."""

    offset: Long
    """Physical."""
    topic: str | None = None


ViewMessageRequest = ViewMessageByIdRequest


class QueryConsumeQueueRequest(Header):
    """321: units of a consume queue."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None
