"""The consumer groups of a broker: who may consume how (store.md §9).

As with the topics, a change bumps the data version and sets `dirty` until the broker has saved the table.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.saved_table import SavedTable
from perseid.broker.metadata.topics import Values, alter_attributes, group_name_fault
from perseid.store.lmq import is_lmq
from perseid.wire import fastjson
from perseid.wire.bodies import DataVersion, SubscriptionGroupConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.base import LONG_MAX
from perseid.wire.names import DEFAULT_GROUPS, SYSTEM_GROUP_PREFIX

GROUPS_PATH = "config/subscriptionGroup.json"

MAX_GROUPS = 1_000_000
"""Groups of one broker; none is created beyond it."""

READ_BIT = 1 << 2
"""In the forbidden table: the group may not read the topic."""


PRIORITY_FACTOR = "priority.factor"
_ATTRIBUTES = {
    PRIORITY_FACTOR: Values(numbers=range(101)),
    "lite.bind.topic": Values(anything=True),
    "lite.sub.model": Values("Shared", "Exclusive"),
    "lite.sub.reset.offset.exclusive": Values("true", "false"),
    "lite.sub.reset.offset.unsubscribe": Values("true", "false"),
    "lite.sub.client.quota": Values(numbers=range(-1, LONG_MAX)),
    "lite.sub.client.max.event.cnt": Values(numbers=range(10, LONG_MAX)),
    "lite.sub.wildcard": Values(anything=True),
}
"""The attributes that a group can have. `lite.sub.client.quota` is for proxies: a broker does not look at it."""


def priority_factor(group: SubscriptionGroupConfig) -> int:
    """Of 100 pops of a topic by priority so many look at the highest priority first, the others anywhere."""
    text = group.attributes.get(PRIORITY_FACTOR, "100")
    return int(text) if text in _ATTRIBUTES[PRIORITY_FACTOR] else 100


class _Saved(SavedTable):
    """The file's form."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


class SubscriptionGroupTable:
    """All groups by name. Rows are replaced, never changed in place."""

    def __init__(self, now: Millis, *, lmq: bool = False) -> None:
        """`lmq`: each name of a light queue is that of a group, which is in no list and can't be changed."""
        self._lmq = lmq
        self.version = DataVersion(counter=0, state_version=0, timestamp=now)
        self.rows = {name: SubscriptionGroupConfig(group_name=name) for name in DEFAULT_GROUPS}
        self.forbidden: dict[str, dict[str, int]] = {}
        """Group → topic → bits of what the group may not do."""
        self.dirty = False

    def __contains__(self, group: object) -> bool:
        return group in self.rows or (self._lmq and isinstance(group, str) and is_lmq(group))

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        row = self.rows.get(group)
        return SubscriptionGroupConfig(group_name=group) if row is None and self._lmq and is_lmq(group) else row

    def find(self, group: str, config: BrokerConfig, now: Millis) -> SubscriptionGroupConfig | None:
        """The group, created with defaults if it is missing and may be; None: it may not (code 26)."""
        row = self.get(group)
        if row is not None:
            return row
        wanted = config.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)
        if not wanted or group_name_fault(group) is not None or len(self.rows) >= MAX_GROUPS:
            return None
        row = self.rows[group] = SubscriptionGroupConfig(group_name=group)
        self._change(now)
        return row

    def update(self, wanted: SubscriptionGroupConfig, now: Millis) -> None:
        """Create or change a group; its `attributes` are changes, as a topic's. RequestRefused: 29 for its name, 1 for
        attributes that can't be."""
        if self._lmq and is_lmq(wanted.group_name):
            return
        fault = group_name_fault(wanted.group_name)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        old = self.rows.get(wanted.group_name)
        current = None if old is None else old.attributes
        attributes = alter_attributes(current, wanted.attributes, _ATTRIBUTES, frozenset(_ATTRIBUTES))
        wanted = msgspec.structs.replace(wanted, attributes=attributes)
        if wanted == old:
            return
        if old is None and len(self.rows) >= MAX_GROUPS:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the broker has {MAX_GROUPS} groups already")
        self.rows[wanted.group_name] = wanted
        self._change(now)

    def delete(self, group: str, now: Millis) -> bool:
        """Forget a group; False: it was not there."""
        self.forbidden.pop(group, None)
        if self.rows.pop(group, None) is None:
            return False
        self._change(now)
        return True

    def may_read(self, group: str, topic: str) -> bool:
        """Is the group not forbidden to read the topic?"""
        return not self.forbidden.get(group, {}).get(topic, 0) & READ_BIT

    def set_may_read(self, group: str, topic: str, allowed: bool, now: Millis) -> None:
        """Allow or forbid a group to read a topic (code 353)."""
        topics = self.forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        wanted = bits & ~READ_BIT if allowed else bits | READ_BIT
        if wanted:
            topics[topic] = wanted
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        if wanted != bits:
            self._change(now)

    def adopt(
        self,
        rows: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        version: DataVersion,
    ) -> None:
        """Let the table be a master's, with its data version."""
        if version == self.version and rows == self.rows:
            return
        for name in self.rows.keys() - rows.keys():
            del self.rows[name]
        self.rows.update((name, row) for name, row in rows.items() if name == row.group_name)
        self.forbidden = {group: dict(topics) for group, topics in forbidden.items() if topics}
        self.version = version
        self.dirty = True

    def _change(self, now: Millis) -> None:
        self.dirty = True
        self.version.next_version(now)

    # ---- reading the whole ----

    def page(self, start: int, count: int) -> dict[str, SubscriptionGroupConfig]:
        """`count` rows from the `start`-th on, by name."""
        names = sorted(self.rows)[start : start + count]
        return {name: self.rows[name] for name in names}

    def to_json(self) -> bytes:
        """The text of config/subscriptionGroup.json."""
        return fastjson.pretty(
            {
                "dataVersion": self.version,
                "forbiddenTable": self.forbidden,
                "subscriptionGroupTable": self.rows,
            }
        )

    def load(self, text: bytes) -> None:
        """Take up what config/subscriptionGroup.json says. StoreError when the text is not such a file."""
        saved = _Saved.read(text, GROUPS_PATH)
        self.rows.update(saved.subscription_group_table)
        for group, topics in saved.forbidden_table.items():
            forbidden = {topic: bits for topic, bits in topics.items() if bits > 0}
            if forbidden:
                self.forbidden[group] = forbidden
        self.version = saved.data_version

    def validate(self) -> None:
        assert all(name == row.group_name for name, row in self.rows.items()), "a group stands under its name"
        assert all(self.forbidden.values()), "a group that nothing is forbidden to is not in the table"
