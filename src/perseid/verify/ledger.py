"""A ledger of acknowledged messages, and what the cluster has of them afterwards.

One line an acknowledged message, in the order of the acknowledgements:

    KEY BROKER/QUEUE OFFSET TIME_MS SENDS MESSAGE_ID

after a first line that names the topic and the run. A queue's messages were sent one after the other, each after the
acknowledgement of the one before, so their order in the ledger is the order that the queue has to have. The message id
is the broker's: its address and the place in its log.

Of each acknowledged message should be found: at least one copy (else it is *lost*), at its own offset (else it has
*moved*: the offset was given out twice), not more copies than it was sent (else *invented*; more than one is *doubled*,
as a lost answer leaves it), and the first copies of a queue in the ledger's order (else *reordered*).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from perseid.base.errors import PerseidError
from perseid.client.errors import ClientError
from perseid.client.model import MessageQueue
from perseid.client.pull import PullConsumer

FILE_HEADER = "# perseid ledger 1"
SETTLE_MS = 30_000
"""How long the cluster may take until all that was acknowledged can be read."""
PAUSE_S = 0.05
MAX_NAMED = 20
"""Messages that findings name; they count all."""
READERS = 8
"""Queues that are read at once."""


class Entry(NamedTuple):
    """One acknowledged message: where it was stored, when that was heard of (ms since 1970), after how many sends."""

    key: str
    queue: MessageQueue
    offset: int
    time_ms: int
    sends: int
    message_id: str

    def to_line(self) -> str:
        """As it stands in the file."""
        place = f"{self.queue.broker_name}/{self.queue.queue_id}"
        return f"{self.key} {place} {self.offset} {self.time_ms} {self.sends} {self.message_id or '-'}\n"

    @classmethod
    def from_line(cls, line: str, topic: str) -> Entry:
        """ValueError when it is none."""
        key, place, offset, time_ms, sends, message_id = line.split()
        broker, slash, queue_id = place.rpartition("/")
        if not slash:
            raise ValueError(place)
        queue = MessageQueue(topic, broker, int(queue_id))
        return cls(key, queue, int(offset), int(time_ms), int(sends), "" if message_id == "-" else message_id)


class Ledger:
    """Acknowledged messages of one run, in memory, and in a file when `path` is given.

    Each line is handed to the system at once: it survives the end of this process, not that of the machine.
    """

    def __init__(self, topic: str, run: str, path: Path | None = None) -> None:
        self.topic = topic
        self.run = run
        self.path = path
        self.entries: list[Entry] = []
        self._file = None
        if path is not None:
            try:
                self._file = path.open("x", encoding="utf-8", buffering=1)
            except FileExistsError:
                raise PerseidError(
                    f"{path}: is there already: check it (perseid verify check {path}), or name another with --ledger"
                ) from None
            except OSError as error:
                raise PerseidError(f"{path}: can't be written: {error.strerror}; name another with --ledger") from None
            self._file.write(f"{FILE_HEADER} topic={topic} run={run}\n")

    def add(self, entry: Entry) -> None:
        """One more is acknowledged."""
        self.entries.append(entry)
        if self._file is not None:
            self._file.write(entry.to_line())

    def close(self) -> None:
        """Nothing more will be added."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """The ledger in a file; a last line without its end is left out. PerseidError when it is no ledger."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PerseidError(f"{path}: can't be read: {error}") from None
        whole = text[: text.rfind("\n") + 1].splitlines()
        named = dict(word.split("=", 1) for word in (whole[0] if whole else "").split() if "=" in word)
        if not whole or not whole[0].startswith(FILE_HEADER) or not named.get("topic") or not named.get("run"):
            raise PerseidError(f"{path}: is no ledger: one that `perseid verify run` wrote is wanted")
        ledger = cls(named["topic"], named["run"])
        for number, line in enumerate(whole[1:], 2):
            try:
                ledger.entries.append(Entry.from_line(line, ledger.topic))
            except ValueError:
                raise PerseidError(f"{path}:{number}: is no line of a ledger: {line[:80]!r}") from None
        return ledger


