"""Is whoever connects a controller, a name server or a replica of this set? By the machine that the connection is from.

The protocol has no passwords: a broker takes notices from the machines of its controllers, and a connection for a
replica's when it comes from the machine at which the controllers know that replica (`checkPeerAddresses`). What they
know is asked for when a mastership begins, and when a connection does not fit; while they don't answer, what
they said last counts.
"""

from __future__ import annotations

from typing import Protocol

from perseid.base.deadlines import soonest
from perseid.base.hosts import Hosts, host_of
from perseid.base.machine import Millis, Resolved
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.controllers import Controllers
from perseid.replication.config import ReplicationConfig
from perseid.wire import fastjson
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command
from perseid.wire.controller import BrokerReplicasInfo

ASK_MS = 500
"""Between two questions where the replicas are."""
TELL_MS = 60_000
"""So often a stranger's notice is worth a line."""
MAX_REPLICAS = 1_000
OPEN = (
    "checkPeerAddresses=false: whoever reaches the port of replication can speak for a replica, and whoever reaches "
    "this broker can tell it who is master; let nobody reach them but the members of the cluster"
)


class Checking(Protocol):
    """The setting whether peers are checked at all."""

    @property
    def config(self) -> ReplicationConfig:
        """The settings of replication as they are now."""


class _PeerChecks:
    """Whom a broker believes, by the machines that they are at; everybody, while `checkPeerAddresses` is false."""

    def __init__(self, turn: Turn, replicas: Checking, *hosts: Hosts) -> None:
        self._turn = turn
        self._replicas = replicas
        self._hosts = hosts
        self._told_at: Millis | None = None

    @property
    def _checks(self) -> bool:
        return self._replicas.config.check_peer_addresses

    def _is_of(self, hosts: Hosts, peer: str, what: str, why_not: str, now: Millis) -> bool:
        """Does it come from one of these machines? A line says so when not."""
        if hosts.has(peer, now):
            return True
        if self._told_at is None or now >= self._told_at + TELL_MS:
            self._told_at = now
            self._turn.note("warning", f"{what} of {host_of(peer)}, {why_not}, set checkPeerAddresses=false")
        return False

    def resolved(self, event: Resolved) -> None:
        """What names stand for."""
        for hosts in self._hosts:
            hosts.take(event)

    def tick(self, now: Millis) -> None:
        """Look up what is to be looked up."""
        for hosts in self._hosts:
            for effect in hosts.ask(now):
                self._turn.emit(effect)

    def next_deadline(self) -> Millis | None:
        return soonest(*[hosts.next_deadline() for hosts in self._hosts])


class PeersWithoutController(_PeerChecks):
    """Of a broker without a controller whose slaves act: its name servers, which say who has the smallest id, and the
    master that it had, which may ask to be followed before it shows itself."""

    def __init__(self, turn: Turn, replicas: Checking) -> None:
        self._name_servers = Hosts()
        self._masters = Hosts()
        self._master = ""
        super().__init__(turn, replicas, self._name_servers, self._masters)

    def start(self, name_servers: list[str]) -> None:
        """Say so when everybody is believed."""
        if self._checks:
            self._name_servers.set(name_servers)
        else:
            self._turn.note("warning", OPEN)

    def reconfigure(self, name_servers: list[str]) -> None:
        """Notices come from these from now on."""
        if self._checks:
            self._name_servers.set(name_servers)

    def has_master(self, address: str | None) -> None:
        """This is the master that we follow; None: it is away, and may come back."""
        if address and address != self._master and self._checks:
            self._master = address
            self._masters.set([address])

    def is_name_server(self, peer: str, now: Millis) -> bool:
        """Does a notice come from the machine of a name server? A line says so when not."""
        why_not = "where no name server is: not believed; if it is"
        return not self._checks or self._is_of(self._name_servers, peer, "a notice", why_not, now)

    def is_master(self, peer: str, now: Millis) -> bool:
        """Does an invitation come from the machine of the master that we had, if we had one?"""
        if not self._master:
            return True
        why_not = f"where the master ({self._master}) is not: not believed; if it is"
        return not self._checks or self._is_of(self._masters, peer, "an invitation", why_not, now)


class PeersOfSet(_PeerChecks):
    """Those of one broker's set."""

    def __init__(self, turn: Turn, settings: Settings, replicas: Checking, controllers: Controllers) -> None:
        self._settings = settings
        self._controllers = controllers
        self._addresses: dict[int, str] = {}
        """Id → address, as the controllers said last."""
        self._replica_hosts = Hosts()
        self._controller_hosts = Hosts()
        self._known_controllers: list[str] = []
        self._asking = False
        self._asked_at: Millis = -ASK_MS
        self._wanted = False
        super().__init__(turn, replicas, self._replica_hosts, self._controller_hosts)

    def start(self) -> None:
        """Say so when everybody is believed."""
        if self._checks:
            self._know_controllers()
        else:
            self._turn.note("warning", OPEN)

    def _know_controllers(self) -> None:
        if self._controllers.addresses != self._known_controllers:
            self._known_controllers = self._controllers.addresses
            self._controller_hosts.set(self._known_controllers)

    # ---- who is it ----

    def is_replica(self, number: int, peer: str, now: Millis) -> bool:
        """Does this connection come from the machine of that replica? When not, the controllers are soon asked."""
        if not self._checks:
            return True
        address = self._addresses.get(number)
        if address is not None and self._replica_hosts.is_at(peer, address, now):
            return True
        self._wanted = True
        return False

    def is_controller(self, peer: str, now: Millis) -> bool:
        """Does this connection come from the machine of a controller? A line says so when not."""
        if not self._checks:
            return True
        self._know_controllers()
        why_not = "where no controller is: not believed; if one is"
        return self._is_of(self._controller_hosts, peer, "a notice", why_not, now)

    # ---- what the controllers say ----

    def ask(self) -> None:
        """Ask the controllers where the replicas are, soon."""
        self._wanted = True

    def _told(self, reply: Command, now: Millis) -> None:
        self._asking = False
        info = BrokerReplicasInfo.from_json(reply.body).replicas_info_table.get(self._settings.current.broker_name)
        if info is None:
            return
        known = [*info.in_sync_replicas, *info.not_in_sync_replicas][:MAX_REPLICAS]
        self._addresses = {one.broker_id: one.broker_address for one in known if one.broker_address}
        self._replica_hosts.set(self._addresses.values())

    def _failed(self, code: int, why: str, now: Millis) -> None:
        self._asking = False

    # ---- time ----

    def tick(self, now: Millis) -> None:
        """Ask what is to be asked."""
        super().tick(now)
        if self._wanted and not self._asking and now >= self._asked_at + ASK_MS:
            body = fastjson.dumps([self._settings.current.broker_name])
            code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
            self._asked_at = now
            self._asking = self._controllers.ask_leader(code, None, body, now, self._told, self._failed)
            self._wanted = not self._asking

    def next_deadline(self) -> Millis | None:
        ask = self._asked_at + ASK_MS if self._wanted and not self._asking else None
        return soonest(ask, super().next_deadline())
