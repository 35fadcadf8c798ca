"""Slaves that act for a master which is away, without a controller (`enableSlaveActingMaster`; broker.md §10.3).

Name servers show the smallest id of a set without master as its master, for reading; here is what brokers do for that:

    isolated ──(prepared)──> online                 a master, with totalReplicas above 1; not with skipPreOnline
    following ──(ours is the smallest id)──> acting ──(it is not any more)──> following              a slave

- *isolated*: a master that comes back does not show itself, and is a slave to all who ask, until it has taken over
  from each other member how far groups and delay levels are: they may have gone on. It tells the member where its HA
  port is (906), waits until somebody at that host follows (`FOLLOW_MS` at most: what can't follow must not keep the
  set without a master), and asks for its tables. A member that does not answer is asked again each `RETRY_MS`, with the
  members as the name server knows them then: who is dead is forgotten there.
  One that can't follow has another history: what it copied from this master may stand for what the master has lost,
  so its delay offsets are left, and of its groups only what was committed to itself is taken, if it says so (ours:
  `perseidAhead`). To all others a master tells such tables when its log is durable (`Replicas.told_durably`).
  A slave takes commits until it hears that the master is back, which is after it was asked: what was committed to it
  alone counts beside a later table of the master's, too, when that one comes back again, where it is higher.
- *online*: registered, with a heartbeat each `brokerHeartbeatInterval`, and a look at the members of the set each
  `syncBrokerMemberGroupPeriod`. Notices (905) tell the same sooner.
- *acting*: commits of groups come here. The version of their table rises with the first one, so that it is later than
  whatever the master last had, however few follow. Nothing is copied from the master, and its HA port is left alone,
  until it is the smallest id again: what name servers say of it with a registration may come too early. A slave that
  acted is still called master by routes that clients have; so for `ROUTE_MS` it answers them as before.

Nothing is written to the log of who acts: messages that are delayed, and halves, wait for the master, or are sent to
another one (`escape.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Millis, Resolved
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.new_master import queue_end
from perseid.broker.replication.peer_checks import PeersWithoutController
from perseid.broker.scheduled import timer_escape
from perseid.replication.config import ReplicationConfig
from perseid.store.store import MessageStore
from perseid.wire import bodies, copied
from perseid.wire.bodies import MASTER_ID, DataVersion
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.controller import ExchangeHaInfoRequest, ExchangeHaInfoResponse
from perseid.wire.headers.namesrv import (
    BrokerHeartbeatRequest,
    GetBrokerMemberGroupRequest,
    GetRouteInfoByTopicRequest,
    QueryDataVersionRequest,
)
from perseid.wire.names import sync_member_topic
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.scheduled.delay import DelayService
    from perseid.broker.scheduled.escape import Escape
    from perseid.broker.scheduled.timers import TimerService

RETRY_MS = 1_000
FOLLOW_MS = 10_000
LOOK_MS = 100
"""Between two looks at who follows."""
TIMEOUT_MS = 3_000
ROUTE_MS = 30_000
"""Clients ask for routes as often."""
MAX_MEMBERS = 64

Take = Callable[[Command, Millis], None]


class Following(Protocol):
    """The HA stream of a broker whose slaves act."""

    @property
    def config(self) -> ReplicationConfig:
        """The settings of replication as they are now."""

    @property
    def ha_address(self) -> str:
        """`host:port` of our HA port."""

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        """Follow a master's log, and copy its tables."""

    def follow_stream(self, ha_address: str, now: Millis) -> None:
        """Follow a master's log, and copy nothing else."""

    def follow_nobody(self, now: Millis) -> None:
        """The master is away: what it had is not copied any more."""

    def is_followed_from(self, host: str) -> bool:
        """Does somebody at that host follow our log?"""


