"""Producers and consumers, as the kernel is told of them."""

from __future__ import annotations

from perseid.base.machine import Millis
from perseid.broker.clients.locks import QueueLocks
from perseid.broker.clients.members import ConsumerTable, ProducerTable
from perseid.broker.kernel.capability import Capability, Requests, Timer
from perseid.broker.kernel.generation import Generation

HOUSEKEEPING_MS = 10_000


class Housekeeping:
    """Removes, now and then, who was silent too long."""

    def __init__(
        self, generation: Generation, producers: ProducerTable, consumers: ConsumerTable, locks: QueueLocks
    ) -> None:
        self._generation = generation
        self._producers = producers
        self._consumers = consumers
        self._locks = locks
        self._due: Millis = 0

    def start(self, now: Millis) -> None:
        """The broker begins."""
        self._due = now + HOUSEKEEPING_MS

    def next_deadline(self) -> Millis:
        return self._due

    def tick(self, now: Millis) -> None:
        """Look through all tables, if it is time."""
        if now >= self._due:
            self._due = now + HOUSEKEEPING_MS
            self._generation.rise()
            self._producers.expire(now)
            self._consumers.expire(now)
            self._locks.expire(now)


def capability(
    generation: Generation, producers: ProducerTable, consumers: ConsumerTable, locks: QueueLocks,
    requests: tuple[Requests, ...],
) -> Capability:  # fmt: skip
    """Connected clients, and the queues that they hold."""
    housekeeping = Housekeeping(generation, producers, consumers, locks)
    return Capability(
        name="clients",
        requests=requests,
        loads=(housekeeping.start,),
        timers=(Timer("housekeeping", housekeeping.tick, housekeeping.next_deadline),),
        gone=(
            lambda conn: producers.connection_closed(conn.id),
            lambda conn: consumers.connection_closed(conn.id),
        ),
        checks=(locks.validate,),
    )
