"""Which messages of a queue a reader has had already. Pure but for its warnings: no clock, no network.

A repeat has the same stamp, the same id and the same body as a message that came before it (`stamps`). It is dropped;
whatever can't be shown to be one is handed out, counted, and warned of: a message twice is better than one lost.

So a reader remembers what it saw of each batch: digest and body's checksum, eight bytes a message. A batch that came
again with other rows has several *layers*, sequences that rise.

    batch (writer, number, stream, layout)
      layer   sequences 0 to 899           what came first
      layer   sequences 500 to 620         what differed from it

A reader that begins in the middle of a queue, or has forgotten a batch, reads back from where its knowledge begins
(`known`) to the stamp's `since`, and only if that is lower. So nothing has to be kept when a reader ends.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from perseid.client.model import MessageQueue
from perseid.client.stamps import Batch, Run, home_of
from perseid.wire.names import DLQ_PREFIX, RETRY_PREFIX

log = logging.getLogger("perseid.client")

WARNED_QUEUES = 10_000
"""Queues of which this process remembers what it has warned of."""


class Limits(NamedTuple):
    """How much a reader remembers of a queue, and how far it reads back."""

    messages: int = 1_000_000
    """Eight bytes each. Of more, the batch that was silent for longest is forgotten first, and of one that is longer
    its beginning."""
    batches: int = 10_000
    layers: int = 16
    """Of a batch. A message that fits into none is handed out each time that it comes."""
    look_back: int = 1_000_000
    """Offsets below where it began. It reads back no more than so many, and one for each that it reads on."""


LIMITS = Limits()


@dataclass(slots=True)
class Counts:
    """Stamped messages that were not simply new. All but the dropped ones were handed out."""

    dropped: int = 0
    """Repeats."""
    differing: int = 0
    """Another message stands in the same place of the same batch."""
    copied: int = 0
    """Forwarded by some client, stamp and all."""
    untold: int = 0
    """They may be repeats of what is no longer remembered, and was not read back."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.differing or self.copied or self.untold)

    def __str__(self) -> str:
        said = f"{self.dropped} repeats dropped"
        for count, what in ((self.differing, "differing"), (self.copied, "copied"), (self.untold, "doubtful")):
            said += f", {count} {what} ones handed out" if count else ""
        return said


class _Layer:
    """Messages with rising sequences: in chunks without a gap."""

    def __init__(self) -> None:
        self._firsts = array("q")
        self._places = array("q")
        """Where each chunk begins: its sequence, its place in the two below."""
        self._digests = bytearray()
        self._crcs = bytearray()
        self.end = 0

    def __len__(self) -> int:
        return len(self._crcs) // 4

    def add(self, sequences: Sequence[int], digests: bytes, crcs: bytes) -> None:
        """Add messages, all of them behind the end."""
        place = len(self)
        if sequences[-1] - sequences[0] == len(sequences) - 1:
            self._begin(sequences[0], place)
            self.end = sequences[-1] + 1
        else:
            for at, sequence in enumerate(sequences, place):
                self._begin(sequence, at)
                self.end = sequence + 1
        self._digests += digests
        self._crcs += crcs

    def _begin(self, sequence: int, place: int) -> None:
        if sequence != self.end or not self._firsts:
            self._firsts.append(sequence)
            self._places.append(place)

    def find(self, sequence: int) -> tuple[bytes, bytes] | None:
        """Digest and body's checksum of a message."""
        chunk = bisect_right(self._firsts, sequence) - 1
        if chunk < 0:
            return None
        place = self._places[chunk] + sequence - self._firsts[chunk]
        if place >= (self._places[chunk + 1] if chunk + 1 < len(self._places) else len(self)):
            return None
        return bytes(self._digests[4 * place : 4 * place + 4]), bytes(self._crcs[4 * place : 4 * place + 4])

    def forget(self, count: int) -> int:
        """Forget the first messages; the first sequence that is left."""
        chunk = bisect_right(self._places, count) - 1
        self._firsts[chunk] += count - self._places[chunk]
        self._places[chunk] = count
        del self._firsts[:chunk]
        self._places = array("q", [place - count for place in self._places[chunk:]])
        del self._digests[: 4 * count], self._crcs[: 4 * count]
        return self._firsts[0]


