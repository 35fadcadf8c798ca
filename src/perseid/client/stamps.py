"""Stamps: properties by which a reader of a queue recognizes repeated messages. Pure: no I/O, no clock.

A writer that starts over after a crash sends again what it does not know to be stored. The stamp is one property:

    PERSEID_STAMP = writer:batch:stream:layout:home:since:sequence:digest

    writer, batch  what is written: a query and its micro-batch
    stream         the part of the batch: a Spark partition, with `.level` for delayed messages
    layout         CRC of the names of all queues that the batch is spread over
    home           CRC of the name of the queue; elsewhere the stamp says nothing (the message was copied)
    since          an offset of this queue; nothing of the batch is stored below it
    sequence       0, 1, 2, … for the (writer, batch, stream, layout) in this queue
    digest         CRC over the bodies and properties of all of these up to and with this one

The message's id is made of the stamp too (`id_prefix`, and the sequence): one with another id was forwarded by a
client that copied the stamp with the message's other properties.

Guarantee of writers: each attempt at a batch sends the same messages in the same order, sequence 0 first. Nothing is
lost where they don't keep it: `deduplicator` drops what it can show to be a repeat, by stamp, id and body, and nothing
else.
The digest tells a batch that was run again with other rows, or in another order: from there on all digests differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import lt
from typing import NamedTuple
from zlib import crc32

from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.wire import properties

STAMP = "PERSEID_STAMP"
MAX_WRITER_CHARS = 64
MAX_STAMP_CHARS = 256
MAX_NUMBER = 2**63 - 1
ID_PREFIX_BYTES = 10
DIGEST_CHARS = 8
SENT_ON = (properties.ORIGIN_MESSAGE_ID, properties.MIN_OFFSET)
"""Properties that no stamped writer gives: brokers set the one on retries and dead letters, Java's consumers the other
on what they hand out. A message with one of them was forwarded by some client, whatever its other properties."""

_FORM = re.compile(r"([^:]+):([0-9]{1,19}):([^:]+):([^:]+):([0-9a-f]{8}):([0-9]{1,19}):([0-9]{1,19}):([0-9a-f]{8})")
_HEX = re.compile(rb"[0-9a-f]*")


class Stamp(NamedTuple):
    """The fields of a stamp."""

    writer: str
    batch: int
    stream: str
    layout: str
    home: str
    since: int
    sequence: int
    digest: str


Batch = tuple[str, int, str, str]
"""writer, batch, stream, layout: whose sequences are counted together in a queue."""


class Placed(NamedTuple):
    """The parts of a message that tell a repeat: its place in its queue, stamp, id, and its body's checksum."""

    queue_offset: int
    stamp: str
    unique_key: str | None
    body_crc: int


@dataclass(slots=True)
class Run:
    """Messages that follow each other, of one batch, with rising sequences. `own`: their ids are the stamps'."""

    batch: Batch
    home: str
    since: int
    own: bool
    sequences: Sequence[int]
    offsets: Sequence[int]
    digests: bytes
    """Four bytes each, as are the bodies' checksums."""
    crcs: bytes


def home_of(queue: MessageQueue) -> str:
    """The short name of a queue in stamps."""
    return f"{crc32(str(queue).encode()):08x}"


def layout_of(queues: Iterable[MessageQueue]) -> str:
    """The short name of a set of queues in stamps."""
    return f"{crc32(' '.join(sorted(map(str, queues))).encode()):08x}"


@lru_cache(maxsize=1024)
def id_prefix(batch: Batch, home: str) -> str:
    """The prefix of the ids of a batch's messages in a queue; twelve hexadecimal digits of the sequence follow."""
    writer, number, stream, layout = batch
    place = f"{writer}:{number}:{stream}:{layout}:{home}"
    return blake2b(place.encode(), digest_size=ID_PREFIX_BYTES).hexdigest().upper()


