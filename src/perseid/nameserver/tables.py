"""The route tables and their rules, pure (broker.md §2.1, 2.3 to 2.5).

    topics    topic → broker name → QueueData
    brokers   broker name → BrokerData: id → address; id 0 is the master
    clusters  cluster → broker names
    live      (cluster, address) → when it was last heard of, what it last said, on which connection

A broker is here from its first whole registration until it unregisters, falls silent or loses its connection.
Its topics are those that its master told, or, if it has none, its slave with the smallest id.

What leaves costs as much as it had: each broker's topics and clusters, and each process' brokers, are known from
their side, too, and who may have fallen silent from a heap. All is bounded (`nameserver/limits.py`).

Invariants (`validate`): a broker has an address and is in its cluster; no cluster and no topic is empty; a
topic's queues are on known brokers; connections and live entries point at each other, as do both sides of each table.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from perseid.base.machine import ConnId, Millis
from perseid.nameserver import limits
from perseid.wire.bodies import (
    MASTER_ID,
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from perseid.wire.mapping import TopicQueueMappingInfo
from perseid.wire.names import SYNC_MEMBER_PREFIX
from perseid.wire.topic_flags import PERM_READ, PERM_WRITE

DEFAULT_TIMEOUT_MS = 120_000



class BrokerKey(NamedTuple):
    """One broker process."""

    cluster: str
    address: str


@dataclass(slots=True)
class LiveBroker:
    """What is known of a broker process that was heard of. Times are milliseconds."""

    heard_at: Millis
    timeout_ms: Millis
    data_version: DataVersion
    conn: ConnId
    ha_address: str
    due: Millis
    """Of its entry in the heap of who may have fallen silent: never later than its time."""
    digest: bytes = b""
    """Of all that it registered last; `revision`: of its broker, after that."""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a broker says when it registers. `acting_master` None: it knows nothing of acting masters."""

    key: BrokerKey
    name: str
    id: int
    ha_address: str
    zone: str | None
    timeout_ms: Millis | None
    acting_master: bool | None
    topics: TopicConfigSerializeWrapper
    filters: list[str] | None


class MinIdChange(NamedTuple):
    """The smallest id of a broker name is another one now: `tell` these addresses."""

    min_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    tell: list[str]


class Registered(NamedTuple):
    """What a slave learns of its master, and whom the registration concerns."""

    ha_address: str | None = None
    master_address: str | None = None
    change: MinIdChange | None = None


