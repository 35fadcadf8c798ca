"""The static topics of a broker: which logical queues it leads, or led, and what they are made of
(`wire.mapping`; config/topicQueueMapping.json).

An operator's tool decides on a mapping and tells it to each broker, in an order that keeps a logical queue from having
two places to write to: first the new leader, whose item is not decided yet; then the old one, which takes nothing from
then on; then, when its end is known, the new one once more with its logical offset. All of one change have the same
epoch. A broker takes no earlier epoch than it knows, and no change of what an item is.

`dirty` counts until the table was saved; the topic's own row gets a new data version with each change, by which name
servers and slaves see it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perseid.base.errors import RequestRefused, StoreError
from perseid.base.machine import Millis
from perseid.broker.kernel.saved_table import SavedTable
from perseid.wire import fastjson
from perseid.wire.bodies import DataVersion
from perseid.wire.codes import ResponseCode
from perseid.wire.mapping import (
    MAX_LOGICAL_QUEUES,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    change_fault,
    items_fault,
)

MAPPINGS_PATH = "config/topicQueueMapping.json"
MAX_ITEMS = 1_000
"""Of one logical queue; those whose messages are gone are taken away."""
MAX_STATIC_TOPICS = 100_000


class _Saved(SavedTable):
    """What the file says."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = msgspec.field(default_factory=dict)


class TopicMappings:
    """The mappings of one broker, by topic."""

    def __init__(self, broker_name: str) -> None:
        self.rows: dict[str, TopicQueueMappingDetail] = {}
        self.version = DataVersion()
        self.dirty = False
        self._name = broker_name

    def info(self, topic: str) -> TopicQueueMappingInfo | None:
        """What name servers are told of a topic; None: it is not static."""
        row = self.rows.get(topic)
        return None if row is None else row.info()

    # ---- changes ----

    def merged(self, new: TopicQueueMappingDetail, *, force: bool) -> TopicQueueMappingDetail:
        """What a mapping comes to with what is known already: logical queues that it does not name stay.

        `force`: whatever is known. RequestRefused(1) when it can't be; nothing changes here in any case.
        """
        self._check(new)
        old = self.rows.get(new.topic)
        if old is None:
            if len(self.rows) >= MAX_STATIC_TOPICS:
                raise _refused(f"the broker has {MAX_STATIC_TOPICS} static topics already")
            return new
        if not force:
            _check_change(old, new)
        queues = dict(sorted({**old.hosted_queues, **new.hosted_queues}.items()))
        return msgspec.structs.replace(new, hosted_queues=queues)

    def put(self, row: TopicQueueMappingDetail, now: Millis) -> None:
        """Take a mapping that `merged` gave."""
        self.rows[row.topic] = row
        self._change(now)

    def replace_items(self, topic: str, queues: Mapping[int, list[LogicQueueMappingItem]], now: Millis) -> None:
        """Logical queues as they are from now on: with fewer items, or (none) not here at all."""
        row = self.rows[topic]
        kept = {i: items for i, items in {**row.hosted_queues, **queues}.items() if items}
        self.rows[topic] = msgspec.structs.replace(row, hosted_queues=kept)
        self._change(now)

    def delete(self, topic: str, now: Millis) -> None:
        """Forget a topic's mapping, if it has one."""
        if self.rows.pop(topic, None) is not None:
            self._change(now)

    def adopt(self, rows: Mapping[str, TopicQueueMappingDetail], version: DataVersion) -> bool:
        """Let the table be a master's; was it another one?"""
        if version == self.version and rows == self.rows:
            return False
        self.rows, self.version, self.dirty = dict(rows), version, True
        return True

    def _change(self, now: Millis) -> None:
        self.dirty = True
        self.version.next_version(now, self.version.state_version)

    def _check(self, new: TopicQueueMappingDetail) -> None:
        if new.bname != self._name:
            raise _refused(f"this is broker {self._name}, not {new.bname!r}")
        if not 0 <= new.total_queues <= MAX_LOGICAL_QUEUES:
            raise _refused(f"a static topic has 0 to {MAX_LOGICAL_QUEUES} queues, not {new.total_queues}")
        for queue_id, items in new.hosted_queues.items():
            if not 0 <= queue_id < new.total_queues:
                raise _refused(f"queue {queue_id} is none of {new.total_queues}")
            if not 0 < len(items) <= MAX_ITEMS:
                raise _refused(f"queue {queue_id} has {len(items)} items; it may have 1 to {MAX_ITEMS}")
            fault = items_fault(items)
            if fault is not None:
                raise _refused(f"queue {queue_id}: {fault}")

    # ---- the file ----

    def to_json(self) -> bytes:
        """The text of config/topicQueueMapping.json."""
        return fastjson.pretty({"dataVersion": self.version, "topicQueueMappingInfoMap": self.rows})

    def load(self, text: bytes) -> None:
        """Take up what the file says. StoreError when it is no such file, or another broker's."""
        saved = _Saved.read(text, MAPPINGS_PATH)
        for topic, row in saved.topic_queue_mapping_info_map.items():
            if row.bname != self._name or row.topic != topic:
                why = f"{topic} is {row.topic!r} of broker {row.bname!r} there, and this is {self._name}"
                raise StoreError(f"{MAPPINGS_PATH} can't be taken up: {why}; repair it, or remove it")
        self.rows = saved.topic_queue_mapping_info_map
        self.version = saved.data_version

    def validate(self) -> None:
        assert all(topic == row.topic for topic, row in self.rows.items()), "a mapping stands under its topic"


def _check_change(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    if new.epoch < old.epoch:
        raise _refused(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise _refused(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    same_epoch = new.epoch == old.epoch
    for queue_id, items in old.hosted_queues.items():
        theirs = new.hosted_queues.get(queue_id)
        if theirs is None and same_epoch:
            raise _refused("Cannot accept equal epoch with null data")
        fault = change_fault(items, theirs, same_epoch=same_epoch) if theirs is not None else None
        if fault is not None:
            raise _refused(f"queue {queue_id}: {fault}")


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, why)
