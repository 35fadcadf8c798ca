"""The messages in an answer to a pull: read by the compiled core, or by plain Python that gives the same.

The core takes what is ordinary. It stops before a record that it can't read, or that holds several messages; that one
is read here, by `wire.record`, or refused with the place where it stands. `spark/decode.py` reads answers into columns
instead; where a record stands in one, and whether it is sound, is told by the same code (`core/stored.py`).
"""

from __future__ import annotations

from typing import Any

from perseid import core
from perseid.base.machine import Buffer
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.wire import inner
from perseid.wire.frame import MAX_FRAME_BYTES
from perseid.wire.record import RecordError, decode

QUICKEST: Any = None if core.compiled is None else core.compiled.messages
"""`core.messages` where it is compiled; None: records are read by plain Python, one after the other."""


class AnswerReader:
    """Reads the answers of one broker."""

    def __init__(self, broker_name: str, module: Any = QUICKEST) -> None:
        self._broker_name = broker_name
        self._core = None if module is None else module.Messages(ReceivedMessage, self._place, MAX_FRAME_BYTES)

    def messages(self, body: Buffer, start: int) -> list[ReceivedMessage]:
        """The messages in order; of those that one record holds, the ones before queue offset `start` are left out.

        `RecordError` when the answer has anything but whole records, or a body that does not match its checksum.
        """
        found: list[ReceivedMessage] = []
        view = memoryview(body)
        at, total = 0, len(view)
        any_wrapped = False
        while at < total:
            if self._core is not None:
                at = self._core.read(view, at, found)
                if at >= total:
                    break
            try:
                record = decode(view, at)
            except RecordError as error:
                where = f"{self._broker_name}: message {len(found)} of a pull's answer, at byte {at} of {total}"
                raise RecordError(f"{where}: {error}") from None
            any_wrapped = any_wrapped or inner.is_wrapped(record.sys_flag)
            found += [ReceivedMessage(one, self._broker_name) for one in inner.unwrap(record)]
            at += record.size
        if any_wrapped:
            return [one for one in found if one.queue_offset >= start or inner.is_wrapped(one.record.sys_flag)]
        return found

    def _place(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker_name, queue_id)
