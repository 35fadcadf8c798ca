"""The route tables and their rules, pure (broker.md §2.1, 2.3 to 2.5).

    topics    topic → broker name → QueueData
    brokers   broker name → BrokerData: id → address; id 0 is the master
    clusters  cluster → broker names
    live      (cluster, address) → when it was last heard of, what it last said, on which connection

A broker is here from its first whole registration until it unregisters, falls silent or loses its connection.
Its topics are those that its master told, or, if it has none, its slave with the smallest id.

Invariants (`validate`): a broker has an address and is in its cluster; no cluster and no topic is empty; a
topic's queues are on known brokers; connections and live entries point at each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from perseid.base.machine import ConnId, Millis
from perseid.wire.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from perseid.wire.mapping import TopicQueueMappingInfo

MASTER_ID = 0
PERM_WRITE = 2
PERM_READ = 4
DEFAULT_TIMEOUT_MS = 120_000
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers find their own replicas: their route is never adorned."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


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

    # ---- registration ----

    def register(
        self, said: Announcement, conn: ConnId, now: Millis, *, delete_missing: bool = False
    ) -> Registered | None:
        """Take a broker in, or what is new about it. None: a single topic of a broker that isn't known yet.

        A refused registration changes nothing. One that loses against a newer master at another address
        (by state version) succeeds without effect.
        """
        broker = self.brokers.get(said.name)
        addresses = broker.broker_addrs if broker is not None else {}
        if said.id not in addresses and len(said.topics.topic_config_table) == 1:
            return None
        if broker is None:
            broker = self.brokers[said.name] = BrokerData(said.key.cluster, said.name, addresses)
        self.clusters.setdefault(said.key.cluster, set()).add(said.name)
        broker.enable_acting_master = bool(said.acting_master)
        broker.zone_name = said.zone
        old_min = min(addresses, default=MASTER_ID)
        for other in [i for i, address in addresses.items() if address == said.key.address and i != said.id]:
            del addresses[other]  # a slave that was promoted where it stands
        old_address = addresses.get(said.id)
        if old_address not in (None, said.key.address):
            rival = self.live.get(BrokerKey(said.key.cluster, old_address or ""))
            if rival is not None and rival.data_version.state_version > said.topics.data_version.state_version:
                self._drop_live(said.key)
                return Registered()
        addresses[said.id] = said.key.address
        broker.broker_addrs = addresses = dict(sorted(addresses.items()))
        self._take_topics(said, broker, first=not old_address, delete_missing=delete_missing)
        self._set_live(said, conn, now)
        change = None
        if said.id < old_min:
            tell = [a for i, a in addresses.items() if i != said.id or len(addresses) == 1]
            change = MinIdChange(said.id, said.key.address, None, said.ha_address, tell)
        if said.id != MASTER_ID and MASTER_ID in addresses:
            master = self.live.get(BrokerKey(said.key.cluster, addresses[MASTER_ID]))
            if master is not None:
                return Registered(master.ha_address, addresses[MASTER_ID], change)
        return Registered(change=change)

    def _take_topics(self, said: Announcement, broker: BrokerData, *, first: bool, delete_missing: bool) -> None:
        smallest = said.id == min(broker.broker_addrs)
        prime_slave = said.acting_master is not None and said.id != MASTER_ID and smallest
        if said.id != MASTER_ID and not prime_slave:
            return
        table = {row.topic_name or name: row for name, row in said.topics.topic_config_table.items()}
        mappings = said.topics.topic_queue_mapping_info_map
        if delete_missing and not mappings:
            self._remove_queues(said.name, [t for t, q in self.topics.items() if said.name in q and t not in table])
        news = first or self.changed(said.key, said.topics.data_version)
        read_only = prime_slave and broker.enable_acting_master
        for topic, row in table.items():
            if news or said.name not in self.topics.get(topic, ()):
                queues = self.topics.setdefault(topic, {})
                queues[said.name] = _queue_data(said.name, row, read_only=read_only)
        if news:
            for topic, mapping in mappings.items():
                self._mappings.setdefault(topic, {})[mapping.bname or said.name] = mapping

    def _set_live(self, said: Announcement, conn: ConnId, now: Millis) -> None:
        self._drop_live(said.key)
        timeout_ms = DEFAULT_TIMEOUT_MS if said.timeout_ms is None else said.timeout_ms
        version = said.topics.data_version
        self.live[said.key] = LiveBroker(now, timeout_ms, version, conn, said.ha_address)
        self._by_conn.setdefault(conn, set()).add(said.key)
        if said.filters:
            self._filters[said.key] = said.filters

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add one topic's queues; False, and no change, when one of the brokers is not known."""
        rows = {row.broker_name: row for row in queues}
        if not rows or any(name not in self.brokers for name in rows):
            return False
        self.topics.setdefault(topic, {}).update(rows)
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

    def expired(self, now: Millis) -> list[tuple[BrokerKey, LiveBroker]]:
        """Brokers that were silent for longer than they said they would be."""
        return [(key, live) for key, live in self.live.items() if live.heard_at + live.timeout_ms < now]

    # ---- leaving ----

    def unregister(self, key: BrokerKey, name: str, broker_id: int) -> MinIdChange | None:
        """Forget one broker process; with its last address the broker and its queues go too."""
        self._drop_live(key)
        broker = self.brokers.get(name)
        if broker is None:
            return None
        addresses = broker.broker_addrs
        was_min = broker_id == min(addresses)
        for other in [i for i, address in addresses.items() if address == key.address]:
            del addresses[other]
        if not addresses:
            self._remove_broker(name)
            return None
        if broker.enable_acting_master and min(addresses) > MASTER_ID:
            for queues in self.topics.values():
                if name in queues:
                    queues[name].perm &= ~PERM_WRITE
        if not was_min or not broker.enable_acting_master:
            return None
        new_min = min(addresses)
        return MinIdChange(new_min, addresses[new_min], key.address, None, list(addresses.values()))

    def lost(self, key: BrokerKey) -> MinIdChange | None:
        """Forget a broker process that fell silent, whatever name and id it had."""
        for name, broker in self.brokers.items():
            if broker.cluster == key.cluster:
                for broker_id, address in broker.broker_addrs.items():
                    if address == key.address:
                        return self.unregister(key, name, broker_id)
        self._drop_live(key)
        return None

    def of_connection(self, conn: ConnId) -> list[BrokerKey]:
        """The brokers that registered last over this connection."""
        return sorted(self._by_conn.get(conn, ()))

    def _drop_live(self, key: BrokerKey) -> None:
        self._filters.pop(key, None)
        old = self.live.pop(key, None)
        if old is not None:
            keys = self._by_conn[old.conn]
            keys.discard(key)
            if not keys:
                del self._by_conn[old.conn]

    def _remove_broker(self, name: str) -> None:
        del self.brokers[name]
        for cluster in [c for c, names in self.clusters.items() if name in names]:
            self.clusters[cluster].discard(name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        self._remove_queues(name, [topic for topic, queues in self.topics.items() if name in queues])

    def _remove_queues(self, name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            self.topics[topic].pop(name, None)
            if not self.topics[topic]:
                del self.topics[topic]

    # ---- administration ----

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster."""
        if not cluster:
            self.topics.pop(topic, None)
            self._mappings.pop(topic, None)
            return
        mapped = self._mappings.get(topic, {})
        for name in self.clusters.get(cluster, ()):
            mapped.pop(name, None)
            if topic in self.topics:
                self._remove_queues(name, [topic])
        if not mapped:
            self._mappings.pop(topic, None)

    def set_write_perm(self, name: str, *, allowed: bool) -> int:
        """Open or close all queues of a broker for writing; how many topics that were."""
        count = 0
        for queues in self.topics.values():
            row = queues.get(name)
            if row is not None:
                row.perm = PERM_READ | PERM_WRITE if allowed else row.perm & ~PERM_WRITE
                count += 1
        return count

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self.clusters.get(cluster, set())
        return [topic for topic, queues in self.topics.items() if not names.isdisjoint(queues)]

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
        assert self._filters.keys() <= self.live.keys()


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
