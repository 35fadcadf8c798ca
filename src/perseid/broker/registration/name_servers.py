"""The broker's entries at the name servers: made, kept up, corrected, taken back (broker.md §2.3, §3, §4.3).

Every name server is served on its own:

- *due*: at the start, each `registerNameServerPeriod` (between `MIN_PERIOD_MS` and `MAX_PERIOD_MS`), when topics
  changed, when the connection was lost (a name server forgets a broker whose connection closes), and after a
  failure, each time a little later;
- *under way*: one registration at a time; what changes meanwhile follows when it has ended;
- *taken back*: at a clean stop.

What was never confirmed to a name server is sent again: a change that failed to arrive goes with the next one.
So a name server never sees a new data version without all the changes that belong to it: it looks at the topics
of a body only when the version is another one. A change of a few topics sends only those ("increment"); anything
that failed makes the next registration a whole one, for a name server refuses a single topic of a broker that it
doesn't know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from perseid.base.deadlines import soonest
from perseid.base.errors import RequestRefused
from perseid.base.machine import Effect, Millis, Note
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.static_topics.mappings import TopicMappings
from perseid.wire.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.hashing import crc32
from perseid.wire.headers.namesrv import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from perseid.wire.rpc import Caller, Failure
from perseid.wire.topic_flags import PERM_READ_WRITE

MIN_PERIOD_MS = 10_000
MAX_PERIOD_MS = 60_000

FIRST_RETRY_MS = 1_000
"""After a failure; doubled with each further one, up to the period."""

ASK_AGAIN_MS = 2_000
"""After a change of roles."""
UNREGISTER_TIMEOUT_MS = 3_000
MAX_NAME_SERVERS = 64

MAX_INCREMENT = 1_000
"""Changed topics that are sent alone; more of them make a registration a whole one."""


@dataclass(slots=True)
class _Server:
    """What one name server has been told. `due` is when to register next; None while that is under way."""

    address: str
    due: Millis | None = 0
    whole: bool = True
    whole_at: Millis = 0
    """When a whole registration is due, whatever smaller ones were sent."""
    changed: set[str] = field(default_factory=set)
    again: bool = False
    """Something changed while a registration was under way."""
    retry_ms: int = 0
    known: bool = False
    """The last registration succeeded."""


class Member(Protocol):
    """This broker's place in its set."""

    @property
    def broker_id(self) -> int:
        """As it stands in the route."""

    @property
    def ha_address(self) -> str:
        """`host:port` of our HA port; in the route for slaves."""

    @property
    def without_master(self) -> bool:
        """Has the master gone away, so that what a name server says of it is old?"""

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        """Name servers told, with a registration, where the master is, and its HA port."""


