"""Who is connected: producers and consumers by group and connection (broker.md §9).

Members are known by their heartbeats. One is *alive* from its first heartbeat until it says good-bye, its
connection closes, or it was silent for `channelExpiredTimeout`; then its connection is closed as well.

When the members of a consumer group or its subscriptions change, all its members are told (code 40, one-way),
so that they share the queues anew at once and not only at their next rebalance, unless the group consumes in
broadcast or its configuration says no. A new version of a known subscription tells nobody.

A pull may come without heartbeats, bringing its subscription along; that is kept for `subscriptionExpiredTimeout`
as a *compensation*, for those who ask what the group subscribes to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perseid.base.machine import Close, ConnId, Effect, Millis, Write
from perseid.wire import command
from perseid.wire.bodies import ConsumerData, SubscriptionData
from perseid.wire.codes import RequestCode
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest

SCAN_PERIOD_MS = 10_000
"""How often the broker looks for silent clients."""

MAX_GROUPS_OF_CONNECTION = 10_000
"""Groups that one connection may be a member of, as producer and as consumer; further ones are not registered."""

MAX_COMPENSATED = 100_000
"""Groups whose subscriptions are known from pulls alone."""

BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Client:
    """One process at the other end of a connection, as its last heartbeat described it."""

    conn: ConnId
    client_id: str
    language: int
    version: int
    peer: str
    seen: Millis


class _Members:
    """Groups of clients: what producers and consumers have in common is which connection is in which group."""

    def __init__(self) -> None:
        self._groups_of: dict[ConnId, set[str]] = {}

    def _join(self, conn: ConnId, group: str) -> bool:
        groups = self._groups_of.setdefault(conn, set())
        if group not in groups and len(groups) >= MAX_GROUPS_OF_CONNECTION:
            return False
        groups.add(group)
        return True

    def _leave(self, conn: ConnId, group: str) -> None:
        groups = self._groups_of.get(conn)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[conn]


class ProducerTable(_Members):
    """Producers by group."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, dict[ConnId, Client]] = {}
        self._turn = 0

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def groups(self) -> Iterable[str]:
        return self._groups.keys()

    def clients(self, group: str) -> list[Client]:
        return list(self._groups.get(group, {}).values())

    def register(self, group: str, client: Client) -> None:
        """A heartbeat came: the client is a member from now on, or still."""
        if self._join(client.conn, group):
            self._groups.setdefault(group, {})[client.conn] = client

    def unregister(self, group: str, conn: ConnId) -> None:
        members = self._groups.get(group)
        if members is None or members.pop(conn, None) is None:
            return
        self._leave(conn, group)
        if not members:
            del self._groups[group]

    def closed(self, conn: ConnId) -> None:
        for group in list(self._groups_of.get(conn, ())):
            self.unregister(group, conn)

    def expire(self, now: Millis, timeout_ms: int) -> list[Effect]:
        """Remove who was silent too long; the effects close their connections."""
        silent = {
            conn
            for members in self._groups.values()
            for conn, client in members.items()
            if now - client.seen > timeout_ms
        }
        for conn in silent:
            self.closed(conn)
        return _closes(silent)

    def any_client(self, group: str) -> Client | None:
        """A member to ask about a transaction; another one each time."""
        members = list(self._groups.get(group, {}).values())
        if not members:
            return None
        self._turn += 1
        return members[self._turn % len(members)]

    def find(self, client_id: str) -> Client | None:
        """The producer with this id, in whatever group."""
        for members in self._groups.values():
            for client in members.values():
                if client.client_id == client_id:
                    return client
        return None

    def validate(self) -> None:
        _check(self._groups, self._groups_of)


@dataclass(slots=True)
class ConsumerGroup:
    """The living members of a consumer group, and what they subscribe to."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    clients: dict[ConnId, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int | None = None
    """Of the last heartbeat; None: there was none yet."""
    notify: bool = True

    def find(self, client_id: str) -> Client | None:
        return next((client for client in self.clients.values() if client.client_id == client_id), None)

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take a heartbeat's subscriptions; True when a topic came or went."""
        changed = False
        topics = set()
        for subscription in wanted:
            topics.add(subscription.topic)
            old = self.subscriptions.get(subscription.topic)
            if old is None or subscription.sub_version > old.sub_version:
                self.subscriptions[subscription.topic] = subscription
            changed |= old is None
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed


@dataclass(slots=True)
class Heard:
    """What follows from a consumer's heartbeat."""

    effects: list[Effect]
    """Notices for the members of the group."""
    send_subscriptions: bool
    """The client is to send its subscriptions with its next heartbeat."""


