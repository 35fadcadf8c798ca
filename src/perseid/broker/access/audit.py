"""The audit log: who asked for what, from where, and whether it was allowed; a JSON object a line.

Each request of administration has a line, and each that is refused. What clients do all day (`MESSAGING`) has none as
long as it is allowed, nor has what the nodes of a cluster read from one another. A storm costs little: of refusals, and
of requests that were allowed, so many a second have lines, and one more line says how many had none.

Where the lines go is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.turn import Turn
from perseid.security.policies import Action, Asked
from perseid.security.signature import ACCESS_KEY
from perseid.wire.codes import RequestCode
from perseid.wire.headers.base import Header

Write = Callable[[bytes], None]
"""Takes a line, without its end."""

ALLOWED_PER_SECOND = 1_000
"""Lines of requests that were allowed; of refusals: auditLogRefusalsPerSecond."""
MAX_CHARS = 256
"""Of each text of a line."""
MAX_ASKED, MAX_FIELDS = 16, 16
"""Resources, and fields of a request, in a line."""
WINDOW_MS = 1_000
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


class _Told(msgspec.Struct):
    resource: str
    actions: list[str]


class _Line(msgspec.Struct, rename="camel", omit_defaults=True):
    time: str
    allowed: bool | None = None
    user: str = ""
    address: str = ""
    code: str = ""
    asked: list[_Told] = []
    fields: dict[str, str] = {}
    why: str = ""
    left_out: int = 0


class _Pace:
    """So many lines a second of one kind."""

    def __init__(self, most: int, what: str) -> None:
        self.most = most
        self.what = what
        self.left_out = 0
        self._window: Millis = 0
        self._told = 0

    def admits(self, now: Millis) -> bool:
        """May one more line be written? Else it is counted."""
        if now - self._window >= WINDOW_MS or now < self._window:
            self._window, self._told = now, 0
        if self._told >= self.most:
            self.left_out += 1
            return False
        self._told += 1
        return True

    @property
    def ends(self) -> Millis:
        """When its second is over."""
        return self._window + WINDOW_MS


class Audit:
    """Of one broker."""

    def __init__(self, write: Write, turn: Turn, refusals_per_second: int, nodes: str) -> None:
        """`nodes`: the user that nodes sign as; empty: there is none."""
        self._write = write
        self._turn = turn
        self._nodes = nodes
        self._allowed = _Pace(ALLOWED_PER_SECOND, "requests that were allowed")
        self._refused = _Pace(refusals_per_second, "refusals")

    def allowed(self, request: Request, route: Route, cluster: str) -> None:
        """A request of administration that its user may send."""
        asked = _asked(request, route, cluster)
        is_read = bool(asked) and all(READS.issuperset(one.actions) for one in asked)
        if is_read and request.user and request.user == self._nodes:
            return
        self._tell(self._allowed, request, asked, "")

    def refused(self, request: Request, asked: Sequence[Asked], why: str) -> None:
        """Any request that was refused, as far as it is known what it asked for."""
        self._tell(self._refused, request, asked, why)

    # ---- what was left out ----

    def tick(self, now: Millis) -> None:
        """Say how many were left out, when their second is over."""
        for pace in self._paces():
            if pace.left_out and now >= pace.ends:
                self._say_left_out(pace)

    def next_deadline(self) -> Millis | None:
        """When that is."""
        return min((pace.ends for pace in self._paces() if pace.left_out), default=None)

    def close(self) -> None:
        """Say it now: the broker ends."""
        for pace in self._paces():
            if pace.left_out:
                self._say_left_out(pace)

    def _paces(self) -> Iterable[_Pace]:
        return self._allowed, self._refused

    def _say_left_out(self, pace: _Pace) -> None:
        count, pace.left_out = pace.left_out, 0
        why = f"more than {pace.most} {pace.what} in a second"
        self._write(_json(_Line(self._time(), pace is self._allowed, left_out=count, why=why)))

    # ---- lines ----

    def _tell(self, pace: _Pace, request: Request, asked: Sequence[Asked], why: str) -> None:
        now = self._turn.now
        if pace.left_out and now >= pace.ends:
            self._say_left_out(pace)
        if not pace.admits(now):
            return
        command = request.command
        is_messaging = command.code in MESSAGING
        line = _Line(
            self._time(), pace is self._allowed, _text(request.user or command.ext.get(ACCESS_KEY) or ""),
            _text(request.conn.peer), _name(command.code),
            [_Told(_text(one.key), [action.value for action in one.actions]) for one in asked[:MAX_ASKED]],
            {} if is_messaging else _fields(request.header), _text(why, 2 * MAX_CHARS),
        )  # fmt: skip
        self._write(_json(line))

    def _time(self) -> str:
        at = datetime.fromtimestamp(self._turn.now / 1000, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _asked(request: Request, route: Route, cluster: str) -> list[Asked]:
    """What it asks for; nothing where that can't be read: the handler will say so."""
    try:
        if route.header is not None and request.header is None:
            request.header = request.command.header(route.header)
        return list(route.asks(request, cluster))
    except RequestRefused:
        return []


def _fields(header: Any) -> dict[str, str]:
    """What a request's fields say, its body left out: whom, which topic, from when on."""
    if not isinstance(header, Header):
        return {}
    given = {name: value for name, value in msgspec.to_builtins(header).items() if value not in (None, "")}
    return {name: _text(str(value)) for name, value in list(given.items())[:MAX_FIELDS]}


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _text(text: str, most: int = MAX_CHARS) -> str:
    """Bounded, and of characters that a file can hold."""
    return text[:most].encode(errors="backslashreplace").decode()


def _json(line: _Line) -> bytes:
    return msgspec.json.encode(line)
