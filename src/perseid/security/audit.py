"""The audit log: who asked for what, from where, and whether it was allowed; a JSON object a line.

A storm costs little: of refusals, and of requests that were allowed, so many a second have lines, and one more line
says how many had none. Where the lines go is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from perseid.base.config import option
from perseid.base.machine import Millis
from perseid.security.policies import Asked
from perseid.wire.codes import RequestCode

Write = Callable[[bytes], None]
"""Takes a line, without its end."""

REFUSALS_PER_SECOND = 100
ALLOWED_PER_SECOND = 1_000
"""Lines of requests that were allowed; of refusals: auditLogRefusalsPerSecond."""
MAX_CHARS = 256
"""Of each text of a line."""
MAX_ASKED, MAX_FIELDS = 16, 16
"""Resources, and fields of a request, in a line."""
WINDOW_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Of the audit log, as they stand in a file."""

    audit_log_enabled: bool = option(
        True,
        "With `authenticationEnabled`: who asked for what, from where, and whether it was allowed is written to "
        "`audit.log`, a JSON object a line.",
        section="Audit log",
        ours=True,
    )
    audit_log_path: str = option(
        "",
        "The folder of `audit.log`.",
        ours=True,
        computed="`audit` below the folder of the node's own files",
    )
    audit_log_file_size: int = option(
        16 << 20,
        "How large `audit.log` gets before it becomes `audit.log.1`, that one `audit.log.2`, and so on.",
        unit="bytes",
        low=1 << 16,
        high=1 << 30,
        ours=True,
    )
    audit_log_file_count: int = option(
        10,
        "How many files are kept. The oldest is removed.",
        unit="files",
        low=2,
        high=1_000,
        ours=True,
    )
    audit_log_refusals_per_second: int = option(
        REFUSALS_PER_SECOND,
        "How many refusals a second get a line. One more line says how many had none, so that a flood does not fill "
        "the disk.",
        unit="lines",
        low=1,
        high=100_000,
        ours=True,
    )


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


class Journal:
    """Of one node."""

    def __init__(self, write: Write, refusals_per_second: int = REFUSALS_PER_SECOND) -> None:
        self._write = write
        self._allowed = _Pace(ALLOWED_PER_SECOND, "requests that were allowed")
        self._refused = _Pace(refusals_per_second, "refusals")

    def tell(
        self, now: Millis, code: int, user: str, address: str, *, why: str = "", asked: Sequence[Asked] = (),
        fields: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:  # fmt: skip
        """A request; `why` it was refused; empty: it was allowed. `fields` gives what it says, where that is told."""
        pace = self._refused if why else self._allowed
        if pace.left_out and now >= pace.ends:
            self._say_left_out(pace, now)
        if not pace.admits(now):
            return
        line = _Line(
            _time(now), not why, _text(user), _text(address), _name(code),
            [_Told(_text(one.key), [action.value for action in one.actions]) for one in asked[:MAX_ASKED]],
            {} if fields is None else _fields(fields()), _text(why, 2 * MAX_CHARS),
        )  # fmt: skip
        self._write(msgspec.json.encode(line))

    # ---- what was left out ----

    def tick(self, now: Millis) -> None:
        """Say how many were left out, when their second is over."""
        for pace in (self._allowed, self._refused):
            if pace.left_out and now >= pace.ends:
                self._say_left_out(pace, now)

    def next_deadline(self) -> Millis | None:
        """When that is."""
        return min((pace.ends for pace in (self._allowed, self._refused) if pace.left_out), default=None)

    def close(self, now: Millis) -> None:
        """Say it now: the node ends."""
        for pace in (self._allowed, self._refused):
            if pace.left_out:
                self._say_left_out(pace, now)

    def _say_left_out(self, pace: _Pace, now: Millis) -> None:
        count, pace.left_out = pace.left_out, 0
        why = f"more than {pace.most} {pace.what} in a second"
        line = _Line(_time(now), pace is self._allowed, left_out=count, why=why)
        self._write(msgspec.json.encode(line))


def _time(now: Millis) -> str:
    return datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(given: Mapping[str, object]) -> dict[str, str]:
    told = [(name, value) for name, value in given.items() if value not in (None, "")]
    return {_text(name): _text(str(value)) for name, value in told[:MAX_FIELDS]}


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _text(text: str, most: int = MAX_CHARS) -> str:
    """Bounded, and of characters that a file can hold."""
    return text[:most].encode(errors="backslashreplace").decode()