def parse(text: str) -> Stamp | None:
    """A stamp; None for what is none (anyone may set a property of that name)."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_STAMP_CHARS else None
    if found is None:
        return None
    writer, batch, stream, layout, home, since, sequence, digest = found.groups()
    stamp = Stamp(writer, int(batch), stream, layout, home, int(since), int(sequence), digest)
    return None if max(stamp.batch, stamp.since, stamp.sequence) > MAX_NUMBER else stamp


def placed(messages: Iterable[ReceivedMessage]) -> list[Placed]:
    """Those of the messages that have a stamp."""
    found = []
    for message in messages:
        props = message.properties
        text = props.get(STAMP)
        if text is not None:
            found.append(Placed(message.queue_offset, text, props.get("UNIQ_KEY"), message.record.body_crc))
    return found


def sent_on(messages: Iterable[ReceivedMessage]) -> set[int]:
    """The offsets of forwarded messages (SENT_ON)."""
    return {one.queue_offset for one in messages if any(name in one.properties for name in SENT_ON)}


def runs(messages: Iterable[Placed]) -> list[Run]:
    """Stamped messages in their order, cut into runs. Messages without a valid stamp are left out."""
    found: list[Run] = []
    prefix, last = "", -1
    sequences: list[int] = []
    offsets: list[int] = []
    digests, crcs = bytearray(), bytearray()

    def end() -> None:
        if sequences:
            run = found[-1]
            run.sequences, run.offsets, run.digests, run.crcs = sequences, offsets, bytes(digests), bytes(crcs)

    for one in messages:
        stamp = parse(one.stamp)
        if stamp is None:
            continue
        batch = (stamp.writer, stamp.batch, stamp.stream, stamp.layout)
        own = one.unique_key == f"{id_prefix(batch, stamp.home)}{stamp.sequence:012X}"
        here = f"{own} {one.stamp[: -DIGEST_CHARS - 1].rpartition(':')[0]}"
        if here != prefix or stamp.sequence <= last:
            end()
            found.append(Run(batch, stamp.home, stamp.since, own, (), (), b"", b""))
            prefix, sequences, offsets, digests, crcs = here, [], [], bytearray(), bytearray()
        last = stamp.sequence
        sequences.append(last)
        offsets.append(one.queue_offset)
        digests += bytes.fromhex(stamp.digest)
        crcs += crc_bytes(one.body_crc)
    end()
    return found


def crc_bytes(crc: int) -> bytes:
    """A body's checksum, as runs have it."""
    return (crc & 0xFFFFFFFF).to_bytes(4, sys.byteorder)


class Column(NamedTuple):
    """Texts of messages that follow each other, in one piece: text n is `data[ends[n]:ends[n + 1]]`, less `ends[0]`."""

    data: bytes
    ends: Sequence[int]

    def text(self, at: int) -> bytes:
        """One of them."""
        first = self.ends[0]
        return self.data[self.ends[at] - first : self.ends[at + 1] - first]

    def piece(self, at: int, end: int) -> bytes:
        """Some that follow each other."""
        first = self.ends[0]
        return self.data[self.ends[at] - first : self.ends[end] - first]


def runs_of(texts: Column, ids: Column, offsets: Sequence[int], crcs: bytes) -> list[Run] | None:
    """As `runs`, of messages in columns, quicker; those without a stamp have an empty text. None where one of them is
    out of the ordinary: then ask `runs`."""
    found: list[Run] = []
    at, count = 0, len(offsets)
    while at < count:
        text = texts.text(at)
        if not text:
            at += 1
            continue
        stamp = parse(text.decode("utf-8", "replace"))
        if stamp is None:
            return None
        prefix = text[: text.rindex(b":", 0, -DIGEST_CHARS - 1) + 1]
        end, (data, ends), first = at + 1, texts, texts.ends[0]
        while end < count and ends[end + 1] > ends[end] and data.startswith(prefix, ends[end] - first):
            end += 1
        run = _run(stamp, prefix, texts.piece(at, end), ids.piece(at, end), offsets[at:end])
        if run is None:
            return None
        run.crcs = crcs[4 * at : 4 * end]
        found.append(run)
        at = end
    return found


def _run(stamp: Stamp, prefix: bytes, texts: bytes, ids: bytes, offsets: Sequence[int]) -> Run | None:
    """Messages with stamps that begin alike as one run, if their sequences rise and their ids are theirs."""
    count = len(offsets)
    tails = b":".join(texts.split(prefix)[1:]).split(b":")
    numbers, digests = tails[::2], tails[1::2]
    if len(tails) != 2 * count or set(map(len, digests)) != {DIGEST_CHARS}:
        return None
    if not (b"".join(numbers).isdigit() and all(numbers) and max(map(len, numbers)) < len(str(MAX_NUMBER))):
        return None
    sequences = list(map(int, numbers))
    if not all(map(lt, sequences, sequences[1:])):
        return None
    batch = (stamp.writer, stamp.batch, stamp.stream, stamp.layout)
    expected = f"{id_prefix(batch, stamp.home)}%012X" * count % tuple(sequences)
    digest = b"".join(digests)
    if ids != expected.encode() or not _HEX.fullmatch(digest):
        return None
    return Run(batch, stamp.home, stamp.since, True, sequences, offsets, bytes.fromhex(digest.decode()), b"")
