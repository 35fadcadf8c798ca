"""Queue locks: an ordered consumer reads a queue only while its client holds the queue's lock (broker.md §9).

A lock is *free*, *held* or *expired*: held for `LOCK_LIFE_MS` since its holder last took it, then anyone may
take it over. Nothing is saved: after a restart all locks are free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perseid.base.machine import Millis
from perseid.wire.bodies import MessageQueue

LOCK_LIFE_MS = 60_000

QueueKey = tuple[str, str, int]
"""Topic, broker name, queue id."""


def _key(queue: MessageQueue) -> QueueKey:
    return queue.topic, queue.broker_name, queue.queue_id


@dataclass(slots=True)
class _Lock:
    client: str
    taken: Millis

    def expired(self, now: Millis) -> bool:
        return now - self.taken > LOCK_LIFE_MS


class QueueLocks:
    """The locks of queues that are read in order, per consumer group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[QueueKey, _Lock]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client: str, now: Millis) -> list[MessageQueue]:
        """Take or renew locks: the queues that `client` holds now, without those that another one holds."""
        held = self._groups.setdefault(group, {})
        taken = []
        for queue in queues:
            lock = held.get(_key(queue))
            if lock is None or lock.client == client or lock.expired(now):
                held[_key(queue)] = _Lock(client, now)
                taken.append(queue)
        if not held:
            del self._groups[group]
        return taken

    def unlock(self, group: str, queues: Iterable[MessageQueue], client: str) -> None:
        """Give locks back; those of another client stay."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(_key(queue))
            if lock is not None and lock.client == client:
                del held[_key(queue)]
        if not held:
            self._groups.pop(group, None)

    def any_held(self, group: str, now: Millis) -> bool:
        """Does any client hold a live lock of this group: is it consuming in order?"""
        return any(not lock.expired(now) for lock in self._groups.get(group, {}).values())

    def expire(self, now: Millis) -> None:
        """Forget locks that ran out; only memory depends on when this is called."""
        for group, held in list(self._groups.items()):
            for key in [key for key, lock in held.items() if lock.expired(now)]:
                del held[key]
            if not held:
                del self._groups[group]

    def validate(self) -> None:
        assert all(self._groups.values()), "a group without locks is forgotten"
