"""The rules of the route tables written plainly: rows in one set, and everything is looked through for each change."""

from collections.abc import Iterable

from perseid.base.machine import ConnId, Millis
from perseid.nameserver.tables import Announcement, BrokerKey, MinIdChange, Registered
from perseid.wire.bodies import QueueData


class PlainTables:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], QueueData] = {}
        self.addresses: dict[str, dict[int, str]] = {}
        self.clusters: dict[str, set[str]] = {}
        self.acting: dict[str, bool] = {}
        self.live: dict[BrokerKey, tuple[Millis, Announcement, ConnId]] = {}
        self.names: set[tuple[BrokerKey, str]] = set()

    def queues(self) -> dict[str, dict[str, QueueData]]:
        topics: dict[str, dict[str, QueueData]] = {}
        for (topic, name), row in self.rows.items():
            topics.setdefault(topic, {})[name] = row
        return topics

    def heard_of(self) -> dict[BrokerKey, tuple[Millis, ConnId]]:
        return {key: (heard, conn) for key, (heard, _, conn) in self.live.items()}

    def register(self, said: Announcement, conn: ConnId, now: Millis, *, delete_missing: bool) -> Registered | None:
        key, name, table = said.key, said.name, said.topics.topic_config_table
        old = self.addresses.get(name, {})
        if said.id not in old and len(table) == 1:
            return None
        self.clusters.setdefault(key.cluster, set()).add(name)
        self.acting[name] = bool(said.acting_master)
        mine = {i: a for i, a in old.items() if a != key.address or i == said.id}
        self.addresses[name] = mine
        before, was = min(old, default=0), mine.get(said.id)
        rival = self.live.get(BrokerKey(key.cluster, was or ""))
        versions = said.topics.data_version
        newer = rival is not None and rival[1].topics.data_version.state_version > versions.state_version
        if was not in (None, key.address) and newer:
            self.lost(key)
            return Registered()
        self.addresses[name] = mine = dict(sorted({**mine, said.id: key.address}.items()))
        smallest = said.id == min(mine)
        if said.id == 0 or (said.acting_master is not None and smallest):
            if delete_missing:
                self.rows = {(t, n): row for (t, n), row in self.rows.items() if n != name or t in table}
            known = self.live.get(key)
            news = was is None or known is None or known[1].topics.data_version != versions
            for topic, row in table.items():
                if news or (topic, name) not in self.rows:
                    perm = row.perm & ~2 if said.id != 0 and said.acting_master else row.perm
                    self.rows[topic, name] = QueueData(name, row.read_queue_nums, row.write_queue_nums, perm, 0)
        self.live[key] = now, said, conn
        self.names.add((key, name))
        change = None
        if said.id < before:
            tell = [a for i, a in mine.items() if i != said.id or len(mine) == 1]
            change = MinIdChange(said.id, key.address, None, said.ha_address, tell)
        master = self.live.get(BrokerKey(key.cluster, mine.get(0, "")))
        if said.id != 0 and master is not None:
            return Registered(master[1].ha_address, mine[0], change)
        return Registered(change=change)

    def heard(self, key: BrokerKey, now: Millis) -> None:
        if key in self.live:
            self.live[key] = now, *self.live[key][1:]

    def expired(self, now: Millis) -> list[BrokerKey]:
        timeouts = {key: said.timeout_ms or 120_000 for key, (_, said, _) in self.live.items()}
        return sorted(key for key, (heard, _, _) in self.live.items() if heard + timeouts[key] < now)

    def unregister(self, key: BrokerKey, name: str, broker_id: int) -> list[MinIdChange]:
        return self._leave(key, name, broker_id) + self.lost(key)

    def lost(self, key: BrokerKey) -> list[MinIdChange]:
        changes = []
        for name in sorted(name for k, name in self.names if k == key):
            ids = [i for i, address in self.addresses.get(name, {}).items() if address == key.address]
            changes += self._leave(key, name, ids[0]) if ids else []
        self.names = {(k, name) for k, name in self.names if k != key}
        self.live.pop(key, None)
        return changes

    def _leave(self, key: BrokerKey, name: str, broker_id: int) -> list[MinIdChange]:
        if name not in self.addresses:
            return []
        was_min = broker_id == min(self.addresses[name])
        left = self.addresses[name] = {i: a for i, a in self.addresses[name].items() if a != key.address}
        if not left:
            del self.addresses[name]
            self.rows = {(t, n): row for (t, n), row in self.rows.items() if n != name}
            self.clusters = {c: rest for c, names in self.clusters.items() if (rest := names - {name})}
            return []
        if self.acting[name] and min(left) > 0:
            for (_, n), row in self.rows.items():
                if n == name:
                    row.perm &= ~2
        if not was_min or not self.acting[name]:
            return []
        return [MinIdChange(min(left), left[min(left)], key.address, None, list(left.values()))]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        names = self.clusters.get(cluster, set()) if cluster else self.addresses
        self.rows = {(t, n): row for (t, n), row in self.rows.items() if t != topic or n not in names}

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        rows = {row.broker_name: row for row in queues}
        if rows and all(name in self.addresses for name in rows):
            self.rows |= {(topic, name): row for name, row in rows.items()}

    def set_write_perm(self, name: str, *, allowed: bool) -> int:
        rows = [row for (_, n), row in self.rows.items() if n == name]
        for row in rows:
            row.perm = 6 if allowed else row.perm & ~2
        return len(rows)
