"""Whether this broker is a master or a slave now, and what it becomes and drops when that changes: one list, from the
top to the bottom, for both ways.

    slave ⇄ master

Whatever a master has and a slave has not adds a row (`RoleHook`). Nothing there waits: what must be durable before a
role begins is so already, and what has to be told to others is told at once. Queue offsets need no row: each queue ends
where its log's last record of it says, in every role.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn


def nothing() -> None:
    """Of a part that has nothing to do in this direction."""


class RoleHook(NamedTuple):
    """Something that hangs on the role. `sent_away`: also done, with other brokers' help, by a slave that acts.
    `at_start`: a start as master does it, too."""

    name: str
    lead: Callable[[], None] = nothing
    follow: Callable[[], None] = nothing
    sent_away: bool = False
    at_start: bool = False


class Escapes(Protocol):
    """How messages of a slave that acts for its master go to another broker."""

    @property
    def wanted(self) -> bool:
        """May they?"""

    def switch(self, on: bool) -> None:
        """From now on they do, or do no longer."""


class Roles:
    """The role of one broker."""

    def __init__(self, turn: Turn, settings: Settings) -> None:
        self.is_slave = False
        self._turn = turn
        self._settings = settings
        self._hooks: Sequence[RoleHook] = ()

    def hang(self, hooks: Sequence[RoleHook]) -> None:
        """The hooks of the role, in their order."""
        self._hooks = hooks

    def start(self) -> None:
        """The broker begins: what a master has from its start."""
        if not self.is_slave:
            for hook in self._hooks:
                if hook.at_start:
                    hook.lead()

    def become(self, *, master: bool) -> None:
        """The broker's role is another one from now on."""
        self.is_slave = not master
        name = self._settings.current.broker_name
        self._turn.note("info", f"{name} is {'master' if master else 'slave'} here")
        for hook in self._hooks:
            (hook.lead if master else hook.follow)()

    def send_away(self, escape: Escapes, *, on: bool) -> None:
        """A slave begins, or ends, to act for its master: what is due meanwhile goes to another one, if that is
        wanted."""
        if not escape.wanted:
            return
        for hook in self._hooks:
            if hook.sent_away and not on:
                hook.follow()
        escape.switch(on)
        for hook in self._hooks:
            if hook.sent_away and on:
                hook.lead()
