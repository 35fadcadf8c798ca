"""When a broker's state files are saved: tables on every change, offsets now and then (store.md §9).

Topics and groups are saved in the turn that changed them. Offsets are saved when their time has come, behind a
flush of the log: a consumer's or delay level's offset never outlives the messages that it stands for. A save
that failed (a full disk) is tried again after `RETRY_MS`, and the requests that waited for it are refused: those of
a turn wait for all files that it changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perseid.base.errors import StoreError
from perseid.base.machine import DiskFailed, Effect, Feed, Millis, SaveState
from perseid.broker import delay, groups, mappings, offsets, timer_metrics, topics
from perseid.broker.pop import modes, order
from perseid.broker.request import Reply, Request
from perseid.store import state_files
from perseid.wire.codes import ResponseCode

if TYPE_CHECKING:
    from perseid.broker.node import Broker

RETRY_MS = 5_000
ROCKSDB_FOLDERS = (
    "config/rdb", "config/topics", "config/subscriptionGroups", "config/consumerOffsets", "config/metadata",
)  # fmt: skip
"""Of the original, where it keeps its tables in RocksDB: in version 2, and in version 1 beside queues in RocksDB."""


class Saved:
    """Fed back when a state file is durable. `number`: of its save."""

    __slots__ = ("number", "path")

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number


class Answers:
    """What a turn answers when all files that it changed are durable; nothing more once they were refused."""

    __slots__ = ("ready", "refused")

    def __init__(self, ready: Sequence[tuple[Request, Reply]]) -> None:
        self.ready = ready
        self.refused = False


NO_ANSWERS = Answers(())


class Save(NamedTuple):
    """One file that is on its way to the disk. `last`: of those that its answers wait for."""

    number: int
    path: str
    answers: Answers
    last: bool


class Saves:
    """Loads and saves the state files of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._offsets_at: Millis = 0
        self._delay_at: Millis = 0
        self._again: dict[str, Millis] = {}
        self._under_way: deque[Save] = deque()
        """Those that were asked for, in order."""
        self._number = 0
        """Of the next one."""
        self._texts: dict[str, Callable[[], bytes]] = {
            topics.TOPICS_PATH: broker.topics.to_json,
            mappings.MAPPINGS_PATH: broker.mappings.to_json,
            groups.GROUPS_PATH: broker.groups.to_json,
            broker.offsets.path: broker.offsets.to_json,
            delay.OFFSETS_PATH: broker.delay.to_json,
            modes.MODES_PATH: broker.pop.modes.to_json,
            order.ORDER_PATH: lambda: broker.pop.order.to_json(broker.now),
            timer_metrics.METRICS_PATH: broker.timers.metrics.to_json,
        }

    @property
    def settled(self) -> bool:
        """Is each change that is saved at once durable?"""
        return not (self.due or self._under_way or self._again)

    def load_topics(self) -> None:
        """Take up the topics. StoreError when they are in a form that is not read here: they would be out of sight,
        with all groups and offsets."""
        for folder in ROCKSDB_FOLDERS:
            if self._broker.disk.size(f"{folder}/CURRENT") is not None:
                raise StoreError(
                    f"{folder}: RocketMQ keeps this folder's topics, groups and offsets in RocksDB "
                    "(configManagerVersion=v2, or storeType=defaultRocksDB), which Perseid does not read: export them "
                    f"to JSON with its rocksDBConfigToJson, put the files into config, and move {folder} away"
                )
        text = state_files.read(self._broker.disk, topics.TOPICS_PATH)
        if text:
            self._broker.topics.load(text)

    def load(self, now: Millis) -> None:
        """Take up all other tables; the first saves of offsets are one interval away."""
        broker = self._broker
        for path, load in (
            (mappings.MAPPINGS_PATH, broker.mappings.load),
            (groups.GROUPS_PATH, broker.groups.load),
            (broker.offsets.path, broker.offsets.load),
            (delay.OFFSETS_PATH, broker.delay.load),
            (modes.MODES_PATH, broker.pop.modes.load),
            (order.ORDER_PATH, broker.pop.order.load),
            (timer_metrics.METRICS_PATH, broker.timers.metrics.load),
        ):
            text = state_files.read(broker.disk, path)
            if not text and path == offsets.LMQ_OFFSETS_PATH:  # the first start with light queues
                text = state_files.read(broker.disk, offsets.OFFSETS_PATH)
            if text:
                load(text)
        self._offsets_at = now + broker.config.flush_consumer_offset_interval
        self._delay_at = now + broker.config.flush_delay_offset_interval

    @property
    def due(self) -> bool:
        """Has a table changed that is saved with each change?"""
        broker = self._broker
        mapped = broker.mappings.changed
        return mapped or bool(broker.topics.changed) or broker.groups.changed or broker.pop.modes.changed

    def tables(self, answers: Sequence[tuple[Request, Reply]]) -> None:
        """Save the tables that changed, then give the answers that wait for it."""
        broker = self._broker
        paths = []
        if broker.groups.changed:
            broker.groups.changed = False
            paths.append(groups.GROUPS_PATH)
        if broker.mappings.changed:
            broker.mappings.changed = False
            paths.append(mappings.MAPPINGS_PATH)
        if broker.topics.changed:
            broker.registration.topics_changed(broker.topics.take_changed(), broker.now)
            paths.append(topics.TOPICS_PATH)
        if broker.pop.modes.changed:
            broker.pop.modes.changed = False
            paths.append(modes.MODES_PATH)
        for request, _ in answers:
            request.command.body = b""  # it is stored; no need to hold it until the files are
        self._save(paths, [], Answers(answers))

    def everything(self, then: list[Effect]) -> None:
        """Save all that there is, then carry out `then`: the end of a clean stop."""
        broker = self._broker
        broker.emit(broker.store.flush([]))
        broker.topics.take_changed()
        counted, broker.timers.metrics.dirty = broker.timers.metrics.dirty, False
        broker.groups.changed = broker.offsets.dirty = broker.delay.dirty = False
        broker.pop.modes.changed = broker.pop.order.dirty = broker.mappings.changed = False
        unused = {timer_metrics.METRICS_PATH} if not counted else set()
        if not broker.mappings.version.counter:
            unused.add(mappings.MAPPINGS_PATH)
        self._save([path for path in self._texts if path not in unused], then)

    def tick(self, now: Millis) -> None:
        broker, paths = self._broker, []
        if now >= self._offsets_at:
            self._offsets_at = now + broker.config.flush_consumer_offset_interval
            if broker.offsets.dirty:
                broker.offsets.dirty = False
                paths.append(broker.offsets.path)
            if broker.pop.order.dirty:
                broker.pop.order.dirty = False
                paths.append(order.ORDER_PATH)
        if now >= self._delay_at:
            self._delay_at = now + broker.config.flush_delay_offset_interval
            if broker.delay.dirty:
                broker.delay.dirty = False
                paths.append(delay.OFFSETS_PATH)
            if broker.timers.metrics.dirty:
                broker.timers.metrics.dirty = False
                paths.append(timer_metrics.METRICS_PATH)
        for path in [path for path, at in self._again.items() if at <= now]:
            del self._again[path]
            paths.append(path)
        self._behind_log(paths)

    def offsets_now(self) -> None:
        """Save the consumer offsets in this turn, if they changed: what is saved after them relies on it."""
        if self._broker.offsets.dirty:
            self._broker.offsets.dirty = False
            self._behind_log([self._broker.offsets.path])

    def next_deadline(self) -> Millis:
        due = min(self._offsets_at, self._delay_at)
        return min(due, *self._again.values()) if self._again else due

    def saved(self, event: Saved) -> None:
        """A state file is durable."""
        waiting = self._under_way
        if not waiting or event.number < waiting[0].number:
            return  # given up, as a later save of the same file had failed by the time that this was heard
        _, path, answers, last = waiting.popleft()
        assert path == event.path, f"{event.path} was saved before {path}"
        if last and not answers.refused:
            for request, reply in answers.ready:
                self._broker.reply(request, reply)

    def failed(self, event: DiskFailed) -> bool:
        """A save failed: if it was one of these files it is tried again, and True is the answer. It may be heard before
        earlier saves that went well; of several of one file nobody knows which it was: none counts."""
        if event.path not in self._texts:
            return False
        path = event.path
        failed = [save for save in self._under_way if save.path == path]
        self._under_way = deque(save for save in self._under_way if save.path != path)
        self._again[path] = self._broker.now + RETRY_MS
        self._broker.note("error", f"{path} could not be saved: {event.reason}; again in {RETRY_MS} ms")
        remark = f"{path} could not be saved: {event.reason}; what was asked for may be lost at a restart"
        for answers in [save.answers for save in failed if not save.answers.refused]:
            answers.refused = True
            for request, _ in answers.ready:
                self._broker.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark=remark))
        return True

    def _behind_log(self, paths: list[str]) -> None:
        """Save files that stand for messages of the log, when those are durable."""
        if paths:
            if self._broker.store.flushed < self._broker.store.end:
                self._broker.emit(self._broker.store.flush([]))
            self._save(paths, [])

    def _save(self, paths: list[str], then: list[Effect], answers: Answers = NO_ANSWERS) -> None:
        for path in paths:
            last, number = path == paths[-1], self._number
            self._number += 1
            self._under_way.append(Save(number, path, answers, last))
            told = Feed(Saved(path, number))
            self._broker.emit(SaveState(path, self._texts[path](), [*(then if last else ()), told]))