class RouteTables:
    """All tables of one name server."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[BrokerKey, LiveBroker] = {}
        self._filters: dict[BrokerKey, list[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        """Static topics: topic → broker name → which logical queues it leads. They outlive their brokers, so that a
        topic keeps its number of queues, and go when the topic is deleted."""
        self._by_conn: dict[ConnId, set[BrokerKey]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        """Broker name → the topics that have queues there."""
        self._clusters_of: dict[str, set[str]] = {}
        self._names_of: dict[BrokerKey, set[str]] = {}
        """The broker names under which a process that is alive has registered."""
        self._due: list[tuple[Millis, BrokerKey]] = []
        """A heap: who may have fallen silent by when. A process may have entries that count no more."""
        self.rows = 0
        """Of all topics together."""
        self._mapped = 0
        self._revisions: dict[str, int] = {}
        """Of each broker name: another one after each change of what is known of it."""
        self._revision = 0

    # ---- registration ----

    def repeated(
        self, key: BrokerKey, name: str, broker_id: int, digest: bytes, conn: ConnId, now: Millis
    ) -> Registered | None:
        """A registration that says what its process said last, over the same connection, while nothing of its broker
        has changed since: a life sign, and the same answer. None: it has to be read."""
        live = self.live.get(key)
        if live is None or live.digest != digest or live.conn != conn or live.revision != self._revisions.get(name):
            return None
        self.heard(key, now)
        return self._registered(key, name, broker_id, None)

    def register(
        self, said: Announcement, conn: ConnId, now: Millis, *, delete_missing: bool = False, digest: bytes = b""
    ) -> Registered | None:
        """Take a broker in, or what is new about it. None: a single topic of a broker that isn't known yet.

        A refused registration (RequestRefused: a limit) changes nothing. One that loses against a newer master at
        another address (by state version) succeeds without effect. `digest`: of all that was said (`repeated`).
        """
        broker = self.brokers.get(said.name)
        addresses = broker.broker_addrs if broker is not None else {}
        if said.id not in addresses and len(said.topics.topic_config_table) == 1:
            return None
        self._check(said, conn, addresses)
        before = self._facts(said)
        if broker is None:
            broker = self.brokers[said.name] = BrokerData(said.key.cluster, said.name, addresses)
        self.clusters.setdefault(said.key.cluster, set()).add(said.name)
        self._clusters_of.setdefault(said.name, set()).add(said.key.cluster)
        broker.enable_acting_master = bool(said.acting_master)
        broker.zone_name = said.zone
        old_min = min(addresses, default=MASTER_ID)
        for other in [i for i, address in addresses.items() if address == said.key.address and i != said.id]:
            del addresses[other]  # a slave that was promoted where it stands
        old_address = addresses.get(said.id)
        if old_address not in (None, said.key.address):
            rival = self.live.get(BrokerKey(said.key.cluster, old_address or ""))
            if rival is not None and rival.data_version.state_version > said.topics.data_version.state_version:
                self.lost(said.key)
                self._revise(said.name)
                return Registered()
        addresses[said.id] = said.key.address
        broker.broker_addrs = addresses = dict(sorted(addresses.items()))
        news = self._take_topics(said, broker, first=not old_address, delete_missing=delete_missing)
        live = self._set_live(said, conn, now)
        if news or before != self._facts(said):
            self._revise(said.name)
        live.digest, live.revision = digest, self._revisions[said.name]
        change = None
        if said.id < old_min:
            tell = [a for i, a in addresses.items() if i != said.id or len(addresses) == 1]
            change = MinIdChange(said.id, said.key.address, None, said.ha_address, tell)
        return self._registered(said.key, said.name, said.id, change)

    def _facts(self, said: Announcement) -> object:
        """All that a registration may change, apart from topics."""
        broker, live = self.brokers.get(said.name), self.live.get(said.key)
        clusters = self._clusters_of.get(said.name, ())
        return (
            broker and (broker.enable_acting_master, broker.zone_name, tuple(broker.broker_addrs.items())),
            live and (live.data_version, live.ha_address, live.timeout_ms),
            said.key.cluster in clusters,
        )

    def _check(self, said: Announcement, conn: ConnId, addresses: dict[int, str]) -> None:
        """RequestRefused when this registration would go beyond a limit; what is known may always be said again."""
        key, topics = said.key, said.topics.topic_config_table
        limits.check_said(said.name, key.cluster, key.address, said.ha_address, said.zone, said.filters or (), topics)
        names, of_conn = self._names_of.get(key, ()), self._by_conn.get(conn, ())
        limits.check_count("broker names", self.brokers, said.name, limits.MAX_BROKERS)
        limits.check_count("clusters", self.clusters, key.cluster, limits.MAX_CLUSTERS)
        limits.check_count("broker processes", self.live, key, limits.MAX_PROCESSES)
        limits.check_count(f"ids of the broker {said.name}", addresses, said.id, limits.MAX_IDS)
        limits.check_count("broker names of one process", names, said.name, limits.MAX_NAMES_OF_PROCESS)
        limits.check_count("brokers of one connection", of_conn, key, limits.MAX_PROCESSES_OF_CONNECTION)
        if self.rows + len(topics) > limits.MAX_ROWS:
            known = self._topics_of.get(said.name, {})
            news = sum((row.topic_name or topic) not in known for topic, row in topics.items())
            limits.check_total("topics of brokers", self.rows, news, limits.MAX_ROWS)
        mappings = said.topics.topic_queue_mapping_info_map
        if self._mapped + len(mappings) > limits.MAX_MAPPINGS:
            news = sum((m.bname or said.name) not in self._mappings.get(topic, {}) for topic, m in mappings.items())
            limits.check_total("mappings of static topics", self._mapped, news, limits.MAX_MAPPINGS)

    def _registered(self, key: BrokerKey, name: str, broker_id: int, change: MinIdChange | None) -> Registered:
        """The answer: a slave learns where its master is."""
        addresses = self.brokers[name].broker_addrs
        if broker_id != MASTER_ID and MASTER_ID in addresses:
            master = self.live.get(BrokerKey(key.cluster, addresses[MASTER_ID]))
            if master is not None:
                return Registered(master.ha_address, addresses[MASTER_ID], change)
        return Registered(change=change)

    def _take_topics(self, said: Announcement, broker: BrokerData, *, first: bool, delete_missing: bool) -> bool:
        """Whether that changed a table."""
        smallest = said.id == min(broker.broker_addrs)
        prime_slave = said.acting_master is not None and said.id != MASTER_ID and smallest
        if said.id != MASTER_ID and not prime_slave:
            return False
        table = {row.topic_name or name: row for name, row in said.topics.topic_config_table.items()}
        mappings = said.topics.topic_queue_mapping_info_map
        known = self._topics_of.get(said.name, {})
        missing = [topic for topic in known if topic not in table] if delete_missing and not mappings else []
        self._remove_queues(said.name, missing)
        news = first or self.changed(said.key, said.topics.data_version)
        read_only = prime_slave and broker.enable_acting_master
        count = 0
        for topic in table if news else [topic for topic in table if topic not in known]:
            self._set_row(topic, _queue_data(said.name, table[topic], read_only=read_only))
            count += 1
        if news:
            for topic, mapping in mappings.items():
                self._map(topic, mapping.bname or said.name, mapping)
        return bool(missing or count or (news and mappings))

    def _set_row(self, topic: str, row: QueueData) -> None:
        name = row.broker_name or ""
        queues = self.topics.setdefault(topic, {})
        self.rows += name not in queues
        queues[name] = row
        self._topics_of.setdefault(name, {})[topic] = None

    def _map(self, topic: str, name: str, mapping: TopicQueueMappingInfo) -> None:
        mapped = self._mappings.setdefault(topic, {})
        self._mapped += name not in mapped
        mapped[name] = mapping

    def _revise(self, name: str) -> None:
        """What was known of a broker has changed: whoever registers it is read again."""
        self._revision += 1
        if name in self.brokers:
            self._revisions[name] = self._revision

    def _set_live(self, said: Announcement, conn: ConnId, now: Millis) -> LiveBroker:
        names = self._names_of.get(said.key, set())
        self._drop_live(said.key)
        timeout_ms = DEFAULT_TIMEOUT_MS if said.timeout_ms is None else said.timeout_ms
        version = said.topics.data_version
        live = LiveBroker(now, timeout_ms, version, conn, said.ha_address, now + timeout_ms)
        self.live[said.key] = live
        self._names_of[said.key] = names | {said.name}
        self._by_conn.setdefault(conn, set()).add(said.key)
        self._expect(live, said.key)
        if said.filters:
            self._filters[said.key] = said.filters
        return live

    def _expect(self, live: LiveBroker, key: BrokerKey) -> None:
        heapq.heappush(self._due, (live.due, key))
        if len(self._due) > 2 * len(self.live) + limits.SPARE_DEADLINES:
            self._due = [(each.due, other) for other, each in self.live.items()]
            heapq.heapify(self._due)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add one topic's queues; False, and no change, when one of the brokers is not known."""
        rows = {row.broker_name: row for row in queues}
        if not rows or any(name not in self.brokers for name in rows):
            return False
        known = self.topics.get(topic, {})
        limits.check_topic(topic)
        limits.check_total("topics of brokers", self.rows, len(rows.keys() - known.keys()), limits.MAX_ROWS)
        for row in rows.values():
            self._set_row(topic, row)
            self._revise(row.broker_name or "")
        return True

    # ---- life signs ----

    def changed(self, key: BrokerKey, version: DataVersion) -> bool:
        """Whether a broker's topics are others than those it registered last."""
        known = self.live.get(key)
        return known is None or known.data_version != version

    def heard(self, key: BrokerKey, now: Millis) -> None:
        """A broker is alive."""
        known = self.live.get(key)
        if known is not None:
            known.heard_at = now
            if now + known.timeout_ms < known.due:  # the clock was set back
                known.due = now + known.timeout_ms
                self._expect(known, key)

    def expired(self, now: Millis) -> list[tuple[BrokerKey, LiveBroker]]:
        """Brokers that were silent for longer than they said they would be."""
        found = []
        while self._due and self._due[0][0] < now:
            at, key = heapq.heappop(self._due)
            live = self.live.get(key)
            if live is None or live.due != at:
                continue
            live.due = live.heard_at + live.timeout_ms
            if live.due < now:
                found.append((key, live))
            else:
                heapq.heappush(self._due, (live.due, key))
        for key, live in found:  # who asks may leave them here
            heapq.heappush(self._due, (live.due, key))
        return found

    # ---- leaving ----

    def unregister(self, key: BrokerKey, name: str, broker_id: int) -> list[MinIdChange]:
        """Forget one broker process, whatever else it is registered as; with its last address a broker and its queues
        go too."""
        changes = [self._leave(key, name, broker_id)]
        changes += self.lost(key)
        return [change for change in changes if change is not None]

    def lost(self, key: BrokerKey) -> list[MinIdChange]:
        """Forget a broker process that fell silent, whatever names and ids it had."""
        names = sorted(self._names_of.get(key, ()))
        self._drop_live(key)
        changes = []
        for name in names:
            broker = self.brokers.get(name)
            addresses = broker.broker_addrs.items() if broker is not None else ()
            broker_id = next((i for i, address in addresses if address == key.address), None)
            if broker_id is not None:
                changes.append(self._leave(key, name, broker_id))
        return [change for change in changes if change is not None]

    def _leave(self, key: BrokerKey, name: str, broker_id: int) -> MinIdChange | None:
        """A process is no more what it was of a broker."""
        broker = self.brokers.get(name)
        if broker is None:
            return None
        self._revise(name)
        addresses = broker.broker_addrs
        was_min = broker_id == min(addresses)
        for other in [i for i, address in addresses.items() if address == key.address]:
            del addresses[other]
        if not addresses:
            self._remove_broker(name)
            return None
        if broker.enable_acting_master and min(addresses) > MASTER_ID:
            for topic in self._topics_of.get(name, ()):
                self.topics[topic][name].perm &= ~PERM_WRITE
        if not was_min or not broker.enable_acting_master:
            return None
        new_min = min(addresses)
        return MinIdChange(new_min, addresses[new_min], key.address, None, list(addresses.values()))

    def of_connection(self, conn: ConnId) -> list[BrokerKey]:
        """The brokers that registered last over this connection."""
        return sorted(self._by_conn.get(conn, ()))

    def _drop_live(self, key: BrokerKey) -> None:
        self._filters.pop(key, None)
        self._names_of.pop(key, None)
        old = self.live.pop(key, None)
        if old is not None:
            keys = self._by_conn[old.conn]
            keys.discard(key)
            if not keys:
                del self._by_conn[old.conn]

    def _remove_broker(self, name: str) -> None:
        del self.brokers[name]
        self._revisions.pop(name, None)
        for cluster in self._clusters_of.pop(name, ()):
            self.clusters[cluster].discard(name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        self._remove_queues(name, list(self._topics_of.get(name, ())))

    def _remove_queues(self, name: str, topics: Iterable[str]) -> None:
        own = self._topics_of.get(name, {})
        for topic in topics:
            queues = self.topics.get(topic, {})
            if queues.pop(name, None) is None:
                continue
            self.rows -= 1
            del own[topic]
            if not queues:
                del self.topics[topic]
        if not own:
            self._topics_of.pop(name, None)

    # ---- administration ----

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster."""
        mapped = self._mappings.get(topic, {})
        if not cluster:
            names = {*self.topics.get(topic, ()), *mapped}
        else:
            names = self.clusters.get(cluster, set()) & {*self.topics.get(topic, ()), *mapped}
        for name in names:
            self._mapped -= mapped.pop(name, None) is not None
            self._remove_queues(name, [topic])
            self._revise(name)
        if not mapped:
            self._mappings.pop(topic, None)

    def set_write_perm(self, name: str, *, allowed: bool) -> int:
        """Open or close all queues of a broker for writing; how many topics that were."""
        topics = self._topics_of.get(name, {})
        for topic in topics:
            row = self.topics[topic][name]
            row.perm = PERM_READ | PERM_WRITE if allowed else row.perm & ~PERM_WRITE
        return len(topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = sorted(self.clusters.get(cluster, ()))
        return list({topic: None for name in names for topic in self._topics_of.get(name, ())})

    def topics_by_flag(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Topics whose (first) queue has all wanted and no unwanted system flags."""
        return [
            topic
            for topic, queues in self.topics.items()
            if (next(iter(queues.values())).topic_sys_flag & (wanted | unwanted)) == wanted
        ]

    # ---- routes ----

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """Where a topic's queues are, as a copy; None when it is unknown.

        With `acting_master`, of a broker that lost its master and can only be read, the smallest id is shown
        as the master.
        """
        queues = self.topics.get(topic)
        if queues is None:
            return None
        adorn = acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
        brokers = []
        filters: dict[str, list[str]] = {}
        for name, row in queues.items():
            broker = self.brokers[name]
            addresses = dict(broker.broker_addrs)
            if adorn and broker.enable_acting_master and MASTER_ID not in addresses and not row.perm & PERM_WRITE:
                addresses = {MASTER_ID: addresses.pop(min(addresses)), **addresses}
            brokers.append(msgspec.structs.replace(broker, broker_addrs=addresses))
            for address in addresses.values() if self._filters else ():
                known = self._filters.get(BrokerKey(broker.cluster or "", address))
                if known:
                    filters[address] = known
        rows = [msgspec.structs.replace(row) for row in queues.values()]
        return TopicRouteData(None, rows, brokers, filters, self._mappings.get(topic))

    # ---- invariants ----

    def validate(self) -> None:
        """AssertionError when the tables contradict one another."""
        for name, broker in self.brokers.items():
            assert broker.broker_addrs, f"the broker {name} has no address"
            assert broker.cluster in self.clusters and name in self.clusters[broker.cluster], name
        for cluster, names in self.clusters.items():
            assert names and names <= self.brokers.keys(), f"cluster {cluster}: {names}"
        for topic, queues in self.topics.items():
            assert queues and queues.keys() <= self.brokers.keys(), f"topic {topic}: {sorted(queues)}"
        for key, live in self.live.items():
            assert key in self._by_conn.get(live.conn, ()), f"{key} is not known by its connection"
        assert sum(map(len, self._by_conn.values())) == len(self.live)
        assert self._filters.keys() <= self.live.keys() == self._names_of.keys()
        both = {(name, topic) for topic, queues in self.topics.items() for name in queues}
        assert both == {(name, topic) for name, topics in self._topics_of.items() for topic in topics}
        assert len(both) == self.rows and all(self._topics_of.values())
        assert self._mapped == sum(map(len, self._mappings.values()))
        both = {(name, cluster) for cluster, names in self.clusters.items() for name in names}
        assert both == {(name, cluster) for name, clusters in self._clusters_of.items() for cluster in clusters}
        for name, broker in self.brokers.items():
            for address in broker.broker_addrs.values():
                assert any(k.address == address and name in n for k, n in self._names_of.items()), (name, address)
        assert self._revisions.keys() == self.brokers.keys()
        entries = set(self._due)
        for key, live in self.live.items():
            assert (live.due, key) in entries and live.due <= live.heard_at + live.timeout_ms, key


def _queue_data(name: str, row: TopicConfig, *, read_only: bool) -> QueueData:
    perm = row.perm & ~PERM_WRITE if read_only else row.perm
    return QueueData(name, row.read_queue_nums, row.write_queue_nums, perm, row.topic_sys_flag)


def in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """A route with only the brokers of one zone, and those without a master (any slave will do)."""
    keep = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in keep}
    addresses = {address for broker in keep for address in broker.broker_addrs.values()}
    route.broker_datas = keep
    route.queue_datas = [row for row in route.queue_datas if row.broker_name in names]
    route.filter_server_table = {a: f for a, f in route.filter_server_table.items() if a in addresses}
    return route
