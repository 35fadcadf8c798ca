"""Requests to the masters of other brokers, by the brokers' names.

Where a broker is, a name server says (106); that is good for `REFRESH_MS`, as in the original, and asked for when
somebody wants to know. Who wants to know meanwhile waits with the first. When no name server answers, what was known
last is used. A request ends once: with an answer, whatever its code, or with a `Failure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.turn import Turn
from perseid.wire.bodies import MASTER_ID, ClusterInfo
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.rpc import Failure, Fields

if TYPE_CHECKING:
    pass

REFRESH_MS = 5_000
TIMEOUT_MS = 3_000
"""For an answer: forwardTimeout of the original."""
BROKEN = (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)
MAX_UNDER_WAY = 10_000
"""Requests without an answer; the next fails at once."""

Ended: TypeAlias = Callable[[Command | Failure], None]
"""How a request ended. The answer is valid only during the call."""


class NameServers(Protocol):
    """The name servers, which know where brokers are."""

    @property
    def name_servers(self) -> list[str]:
        """Their addresses."""


class Peers:
    """The other brokers, as one broker knows them."""

    def __init__(self, turn: Turn, name_servers: NameServers) -> None:
        self._turn = turn
        self._name_servers = name_servers
        self._addresses: dict[str, str] = {}
        self._asked_at: Millis | None = None
        self._asking = False
        self._next = 0
        """Whose turn it is to be asked: name servers that did not answer go to the end."""
        self._waiting: list[Callable[[], None]] = []
        self._under_way = 0

    def ask(self, name: str, code: int, ext: Mapping[str, str | None], ended: Ended) -> None:
        """Ask the master of a broker; `ended` is called once, perhaps before this returns."""
        if self._under_way >= MAX_UNDER_WAY:
            ended(Failure(f"{MAX_UNDER_WAY} requests to other brokers wait for their answers already"))
            return
        self._under_way += 1

        def over(answer: Command | Failure) -> None:
            self._under_way -= 1
            ended(answer)

        def go_on() -> None:
            address = self._addresses.get(name)
            if address is None:
                over(Failure(f"no name server knows a master of broker {name}"))
            else:
                self._call(address, code, ext, over)

        fresh = self._asked_at is not None and self._turn.now < self._asked_at + REFRESH_MS
        if fresh and not self._asking and name in self._addresses:
            go_on()
        else:
            self._waiting.append(go_on)
            self._look()

    def ask_name_server(self, code: int, ext: Fields, ended: Ended) -> None:
        """Ask the name server whose turn it is; one that does not answer, or can't, is not asked next."""
        servers = self._name_servers.name_servers
        if not servers:
            ended(Failure("there is no name server"))
            return

        def answered(answer: Command | Failure) -> None:
            if isinstance(answer, Failure) or answer.code in BROKEN:
                self._next += 1
            ended(answer)

        self._call(servers[self._next % len(servers)], code, ext, answered)

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        assert 0 <= self._under_way <= MAX_UNDER_WAY, self._under_way
        assert not self._waiting or self._asking, "who waits, waits for an answer"

    def _look(self) -> None:
        if self._asking:
            return
        self._asking = True

        def answered(answer: Command | Failure) -> None:
            self._asking = False
            if not isinstance(answer, Failure) and answer.code == ResponseCode.SUCCESS:
                self._take(answer)
            self._told()

        self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {}, answered)

    def _take(self, answer: Command) -> None:
        try:
            found = ClusterInfo.from_json(answer.body).broker_addr_table
        except RequestRefused as error:
            self._turn.note("warning", f"a name server's list of brokers can't be read: {error.remark}")
            return
        self._asked_at = self._turn.now
        masters = {name: row.broker_addrs.get(MASTER_ID) for name, row in found.items()}
        self._addresses = {name: address for name, address in masters.items() if address}

    def _told(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def _call(self, address: str, code: int, ext: Fields, ended: Ended) -> None:
        self._turn.call(address, code, ext, b"", TIMEOUT_MS, lambda answer, now: ended(answer))