class _Seen:
    """The messages of one batch that were seen."""

    def __init__(self, known: int) -> None:
        self.known = known
        """All of it from this offset on was seen."""
        self.forgotten = 0
        """Below this sequence something was forgotten."""
        self.layers: list[_Layer] = []

    def __len__(self) -> int:
        return sum(map(len, self.layers))

    @property
    def end(self) -> int:
        return max((layer.end for layer in self.layers), default=0)

    def find(self, sequence: int, digest: bytes, crc: bytes) -> bool | None:
        """Did this very message come already? None: nothing came in its place."""
        told: bool | None = None
        for layer in self.layers:
            there = layer.find(sequence)
            if there == (digest, crc):
                return True
            told = told if there is None else False
        return told

    def add(self, sequences: Sequence[int], digests: bytes, crcs: bytes, most: int) -> int:
        """Remember messages that rise; how many there is room for, all of them or none."""
        fitting = [layer for layer in self.layers if layer.end <= sequences[0]]
        if fitting:
            layer = max(fitting, key=lambda layer: layer.end)
        elif len(self.layers) < most:
            self.layers.append(layer := _Layer())
        else:
            self.forgotten = max(self.forgotten, sequences[-1] + 1)
            return 0
        layer.add(sequences, digests, crcs)
        return len(sequences)

    def forget(self) -> int:
        """Forget the first half of the longest layer; how many messages that were."""
        layer = max(self.layers, key=len)
        count = (len(layer) + 1) // 2
        if count == len(layer):
            self.forgotten = max(self.forgotten, layer.end)
            self.layers.remove(layer)
        else:
            self.forgotten = max(self.forgotten, layer.forget(count))
        return count


