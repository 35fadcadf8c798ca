"""Lite topics of one broker: who reads what, who is told of a message, and when a lite topic ends.

Nothing here is saved: clients say again what they read (each 30 s), the group's offsets stand at the first message that
is not acknowledged, and a queue that has more than its group has read is an event for whoever comes to read it. So a
restart, or a new master, shows what was out once more, and loses nothing.

    a client says what it reads → (a queue has messages) an event → its pop reads there, in order: the queue is blocked
    for its group → (all acknowledged, or their time is up) the next event, while there is more

A lite topic whose last message is older than its parent's `lite.topic.expiration` (minutes) is removed with its groups'
offsets; each `liteTtlCheckInterval` all are looked at, `LOOKED_AT` a turn. Slaves do the same, later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from perseid.base.machine import ConnId, Millis
from perseid.broker.kernel.ports import Counts, TopicStore
from perseid.broker.kernel.request import Connection
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.lite.events import PASSED_OVER_MS, Events, FullDispatches
from perseid.broker.lite.registry import Reader, Registry
from perseid.broker.metadata.lite_attributes import bound_to, is_parent
from perseid.broker.metadata.topics import EXPIRATION
from perseid.broker.pop.order import ConsumeOrder
from perseid.store.lmq import LMQ_QUEUE_ID, is_lmq, may_be
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.wire import lite, lite_sharding
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.headers.lite import NotifyUnsubscribeLiteRequest

if TYPE_CHECKING:
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.topic_routes import Routes

MODEL, WILDCARD = "lite.sub.model", "lite.sub.wildcard"
RESET_EXCLUSIVE, RESET_UNSUBSCRIBE = "lite.sub.reset.offset.exclusive", "lite.sub.reset.offset.unsubscribe"
EVENT_COUNT = "lite.sub.client.max.event.cnt"
MAX_EVENTS = 100_000
"""Events of one client, whatever its group asks for."""
LOOKED_AT = 200
"""Lite topics that one turn looks at for their age."""
SOON_MS = 20
JITTER_MS = 10_000
MINUTE_MS = 60_000
SLAVE_LATER_MS = 600_000
"""A slave removes a lite topic so much later than its master: nobody tells it."""


def minutes_of(row: TopicConfig) -> int:
    """After how many minutes a lite topic of this parent is removed; −1: it is not."""
    text = row.attributes.get(EXPIRATION, "-1")
    return int(text) if text.isdecimal() else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePorts:
    """The parts of a broker that `LiteService` needs."""

    turn: Turn
    settings: Settings
    reads: Reads
    queues: Queues
    store: TopicStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    holds: Holds
    stats: Counts
    random: Random
    routes: Routes
    saves: Saves
    connections: Mapping[ConnId, Connection]


class LiteService:
    """Of one broker."""

    def __init__(self, ports: LitePorts) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._reads, self._consume_queues, self._store = ports.reads, ports.queues, ports.store
        self._topics = ports.topics
        self._groups = ports.groups
        self._offsets = ports.offsets
        self._holds = ports.holds
        self._stats = ports.stats
        self._random = ports.random
        self._routes = ports.routes
        self._saves = ports.saves
        self._connections = ports.connections
        self.registry = Registry()
        self.order = ConsumeOrder()
        self.events: dict[str, Events] = {}
        self._full = FullDispatches()
        self._passed_over: dict[str, Millis] = {}
        """Clients that did not come for their events, and until when they are asked last."""
        self._written: dict[str, Millis] = {}
        """Lite topics' queues, and when they got their last message, as far as it is known."""
        self._to_look_at: list[str] = []
        self._events_at: Millis = 0
        self._readers_at: Millis = 0
        self._age_at: Millis = 0
        self._notices = 0
        self.leads = False

    # ---- roles ----

    def load(self, now: Millis) -> None:
        """The broker begins, as whatever it is."""
        self._age_at = now + self._settings.current.min_lite_ttl

    def start(self, now: Millis) -> None:
        """This broker leads."""
        config = self._settings.current
        self.leads = self._reads.config.lmq
        self._events_at = now + config.lite_event_check_interval
        self._readers_at = now + config.lite_subscription_check_interval

    def stop(self) -> None:
        """Another broker leads: what is out here is nothing to it."""
        self.leads = False
        self.registry.clear()
        self.order.forget()
        self.events.clear()
        self._full.clear()
        self._passed_over.clear()

    # ---- what is where ----

    def parent(self, name: str) -> TopicConfig | None:
        """The parent's row of a lite topic's queue; None: it is none."""
        topic = lite.parent_of(name)
        row = None if topic is None else self._topics.get(topic)
        return row if is_parent(row) else None

    def names(self, parent: str | None = None) -> list[str]:
        """The queues of all lite topics, or of one parent's."""
        start = lite.PREFIX if parent is None else lite.queue_name(parent, "")
        queues = self._consume_queues.table
        return [name for name, _ in queues if name.startswith(start) and lite.parent_of(name) is not None]

    def count_light(self) -> int:
        return sum(is_lmq(name) for name, _ in self._consume_queues.table)

    def end(self, name: str) -> int:
        return self._reads.max_offset(name, LMQ_QUEUE_ID)

    def is_ours(self, name: str) -> bool:
        """Does the lite topic belong to this broker, by the parent's route as far as it is known?"""
        parent, topic = lite.parent_of(name), lite.lite_of(name)
        if parent is None or topic is None or not may_be(name):
            return False
        writable = self._routes.writable(parent)
        return not writable or lite_sharding.place_of(topic, writable) == self._settings.current.broker_name

    def is_read_here(self, name: str) -> bool:
        """May a client read it here: it is ours, or there are messages?"""
        return self.is_ours(name) or self.end(name) > 0

    def groups_by_parent(self) -> dict[str, list[str]]:
        """Parent → the groups that are bound to it."""
        found: dict[str, list[str]] = {}
        for name, row in self._groups.rows.items():
            topic = bound_to(row)
            if topic is not None:
                found.setdefault(topic, []).append(name)
        return found

    def is_wildcard(self, group: str) -> bool:
        return WILDCARD in self._attributes(group)

    def is_exclusive(self, group: str) -> bool:
        return self._attributes(group).get(MODEL) == "Exclusive"

    def _is_true(self, group: str, name: str) -> bool:
        return self._attributes(group).get(name, "").lower() == "true"

    def _attributes(self, group: str) -> dict[str, str]:
        row = self._groups.get(group)
        return {} if row is None else row.attributes

    # ---- subscriptions ----

    def subscribe(self, reader: Reader, name: str, option: lite.OffsetOption | None) -> None:
        """A client reads one more lite topic; of an exclusive group it is then the only one."""
        added = self.registry.add(reader, name)
        if self.is_exclusive(reader.group):
            for other in self._others(reader, name):
                self._exclude(other, name)
        if option is not None:
            self._reset(name, reader.group, option)
        if (added or option is not None) and self.end(name) > 0:
            self._dispatch(name, reader.group)

    def unsubscribe(self, reader: Reader, name: str) -> None:
        """A client reads a lite topic no longer."""
        if self.registry.remove(reader, name) and self._is_true(reader.group, RESET_UNSUBSCRIBE):
            self._reset(name, reader.group, lite.OffsetOption(lite.POLICY, lite.POLICY_MIN))

    def subscribe_all(self, reader: Reader, names: Iterable[str]) -> None:
        """A client says all that it reads."""
        wanted = dict.fromkeys(names)
        for name in [name for name in reader.names if name not in wanted]:
            self.registry.remove(reader, name)
        exclusive = self.is_exclusive(reader.group)
        for name in wanted:
            if exclusive and self._others(reader, name):
                self._tell_excluded(reader, name)  # it has not heard so yet
            elif self.registry.add(reader, name) and self.end(name) > 0:
                self._dispatch(name, reader.group)

    def subscribe_wildcard(self, reader: Reader) -> None:
        """A client reads all lite topics of the parent."""
        if self.registry.read_all(reader):
            self._full.plan("", reader.group, self._turn.now + 5_000)

    def forget_client(self, client_id: str) -> None:
        """A client reads nothing any more; what waited for it, others of its group get."""
        reader = self.registry.drop(client_id)
        if reader is not None:
            self._hand_on(client_id)

    def _others(self, reader: Reader, name: str) -> list[Reader]:
        """Clients of the same group that read a lite topic."""
        readers = self.registry.readers_of(name, None, reader.group).get(reader.group, [])
        return [other for other in readers if other is not reader]

    def _exclude(self, other: Reader, name: str) -> None:
        self.registry.remove(other, name)
        if self._is_true(other.group, RESET_EXCLUSIVE):
            self._reset(name, other.group, lite.OffsetOption(lite.POLICY, lite.POLICY_MIN))
        if not other.names:
            self.registry.drop(other.client_id)
        self._tell_excluded(other, name)

    def _tell_excluded(self, other: Reader, name: str) -> None:
        if other.conn is None or other.conn not in self._connections:
            return
        header = NotifyUnsubscribeLiteRequest(
            lite_topic=lite.lite_of(name) or "", consumer_group=other.group, client_id=other.client_id
        )
        self._notices += 1
        frame = encode_request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, self._notices, header, oneway=True)
        self._turn.write(other.conn, frame)

    def _reset(self, name: str, group: str, option: lite.OffsetOption) -> None:
        """Let a group go on elsewhere, as its client wants it."""
        offsets, kind, value = self._offsets, option.type, option.value
        current = offsets.query(name, group, LMQ_QUEUE_ID)
        target: int | None = None
        if kind == lite.POLICY:
            target = {lite.POLICY_MIN: 0, lite.POLICY_MAX: self.end(name)}.get(value)
        elif kind == lite.OFFSET:
            target = value
        elif kind == lite.TAIL_N and current is not None:
            target = max(0, current - value)
        if target is not None and target != current:
            offsets.reset(name, group, LMQ_QUEUE_ID, target)
            self.order.clear(name, group, LMQ_QUEUE_ID)

    # ---- events ----

    def arrived(self, name: str) -> None:
        """Readers see a message in a lite topic's queue."""
        self._written[name] = self._turn.now
        if self.leads:
            self._dispatch(name)

    def goes_on(self, name: str, group: str) -> None:
        """A group may read on in a queue."""
        if self._has_more(name, group):
            self._dispatch(name, group)

    def look_soon(self, client_id: str, group: str) -> None:
        """Not in this moment, but in the next one a client may have what it has an event for."""
        self._full.plan("" if self.is_wildcard(group) else client_id, group, self._turn.now + SOON_MS)

    def next_event(self, client_id: str, group: str) -> str | None:
        """The queue that a client is to look at next; it came for it."""
        if client_id not in self.events and client_id not in self.registry.readers:
            return None
        return self._events_of(client_id, group).take(self._turn.now)

    def _events_of(self, client_id: str, group: str) -> Events:
        found = self.events.get(client_id)
        if found is None:
            text = self._attributes(group).get(EVENT_COUNT, "")
            most = int(text) if text.isdecimal() else self._settings.current.max_client_event_count
            found = self.events[client_id] = Events(group, min(most, MAX_EVENTS), self._turn.now)
        return found

    def _has_more(self, name: str, group: str) -> bool:
        """Would a pop of the group get something of a queue now?"""
        offset = self._offsets.query(name, group, LMQ_QUEUE_ID) or 0
        return offset < self.end(name) and not self.order.blocked(name, group, LMQ_QUEUE_ID, None, self._turn.now)

    def _dispatch(self, name: str, group: str | None = None, leave_out: str = "") -> None:
        for readers in self.registry.readers_of(name, lite.parent_of(name), group).values():
            self._select(name, readers, leave_out)

    def _select(self, name: str, readers: list[Reader], leave_out: str = "") -> bool:
        """One of a group's clients gets an event; False: none has room for it."""
        group = readers[0].group if readers else ""
        if not readers:
            return True
        wildcard, first = self.is_wildcard(group), self._random.randrange(len(readers))
        later: list[Reader] = []
        for number in range(len(readers)):
            reader = readers[(first + number) % len(readers)]
            if reader.client_id == leave_out:
                later.append(reader)
            elif reader.client_id in self._passed_over:
                if not wildcard:
                    later.append(reader)
            elif self._give(reader, name, wildcard):
                return True
        if any(self._give(reader, name, wildcard) for reader in later):
            return True
        if wildcard:
            delay = self._settings.current.lite_event_full_dispatch_delay_time_for_wildcard_group
            self._full.plan("", group, self._turn.now + max(SOON_MS, delay))
        return False

    def _give(self, reader: Reader, name: str, wildcard: bool) -> bool:
        if self._events_of(reader.client_id, reader.group).offer(name):
            self._wake(reader.client_id, reader.group)
            return True
        if not wildcard:
            self._look_later(reader.client_id, reader.group)
        return False

    def _wake(self, client_id: str, group: str) -> None:
        self._holds.pops.more(room(client_id), group)

    def _look_later(self, client_id: str, group: str) -> None:
        jitter = self._random.randrange(JITTER_MS) if client_id in self._passed_over else 0
        delay = self._settings.current.lite_event_full_dispatch_delay_time
        self._full.plan(client_id, group, self._turn.now + max(SOON_MS, delay + jitter))

    def _hand_on(self, client_id: str) -> None:
        """Others of the group get a client's events."""
        events = self.events.pop(client_id, None)
        for name in events.names if events is not None else ():
            assert events is not None
            self._dispatch(name, events.group, client_id)

    # ---- looking at all ----

    def dispatch_all(self, group: str, client_id: str = "") -> None:
        """Look at all that a client reads, or that the clients of a group read."""
        if client_id:
            self._dispatch_client(client_id)
        elif self.is_wildcard(group):
            self._dispatch_group(group)
        else:
            for reader in self.registry.of_group(group):
                self._dispatch_client(reader.client_id)

    def _dispatch_client(self, client_id: str) -> None:
        reader = self.registry.readers.get(client_id)
        if reader is None or not reader.names:
            return
        events = self._events_of(client_id, reader.group)
        if events.is_idle(self._turn.now) or not events.has_few():
            self._look_later(client_id, reader.group)
            return
        for name in reader.names:
            if self._has_more(name, reader.group) and not events.offer(name):
                self._look_later(client_id, reader.group)
                break
        if events.names:
            self._wake(client_id, reader.group)

    def _dispatch_group(self, group: str) -> None:
        parent = bound_to(self._groups.get(group))
        readers = [] if parent is None else self.registry.wildcard_readers(parent, group)
        if not readers:
            return
        for name in self.names(parent):
            if self._has_more(name, group) and not self._select(name, readers):
                return

    # ---- time ----

    def next_deadline(self) -> Millis | None:
        if not self._reads.config.lmq:
            return None
        times = [self._age_at]
        if self.registry.readers or self.events:
            times += [self._events_at, self._readers_at]
        for part in (self.order, self._full):
            due = part.next_deadline()
            if due is not None:
                times.append(due)
        return min(times)

    def tick(self, now: Millis) -> None:
        if now >= self._age_at and self._reads.config.lmq:
            self._look_at_age(now)
        if not self.leads:
            return
        config = self._settings.current
        for name, group, _ in self.order.freed(now):
            self.goes_on(name, group)
        for client_id, group in self._full.take(now):
            self.dispatch_all(group, client_id)
        if now >= self._events_at:
            self._events_at = now + max(SOON_MS, config.lite_event_check_interval)
            self._pass_over(now)
        if now >= self._readers_at:
            self._readers_at = now + max(SOON_MS, config.lite_subscription_check_interval)
            for reader in self.registry.silent_since(now - config.lite_subscription_check_timeout_mills):
                self.forget_client(reader.client_id)

    def _pass_over(self, now: Millis) -> None:
        """Clients that do not come for their events lose them."""
        self._passed_over = {client_id: until for client_id, until in self._passed_over.items() if until > now}
        for client_id, events in list(self.events.items()):
            if client_id not in self.registry.readers and not events.names:
                del self.events[client_id]
            elif events.is_idle(now):
                self._passed_over[client_id] = now + PASSED_OVER_MS
                self._hand_on(client_id)

    def _look_at_age(self, now: Millis) -> None:
        """Look at some lite topics; remove those that are too old."""
        if not self._to_look_at:
            self._to_look_at = self.names()
        part, self._to_look_at = self._to_look_at[:LOOKED_AT], self._to_look_at[LOOKED_AT:]
        self.remove([name for name in part if self._is_too_old(name, now)])
        interval = self._settings.current.lite_ttl_check_interval
        self._age_at = now + (SOON_MS if self._to_look_at else max(SOON_MS, interval))

    def _is_too_old(self, name: str, now: Millis) -> bool:
        row = self.parent(name)
        minutes = -1 if row is None else minutes_of(row)
        if minutes <= 0:
            return False
        written = self._written.get(name)
        if written is None:
            written = self._written[name] = self._reads.store_time(name, LMQ_QUEUE_ID, self.end(name) - 1)
        age = now - written - (0 if self.leads else SLAVE_LATER_MS)
        return age >= self._settings.current.min_lite_ttl and age > minutes * MINUTE_MS

    def remove(self, names: Iterable[str]) -> None:
        """Lite topics are gone: their messages, and the offsets of all groups in them. Offsets are saved first: if they
        outlived a topic that comes again, its groups would skip what is new."""
        doomed = set(names)
        if not doomed:
            return
        self._offsets.forget_topics(doomed)
        self._saves.hurry(self._offsets.path)
        self.order.forget_topics(doomed)
        for name in sorted(doomed):
            for effect in self._store.delete_topic(name):
                self._turn.emit(effect)
            self.registry.forget_queue(name)
            self._written.pop(name, None)
            self._stats.forget_topic(name)

    def validate(self) -> None:
        self.registry.validate()
        self.order.validate()
        assert all(len(events.names) <= events.most for events in self.events.values()), "events have a limit"


def room(client_id: str) -> str:
    """Where a client's pops wait: under a name that no topic has."""
    return f"\0{client_id}"
