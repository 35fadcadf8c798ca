"""What clients did and were told. What follows from it is checked with every new fact (`sim/promises/`).

The history knows nothing of how a broker works. After a power cut, and then only, what had not become durable may be
forgotten; `perseid.sim.models.broker.durability` decides what that is.
"""

from __future__ import annotations

from collections.abc import Iterable

from perseid.sim.facts import LOOSE, VALUE_BYTES, Place, Sent, Stored
from perseid.sim.promises import delivery, timers, transactions
from perseid.sim.promises.linear_queues import Queues
from perseid.sim.promises.offsets import GroupOffsets
from perseid.sim.promises.ordering import QueueOrder
from perseid.wire.record import Record


class History:
    """All facts of one run."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.order = QueueOrder()
        self.offsets = GroupOffsets(self.order.known_max)
        self.queues = Queues()
        self.delayed: dict[bytes, Stored] = {}
        """Acknowledged messages with a delay that must come to their topic."""
        self.halves: dict[bytes, Stored] = {}
        """Acknowledged halves that are to be committed."""
        self.committed_values: set[bytes] = set()
        """Of halves whose commit was acknowledged with all that the mode has."""
        self._transactions: list[Sent] = []
        self._numbers = 0

    # ---- sends ----

    def new(self, topic: str, queue_id: int, producer: str, ordinal: int, size: int, *, tag: str | None = None) -> Sent:
        """A message with a value of its own and a body of `size` bytes."""
        self._numbers += 1
        value = b"%08d" % self._numbers
        body = (value * (size // VALUE_BYTES + 1))[: max(size, VALUE_BYTES)]
        sent = self.sent[value] = Sent(value, body, topic, queue_id, producer, ordinal, tag)
        return sent

    def transaction(self, sent: Sent, *, commit: bool) -> None:
        """A message is about to be sent as a half."""
        sent.commit = commit
        self._transactions.append(sent)

    def acknowledged(self, sent: Sent, place: Place, physical: int, now_us: int, *, sure: bool) -> None:
        """A producer was told where its message is."""
        sent.acked_at_us = now_us if sent.acked_at_us is None else sent.acked_at_us
        stored = Stored(sent, physical, now_us, sure)
        if sent.delayed:
            self.delayed[sent.value] = stored
        elif sent.commit is not None:
            if sent.commit:
                self.halves[sent.value] = stored
        elif not place.topic.startswith(LOOSE):
            self.order.acknowledged(place, stored)

    # ---- reads ----

    def saw(self, record: Record, now_us: int) -> Sent:
        """A reader was given a record, wherever it asked for it."""
        sent = delivery.sent_of(record, self.sent)
        if delivery.is_on_its_way(record, sent):
            return sent
        transactions.check_read(sent, record.topic)
        delivery.check_delivered(record, sent)
        timers.check_never_early(sent, record)
        if not record.topic.startswith(LOOSE):
            place = Place(record.topic, record.queue_id, record.queue_offset)
            self.order.was_read(place, Stored(sent, record.physical_offset, now_us))
            delivery.check_copies(sent)
        return sent

    # ---- what becomes of the broker ----

    def life_ended(self, *, crashed: bool = True) -> None:
        """The broker's process is gone."""
        self.offsets.life_ended()
        if crashed:
            for sent in self._transactions:
                sent.repeats += 1

    def forget(self, places: Iterable[Place], *, lost: bool = True) -> None:
        """These places are gone: with a power cut, so that others may take them, or deleted with their old files."""
        gone = list(places)
        if lost:
            self.queues.lost((place.topic, place.queue_id) for place in gone)
        self.order.forget(gone, lost=lost)