class Deduplicator:
    """Which messages of a queue came already.

    For the runs of each pull: for every one read what `look_back` names, give it to `learn`, then say `learnt`; when
    that is done for all of them, ask which are `repeated`. `begin` is the offset at which the reader begins. Retry
    topics and dead letters hold copies: nothing is dropped there.
    """

    def __init__(
        self, queue: MessageQueue, begin: int, limits: Limits = LIMITS, *, counts: Counts | None = None
    ) -> None:
        self._home = "" if queue.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else home_of(queue)
        self._queue = queue
        self._limits = limits
        self._seen: OrderedDict[Batch, _Seen] = OrderedDict()
        self._count = 0
        """Messages in all of them."""
        self._at = begin
        """How far `repeated` was asked."""
        self._floor = begin
        """All batches that are not remembered were never seen from here on."""
        self._lowest = max(0, begin - limits.look_back)
        self._budget = limits.look_back
        self._wanted: Batch = ("", 0, "", "")
        """What is read back for."""
        self._whole = True
        """All that was read back is remembered."""
        self.counts = Counts() if counts is None else counts

    # ---- reading back ----

    def look_back(self, run: Run) -> tuple[int, int] | None:
        """Offsets [start, end) that have to be learnt before `repeated(run)`; None: nothing."""
        if run.home != self._home or not run.own:
            return None
        seen = self._seen.get(run.batch)
        known = self._floor if seen is None else seen.known
        if run.since >= known or known <= self._lowest:
            return None
        start = max(run.since, self._lowest)
        if known - start > self._budget:
            return None
        self._budget -= known - start
        self._wanted, self._whole = run.batch, known >= self._floor
        if seen is None:
            self._begun(run.batch)
            self._make_room()
        return start, known

    def learn(self, cut: Sequence[Run]) -> None:
        """Take in runs of what is read back; with the last of them, `learnt` says how far back they reach."""
        limits = self._limits
        for run in cut:
            if run.home != self._home or not run.own:
                continue
            seen = self._seen.get(run.batch)
            if run.batch != self._wanted and (
                self._count >= limits.messages or (seen is None and len(self._seen) >= limits.batches)
            ):
                self._whole = False
                continue
            if seen is None:
                seen = self._begun(run.batch)
            if run.batch == self._wanted:
                self._seen.move_to_end(run.batch)
            if run.sequences[0] >= seen.end:
                self._add(seen, run.sequences, run.digests, run.crcs)
            else:
                for one in map(_one, repeat(run), range(len(run.sequences))):
                    if not seen.find(*one):
                        self._add(seen, [one[0]], *one[1:])
            self._make_room()

    def learnt(self, start: int) -> None:
        """All messages from `start` to where it was to end have been given to `learn`."""
        if self._whole:
            self._floor = min(self._floor, start)
            for seen in self._seen.values():
                seen.known = min(seen.known, start)
        else:
            wanted = self._seen.get(self._wanted)
            if wanted is not None:  # else it was forgotten again
                wanted.known = min(wanted.known, start)

    # ---- reading on ----

    def repeated(self, run: Run, sent_on: Callable[[], Collection[int]]) -> list[int]:
        """The offsets of those messages of a run that came already. `sent_on` tells which of the pull's messages
        somebody has sent on (`stamps.SENT_ON`); it is asked only when some look like repeats."""
        if run.home != self._home or run.offsets[0] < self._at:  # asked for again: what is remembered is itself
            return []
        self._budget = min(self._limits.look_back, self._budget + run.offsets[-1] + 1 - self._at)
        self._at = run.offsets[-1] + 1
        if not run.own:
            self.counts.copied += len(run.offsets)
            self._warn("copied", run.offsets[0])
            return []
        seen = self._seen.get(run.batch)
        if seen is None:
            seen = self._begun(run.batch)
        self._seen.move_to_end(run.batch)
        if run.sequences[0] >= seen.end:
            self._doubt(run, seen, range(len(run.offsets)))
            self._add(seen, run.sequences, run.digests, run.crcs)
            found = []
        else:
            found = self._looked_at(run, seen)
            if found:
                found = self._not_sent_on(found, sent_on())
        self._make_room()
        return found

    def _looked_at(self, run: Run, seen: _Seen) -> list[int]:
        """The offsets of the repeats in a run, looked at one by one; the others are remembered."""
        found = []
        for at, offset in enumerate(run.offsets):
            one = _one(run, at)
            told = seen.find(*one)
            if told:
                found.append(offset)
                continue
            if told is None:
                self._doubt(run, seen, range(at, at + 1))
            else:
                self.counts.differing += 1
                self._warn("differing", offset, f"message {one[0]} of stream {run.batch[2]} of batch {run.batch[1]} of"
                           f" {run.batch[0]}")  # fmt: skip
            self._add(seen, [one[0]], *one[1:])
        return found

    def _not_sent_on(self, found: list[int], others: Collection[int]) -> list[int]:
        again = [offset for offset in found if offset not in others]
        self.counts.dropped += len(again)
        if len(again) < len(found):
            self.counts.copied += len(found) - len(again)
            self._warn("copied", next(offset for offset in found if offset in others))
        return again

    def _doubt(self, run: Run, seen: _Seen, which: range) -> None:
        """Count those of a run's messages that may have come where nothing is remembered."""
        if run.since < seen.known:
            count = len(which)
        elif seen.forgotten > run.sequences[which[0]]:
            count = sum(run.sequences[at] < seen.forgotten for at in which)
        else:
            return
        self.counts.untold += count
        self._warn("untold", run.offsets[which[0]])

    # ---- inside ----

    def _begun(self, batch: Batch) -> _Seen:
        seen = self._seen[batch] = _Seen(self._floor)
        return seen

    def _add(self, seen: _Seen, sequences: Sequence[int], digests: bytes, crcs: bytes) -> None:
        self._count += seen.add(sequences, digests, crcs, self._limits.layers)

    def _make_room(self) -> None:
        while len(self._seen) > self._limits.batches or (self._count > self._limits.messages and len(self._seen) > 1):
            _, seen = self._seen.popitem(last=False)
            self._count -= len(seen)
            self._whole = False
            self._floor = max(self._floor, self._at)
            self._lowest = max(self._lowest, self._floor - self._limits.look_back)
        while self._count > self._limits.messages:
            (seen,) = self._seen.values()
            self._count -= seen.forget()

    def _warn(self, reason: str, offset: int, what: str = "") -> None:
        """Once for each queue and reason."""
        told = _warned.setdefault(self._queue, set())
        if reason not in told:
            told.add(reason)
            log.warning("%s: offset %d %s", self._queue, offset, _REASONS[reason].format(what=what))
            if len(_warned) > WARNED_QUEUES:
                _warned.popitem(last=False)


_warned: OrderedDict[MessageQueue, set[str]] = OrderedDict()
_REASONS = {
    "copied": "has the stamp of another message, so somebody sent it on with its properties; it is handed out. Leave"
    " PERSEID_STAMP out of what you send on",
    "differing": "is {what}, as was an earlier one, but what was sent differs; both are handed out. If the batch was"
    " run again in another order, write with the option sequenceBy; if its checkpoint was restored from an older copy,"
    " begin with a new one; if nobody did, somebody copied the stamp",
    "untold": "may be a repeat: its batch begins before what is remembered or can be read back; it is handed out. Where"
    " copies matter, drop them by their ids (msgId), or write smaller batches",
}


def _one(run: Run, at: int) -> tuple[int, bytes, bytes]:
    return run.sequences[at], run.digests[4 * at : 4 * at + 4], run.crcs[4 * at : 4 * at + 4]