class ActsForMaster(Protocol):
    """Whether slaves of this set act for a master that is away, and what follows from it for this broker."""

    @property
    def slaves_act(self) -> bool:
        """Do they, if it comes to it?"""

    @property
    def isolated(self) -> bool:
        """Is this a master that has come back, and does not show itself yet?"""

    @property
    def without_master(self) -> bool:
        """Is its master away, or does not show itself yet?"""

    @property
    def keeps_readers(self) -> bool:
        """Do clients take this slave for a master, so that whoever finds nothing waits here?"""

    def start(self, name_servers: list[str], now: Millis) -> None:
        """The broker runs."""

    def stop(self) -> None:
        """It ends."""

    def reconfigure(self, name_servers: list[str]) -> None:
        """Ask these from now on."""

    def min_changed(self, min_id: int, address: str, ha_address: str | None, now: Millis) -> None:
        """The smallest id of the set, and where that broker is."""

    def invited(self, master: str, ha_address: str, peer: str, now: Millis) -> None:
        """A master that is still isolated wants us to follow."""

    def is_name_server(self, peer: str, now: Millis) -> bool:
        """Does a notice come from the machine of a name server?"""

    def resolved(self, event: Resolved) -> None:
        """What names stand for."""

    def tick(self, now: Millis) -> None:
        """Do what is due."""

    def next_deadline(self) -> Millis | None:
        """When something is."""