@dataclass(slots=True)
class Findings:
    """The comparison of a ledger with the cluster. The lists name the first few of what the numbers count."""

    acknowledged: int = 0
    stored: int = 0
    """Messages of this run in the cluster, copies counted."""
    lost: int = 0
    moved: int = 0
    invented: int = 0
    reordered: int = 0
    doubled: int = 0
    """Copies that retries explain."""
    unacknowledged: int = 0
    """Stored, but never acknowledged: sends whose answer was lost, or that came too late."""
    named: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """True when nothing is wrong: doubled and unacknowledged messages are as retries leave them."""
        return not (self.lost or self.moved or self.invented or self.reordered)

    def add_example(self, kind: str, text: str) -> None:
        """Name one of a kind, as long as there are few."""
        seen = self.named.setdefault(kind, [])
        if len(seen) < MAX_NAMED:
            seen.append(text)


Found = Mapping[MessageQueue, Sequence[tuple[int, str]]]
"""Of each queue the (offset, key) of its messages, in order."""


def compare(entries: Sequence[Entry], found: Found) -> Findings:
    """Hold what was found against what was acknowledged."""
    result = Findings(acknowledged=len(entries), stored=sum(len(rows) for rows in found.values()))
    rank = {entry.key: number for number, entry in enumerate(entries)}
    copies: dict[str, list[tuple[MessageQueue, int]]] = defaultdict(list)
    for queue, rows in found.items():
        for offset, key in rows:
            copies[key].append((queue, offset))
    for entry in entries:
        _judge(result, entry, copies.get(entry.key, []))
    result.unacknowledged = sum(1 for key in copies if key not in rank)
    for queue, rows in found.items():
        seen: set[str] = set()
        highest, highest_key = -1, ""
        for offset, key in rows:
            if key in seen or key not in rank:
                continue
            seen.add(key)
            if rank[key] < highest:
                result.reordered += 1
                what = f"{key} at {queue}@{offset} stands behind {highest_key}, which came later"
                result.add_example("reordered", what)
            else:
                highest, highest_key = rank[key], key
    return result


def _judge(result: Findings, entry: Entry, places: list[tuple[MessageQueue, int]]) -> None:
    where = f"{entry.key} at {entry.queue}@{entry.offset}"
    if not places:
        result.lost += 1
        result.add_example("lost", f"{where}, acknowledged at {entry.time_ms} ({entry.message_id or 'no id'})")
        return
    if (entry.queue, entry.offset) not in places:
        result.moved += 1
        result.add_example("moved", f"{where} is now at {', '.join(f'{q}@{o}' for q, o in places)}")
    explained = min(len(places), entry.sends)
    result.doubled += explained - 1
    if len(places) > explained:
        result.invented += len(places) - explained
        result.add_example("invented", f"{where} was sent {entry.sends} times, and is there {len(places)} times")


async def read_back(consumer: PullConsumer, ledger: Ledger, *, settle_ms: int = SETTLE_MS) -> Found:
    """All messages of the ledger's run that the cluster has, by queue.

    Waits up to `settle_ms` until each queue has an answer and reaches beyond what was acknowledged; what is not there
    by then counts as lost. ClientError when a queue can't be read at all.
    """
    beyond: dict[MessageQueue, int] = {}
    for entry in ledger.entries:
        beyond[entry.queue] = max(beyond.get(entry.queue, 0), entry.offset + 1)
    prefix = ledger.run + "-"
    deadline = asyncio.get_running_loop().time() + settle_ms / 1000
    for queue in await _queues(consumer, ledger.topic, deadline):
        beyond.setdefault(queue, 0)
    gate = asyncio.Semaphore(READERS)

    async def read(queue: MessageQueue) -> list[tuple[int, str]]:
        async with gate:
            start, end = await _bounds(consumer, queue, beyond[queue], deadline)
            rows: list[tuple[int, str]] = []
            async with aclosing(consumer.read(queue, start, end)) as lists:
                async for messages in lists:
                    rows += [(m.queue_offset, key) for m in messages for key in m.keys if key.startswith(prefix)]
            return rows

    queues = sorted(beyond)
    return dict(zip(queues, await asyncio.gather(*(read(queue) for queue in queues)), strict=True))


async def _queues(consumer: PullConsumer, topic: str, deadline: float) -> Iterable[MessageQueue]:
    while True:
        try:
            return await consumer.queues(topic)
        except ClientError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(PAUSE_S)


async def _bounds(consumer: PullConsumer, queue: MessageQueue, wanted: int, deadline: float) -> tuple[int, int]:
    """A queue's begin and end, once it reaches `wanted` or the time is up."""
    while True:
        try:
            start, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            if end >= wanted or asyncio.get_running_loop().time() > deadline:
                return start, end
        except ClientError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await consumer.session.routes.refresh(queue.topic)
        await asyncio.sleep(PAUSE_S)
