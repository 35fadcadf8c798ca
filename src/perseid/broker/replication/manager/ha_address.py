"""Where is the HA port of the master that is followed? It may not be one yet."""

from __future__ import annotations

from perseid.base.machine import Millis
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.controllers import SOON_MS, Controllers, ignore_failure
from perseid.replication.auto_switch.slave import Slave
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command
from perseid.wire.headers import controller as headers


class HaAddress:
    """That of one slave's master; `slave` follows it as soon as it is known."""

    def __init__(self, turn: Turn, controllers: Controllers, slave: Slave) -> None:
        self._turn = turn
        self._controllers = controllers
        self._slave = slave
        self._master = ""
        """"": nobody is followed."""
        self._ask_at: Millis | None = None

    def find(self, master: str, now: Millis) -> None:
        """There is another master: ask it, until it or a name server says where."""
        self._master = master
        self._ask(now)

    def off(self) -> None:
        """There is no master to follow."""
        self._master, self._ask_at = "", None

    def _ask(self, now: Millis) -> None:
        master = self._master
        self._ask_at = now + SOON_MS

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.ExchangeHaInfoResponse)
            if master == self._master and said.master_ha_address:
                self._found(said.master_ha_address, now)

        self._controllers.ask(
            master, RequestCode.EXCHANGE_BROKER_HA_INFO, headers.ExchangeHaInfoRequest(), b"", now, told, ignore_failure
        )

    def announced(self, master: str, ha_address: str | None, now: Millis) -> None:
        """A name server says where it is."""
        if ha_address and master == self._master and self._ask_at is not None:
            self._found(ha_address, now)

    def _found(self, ha_address: str, now: Millis) -> None:
        self._ask_at = None
        self._turn.emit_all(self._slave.follow(ha_address, now))

    def tick(self, now: Millis) -> None:
        """Ask when it is time."""
        if self._ask_at is not None and self._ask_at <= now:
            self._ask(now)

    def next_deadline(self) -> Millis | None:
        return self._ask_at