class NobodyActs:
    """Of a broker without `enableSlaveActingMaster`."""

    slaves_act = isolated = without_master = keeps_readers = False

    def start(self, name_servers: list[str], now: Millis) -> None:
        pass

    def stop(self) -> None:
        pass

    def reconfigure(self, name_servers: list[str]) -> None:
        pass

    def min_changed(self, min_id: int, address: str, ha_address: str | None, now: Millis) -> None:
        pass

    def invited(self, master: str, ha_address: str, peer: str, now: Millis) -> None:
        pass

    def is_name_server(self, peer: str, now: Millis) -> bool:
        return False

    def resolved(self, event: Resolved) -> None:
        pass

    def tick(self, now: Millis) -> None:
        pass

    def next_deadline(self) -> Millis | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingPorts:
    """The parts of a broker that `Acting` needs."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    roles: Roles
    mode: Following
    registration: Registration
    timers: TimerService
    delay: DelayService
    escape: Escape


class Acting:
    """Of one broker whose configuration says `enableSlaveActingMaster`."""

    slaves_act = True

    def __init__(self, ports: ActingPorts) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._store = ports.store
        self._topics = ports.topics
        self._offsets = ports.offsets
        self._roles = ports.roles
        self._mode = ports.mode
        self._registration = ports.registration
        self._timers = ports.timers
        self._delay = ports.delay
        self._escape = ports.escape
        config = self._settings.current
        self._id = config.broker_id
        self._master = self._id == MASTER_ID
        self.isolated = self._master and config.total_replicas > 1 and not config.skip_pre_online
        self.acting = False
        """This slave has the smallest id of its set."""
        self.min_id = MASTER_ID
        self._readers_until: Millis = 0
        self._name_servers: list[str] = []
        self.peers = PeersWithoutController(ports.turn, ports.mode)
        self._asked = 0
        """Whose turn it is to be asked for the members."""
        self._beat_at: Millis | None = None
        self._look_at: Millis | None = None
        self._asking = False
        self.prepared: set[str] = set()
        """Members whose tables this master has taken over."""
        self._follow_until: Millis | None = None
        self.prepares_with = ""
        """The member whose tables a master that comes back takes over next."""
        self.is_followed = False
        """That member has our history."""
        self._complained = False

    @property
    def keeps_readers(self) -> bool:
        """Clients still take this slave for a master: whoever finds nothing waits here."""
        return self.acting or self._turn.now < self._readers_until

    @property
    def without_master(self) -> bool:
        """Its master is away, or does not show itself yet."""
        return self.min_id != MASTER_ID

    def start(self, name_servers: list[str], now: Millis) -> None:
        """`name_servers`: of the configuration; without one there is nobody to prepare with."""
        self._name_servers = name_servers
        self.peers.start(name_servers)
        if self.isolated and not name_servers:
            self._online(now)
        elif self.isolated:
            self._look_at = now
        else:
            self._show(now)
        self.tick(now)

    def reconfigure(self, name_servers: list[str]) -> None:
        """Ask these from now on."""
        self._name_servers = name_servers
        self.peers.reconfigure(name_servers)
        self._asked %= max(1, len(name_servers))

    def stop(self) -> None:
        self._beat_at = self._look_at = None

    def is_name_server(self, peer: str, now: Millis) -> bool:
        """Does a notice come from the machine of a name server? A line says so when not."""
        return self.peers.is_name_server(peer, now)

    def resolved(self, event: Resolved) -> None:
        """What names stand for."""
        self.peers.resolved(event)

    def _show(self, now: Millis) -> None:
        config = self._settings.current
        self._registration.start(now)
        self._beat_at = now + config.broker_heartbeat_interval
        self._look_at = now + config.sync_broker_member_group_period

    # ---- time ----

    def tick(self, now: Millis) -> None:
        self.peers.has_master(self._registration.master_address)
        self.peers.tick(now)
        if self._beat_at is not None and self._beat_at <= now:
            self._beat_at = now + self._settings.current.broker_heartbeat_interval
            self._beat(now)
        if self._look_at is not None and self._look_at <= now:
            self._look(now)

    def next_deadline(self) -> Millis | None:
        dues = (self._beat_at, self._look_at, self.peers.next_deadline())
        return min((due for due in dues if due is not None), default=None)

    # ---- name servers ----

    def _beat(self, now: Millis) -> None:
        """A heartbeat for each name server that knows us."""
        config = self._settings.current
        kind: type[BrokerHeartbeatRequest | QueryDataVersionRequest] = BrokerHeartbeatRequest
        code, body = RequestCode.BROKER_HEARTBEAT, b""
        if config.compatible_with_old_name_srv:
            kind, code, body = QueryDataVersionRequest, RequestCode.QUERY_DATA_VERSION, self._topics.version.to_json()
        sign = kind(
            cluster_name=config.broker_cluster_name, broker_addr=config.address, broker_name=config.broker_name,
            broker_id=self._id,
        )  # fmt: skip
        for address in self._name_servers:
            self._turn.tell(address, code, sign, body, config.send_heartbeat_timeout_millis)

    def _look(self, now: Millis) -> None:
        """Ask a name server who the members are; the next one, when it does not say."""
        config = self._settings.current
        self._look_at = now + (RETRY_MS if self.isolated else config.sync_broker_member_group_period)
        if self._asking or not self._name_servers:
            return
        if self._follow_until is not None:
            self._await_follower(now)
            return
        code: RequestCode = RequestCode.GET_BROKER_MEMBER_GROUP
        header: Header = GetBrokerMemberGroupRequest(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name
        )
        if config.compatible_with_old_name_srv:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            topic = sync_member_topic(config.broker_name)
            header = GetRouteInfoByTopicRequest(topic=topic, accept_standard_json_only=True)
        self._ask(self._name_servers[self._asked], code, header, now, self._take_members, self._ask_another)

    def _ask_another(self, code: int, why: str, now: Millis) -> None:
        if code == ResponseCode.TOPIC_NOT_EXIST:
            self._members({}, now)
        else:
            asked = self._name_servers[self._asked]
            self._asked = (self._asked + 1) % len(self._name_servers)
            if self.isolated and not self._complained:
                self._complained = True
                self._turn.note("warning", f"not online yet: name server {asked} does not say who is there: {why}")

    def _take_members(self, reply: Command, now: Millis) -> None:
        config = self._settings.current
        found: dict[int, str] = {}
        if config.compatible_with_old_name_srv:
            for one in bodies.TopicRouteData.from_json(reply.body).broker_datas:
                if (one.cluster, one.broker_name) == (config.broker_cluster_name, config.broker_name):
                    found = one.broker_addrs
        else:
            group = bodies.GetBrokerMemberGroupResponseBody.from_json(reply.body).broker_member_group
            found = group.broker_addrs if group is not None else {}
        self._members(dict(sorted(found.items())[:MAX_MEMBERS]), now)

    def _members(self, members: dict[int, str], now: Millis) -> None:
        if self.isolated:
            self._prepare(members, now)
        elif members:
            least = min(members)
            self.min_changed(least, members[least], None, now)

    # ---- a slave ----

    def min_changed(self, min_id: int, address: str, ha_address: str | None, now: Millis) -> None:
        """The smallest id of the set, and where that broker is."""
        if self._master or min_id == self.min_id or min_id < 0:
            return
        was, self.min_id = self.min_id, min_id
        name = self._settings.current.broker_name
        self._turn.note("info", f"the smallest id of {name} is {min_id} at {address}; it was {was}")
        if min_id == self._id:
            self.acting = True
            self._offsets.later_on_commit = True  # not now: whoever acts for a moment alone knows nothing later
            self._roles.send_away(self._escape, on=True)
        elif self.acting:
            self.acting = self._offsets.later_on_commit = False
            self._readers_until = now + ROUTE_MS
            self._roles.send_away(self._escape, on=False)
        if was == MASTER_ID:
            self.peers.has_master(self._registration.master_address)
            self._registration.master_address = None
            self._mode.follow_nobody(now)
        elif min_id == MASTER_ID and ha_address:
            self._follow(address, ha_address, now)
        elif min_id == MASTER_ID:
            self._ask_ha_address(address, now)

    def _ask_ha_address(self, master: str, now: Millis) -> None:
        def told(reply: Command, now: Millis) -> None:
            said = reply.header(ExchangeHaInfoResponse)
            if self.min_id == MASTER_ID and said.master_ha_address:
                self._follow(master, said.master_ha_address, now)

        # without an answer the next registration tells the same
        self._ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaInfoRequest(), now, told, _ignore_failure)

    def _follow(self, master: str, ha_address: str, now: Millis) -> None:
        self._registration.master_address = master
        self._mode.follow(master, ha_address, now)

    def invited(self, master: str, ha_address: str, peer: str, now: Millis) -> None:
        """A master that is still isolated wants us to follow; its tables are not worth copying yet. It is passed over
        when the connection comes from elsewhere than the master that we had: one that has moved goes online without us,
        and a name server says where it is."""
        if not self._master and self.peers.is_master(peer, now):
            self._registration.master_address = master
            self._mode.follow_stream(ha_address, now)

    # ---- a master that comes back ----

    def _prepare(self, members: dict[int, str], now: Millis) -> None:
        """Go on with the last member that is not prepared; online when there is none. The one that acts comes last: its
        table is the one to go on with."""
        own = self._settings.current.address
        left = [a for i, a in members.items() if i != self._id and a != own and a not in self.prepared]
        if not left:
            self._online(now)
            return
        member = self.prepares_with = left[-1]

        def invited(reply: Command, now: Millis) -> None:
            self._follow_until = now + FOLLOW_MS
            self._await_follower(now)

        header = ExchangeHaInfoRequest(
            master_ha_address=self._mode.ha_address,
            master_flush_offset=self._store.log.flushed,
            master_address=own,
        )
        self._ask(member, RequestCode.EXCHANGE_BROKER_HA_INFO, header, now, invited, self._not_prepared)

    def _await_follower(self, now: Millis) -> None:
        """Does the member follow us? The stream names nobody: any follower from its host will do."""
        assert self._follow_until is not None
        host = self.prepares_with.rpartition(":")[0]
        self.is_followed = self._mode.is_followed_from(host)
        if self.is_followed:
            self._follow_until = None
        elif now < self._follow_until:
            self._look_at = now + LOOK_MS
            return
        else:
            self._follow_until = None
            why = f"it does not follow this master within {FOLLOW_MS} ms; its own log says why"
            self._turn.note("warning", f"{self.prepares_with}: {why}")
            self._ask_member(RequestCode.GET_ALL_CONSUMER_OFFSET, now, self._take_offsets)
            return  # deliveries that it stands for may have gone with our last moments
        self._ask_member(RequestCode.GET_ALL_DELAY_OFFSET, now, self._take_delays)

    def _ask_member(self, code: RequestCode, now: Millis, take: Take) -> None:
        self._ask(self.prepares_with, code, None, now, take, self._not_prepared)

    def _not_prepared(self, code: int, why: str, now: Millis) -> None:
        self._look_at = now + RETRY_MS
        self._turn.note("warning", f"not online yet: {self.prepares_with}: {why}; asked again in {RETRY_MS} ms")

    def _take_delays(self, reply: Command, now: Millis) -> None:
        delay = self._delay
        if len(reply.body):
            body = copied.DelayOffsets.from_json(reply.body)
            table, ours, version = body.offset_table, delay.offsets, body.data_version or DataVersion()
            if later(version, delay.version):
                delay.adopt({**ours, **table}, version)
            elif version == delay.version:
                delay.adopt({n: max(table.get(n, 0), ours.get(n, 0)) for n in {*table, *ours}}, version)
        self._ask_member(RequestCode.GET_ALL_CONSUMER_OFFSET, now, self._take_offsets)

    def _take_offsets(self, reply: Command, now: Millis) -> None:
        offsets = self._offsets
        body = copied.SlavesOffsets.from_json(reply.body)
        version = body.data_version or DataVersion()
        ahead = body.perseid_ahead
        if ahead is not None and not self.is_followed:
            own = copied.ConsumerOffsets.from_json(ahead.encode())
            offsets.take_over(own.offset_table, offsets.version, highest=False)
            offsets.clamp(queue_end(self._store))
        elif later(version, offsets.version) or version == offsets.version:
            offsets.take_over(body.offset_table, version, highest=version == offsets.version)
            offsets.clamp(queue_end(self._store))
        elif ahead is not None:  # told to the slave before it heard that we were back; our later table lacks that
            own = copied.ConsumerOffsets.from_json(ahead.encode())
            offsets.take_over(own.offset_table, offsets.version, highest=True)
            offsets.clamp(queue_end(self._store))
        if self._timers.enabled:
            code = RequestCode.GET_TIMER_CHECK_POINT
            self._ask(self.prepares_with, code, None, now, self._take_timers, lambda code, why, now: self._taken(now))
        else:
            self._taken(now)

    def _take_timers(self, reply: Command, now: Millis) -> None:
        escaped = timer_escape.read(reply.ext)
        if escaped.end_ms > escaped.begin_ms:
            self._timers.escape.left_out = escaped
        self._taken(now)

    def _taken(self, now: Millis) -> None:
        self._turn.note("info", f"offsets of groups and delay levels are not behind those of {self.prepares_with}")
        self.prepared.add(self.prepares_with)
        self._look_at = now

    def _online(self, now: Millis) -> None:
        self.isolated = False
        self._roles.become(master=True)
        self._show(now)

    # ---- asking ----

    def _ask(
        self, address: str, code: RequestCode, header: Header | None, now: Millis, take: Take,
        failed: Callable[[int, str, Millis], None],
    ) -> None:  # fmt: skip
        """One question at a time but those for a master's HA port; `failed` is told a code (0: no answer), and why."""

        def answered(reply: Command | Failure, now: Millis) -> None:
            self._asking = False
            if self._look_at is None:
                return
            if isinstance(reply, Failure):
                failed(0, reply.reason, now)
            elif reply.code != ResponseCode.SUCCESS:
                failed(reply.code, f"{code.name}: answer {reply.code} {reply.remark or ''}", now)
            else:
                try:
                    take(reply, now)
                except (RequestRefused, RemoteProtocolError) as error:
                    failed(0, f"{code.name}: its answer can't be read: {error}", now)

        self._asking = True
        self._turn.call(address, code, header, b"", TIMEOUT_MS, answered)


def later(theirs: DataVersion, ours: DataVersion) -> bool:
    """Is a member's table later than ours? By the original's order, or by the time of its last change: who acted has
    changed it since the master went."""
    wanted = theirs.state_version, theirs.counter, theirs.timestamp
    return wanted > (ours.state_version, ours.counter, ours.timestamp) or theirs.timestamp > ours.timestamp


def _ignore_failure(code: int, why: str, now: Millis) -> None:
    """What is asked for again anyhow."""
