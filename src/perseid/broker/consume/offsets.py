"""How far each consumer group has read: one offset per (topic, group, queue) (broker.md §6.6, store.md §9).

The offset is that of the next message to consume. A commit may go back: the client decides. Three tables:

- *committed*: what clients commit; saved every `flushConsumerOffsetInterval` when `dirty`;
- *reset*: what an operator set (code 222) and the group has not taken up yet. As long as it stands there, it is
  what a query answers, and commits have no effect: the client still commits its old position. The next pull
  takes it up and removes it. Not saved, as in the original; but the reset offset is committed as well;
- *pulled*: how far a group was given messages, which may be further than it consumed. Only shown.

The data version rises once per `consumerOffsetUpdateVersionStep` commits: slaves compare it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perseid.base.machine import Millis
from perseid.broker.kernel.saved_table import SavedTable
from perseid.store.lmq import LMQ_QUEUE_ID, is_lmq
from perseid.wire import fastjson
from perseid.wire.bodies import DataVersion

OFFSETS_PATH = "config/consumerOffset.json"
LMQ_OFFSETS_PATH = "config/lmqConsumerOffset.json"
"""Instead of the other one, while there are light message queues (enableLmq)."""

MAX_OFFSETS = 10_000_000
"""Committed offsets of one broker; a commit for another queue has no effect beyond it."""

Key = tuple[str, str]
"""Topic, group."""

Table = dict[Key, dict[int, int]]
"""(topic, group) → queue id → offset."""


class _Saved(SavedTable):
    """The file's form."""

    offset_table: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    pull_offset_table: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    lmq_offset_table: dict[str, int] = msgspec.field(default_factory=dict)
    """Of groups with the name of a light queue; they have queue 0 only."""


