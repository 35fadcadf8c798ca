"""QUERY_MESSAGE (12) by key, VIEW_MESSAGE_BY_ID (33) by physical offset."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.broker.kernel import asks, messages
from perseid.broker.kernel.asks import GET, SUB, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.store.reads import Reads
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.query import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageByIdRequest,
)

MAX_BYTES = 8 * 1024 * 1024
"""Of one answer, unless a single record is longer: all of it has to fit into a frame."""


@dataclass(slots=True, kw_only=True)
class QueryRequests:
    """Requests for messages by key and by place."""

    settings: Settings
    reads: Reads

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(Code.QUERY_MESSAGE, QueryMessageRequest, self.query_message, asks=of_topic(SUB, GET, exact=True)),
            Route(Code.VIEW_MESSAGE_BY_ID, ViewMessageByIdRequest, self.view_message, asks=asks.one_message),
        )

    def query_message(self, request: Request) -> Reply:
        """The messages of a topic that carry a key, by the index; the caller compares the keys themselves."""
        header: QueryMessageRequest = request.header
        most = header.max_num
        if request.command.ext.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            most = self.settings.current.default_query_max_num
        found = self.reads.query(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp, header.index_type
        )
        answer = QueryMessageResponse(
            index_last_update_timestamp=found.index_timestamp,
            index_last_update_phyoffset=found.index_physical_offset,
        )
        if not found.records:
            return Reply(
                ResponseCode.QUERY_NOT_FOUND, answer, remark="can not find message, maybe time range not correct"
            )
        return Reply(header=answer, buffers=_within(found.records, MAX_BYTES))

    def view_message(self, request: Request) -> Reply:
        """One message by its physical offset, as it stands in an offset message id."""
        header: ViewMessageByIdRequest = request.header
        return Reply(buffers=[messages.found_at(self.reads, header.offset)])


def _within(records: list[memoryview], most_bytes: int) -> list[memoryview]:
    """The first of them, as many as fit, at least one."""
    count = size = 0
    for record in records:
        size += len(record)
        if count and size > most_bytes:
            break
        count += 1
    return records[:count]
