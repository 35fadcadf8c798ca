"""The 18 delay levels: messages wait in the queues of SCHEDULE_TOPIC_XXXX until their time has come.

One queue a level, so within a queue the delivery times never fall; each unit's tag code is its delivery time.
Per level the service knows the offset of the next unit to deliver, and when that is. A delivered message is
stored anew under its real topic; the offset moves on in the same step.

Offsets are saved every `flushDelayOffsetInterval`, after what they stand for is durable: a crash delivers some
messages twice, and loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.machine import Millis, Note
from perseid.broker import messages
from perseid.store.results import AppendRefused
from perseid.wire import fastjson, record
from perseid.wire import properties as props
from perseid.wire.bodies import DataVersion

if TYPE_CHECKING:
    from perseid.broker.node import Broker

FIRST_RUN_MS = 1_000
RETRY_MS = 100
MAX_DELIVERIES = 512
"""Messages of one level that one tick delivers, so that a long backlog never stalls the node."""

OFFSETS_PATH = "config/delayOffset.json"


class DelayService:
    """Delivers what is due. `offsets` maps level → offset of the next unit of its queue."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.version = DataVersion(counter=0, state_version=0, timestamp=0)
        self.offsets: dict[int, int] = {}
        self.dirty = False
        self._due: dict[int, Millis] = {}
        self._steps = 0

    def start(self, text: bytes | None, now: Millis) -> None:
        """Take up the saved offsets; the first look is after `FIRST_RUN_MS`, as in the original."""
        if text:
            saved = fastjson.loads(text)
            self.version = DataVersion.from_json(saved.get("dataVersion") or {})
            self.offsets = {int(level): int(offset) for level, offset in (saved.get("offsetTable") or {}).items()}
        for level in range(1, len(messages.LEVELS_MS) + 1):
            queue_id = level - 1
            end = self._broker.store.max_offset(messages.SCHEDULE_TOPIC, queue_id)
            start = self._broker.store.min_offset(messages.SCHEDULE_TOPIC, queue_id)
            self.offsets[level] = min(max(self.offsets.get(level, 0), start), end)
            if self.offsets[level] < end:
                self._due[level] = now + FIRST_RUN_MS

    def to_json(self) -> bytes:
        """The text of config/delayOffset.json."""
        table = {level: offset for level, offset in sorted(self.offsets.items()) if offset}
        return fastjson.pretty({"dataVersion": self.version.to_json(), "offsetTable": table})

    def arrived(self, queue_id: int, deliver_at: Millis) -> None:
        """A delayed message was stored: unless the level has older ones, its delivery is the next deadline."""
        self._due.setdefault(queue_id + 1, deliver_at)

    def next_deadline(self) -> Millis | None:
        return min(self._due.values(), default=None)

    def tick(self, now: Millis) -> None:
        """Deliver all that is due."""
        for level in [level for level, due in self._due.items() if due <= now]:
            self._run(level, now)

    def _run(self, level: int, now: Millis) -> None:
        store, queue_id = self._broker.store, level - 1
        for _ in range(MAX_DELIVERIES):
            offset = max(self.offsets[level], store.min_offset(messages.SCHEDULE_TOPIC, queue_id))
            unit = store.unit(messages.SCHEDULE_TOPIC, queue_id, offset)
            if unit is None:
                self._due.pop(level, None)
                return
            deliver_at = min(unit.tag_code, now + messages.LEVELS_MS[queue_id])
            if deliver_at > now:
                self._due[level] = deliver_at
                return
            if not self._deliver(unit.physical_offset, now):
                self._due[level] = now + RETRY_MS
                return
            self._advance(level, offset + 1, now)
        self._due[level] = now

    def _deliver(self, physical_offset: int, now: Millis) -> bool:
        """Store one message under its real topic; False: try again later."""
        view = self._broker.store.record_at(physical_offset)
        if view is None:
            self._broker.emit(Note("warning", f"delayed message at {physical_offset} is gone: skipped"))
            return True
        message, properties = messages.again(record.decode(view))
        topic, queue_id = properties.get(props.REAL_TOPIC), properties.get(props.REAL_QID, "")
        if topic is None or not queue_id.isdecimal():
            self._broker.emit(Note("warning", f"delayed message at {physical_offset} has no real topic: skipped"))
            return True
        for name in (props.DELAY, props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC):
            properties.pop(name, None)
        properties[props.WAIT] = "false"
        message.topic, message.queue_id = topic, int(queue_id)
        try:
            self._broker.store.append(messages.seal(message, properties), now)
        except AppendRefused as refused:
            self._broker.emit(Note("warning", f"delayed message at {physical_offset} for {topic}: {refused}"))
            return False
        return True

    def _advance(self, level: int, offset: int, now: Millis) -> None:
        self.offsets[level] = offset
        self.dirty = True
        self._steps += 1
        if self._steps % self._broker.config.delay_offset_update_version_step == 0:
            self.version.next_version(now)
