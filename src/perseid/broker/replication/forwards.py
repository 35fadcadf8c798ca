"""Sends that come to a slave, on their way to its master and back (`forwardSendsToMaster`).

A stock client reads its route every 30 s, and until then sends to the master that it knows. When that one is back, as a
slave, or another one was elected while it lived, it can be of use at once: it hands the send on, and the answer back.
The master sees the slave as the host where the message was born.

A send is handed on once: whoever gets one that was, and is no master either, refuses it. States of one: handed on →
answered, or → failed (2: nobody knows whether it is stored, as with any send without an answer).
"""

from __future__ import annotations

from typing import Protocol

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.rpc import Failure

MARK = "perseidForwarded"
"""An ext field that brokers and clients of other makes pass over."""
TIMEOUT_MS = 3_000
"""That of a Java client's send."""
MAX_WAITING = 10_000
"""Sends under way to the master; the next is refused with 2."""


class Member(Protocol):
    """This broker's place in its set."""

    @property
    def broker_id(self) -> int:
        """As it stands in the route."""

    @property
    def master_for_sends(self) -> str:
        """Where a send may be handed on to that we may not take; "": nowhere."""


class Forwards:
    """The sends that one broker hands on."""

    def __init__(self, turn: Turn, settings: Settings, member: Member) -> None:
        self._turn = turn
        self._settings = settings
        self._member = member
        self._waiting = 0

    def master_for(self, request: Request) -> str:
        """Where a send goes that we may not take; "": nowhere."""
        if not self._settings.current.forward_sends_to_master or MARK in request.command.ext:
            return ""
        return self._member.master_for_sends

    def send(self, master: str, request: Request) -> None:
        """Hand a send on; it is answered later. RequestRefused: too many are under way."""
        if self._waiting >= MAX_WAITING:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} sends are on their way to the master {master} already"
            )
        command = request.command
        ext: dict[str, str | None] = {**command.ext, MARK: str(self._member.broker_id)}
        if command.is_oneway:
            self._turn.tell(master, command.code, ext, command.body, TIMEOUT_MS)
            return
        request.command = command.keep()
        self._waiting += 1

        def answered(answer: Command | Failure, now: Millis) -> None:
            self._waiting -= 1
            if isinstance(answer, Failure):
                remark = f"the master {master} did not answer: {answer.reason}"
                self._turn.reply(request, Reply(ResponseCode.SYSTEM_BUSY, remark=remark))
            else:
                body = bytes(answer.body)
                self._turn.reply(request, Reply(answer.code, answer.ext, body, answer.remark))

        self._turn.call(master, command.code, ext, command.body, TIMEOUT_MS, answered)

    def validate(self) -> None:
        """AssertionError: more sends are under way than may be, or fewer than none."""
        assert 0 <= self._waiting <= MAX_WAITING, self._waiting
