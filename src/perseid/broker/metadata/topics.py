"""The topics of a broker: how many queues, who may do what, since which version (broker.md §4.3, store.md §9).

A change does three things: it bumps the data version, it puts the topic's name into `changed`, and it counts
until the broker has taken the names (`take_changed`), saved the table and told the name servers. Name servers
and slaves compare data versions, so nothing in the table ever changes without a new one.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.saved_table import SavedTable
from perseid.broker.metadata import system_topics as system
from perseid.store.lmq import is_lmq
from perseid.wire import fastjson
from perseid.wire.bodies import CLEANUP_POLICY, COMPACTION, DataVersion, TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.names import AUTO_CREATE_TOPIC, RESERVED_TOPICS, is_of_group, is_reserved
from perseid.wire.topic_flags import PERM_INHERIT, PERM_READ_WRITE

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Behind remarks that people may want to read more about."""
TOPICS_PATH = "config/topics.json"

MAX_TOPIC_NAME = 127
MAX_RETRY_TOPIC_NAME = 255
MAX_GROUP_NAME = 120
MAX_TOPICS = 1_000_000
"""Topics of one broker; none is created beyond it."""

MAX_QUEUES = 65_536
"""Queues of one topic, reading or writing. A limit of ours: the original has none, and asks for all it is told."""

_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "%|-_")

MESSAGE_TYPE, BY_PRIORITY, LITE = "message.type", "PRIORITY", "LITE"
QUEUE_TYPE, BATCH_QUEUE = "queue.type", "BatchCQ"
EXPIRATION = "lite.topic.expiration"
"""Of a parent of lite topics: after how many minutes without a message one of them is removed; −1: never."""
MESSAGE_TYPES = frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", BY_PRIORITY, "MIXED"})
FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})


class Values:
    """What an attribute can be: one of `words`, a number of `numbers`, or (`anything`) any text of at most
    `MAX_TOPIC_NAME` characters that is not empty."""

    def __init__(self, *words: str, numbers: range | None = None, anything: bool = False) -> None:
        self._words, self._numbers, self._anything = frozenset(words), numbers, anything

    def __contains__(self, text: str) -> bool:
        if self._anything:
            return 0 < len(text) <= MAX_TOPIC_NAME
        if self._numbers is not None and re.fullmatch("-?[0-9]{1,19}", text):
            return int(text) in self._numbers
        return text in self._words

    def __str__(self) -> str:
        if self._numbers is not None:
            return f"{self._numbers[0]} to {self._numbers[-1]}"
        return ", ".join(sorted(self._words)) or f"a text of 1 to {MAX_TOPIC_NAME} characters"


_ATTRIBUTES: Mapping[str, Values] = {
    QUEUE_TYPE: Values("SimpleCQ", BATCH_QUEUE),
    CLEANUP_POLICY: Values("DELETE", COMPACTION),
    MESSAGE_TYPE: Values(*MESSAGE_TYPES),
}
_LITE_ATTRIBUTES: Mapping[str, Values] = {
    **_ATTRIBUTES,
    MESSAGE_TYPE: Values(*MESSAGE_TYPES, LITE),
    EXPIRATION: Values(numbers=range(-1, 30 * 24 * 60 + 1)),
}
"""The attributes that a topic can have here, with their values; the latter with light message queues, which lite topics
are. The original also knows reserve.time, which needs a store of another kind, and is refused."""

_CHANGEABLE = frozenset({MESSAGE_TYPE, EXPIRATION})


# ---- names ----


def topic_name_fault(topic: str) -> str | None:
    """What is wrong with a topic's name, in words for the client; None: nothing."""
    fault = _characters_fault("topic", topic)
    if fault is None:
        retry = is_of_group(topic)
        longest = MAX_RETRY_TOPIC_NAME if retry else MAX_TOPIC_NAME
        if len(topic) > longest:
            fault = f"The specified topic: {topic}, is longer than {longest} characters"
    return fault


def group_name_fault(group: str) -> str | None:
    """What is wrong with a consumer group's name; None: nothing."""
    fault = _characters_fault("group", group)
    if fault is None and len(group) > MAX_GROUP_NAME:
        fault = f"The specified group: {group}, is longer than {MAX_GROUP_NAME} characters"
    return fault


def _characters_fault(what: str, name: str) -> str | None:
    if not name or name.isspace():
        return f"The specified {what} is blank."
    if not _NAME_CHARACTERS.issuperset(name):
        return f"The specified {what}: {name}, has characters other than %|a-zA-Z0-9_-"
    return None


# ---- attributes ----


def parse_attributes(text: str | None) -> dict[str, str]:
    """The changes that a request asks for: `+key=value,-key` → {"+key": "value", "-key": ""}.

    RequestRefused(1) when the text has another form.
    """
    changes: dict[str, str] = {}
    for change in (text or "").split(","):
        if not change:
            continue
        key, equals, value = change.partition("=")
        if not key.startswith("+" if equals else "-"):
            raise _attribute_refused(f"{change!r} is neither +key=value nor -key")
        if key in changes:
            raise _attribute_refused(f"{key!r} is changed twice")
        changes[key] = value
    return changes