class ConsumerTable(_Members):
    """Consumers by group. `notify` is the broker-wide switch of the notices."""

    def __init__(self, notify: bool = True) -> None:
        super().__init__()
        self.notify = notify
        self._groups: dict[str, ConsumerGroup] = {}
        self._compensated: dict[str, dict[str, SubscriptionData]] = {}
        self._notices = 0

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def groups(self) -> Iterable[str]:
        return self._groups.keys()

    def client(self, group: str, client_id: str) -> Client | None:
        found = self._groups.get(group)
        return found.find(client_id) if found else None

    def client_ids(self, group: str) -> list[str]:
        """The ids of the members, in the order in which they came."""
        found = self._groups.get(group)
        return [client.client_id for client in found.clients.values()] if found else []

    def subscription(self, group: str, topic: str, *, compensated: bool = True) -> SubscriptionData | None:
        """What the group wants of a topic, by its heartbeats or, if asked for, by its pulls."""
        found = self._groups.get(group)
        subscription = found.subscriptions.get(topic) if found else None
        if subscription is None and compensated:
            subscription = self._compensated.get(group, {}).get(topic)
        return subscription

    def groups_of(self, topic: str) -> set[str]:
        """The groups whose living members subscribe to a topic."""
        return {name for name, group in self._groups.items() if topic in group.subscriptions}

    # ---- members come and go ----

    def heard(
        self,
        data: ConsumerData,
        client: Client,
        *,
        notify: bool,
        fingerprint: int = 0,
        without_subscriptions: bool = False,
    ) -> Heard:
        """A heartbeat came for one group. `notify` is the group's own switch.

        With `without_subscriptions` (version 2 of the heartbeats) the client says that they are as before. When
        they are not known here, or the group's fingerprint was another one, it is asked to send them.
        """
        if not self._join(client.conn, data.group_name):
            return Heard([], False)
        group = self._groups.setdefault(data.group_name, ConsumerGroup(data.group_name))
        ask = group.fingerprint is not None and group.fingerprint != fingerprint
        group.fingerprint = fingerprint
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.notify = notify
        changed = client.conn not in group.clients
        group.clients[client.conn] = client
        if without_subscriptions:
            ask |= not group.subscriptions
        elif group.subscribe(data.subscription_data_set):
            changed = True
        return Heard(self._tell(group) if changed else [], ask)

    def unregister(self, name: str, conn: ConnId) -> list[Effect]:
        """A consumer says good-bye to a group; the others are told."""
        group = self._groups.get(name)
        if group is None or group.clients.pop(conn, None) is None:
            return []
        self._leave(conn, name)
        if not group.clients:
            del self._groups[name]
        return self._tell(group)

    def closed(self, conn: ConnId) -> list[Effect]:
        """A connection is gone, and its consumers with it."""
        effects: list[Effect] = []
        for name in list(self._groups_of.get(conn, ())):
            effects += self.unregister(name, conn)
        return effects

    def expire(self, now: Millis, timeout_ms: int, subscription_timeout_ms: int) -> list[Effect]:
        """Remove who was silent too long, and old compensations; the effects close and tell."""
        silent = {
            conn
            for group in self._groups.values()
            for conn, client in group.clients.items()
            if now - client.seen > timeout_ms
        }
        effects: list[Effect] = []
        for conn in silent:
            effects += self.closed(conn)
        for name, topics in list(self._compensated.items()):
            for topic in [t for t, s in topics.items() if now - s.sub_version > subscription_timeout_ms]:
                del topics[topic]
            if not topics:
                del self._compensated[name]
        return effects + _closes(silent)

    def compensate(self, group: str, subscription: SubscriptionData) -> None:
        """Remember the subscription that came with a pull. Its `sub_version` is when it was made, in ms."""
        topics = self._compensated.get(group)
        if topics is None:
            if len(self._compensated) >= MAX_COMPENSATED:
                return
            topics = self._compensated[group] = {}
        topics[subscription.topic] = subscription

    def _tell(self, group: ConsumerGroup) -> list[Effect]:
        """The notices that the group changed."""
        if not (self.notify and group.notify) or group.message_model == BROADCASTING:
            return []
        effects: list[Effect] = []
        header = NotifyConsumerIdsChangedRequest(consumer_group=group.name)
        for conn in group.clients:
            self._notices = (self._notices + 1) & 0x7FFFFFFF
            frame = command.encode_request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notices, header, oneway=True
            )
            effects.append(Write(conn, frame))
        return effects

    def validate(self) -> None:
        _check({name: group.clients for name, group in self._groups.items()}, self._groups_of)
        assert all(name == group.name for name, group in self._groups.items()), "a group stands under its name"


def _closes(conns: Iterable[ConnId]) -> list[Effect]:
    return [Close(conn, "no heartbeat for too long") for conn in sorted(conns)]


def _check(groups: dict[str, dict[ConnId, Client]], groups_of: dict[ConnId, set[str]]) -> None:
    assert all(groups.values()), "a group without members is forgotten"
    pairs = {(conn, name) for name, members in groups.items() for conn in members}
    assert pairs == {(conn, name) for conn, names in groups_of.items() for name in names}, "both ways agree"
    for members in groups.values():
        assert all(conn == client.conn for conn, client in members.items()), "a client stands under its connection"
