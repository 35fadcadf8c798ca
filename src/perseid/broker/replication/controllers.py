"""The controllers, as a broker asks them: which one is active, and what it says.

All are asked at once who leads, again each `FIND_MS` until one says it, and each `syncControllerMetadataPeriod` from
then on. Whoever does not answer, says that it leads no longer, or whose connection is lost is asked no more until it is
named again: nothing waits for the next period, as in the original.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.controller import GetMetaDataResponse
from perseid.wire.rpc import Failure

FIND_MS = 200
"""Between two rounds of asking who leads."""
SOON_MS = 50
"""Before the first such round, and after a question that may succeed soon."""
TIMEOUT_MS = 3_000
MAX_CONTROLLERS = 64
LOST = frozenset((0, ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER))
"""What a controller answers that is not the active one; 0: nothing. SYSTEM_ERROR is the original's 5 s without a
quorum."""
ANSWERS = frozenset(
    (
        (RequestCode.CONTROLLER_ELECT_MASTER, ResponseCode.CONTROLLER_MASTER_STILL_EXIST),
    )
)
"""Besides success: an answer that holds what was asked for."""

Take = Callable[[Command, Millis], None]
Failed = Callable[[int, str, Millis], None]
"""Told a code (0: there was no answer), and why."""


class Controllers:
    """Those of one broker. `found` is told when another one is active than before."""

    def __init__(self, turn: Turn, settings: Settings, found: Callable[[Millis], None]) -> None:
        self._turn = turn
        self._settings = settings
        self._found = found
        self._named = self._configured()
        self.leader: str | None = None
        """Where the active one is; None: nobody knows."""
        self._noted: str | None = None
        """Of whom was said last that it leads."""
        self._complained = ""
        """The last reason that was worth a line."""
        self._find_at: Millis | None = None
        self.ending = False

    def _configured(self) -> list[str]:
        named = dict.fromkeys(one.strip() for one in self._settings.current.controller_addr.split(";") if one.strip())
        return list(named)[:MAX_CONTROLLERS]

    def reconfigure(self, now: Millis) -> None:
        """Others are named from now on: they say which one leads."""
        self._named, self.leader = self._configured(), None
        self.find(now)

    @property
    def addresses(self) -> list[str]:
        """Of all that are known."""
        return [*self._named, *(one for one in (self.leader,) if one is not None and one not in self._named)]

    def complain(self, why: str) -> None:
        """A line for people, once for each reason."""
        if why != self._complained:
            self._complained = why
            self._turn.note("warning", why)

    # ---- asking ----

    def ask(
        self, address: str, code: RequestCode, header: Header | None, body: bytes, now: Millis, take: Take,
        failed: Failed,
    ) -> None:  # fmt: skip
        """Ask somebody: either `take` or `failed` is called, once, but at the end of the broker."""

        def answered(reply: Command | Failure, now: Millis) -> None:
            if self.ending:
                return
            if isinstance(reply, Failure):
                failed(0, reply.reason, now)
            elif reply.code != ResponseCode.SUCCESS and (code, reply.code) not in ANSWERS:
                failed(reply.code, f"answer {reply.code} {reply.remark or ''}", now)
            else:
                try:
                    take(reply, now)
                except RequestRefused as refused:
                    failed(0, f"its answer can't be read: {refused.remark}", now)

        self._turn.call(address, code, header, body, TIMEOUT_MS, answered)

    def ask_leader(
        self, code: RequestCode, header: Header | None, body: bytes, now: Millis, take: Take, failed: Failed
    ) -> bool:
        """Ask the active controller; False: nobody knows which one that is, and nothing was asked."""
        leader = self.leader
        if leader is None:
            return False

        def lost(code: int, why: str, now: Millis) -> None:
            if code in LOST:
                self.forget(leader, now)
            failed(code, why, now)

        self.ask(leader, code, header, body, now, take, lost)
        return True

    # ---- which one is active ----

    def find(self, now: Millis) -> None:
        """Ask all of them."""
        if self.ending:
            return
        period = self._settings.current.sync_controller_metadata_period
        self._find_at = now + (FIND_MS if self.leader is None else period)
        for address in self._named:
            self.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO, None, b"", now, self._told, ignore_failure)

    def _told(self, reply: Command, now: Millis) -> None:
        leader = reply.header(GetMetaDataResponse).controller_leader_address
        if not leader or leader == self.leader:
            return
        self.leader = leader
        if leader != self._noted:
            self._noted = leader
            self._turn.note("info", f"controller {leader} leads")
        self._find_at = now + self._settings.current.sync_controller_metadata_period
        self._found(now)

    def forget(self, address: str, now: Millis) -> None:
        """It does not lead, or is gone."""
        if address == self.leader and not self.ending:
            self.leader = None
            self._find_at = now + SOON_MS

    def tick(self, now: Millis) -> None:
        if self._find_at is not None and self._find_at <= now:
            self.find(now)

    def next_deadline(self) -> Millis | None:
        return None if self.ending else self._find_at


def ignore_failure(code: int, why: str, now: Millis) -> None:
    """No answer is no trouble: the question is asked again by the clock."""
