"""When a broker's state files are saved: tables on every change, offsets now and then (store.md §9).

Each part names its files (`StateFile`). Tables that a turn changed (topics, groups) are saved once, at its end; from
the request that changed one on, the turn's answers travel in the `then` of that save (pulls aside: they promise
nothing), and if it fails they become errors. Offsets are saved when their time has come, behind a flush of the log: a
consumer's or delay level's offset never outlives the messages that it stands for. A save that failed (a full disk) is
tried again after `RETRY_MS`; what waited for it is refused: answers of a turn wait for all files that it changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from perseid.base.errors import StoreError
from perseid.base.machine import DiskFailed, Effect, Feed, Millis, SaveState
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.disk.port import Disk
from perseid.store import state_files
from perseid.store.commit_log import CommitLog
from perseid.store.flushing import Flusher
from perseid.wire.codes import ResponseCode

RETRY_MS = 5_000
ROCKSDB_FOLDERS = (
    "config/rdb", "config/topics", "config/subscriptionGroups", "config/consumerOffsets", "config/metadata",
)  # fmt: skip
"""Of the original, where it keeps its tables in RocksDB: in version 2, and in version 1 beside queues in RocksDB."""


class Table(Protocol):
    """A table that is saved in a file of its own. `dirty`: it changed since it was last saved."""

    dirty: bool

    def load(self, text: bytes) -> None:
        """Take the text up. StoreError when it is not such a file's."""