class ConsumerOffsets:
    """The offsets of all groups. `dirty`: something changed since `to_json` was last saved."""

    def __init__(self, now: Millis, *, lmq: bool = False) -> None:
        self._lmq = lmq
        self.path = LMQ_OFFSETS_PATH if lmq else OFFSETS_PATH
        """Where `to_json` is saved."""
        self.version = DataVersion(counter=0, state_version=0, timestamp=now)
        self.later_on_commit = False
        """With the next commit the table is a later one: a slave has begun to act."""
        self.dirty = False
        self._committed: Table = {}
        self._reset: Table = {}
        self._pulled: Table = {}
        self._commits = 0
        self._count = 0
        self._ahead: Table | None = None
        """On a slave: what was committed here and not yet at the master."""

    def follow(self) -> None:
        """This is a slave's table from now on."""
        self._ahead = {}

    def lead(self) -> None:
        """This is a master's table from now on."""
        self._ahead = None

    # ---- clients ----

    def commit(self, topic: str, group: str, queue_id: int, offset: int, now: Millis, version_step: int) -> bool:
        """The group has consumed up to `offset`; False when a reset is pending, which is stronger."""
        if queue_id in self._reset.get((topic, group), ()):
            return False
        self._set(topic, group, queue_id, offset)
        if self._ahead is not None:
            self._ahead.setdefault((topic, group), {})[queue_id] = offset
        self._commits += 1
        if self.later_on_commit or self._commits % max(1, version_step) == 0:
            self.version.next_version(now, self.version.state_version)
            self.later_on_commit = False
            self.dirty = True
        return True

    def query(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the group goes on: a pending reset, otherwise what it committed; None: nothing is known."""
        reset = self._reset.get((topic, group))
        if reset and queue_id in reset:
            return reset[queue_id]
        committed = self._committed.get((topic, group))
        return None if committed is None else committed.get(queue_id)

    def pulled(self, topic: str, group: str, queue_id: int, next_offset: int) -> None:
        """The group was given the messages below `next_offset`."""
        queues = self._pulled.get((topic, group))
        if queues is None:
            if len(self._pulled) >= MAX_OFFSETS:
                return
            queues = self._pulled[topic, group] = {}
        if queues.get(queue_id) != next_offset:
            queues[queue_id] = next_offset
            self.dirty = True

    def pull_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """How far the group was given messages; the committed offset when no pull is known."""
        offset = self._pulled.get((topic, group), {}).get(queue_id)
        return self.query(topic, group, queue_id) if offset is None else offset

    # ---- operators ----

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The group is to go on at `offset`, from its next pull on."""
        if queue_id < 0 or offset < 0:
            return
        self._reset.setdefault((topic, group), {})[queue_id] = offset
        self._set(topic, group, queue_id, offset)

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return queue_id in self._reset.get((topic, group), ())

    @property
    def resets_wait(self) -> bool:
        """Is any reset pending?"""
        return bool(self._reset)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The pending reset, which the caller's answer hands over: it is pending no longer."""
        if not self._reset:
            return None
        queues = self._reset.get((topic, group))
        offset = queues.pop(queue_id, None) if queues else None
        if queues is not None and not queues:
            del self._reset[topic, group]
        return offset

    def clone(self, topic: str, source: str, target: str) -> None:
        """Let the group `target` go on where `source` is (code 314)."""
        for queue_id, offset in self._committed.get((topic, source), {}).items():
            self._set(topic, target, queue_id, offset)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: if it comes again, its queues start at 0."""
        self._forget(lambda key: key[0] == topic)

    def forget_topics(self, topics: set[str]) -> None:
        """As `forget_topic`, for several."""
        self._forget(lambda key: key[0] in topics)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key[1] == group)

    def _forget(self, wanted: Callable[[Key], bool]) -> None:
        for table in (self._committed, self._reset, self._pulled, self._ahead or {}):
            for key in [key for key in table if wanted(key)]:
                queues = table.pop(key)
                if table is self._committed:
                    self._count -= len(queues)
                self.dirty = True

    def clamp(self, end_of: Callable[[str, int], int]) -> None:
        """No group is ahead of its queue: the messages that it had read beyond are gone."""
        for table in (self._committed, self._reset, self._pulled):
            for (topic, _), queues in table.items():
                for queue_id, offset in queues.items():
                    end = end_of(topic, queue_id)
                    if end < offset:
                        queues[queue_id] = end
                        self.dirty = True

    # ---- a slave ----

    def adopt(self, table: dict[str, dict[int, int]], version: DataVersion | None) -> None:
        """Let the committed offsets be a master's. What was committed here since, while it was away, stays until the
        master's has reached it."""
        assert self._ahead is not None, "only a slave takes over a master's offsets"
        wanted = _split(table)
        for key, queues in list(self._ahead.items()):
            theirs = wanted.setdefault(key, {})
            for queue_id, offset in list(queues.items()):
                if theirs.get(queue_id, -1) >= offset:
                    del queues[queue_id]
                else:
                    theirs[queue_id] = offset
            if not queues:
                del self._ahead[key]
        if wanted != self._committed:
            self._committed = wanted
            self._count = sum(map(len, wanted.values()))
            self.dirty = True
        if version is not None:
            self.version = version

    def take_over(self, table: dict[str, dict[int, int]], version: DataVersion, *, highest: bool) -> None:
        """A master that comes back goes on where its groups got to at a slave; `highest`: nowhere behind where they are
        here."""
        for (topic, group), queues in _split(table).items():
            ours = self._committed.get((topic, group), {})
            for queue_id, offset in queues.items():
                if queue_id >= 0 and offset >= (ours.get(queue_id, 0) if highest else 0):
                    self._set(topic, group, queue_id, offset)
        self.version, self.dirty = version, True

    # ---- reading ----

    def topics_of(self, group: str) -> set[str]:
        """The topics that the group committed offsets of."""
        return {topic for topic, name in self._committed if name == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """The same for all groups."""
        found: dict[str, set[str]] = {}
        for topic, group in self._committed:
            found.setdefault(group, set()).add(topic)
        return found

    def of_group(self, group: str) -> list[tuple[str, dict[int, int]]]:
        """Each topic that the group committed offsets of, with these."""
        return [(topic, queues) for (topic, name), queues in self._committed.items() if name == group]

    @property
    def keys(self) -> int:
        """How many pairs of a topic and a group there are."""
        return len(self._committed)

    def groups_of(self, topic: str) -> set[str]:
        """The groups that committed offsets of the topic."""
        return {group for name, group in self._committed if name == topic}

    def queues_of(self, topic: str, group: str) -> dict[int, int]:
        """Queue id → committed offset."""
        return dict(self._committed.get((topic, group), {}))

    def min_per_queue(
        self, topic: str, skip_groups: frozenset[str], min_offset: Callable[[int], int]
    ) -> dict[int, int]:
        """Queue id → the lowest offset of all groups but some (code 308), as far as the store still has it."""
        lowest: dict[int, int] = {}
        for (name, group), queues in self._committed.items():
            if name == topic and group not in skip_groups:
                for queue_id, offset in queues.items():
                    if offset >= min_offset(queue_id):
                        lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    def _set(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        queues = self._committed.get((topic, group))
        if queues is None:
            if self._count >= MAX_OFFSETS:
                return
            queues = self._committed[topic, group] = {}
        if queue_id not in queues:
            if self._count >= MAX_OFFSETS:
                return
            self._count += 1
        elif queues[queue_id] == offset:
            return
        queues[queue_id] = offset
        self.dirty = True

    # ---- the file ----

    def for_slaves(self, *, ahead: bool = False) -> bytes:
        """The body of code 43: what a slave takes over. `ahead`: a slave tells its master what was committed here."""
        table: dict[str, object] = {"dataVersion": self.version, "offsetTable": _joined(self._committed)}
        if ahead and self._ahead is not None:
            # a text: Java passes over unknown fields, but not over objects whose names are numbers
            table["perseidAhead"] = str(fastjson.dumps({"offsetTable": _joined(self._ahead)}), "utf-8")
        return fastjson.dumps(table)

    def to_json(self) -> bytes:
        """The text of config/consumerOffset.json, or of lmqConsumerOffset.json."""
        topics: dict[str, list[str]] = {}
        for topic, group in self._committed:
            topics.setdefault(group, []).append(topic)
        table = _joined(self._committed)
        light = {key: table.pop(key)[0] for key in _light_keys(self._committed)} if self._lmq else None
        text = {
            "dataVersion": self.version,
            "groupTopicMap": {group: sorted(names) for group, names in topics.items()},
            "offsetTable": table,
            "pullOffsetTable": _joined(self._pulled),
        }
        return fastjson.pretty(text if light is None else {**text, "lmqOffsetTable": light})

    def load(self, text: bytes) -> None:
        """Take up what the file says. StoreError when the text is not such a file."""
        saved = _Saved.read(text, self.path)
        self._committed = _split(with_light(saved.offset_table, saved.lmq_offset_table))
        self._pulled = _split(saved.pull_offset_table)
        self._count = sum(len(queues) for queues in self._committed.values())
        self.version = saved.data_version

    def validate(self) -> None:
        assert self._count == sum(map(len, self._committed.values())), "committed offsets are counted"
        assert all(self._reset.values()), "a group without a pending reset is not in the table"


def with_light(table: dict[str, dict[int, int]], light: dict[str, int]) -> dict[str, dict[int, int]]:
    """Both tables in one: what a group of a light queue committed is of queue 0."""
    return {**table, **{key: {**table.get(key, {}), LMQ_QUEUE_ID: offset} for key, offset in light.items()}}


def _light_keys(table: Table) -> list[str]:
    """The keys that the original has in its table of light queues: the others of such groups it can't hold."""
    return [f"{topic}@{group}" for (topic, group), queues in table.items() if is_lmq(group) and [*queues] == [0]]


def _joined(table: Table) -> dict[str, dict[int, int]]:
    return {f"{topic}@{group}": dict(queues) for (topic, group), queues in table.items()}


def _split(table: dict[str, dict[int, int]]) -> Table:
    """Names hold no `@`, so a key that has not exactly one was never written by a broker: it is left out."""
    result: Table = {}
    for joined, queues in table.items():
        topic, at, group = joined.partition("@")
        if at and topic and group and "@" not in group:
            result[topic, group] = queues
    return result