class Registration:
    """Registers one broker with all its name servers."""

    def __init__(
        self, turn: Turn, settings: Settings, caller: Caller, topics: TopicTable, mappings: TopicMappings,
        member: Member,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._settings = settings
        self._caller = caller
        self._topics = topics
        self._mappings = mappings
        self._member = member
        self._servers: dict[str, _Server] = {}
        self._running = False
        self._body: tuple[DataVersion, int, bytes] | None = None
        self.master_address: str | None = None
        """What the name servers told a slave; None on a master."""

    @property
    def name_servers(self) -> list[str]:
        return list(self._servers)

    def registered(self, address: str) -> bool:
        """Did this name server take the last registration?"""
        server = self._servers.get(address)
        return server is not None and server.known

    @property
    def tried(self) -> bool:
        """Has each name server taken a registration, or failed to once? True at the latest one timeout after start."""
        return all(server.known or server.retry_ms for server in self._servers.values())

    def start(self, now: Millis) -> None:
        """Register with all name servers of the configuration."""
        if not self._topics.version.timestamp:
            self._topics.bump(now)  # a first start: let no earlier life have had this version
        for address in addresses(self._settings.current.namesrv_addr):
            self._servers[address] = _Server(address, due=now)
        self._running = True
        self.tick(now)

    def reconfigure(self, servers: Iterable[str], now: Millis) -> None:
        """These are the name servers from now on: those that are new are told of us, those that are gone forget us."""
        if not self._running:
            return
        wanted = dict.fromkeys(servers)
        gone = [server for address, server in self._servers.items() if address not in wanted]
        self._take_back(gone, now)
        self._servers = {address: self._servers.get(address) or _Server(address, due=now) for address in wanted}
        self.tick(now)

    def stop(self, now: Millis) -> None:
        """Take the entries back; nobody waits for the answers, and nothing is registered any more."""
        self._running = False
        self._take_back(self._servers.values(), now)

    def _take_back(self, servers: Iterable[_Server], now: Millis) -> None:
        config = self._settings.current
        header = UnregisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.broker_cluster_name,
            broker_id=self._member.broker_id,
        )
        for server in servers:
            server.due = None
            if self._caller.connected(server.address):
                self._emit(
                    self._caller.call(
                        server.address,
                        RequestCode.UNREGISTER_BROKER,
                        header,
                        b"",
                        now,
                        UNREGISTER_TIMEOUT_MS,
                        lambda reply, now: [],
                    )
                )

    def topics_changed(self, names: Iterable[str], now: Millis) -> None:
        """Topics came, changed or went: the name servers are told at once."""
        changed = set(names)
        if not changed:
            return
        for server in self._servers.values():
            server.changed |= changed
            self._hurry(server, now)
        self.tick(now)

    def role_changed(self, now: Millis) -> None:
        """We are master or slave now: the name servers are told at once. A slave asks again soon, for the new master's
        address, which may not have come to them yet."""
        self.master_address = None
        for server in self._servers.values():
            server.whole = True
            server.whole_at = min(server.whole_at, now + ASK_AGAIN_MS)
            self._hurry(server, now)
        self.tick(now)

    def hurry(self) -> None:
        """The master may be another one: ask for its address soon."""
        now = self._turn.now
        for server in self._servers.values():
            server.whole_at = min(server.whole_at, now + ASK_AGAIN_MS)
            if server.due is not None and server.known:
                server.due = min(server.due, server.whole_at)

    def connection_closed(self, address: str, now: Millis) -> None:
        """The connection to a name server is gone, and so is our entry there."""
        server = self._servers.get(address)
        if server is not None and server.known:
            server.known = False
            server.whole = True
            self._hurry(server, now)
            self.tick(now)

    def tick(self, now: Millis) -> None:
        """Begin the registrations that are due."""
        if self._running:
            for server in self._servers.values():
                if server.due is not None and server.due <= now:
                    self._register(server, now)

    def next_deadline(self) -> Millis | None:
        if not self._running:
            return None
        return soonest(*[server.due for server in self._servers.values()])

    def validate(self) -> None:
        for server in self._servers.values():
            assert not (server.again and server.due is not None), "what came meanwhile is due or under way"

    # ---- one registration ----

    @staticmethod
    def _hurry(server: _Server, now: Millis) -> None:
        if server.due is None:
            server.again = True
        elif not server.retry_ms:
            server.due = now

    def _register(self, server: _Server, now: Millis) -> None:
        config = self._settings.current
        increment = not server.whole and now < server.whole_at and 0 < len(server.changed) <= MAX_INCREMENT
        increment = increment and all(name in self._topics for name in server.changed)
        body = self._encode(sorted(server.changed)) if increment else self._encode_all()
        acting = config.enable_slave_acting_master
        header = RegisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._member.ha_address,
            broker_id=self._member.broker_id,
            heartbeat_timeout_millis=config.broker_not_active_timeout_millis if acting else None,
            enable_acting_master=acting,
            compressed=False,
            body_crc32=crc32(body),
        )
        if not increment:
            server.whole_at = now + self._period_ms
        sent = server.changed
        server.changed, server.whole, server.due, server.again = set(), False, None, False

        def ended(reply: Command | Failure, now: Millis) -> list[Effect]:
            return self._ended(server, sent, reply, now)

        self._emit(
            self._caller.call(
                server.address,
                RequestCode.REGISTER_BROKER,
                header,
                body,
                now,
                config.register_broker_timeout_mills,
                ended,
            )
        )

    def _ended(self, server: _Server, sent: set[str], reply: Command | Failure, now: Millis) -> list[Effect]:
        if not self._running or self._servers.get(server.address) is not server:
            return []
        if isinstance(reply, Failure):
            return self._failed(server, sent, reply.reason, now)
        if reply.code != ResponseCode.SUCCESS:
            return self._failed(server, sent, f"answer {reply.code} {reply.remark or ''}", now)
        self._learn(reply, now)
        notes: list[Effect] = []
        if not server.known:
            notes.append(Note("info", f"registered with name server {server.address}"))
        server.known, server.retry_ms = True, 0
        server.due = now if server.again else server.whole_at
        server.again = False
        self.tick(now)
        return notes

    def _failed(self, server: _Server, sent: set[str], why: str, now: Millis) -> list[Effect]:
        notes: list[Effect] = []
        if server.known or not server.retry_ms:
            notes.append(Note("warning", f"not registered with name server {server.address}: {why}; trying on"))
        server.changed |= sent
        server.whole, server.known, server.again = True, False, False
        server.retry_ms = min(max(FIRST_RETRY_MS, 2 * server.retry_ms), self._period_ms)
        server.due = now + server.retry_ms
        return notes

    def _learn(self, reply: Command, now: Millis) -> None:
        """Take what a name server says: a slave's master, and which topics are ordered."""
        header = reply.header(RegisterBrokerResponse)
        if header.master_addr and not self._member.without_master:
            self.master_address = header.master_addr
            self._member.follow(header.master_addr, header.ha_server_addr, now)
        if len(reply.body):
            try:
                table = KVTable.from_json(reply.body)
            except RequestRefused as error:
                self._emit([Note("warning", f"a name server's order configuration can't be read: {error}")])
                return
            self._topics.set_order(table.table, now)

    @property
    def _period_ms(self) -> int:
        return min(max(self._settings.current.register_name_server_period, MIN_PERIOD_MS), MAX_PERIOD_MS)

    # ---- bodies ----

    def _encode_all(self) -> bytes:
        """The body with all topics; made once for all name servers as long as nothing changes."""
        topics, permission = self._topics, self._settings.current.broker_permission
        known = self._body
        if known is not None and known[0] == topics.version and known[1] == permission:
            return known[2]
        body = self._encode(topics.rows)
        self._body = msgspec.structs.replace(topics.version), permission, body
        return body

    def _encode(self, names: Iterable[str]) -> bytes:
        """The body with some topics. What the broker may not do, none of its topics may."""
        topics, config = self._topics, self._settings.current
        rows = {name: topics.rows[name] for name in names}
        if config.broker_permission & PERM_READ_WRITE != PERM_READ_WRITE:
            rows = {
                name: msgspec.structs.replace(row, perm=row.perm & config.broker_permission)
                for name, row in rows.items()
            }
        static = {name: row.info() for name, row in self._mappings.rows.items() if name in rows}
        wrapper = TopicConfigSerializeWrapper(
            data_version=topics.version, topic_config_table=rows, topic_queue_mapping_info_map=static
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])
        return body.compress() if config.compressed_register else body.to_json()

    def _emit(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._turn.emit(effect)


def addresses(text: str) -> list[str]:
    """`host:port;host:port` → the addresses, each once."""
    found = list(dict.fromkeys(address.strip() for address in text.split(";") if address.strip()))
    return found[:MAX_NAME_SERVERS]