@dataclass(slots=True, kw_only=True)
class StateFile:
    """A file of a part's state."""

    path: str
    table: Table
    text: Callable[[], bytes]
    """What is to be saved of it."""
    every: Callable[[BrokerConfig], Millis] | None = None
    """It is saved so often, behind the log, when it changed; None: at the end of each turn that changed it."""
    loaded_first: bool = False
    """Before the store is: the store makes queues of their kind."""
    only_whole: bool = False
    """What can't be read stops a start: it does not count as missing."""
    instead: str = ""
    """The file that is read when this one is not there."""
    in_use: Callable[[], bool] = lambda: True
    """Is it worth a file at the end of a clean stop?"""
    told: Callable[[], None] = lambda: None
    """Hears that what changed is about to be saved."""
    at: Millis = 0
    """When it is looked at next."""

    @property
    def name(self) -> str:
        """Its path."""
        return self.path


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

    def __init__(self, turn: Turn, settings: Settings, log: CommitLog, flusher: Flusher, disk: Disk) -> None:
        self._turn = turn
        self._settings = settings
        self._log = log
        self._flusher = flusher
        self._disk = disk
        self._files: dict[str, StateFile] = {}
        self._at_once: list[StateFile] = []
        self._tables: tuple[Table, ...] = ()
        self._behind: list[StateFile] = []
        self._again: dict[str, Millis] = {}
        self._under_way: deque[Save] = deque()
        """Those that were asked for, in order."""
        self._number = 0
        """Of the next one."""
        self._answers: list[tuple[Request, Reply]] = []
        """Of this turn: they leave when what it changed is saved."""

    def keep(self, files: Sequence[StateFile]) -> None:
        """These are the files; those that are saved in one turn are so in this order."""
        self._files = {file.path: file for file in files}
        self._at_once = [file for file in files if file.every is None]
        self._tables = tuple(file.table for file in self._at_once)
        self._behind = [file for file in files if file.every is not None]

    @property
    def settled(self) -> bool:
        """Is each change that is saved at once durable?"""
        return not (self.due or self._under_way or self._again)

    # ---- a start ----

    def load_first(self) -> None:
        """Take up the tables that the store needs. StoreError when they are in a form that is not read here: they would
        be out of sight, with all groups and offsets."""
        for folder in ROCKSDB_FOLDERS:
            if self._disk.size(f"{folder}/CURRENT") is not None:
                raise StoreError(
                    f"{folder}: RocketMQ keeps this folder's topics, groups and offsets in RocksDB "
                    "(configManagerVersion=v2, or storeType=defaultRocksDB), which Perseid does not read: export them "
                    f"to JSON with its rocksDBConfigToJson, put the files into config, and move {folder} away"
                )
        for file in self._files.values():
            if file.loaded_first:
                self._load(file)

    def load(self, now: Millis) -> None:
        """Take up all other tables; the first saves of offsets are one interval away."""
        for file in self._files.values():
            if not file.loaded_first:
                self._load(file)
        self._settle_times(self._behind, now)

    def _load(self, file: StateFile) -> None:
        text = self._disk.read(file.path) if file.only_whole else state_files.read(self._disk, file.path)
        if not text and file.instead:
            text = state_files.read(self._disk, file.instead)
        if text or (file.only_whole and text is not None):
            file.table.load(text)

    def _settle_times(self, files: Sequence[StateFile], now: Millis) -> None:
        for file in files:
            assert file.every is not None, file.path
            file.at = now + file.every(self._settings.current)

    # ---- a turn ----

    @property
    def due(self) -> bool:
        """Has a table changed that is saved with each change?"""
        for table in self._tables:  # noqa: SIM110  # asked in each turn: any() would make a generator
            if table.dirty:
                return True
        return False

    def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request of this turn: when what it changed is durable."""
        if request.command.is_oneway:
            return
        if self.due:
            self._answers.append((request, reply))
        else:
            self._turn.reply(request, reply)

    def settle(self) -> None:
        """At the end of a turn: save the tables that changed, then give the answers that wait for it."""
        for table in self._tables:  # as `due`: this is asked in each turn
            if table.dirty:
                self.tables()
                return

    def tables(self) -> None:
        """Save the tables that changed."""
        answers, self._answers = self._answers, []
        paths = self._taken(file for file in self._at_once if file.table.dirty)
        for request, _ in answers:
            request.command.body = b""  # it is stored; no need to hold it until the files are
        self._save(paths, [], Answers(answers))

    def _taken(self, files: Iterable[StateFile]) -> list[str]:
        """The paths of files that are about to be saved."""
        paths = []
        for file in list(files):
            file.table.dirty = False
            file.told()
            paths.append(file.path)
        return paths

    def everything(self, then: list[Effect]) -> None:
        """Save all that there is, then carry out `then`: the end of a clean stop."""
        self._turn.emit(self._flusher.flush([]))
        used = [file for file in self._files.values() if file.in_use()]
        for file in self._files.values():
            file.table.dirty = False
        self._save([file.path for file in used], then)

    def tick(self, now: Millis) -> None:
        """Save what is due."""
        due = [file for file in self._behind if now >= file.at]
        self._settle_times(due, now)
        paths = self._taken(file for file in due if file.table.dirty)
        for path in [path for path, at in self._again.items() if at <= now]:
            del self._again[path]
            paths.append(path)
        self._behind_log(paths)

    def hurry(self, path: str) -> None:
        """Save this file in this turn, behind the log, if it changed: what is saved after it relies on it."""
        file = self._files[path]
        if file.table.dirty:
            file.table.dirty = False
            self._behind_log([path])

    def next_deadline(self) -> Millis:
        due = min([file.at for file in self._behind])
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
                self._turn.reply(request, reply)

    def failed(self, event: DiskFailed) -> bool:
        """A save failed. True: it was of one of these files, and is tried again. It may be heard before
        earlier saves that went well; of several of one file nobody knows which it was: none counts."""
        if event.path not in self._files:
            return False
        path = event.path
        failed = [save for save in self._under_way if save.path == path]
        self._under_way = deque(save for save in self._under_way if save.path != path)
        self._again[path] = self._turn.now + RETRY_MS
        self._turn.note("error", f"{path} could not be saved: {event.reason}; again in {RETRY_MS} ms")
        remark = f"{path} could not be saved: {event.reason}; what was asked for may be lost at a restart"
        for answers in [save.answers for save in failed if not save.answers.refused]:
            answers.refused = True
            for request, _ in answers.ready:
                self._turn.reply(request, Reply(ResponseCode.SYSTEM_ERROR, remark=remark))
        return True

    def _behind_log(self, paths: list[str]) -> None:
        """Save files that stand for messages of the log, when those are durable."""
        if paths:
            if self._log.flushed < self._log.end:
                self._turn.emit(self._flusher.flush([]))
            self._save(paths, [])

    def _save(self, paths: list[str], then: list[Effect], answers: Answers = NO_ANSWERS) -> None:
        for path in paths:
            last, number = path == paths[-1], self._number
            self._number += 1
            self._under_way.append(Save(number, path, answers, last))
            told = Feed(Saved(path, number))
            self._turn.emit(SaveState(path, self._files[path].text(), [*(then if last else ()), told]))

    def validate(self) -> None:
        """Between two turns."""
        assert not self._answers, "an answer was not written"
