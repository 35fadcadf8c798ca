"""Where the core's sends go that stand in a topic of the broker's own until their time has come: the targets of those
topics' queues, and the names of the queues that such sends are for.

    a time of its own → the timer topic; the timers hear of it
    a delay level     → the level's queue of the schedule topic; the level hears of it
    a half            → the half topic

A send to a retry topic may have a delay level, too; its group says how often it may have been tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.fast_path.core_turns import MAX_TARGETS
from perseid.broker.kernel import messages
from perseid.store.consume_queue import UNIT
from perseid.wire import properties as props
from perseid.wire.names import HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from perseid.broker.fast_path.plain_sends import SendPorts
    from perseid.core import Core
    from perseid.core.batch import Target
    from perseid.core.retries import RetrySends
    from perseid.wire.bodies import TopicConfig
    from perseid.wire.headers.send import SendMessageRequest

HALF = "TRAN_MSG\x01"
REDIRECTED = re.compile(f"TIMER_DE|{HALF}|DELAY\x01|{props.PRIORITY}")
"""Stands in the properties of sends that may go to another queue than they say."""


class OwnTopics:
    """Those of one broker, as its core knows them."""

    def __init__(self, ports: SendPorts, compiled: Core, batch: RetrySends, settle: Callable[[], None]) -> None:
        """`settle` ends what the batch has gathered."""
        self._ports, self._batch, self._settle = ports, batch, settle
        self._make = compiled.batch.Target
        self._names: dict[tuple[str, int], Target] = {}
        """Their targets are but names."""
        self._timers: Target | None = None
        self._halves: Target | None = None
        self._levels: dict[int, Target] = {}

    @property
    def takes_halves(self) -> bool:
        """Is there a target for halves?"""
        return self._halves is not None

    def learn(self, header: SendMessageRequest, row: TopicConfig) -> bool:
        """Make known to the core where a send goes that is redirected; False when it is known, or can't be."""
        if header.topic.startswith(RETRY_PREFIX) and self._learn_name(header, row):
            return True
        text = header.properties
        if HALF in text:
            changed = self._redirect()
            return self._learn_name(header, row) or changed if self._halves is not None else changed
        try:
            found = props.decode(text)
            level = min(messages.delay_level(found), len(self._ports.store.appends.levels))
        except RequestRefused:
            return False
        if level > 0:
            changed = self._learn_level(level)
            return self._learn_name(header, row) or changed if level in self._levels else changed
        if messages.priority(found) >= 0:
            return self._learn_name(header, row)
        changed = self._redirect()
        return self._learn_name(header, row) or changed if self._timers is not None else changed

    def queue_of(self, header: SendMessageRequest, row: TopicConfig) -> int:
        """The queue of its topic that a send with a priority goes to; of any other one that which it names."""
        if props.PRIORITY not in header.properties:
            return header.queue_id
        asked = messages.priority(props.decode(header.properties))
        return header.queue_id if asked < 0 else max(0, min(asked, row.write_queue_nums - 1))

    def limit_of(self, topic: str) -> int:
        """How often a message of a retry topic may have been tried that the core stores; -1: the handler has to look at
        each, for the group is new or consumes in order."""
        group = topic.removeprefix(RETRY_PREFIX)
        row = self._ports.groups.get(group)
        if row is None or self._ports.locks.any_held(group, self._ports.turn.now):
            return -1
        return row.retry_max_times

    def arrived(self) -> None:
        """Tell the services of what this turn stored in their topics."""
        if self._timers is not None and self._timers.count:
            self._ports.timers.arrived()
        for level, target in self._levels.items():
            if target.count:
                self._ports.delays.arrived(level - 1, UNIT.unpack_from(target.units)[2])

    def _redirect(self) -> bool:
        """Look up the timer topic and the half topic; has anything changed?"""
        timers, halves = self._target(self._timers, TIMER_TOPIC, 0), self._target(self._halves, HALF_TOPIC, 0)
        if timers is self._timers and halves is self._halves:
            return False
        self._settle()  # nothing of this turn may be in a target that is no more
        self._timers, self._halves = timers, halves
        self._batch.redirect(timers, halves)
        return True

    def _learn_level(self, level: int) -> bool:
        """Look up the queue of a level; has anything changed?"""
        known = self._levels.get(level)
        target = self._target(known, SCHEDULE_TOPIC, level - 1)
        if target is None or target is known:
            return False
        self._settle()
        self._levels[level] = target
        self._batch.set_level(level, target)
        return True

    def _learn_name(self, header: SendMessageRequest, row: TopicConfig) -> bool:
        """Make the name of the send's queue known; False when it is."""
        known = self._names.get((header.topic, header.queue_id))
        if known is not None and known.row is row:
            return False
        if len(self._names) >= MAX_TARGETS:
            self._names.clear()
        target: Target = self._make(header.topic, header.queue_id, None, row)
        self._names[target.key] = target
        self._batch.learn_name(target, MAX_TARGETS)
        return True

    def _target(self, known: Target | None, topic: str, queue_id: int) -> Target | None:
        """The target of a queue of the broker's own as it is now; None when there is none yet."""
        row, queue = self._ports.topics.rows.get(topic), self._ports.store.appends.plain_queues.get((topic, queue_id))
        if row is None or queue is None:
            return None
        if known is not None and known.row is row and known.queue is queue:
            return known
        target: Target = self._make(topic, queue_id, queue, row)
        return target
