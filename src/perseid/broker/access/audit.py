"""What of a broker's requests is written into the audit log.

Each request of administration has a line, and each that is refused. What clients do all day (`MESSAGING`) has none as
long as it is allowed, nor has what the nodes of a cluster read from one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.turn import Turn
from perseid.security.audit import Journal
from perseid.security.policies import Action, Asked
from perseid.security.signature import ACCESS_KEY
from perseid.wire.codes import RequestCode
from perseid.wire.headers.base import Header

READS = frozenset((Action.GET, Action.LIST))
MESSAGING = frozenset(
    (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE, RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG, RequestCode.QUERY_ASSIGNMENT, RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.PEEK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO,
        RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL,
    )
)  # fmt: skip
"""What clients do all day. All else is administration."""


class Audit:
    """Of one broker."""

    def __init__(self, journal: Journal, turn: Turn, nodes: str) -> None:
        """`nodes`: the user that nodes sign as; empty: there is none."""
        self._journal = journal
        self._turn = turn
        self._nodes = nodes

    def allowed(self, request: Request, route: Route, cluster: str) -> None:
        """A request of administration that its user may send."""
        asked = _asked(request, route, cluster)
        is_read = bool(asked) and all(READS.issuperset(one.actions) for one in asked)
        if not (is_read and request.user and request.user == self._nodes):
            self._tell(request, asked, "")

    def refused(self, request: Request, asked: Sequence[Asked], why: str) -> None:
        """Any request that was refused, as far as it is known what it asked for."""
        self._tell(request, asked, why)

    def tick(self, now: Millis) -> None:
        """Say how many had no line."""
        self._journal.tick(now)

    def next_deadline(self) -> Millis | None:
        """When that is."""
        return self._journal.next_deadline()

    def close(self) -> None:
        """The broker ends."""
        self._journal.close(self._turn.now)

    def _tell(self, request: Request, asked: Sequence[Asked], why: str) -> None:
        command = request.command
        fields = None if command.code in MESSAGING else partial(_fields, request.header)
        user = request.user or command.ext.get(ACCESS_KEY) or ""
        self._journal.tell(
            self._turn.now, command.code, user, request.conn.peer, why=why, asked=asked, fields=fields
        )


def _asked(request: Request, route: Route, cluster: str) -> list[Asked]:
    """What it asks for; nothing where that can't be read: the handler will say so."""
    try:
        if route.header is not None and request.header is None:
            request.header = request.command.header(route.header)
        return list(route.asks(request, cluster))
    except RequestRefused:
        return []


def _fields(header: Any) -> dict[str, object]:
    """What a request's fields say, its body left out: whom, which topic, from when on."""
    return msgspec.to_builtins(header) if isinstance(header, Header) else {}
