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
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import Close, ConnId, Millis
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.wire import command
from perseid.wire.bodies import ConsumerData, SubscriptionData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest

if TYPE_CHECKING:
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.wire.headers.pull import PullMessageRequest

MAX_GROUPS_OF_CONNECTION = 10_000
"""Groups that one connection may be a member of, as producer and as consumer; further ones are not registered."""

MAX_COMPENSATED = 100_000
"""Groups whose subscriptions are known from pulls alone."""

BROADCASTING = "BROADCASTING"

SILENT = "no heartbeat for too long"


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

    def __init__(self, turn: Turn, settings: Settings) -> None:
        self._turn = turn
        self._settings = settings
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

    def __init__(self, turn: Turn, settings: Settings) -> None:
        super().__init__(turn, settings)
        self._groups: dict[str, dict[ConnId, Client]] = {}
        self._by_id: dict[str, Client] = {}
        """The one that was heard last, where several have the same id."""
        self._id_of: dict[ConnId, str] = {}
        self._asked = 0

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
            if self._id_of.get(client.conn) != client.client_id:
                self._forget(client.conn)
                self._id_of[client.conn] = client.client_id
            self._by_id[client.client_id] = client

    def unregister(self, group: str, conn: ConnId) -> None:
        members = self._groups.get(group)
        if members is None or members.pop(conn, None) is None:
            return
        self._leave(conn, group)
        if conn not in self._groups_of:
            self._forget(conn)
        if not members:
            del self._groups[group]

    def connection_closed(self, conn: ConnId) -> None:
        for group in list(self._groups_of.get(conn, ())):
            self.unregister(group, conn)

    def expire(self, now: Millis) -> None:
        """Remove who was silent too long, and close their connections."""
        silent = _silent(self._groups.values(), now - self._settings.current.channel_expired_timeout)
        for conn in silent:
            self.connection_closed(conn)
            self._turn.emit(Close(conn, SILENT))

    def any_client(self, group: str) -> Client | None:
        """A member to ask about a transaction; another one each time."""
        members = list(self._groups.get(group, {}).values())
        if not members:
            return None
        self._asked += 1
        return members[self._asked % len(members)]

    def find(self, client_id: str) -> Client | None:
        """The producer with this id, in whatever group."""
        return self._by_id.get(client_id)

    def _forget(self, conn: ConnId) -> None:
        client_id = self._id_of.pop(conn, None)
        if client_id is not None and client_id in self._by_id and self._by_id[client_id].conn == conn:
            del self._by_id[client_id]

    def validate(self) -> None:
        _check(self._groups, self._groups_of)
        assert self._id_of.keys() == self._groups_of.keys(), "who left can't be found"
        assert all(self._id_of[client.conn] == name for name, client in self._by_id.items()), "ids lead to who has them"


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


class ConsumerTable(_Members):
    """Consumers by group."""

    def __init__(self, turn: Turn, settings: Settings) -> None:
        super().__init__(turn, settings)
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

    def subscription_for_pull(self, groups: SubscriptionGroupTable, header: PullMessageRequest) -> SubscriptionData:
        """What the heartbeats said that a pull without a subscription wants.

        RequestRefused, in the order of broker.md §6.1 step 8': 24, 16, 16, 24, 25.
        """
        name, topic = header.consumer_group, header.topic
        group = self._groups.get(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, group: {name}"
            )
        config = groups.get(name)
        if config and not config.consume_broadcast_enable and group.message_model == BROADCASTING:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the consumer group[{name}] can not consume by broadcast way"
            )
        if not groups.may_read(name, topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the consumer group[{name}] is forbidden for topic[{topic}]"
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {name}, topic: {topic}",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest, group: {name}, topic: {topic}, "
                f"known: {subscription.sub_version}, wanted: {header.sub_version}",
            )
        return subscription

    # ---- members come and go ----

    def heard(
        self,
        data: ConsumerData,
        client: Client,
        *,
        notify: bool,
        fingerprint: int = 0,
        without_subscriptions: bool = False,
    ) -> bool:
        """A heartbeat came for one group; True: the client is to send its subscriptions with the next one.

        `notify` is the group's own switch of the notices. With `without_subscriptions` (version 2 of the
        heartbeats) the client says that its subscriptions are as before: it is asked to send them when they are
        not known here, or when the group's last fingerprint was another one.
        """
        if not self._join(client.conn, data.group_name):
            return False
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
        if changed:
            self._tell(group)
        return ask

    def unregister(self, name: str, conn: ConnId) -> None:
        """A consumer leaves a group; the others are told."""
        group = self._groups.get(name)
        if group is None or group.clients.pop(conn, None) is None:
            return
        self._leave(conn, name)
        if not group.clients:
            del self._groups[name]
        self._tell(group)

    def connection_closed(self, conn: ConnId) -> None:
        """A connection is gone, and its consumers with it."""
        for name in list(self._groups_of.get(conn, ())):
            self.unregister(name, conn)

    def expire(self, now: Millis) -> None:
        """Remove who was silent too long, close their connections, and forget old compensations."""
        silent = _silent(
            (group.clients for group in self._groups.values()), now - self._settings.current.channel_expired_timeout
        )
        for conn in silent:
            self.connection_closed(conn)
            self._turn.emit(Close(conn, SILENT))
        oldest = now - self._settings.current.subscription_expired_timeout
        for name, topics in list(self._compensated.items()):
            for topic in [topic for topic, known in topics.items() if known.sub_version < oldest]:
                del topics[topic]
            if not topics:
                del self._compensated[name]

    def compensate(self, group: str, subscription: SubscriptionData) -> None:
        """Remember the subscription that came with a pull. Its `sub_version` is when it was made, in ms."""
        topics = self._compensated.get(group)
        if topics is None:
            if len(self._compensated) >= MAX_COMPENSATED:
                return
            topics = self._compensated[group] = {}
        topics[subscription.topic] = subscription

    def _tell(self, group: ConsumerGroup) -> None:
        """Notices to all members that the group changed."""
        if not (self._settings.current.notify_consumer_ids_changed_enable and group.notify):
            return
        if group.message_model == BROADCASTING:
            return
        header = NotifyConsumerIdsChangedRequest(consumer_group=group.name)
        for conn in group.clients:
            self._notices = (self._notices + 1) & 0x7FFFFFFF
            self._turn.write(
                conn,
                command.encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notices, header, oneway=True),
            )

    def validate(self) -> None:
        _check({name: group.clients for name, group in self._groups.items()}, self._groups_of)
        assert all(name == group.name for name, group in self._groups.items()), "a group stands under its name"


def _silent(groups: Iterable[dict[ConnId, Client]], oldest: Millis) -> list[ConnId]:
    """The connections that no heartbeat came on since `oldest`."""
    return sorted({conn for members in groups for conn, client in members.items() if client.seen < oldest})


def _check(groups: dict[str, dict[ConnId, Client]], groups_of: dict[ConnId, set[str]]) -> None:
    assert all(groups.values()), "a group without members is forgotten"
    pairs = {(conn, name) for name, members in groups.items() for conn in members}
    assert pairs == {(conn, name) for conn, names in groups_of.items() for name in names}, "both ways agree"
    for members in groups.values():
        assert all(conn == client.conn for conn, client in members.items()), "a client stands under its connection"