def alter_attributes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, Values] = _ATTRIBUTES,
    changeable: frozenset[str] = _CHANGEABLE,
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None for a new topic or group, which can only be given some. `known`
    are those that there are, with their values; `changeable` those that may change later. What is as it should be is no
    change.

    RequestRefused(1) for what is unknown, can't be changed, or isn't there.
    """
    result = dict(current or {})
    touched: set[str] = set()
    for change, value in changes.items():
        sign, key = change[:1], change[1:]
        if sign not in ("+", "-") or key not in known:
            raise _attribute_refused(f"{change!r} is not one of {', '.join(sorted(known))}, after + or -")
        if key in touched:
            raise _attribute_refused(f"{key!r} is changed twice")
        touched.add(key)
        if current is None and sign == "-":
            raise _attribute_refused(f"{key!r}: what is new has none to take away")
        if current is not None and key in current and sign == "+" and current[key] == value:
            continue  # whoever asks once more, because the answer was lost, is told that it is so
        if current is not None and key not in changeable:
            raise _attribute_refused(f"{key!r} can only be chosen when the topic is created")
        if sign == "-":
            if result.pop(key, None) is None:
                raise _attribute_refused(f"{key!r} is not there to be taken away")
        elif value not in known[key]:
            raise _attribute_refused(f"{key!r} can't be {value!r:.200} on this broker; it can be {known[key]}")
        else:
            result[key] = value
    return result


def _attribute_refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"attribute {why}")


# ---- the table ----


class _Saved(SavedTable):
    """The file's form."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class TopicTable:
    """All topics by name. Rows are replaced, never changed in place: what was read stays what it was."""

    def __init__(self, config: BrokerConfig, now: Millis, *, lmq: bool = False) -> None:
        """`lmq`: each name of a light queue is that of a topic, which is in no list."""
        self._lmq = lmq
        self.version = DataVersion(counter=0, state_version=0, timestamp=now)
        self.rows: dict[str, TopicConfig] = {}
        self.changed: set[str] = set()
        """Names that changed since the table was last saved; a deleted topic's name too."""
        self.dirty = False
        self.batch_topics: set[str] = set()
        """Those whose queues hold inner batches; always the same set."""
        self.compacted: set[str] = set()
        """Those that are compacted; always the same set."""
        self._own_names: set[str] = set()
        for row in system.default_rows(config):
            self.rows[row.topic_name] = row
            self._own_names.add(row.topic_name)

    def __contains__(self, topic: object) -> bool:
        return topic in self.rows or (self._lmq and isinstance(topic, str) and is_lmq(topic))

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, topic: str) -> TopicConfig | None:
        row = self.rows.get(topic)
        if row is None and self._lmq and is_lmq(topic):
            return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ_WRITE)
        return row

    def is_system(self, topic: str) -> bool:
        """Is the name one of the broker's own, which no one may create, change or delete?"""
        return topic in self._own_names or is_reserved(topic)

    def is_special(self, topic: str) -> bool:
        """Is it stored or read in another way than most?"""
        return topic in self.batch_topics or topic in self.compacted

    def is_order(self, topic: str) -> bool:
        row = self.rows.get(topic)
        return row is not None and row.order

    def system_topics(self) -> list[str]:
        """The names of the broker's own topics, whether they are there or only reserved."""
        return sorted(RESERVED_TOPICS | self._own_names)

    def missing(self, topic: str) -> RequestRefused:
        """The refusal (17) of a request for a topic that is not there."""
        return RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

    # ---- changes ----

    def create_on_send(
        self,
        topic: str,
        *,
        default_topic: str,
        queue_nums: int,
        config: BrokerConfig,
        now: Millis,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """The topic, made after the template that the send names if it is missing; None: it can't be made.

        The template has to be inheritable; TBW102 is so only with autoCreateTopicEnable. The new topic has as
        many queues as the client asks for, at most as many as its template.
        """
        row = self.rows.get(topic)
        if row is not None:
            return row
        template = self.rows.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not config.auto_create_topic_enable:
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        row = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=template.topic_filter_type,
        )
        return row if self._put(row, now) else None

    def ensure(
        self,
        topic: str,
        queue_nums: int,
        now: Millis,
        *,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """A retry, dead-letter or other topic that the broker needs; made if it is missing, its `order` set.

        None: the table is full.
        """
        row = self.rows.get(topic)
        if row is None:
            row = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=sys_flag,
                order=order,
            )
        elif row.order == order:
            return row
        else:
            row = msgspec.structs.replace(row, order=order)
        return row if self._put(row, now) else None

    def widen(self, topic: str, queue_nums: int, now: Millis) -> TopicConfig:
        """Give a topic that is there at least so many queues to write to and to read."""
        row = self.rows[topic]
        write, read = max(row.write_queue_nums, queue_nums), max(row.read_queue_nums, queue_nums)
        if (write, read) != (row.write_queue_nums, row.read_queue_nums):
            row = msgspec.structs.replace(row, write_queue_nums=write, read_queue_nums=read)
            self._put(row, now)
        return row

    def update(self, wanted: TopicConfig, now: Millis) -> bool:
        """Create or change a topic; its `attributes` are changes (`+key` → value, `-key` → ""). False: it was so, or
        is a light queue's, which is what it is.

        RequestRefused: 1 for attributes that can't be, 29 for numbers of queues that can't be.
        """
        if self._lmq and is_lmq(wanted.topic_name):
            return False
        old = self.rows.get(wanted.topic_name)
        for queues in (wanted.read_queue_nums, wanted.write_queue_nums):
            if not 0 <= queues <= MAX_QUEUES:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER, f"a topic has 0 to {MAX_QUEUES} queues, not {queues}"
                )
        known = _LITE_ATTRIBUTES if self._lmq else _ATTRIBUTES
        attributes = alter_attributes(None if old is None else old.attributes, wanted.attributes, known)
        if attributes.get(QUEUE_TYPE) == BATCH_QUEUE and attributes.get(CLEANUP_POLICY) == COMPACTION:
            raise _attribute_refused(f"{QUEUE_TYPE}={BATCH_QUEUE} does not go with {CLEANUP_POLICY}={COMPACTION}")
        row = msgspec.structs.replace(wanted, attributes=attributes)
        if row == old:
            return False
        if not self._put(row, now):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the broker has {MAX_TOPICS} topics already")
        return True

    def delete(self, topic: str, now: Millis) -> bool:
        """Forget a topic; False: it was not there."""
        if self.rows.pop(topic, None) is None:
            return False
        self._change({topic}, now)
        return True

    def set_order(self, topics: Iterable[str], now: Millis) -> None:
        """Mark topics as ordered: those that the name server's ORDER_TOPIC_CONFIG lists."""
        changed = {name for name in topics if name in self.rows and not self.rows[name].order}
        for name in changed:
            self.rows[name] = msgspec.structs.replace(self.rows[name], order=True)
        if changed:
            self._change(changed, now)

    def touch(self, topic: str, now: Millis) -> None:
        """A new data version for what belongs to a topic and stands elsewhere; its row is another object then."""
        self.rows[topic] = msgspec.structs.replace(self.rows[topic])
        self._change((topic,), now)

    def bump(self, now: Millis, state_version: int | None = None) -> None:
        """A new data version without another change: all topics are to be registered anew. `state_version`: the epoch
        of a master, which stands above all else in it."""
        if state_version is not None:
            self.version.state_version = state_version
        self._change(self.rows, now)

    def adopt(self, rows: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Let the table be a master's, with its data version."""
        if version == self.version and rows == self.rows:
            return
        gone = self.rows.keys() - rows.keys()
        self.changed |= gone | {name for name, row in rows.items() if self.rows.get(name) != row}
        self.dirty = bool(self.changed)
        for name in gone:
            del self.rows[name]
        self.rows.update((name, row) for name, row in rows.items() if name == row.topic_name)
        self._sort(gone | self.rows.keys())
        self.version = version

    def take_changed(self) -> set[str]:
        """The names that changed since this was last called."""
        changed, self.changed, self.dirty = self.changed, set(), False
        return changed

    def _put(self, row: TopicConfig, now: Millis) -> bool:
        if row.topic_name not in self.rows and len(self.rows) >= MAX_TOPICS:
            return False
        self.rows[row.topic_name] = row
        self._change((row.topic_name,), now)
        return True

    def _change(self, names: Iterable[str], now: Millis) -> None:
        names = list(names)
        self.changed.update(names)
        self.dirty = bool(self.changed)
        self._sort(names)
        self.version.next_version(now, self.version.state_version)

    def _sort(self, names: Iterable[str]) -> None:
        """Note of which kind topics are."""
        for name in names:
            row = self.rows.get(name)
            for key, value, kind in (
                (QUEUE_TYPE, BATCH_QUEUE, self.batch_topics), (CLEANUP_POLICY, COMPACTION, self.compacted)
            ):  # fmt: skip
                if row is not None and row.attributes.get(key) == value:
                    kind.add(name)
                else:
                    kind.discard(name)

    # ---- reading the whole ----

    def page(self, start: int, count: int) -> dict[str, TopicConfig]:
        """`count` rows from the `start`-th on, by name."""
        names = sorted(self.rows)[start : start + count]
        return {name: self.rows[name] for name in names}

    def to_json(self) -> bytes:
        """The text of config/topics.json."""
        return fastjson.pretty({"dataVersion": self.version, "topicConfigTable": self.rows})

    def load(self, text: bytes) -> None:
        """Take up what config/topics.json says; a row of the file takes the place of a default one.

        StoreError when the text is not such a file.
        """
        saved = _Saved.read(text, TOPICS_PATH)
        self.rows.update(saved.topic_config_table)
        self._sort(saved.topic_config_table)
        self.version = saved.data_version

    def validate(self) -> None:
        assert all(name == row.topic_name for name, row in self.rows.items()), "a topic stands under its name"
        assert len(self.rows) <= MAX_TOPICS, "the table is bounded"
