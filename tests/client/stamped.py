"""Stamped messages as the sink makes them, and a reader that goes through a log of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from zlib import crc32

from perseid.client.deduplicator import Deduplicator
from perseid.client.model import Message, MessageQueue, ReceivedMessage
from perseid.client.stamps import STAMP, home_of, id_prefix, layout_of, placed, runs, sent_on
from perseid.wire import properties, record

QUEUE = MessageQueue("t", "a", 0)
LAYOUT = layout_of([QUEUE])


def stamp(batch: int, sequence: int, *, stream: str = "0", since: int = 0, digest: str = "", writer: str = "q") -> str:
    digest = digest or f"{crc32(f'{writer} {batch} {stream} {sequence}'.encode()):08x}"
    return f"{writer}:{batch}:{stream}:{LAYOUT}:{home_of(QUEUE)}:{since}:{sequence}:{digest}"


def id_of(text: str) -> str:
    """The id of a stamp's message; of what is no stamp, some other."""
    parts = text.split(":")
    if len(parts) != 8 or not (parts[1].isdecimal() and parts[6].isdecimal()):
        return "ID"
    writer, batch, stream, layout, home, _, sequence, _ = parts
    return f"{id_prefix((writer, int(batch), stream, layout), home)}{int(sequence):012X}"


def message(
    offset: int, text: str | None, queue: MessageQueue = QUEUE, *, body: bytes = b"x", **more: Any
) -> ReceivedMessage:
    """What stands at an offset. `more`: properties."""
    props = {} if text is None else {"UNIQ_KEY": id_of(text), STAMP: text}
    encoded = properties.encode({**props, **more})
    raw = record.encode(record.Message(topic=queue.topic, body=body, queue_id=queue.queue_id, properties=encoded))
    record.patch(raw, offset, offset * 100, 1)
    return ReceivedMessage(record.decode(raw), queue.broker_name)


def read(
    log: Sequence[ReceivedMessage], begin: int, *, pull: int = 3, deduplicator: Deduplicator | None = None
) -> list[int]:
    """The offsets that a reader gets that begins at `begin`, in pulls of `pull` messages."""
    deduplicator = deduplicator or Deduplicator(QUEUE, begin)
    got: list[int] = []
    for at in range(begin, len(log), pull):
        found = log[at : min(at + pull, len(log))]
        cut = runs(placed(found))
        for run in cut:
            back = deduplicator.look_back(run)
            if back is not None:
                assert 0 <= back[0] < back[1] <= at
                for earlier in range(back[0], back[1], 2):
                    deduplicator.learn(runs(placed(log[earlier : min(earlier + 2, back[1])])))
                deduplicator.learnt(back[0])
        again = {offset for run in cut for offset in deduplicator.repeated(run, partial(sent_on, found))}
        got += [m.queue_offset for m in found if m.queue_offset not in again]
    return got


def forwarded(one: ReceivedMessage, body: bytes | None = None, **more: str) -> Message:
    """What a handler sends that takes a message's properties along. `more`: properties that it sets."""
    kept = {name: value for name, value in one.properties.items() if name not in ("WAIT", "TAGS", "KEYS")}
    return Message(one.topic, one.body if body is None else body, properties={**kept, **more})
