"""Every request that a broker serves: one row each, with what is so of it beside what it does (its traits). What has no
row is answered with code 3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from perseid.broker.kernel.asks import Asks
from perseid.broker.kernel.request import Reply, Request
from perseid.wire.codes import RequestCode
from perseid.wire.headers.base import Header

Handler = Callable[[Request], Reply | None]
"""Answers a request: now, or (None) later. RequestRefused: the answer is an error."""


class OnSlave(Enum):
    """How a slave serves a request."""

    SERVED = auto()
    HANDED_ON = auto()
    """A send: it goes to the master, where one is told to hand sends on; refused else."""
    READ = auto()
    """A pull: served where slaves may be read; refused else."""
    REFUSED = auto()
    """It writes to the log, or needs to know what was written to it."""
    MASTERS_TABLE = auto()
    """It changes topics or groups: a slave's are its master's."""


class Route(NamedTuple):
    """A request: its code, its header class (None: it has no fields), the function that answers it; and its traits."""

    code: RequestCode
    header: type[Header] | None
    handler: Handler
    asks: Asks
    """What whoever sends it has to be allowed to do, where requests are authorized."""
    on_slave: OnSlave = OnSlave.SERVED
    before_role: bool = False
    """Answered by a broker that no controller has told its role yet, too."""
    while_isolated: bool = True
    """Answered by a master that has just come back, too, which is about to take over its slaves' offsets."""
    on_vip: bool = True
    """Served at the second port, too: not what may wait, and what belongs to it (broker.md §3)."""
    promises: bool = True
    """The answer promises something: it waits until the tables that its turn changed are saved."""
    keeps_checks: bool = False
    """It changes nothing which the checks of a pull look at."""
    logical: bool = False
    """It may be about a logical queue of a static topic."""


def route_table(routes: Iterable[Route]) -> dict[int, Route]:
    """The rows by code; a code stands in one row."""
    table: dict[int, Route] = {}
    for route in routes:
        assert route.code not in table, f"two rows for code {int(route.code)}"
        table[route.code] = route
    return table
