"""Compacted topics: of each key the last message stays.

What was acknowledged last of a key, or a later message of it, can be read in the end, from the log or from what is
kept of it when its files have gone; older ones of the key may be left out, or not yet. What is left keeps its place,
comes in order, and is what was sent.
"""

from __future__ import annotations

from perseid.sim.facts import Sent
from perseid.sim.features.places import OfTopic, Places, Producer, Reader
from perseid.sim.features.stage import NO_TEMPLATE, Maker, Stage, has_topic, topic_request
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from perseid.wire.record import Record

TOPIC, QUEUES = "compacted", 2
KEYS = ("a", "b", "c", "d", "e")
SIZES = (8, 40, 300)
SEND_MS, READ_MS = 400, 700


class KeyProducer(Producer):
    """Sends messages with keys."""

    def send(self) -> None:
        """Send one message."""
        sent = self.places.new(self.random.randrange(QUEUES), self.random.choice(SIZES), self.random.choice(KEYS))
        self._send(sent, self.random.choice((0, 0, 1)))

    def _send(self, sent: Sent, retries: int) -> None:
        sent.attempts += 1
        header = SendMessageRequestV2(
            producer_group="keyed-producers", topic=TOPIC, default_topic=NO_TEMPLATE, default_topic_queue_nums=QUEUES,
            queue_id=sent.queue_id, sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{sent.value.decode()}\x02KEYS\x01{sent.key}\x02",
        )  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                said = reply.header(SendMessageResponse)
                self.places.acknowledged((said.queue_id, said.queue_offset), sent, mark)
                self.stage.count("sent to a compacted topic")
            elif retries:
                self.later(0, 500, lambda: self._send(sent, retries - 1))
                return
            self.next()

        self.call(RequestCode.SEND_MESSAGE_V2, header, answered, sent.body)


class KeyReader(Reader):
    """Reads what is left."""

    def met(self, sent: Sent, record: Record) -> None:
        if record.props.get("KEYS") != sent.key:
            raise Violation("exact bytes", f"{sent.value.decode()} has key {sent.key}, {record.props.get('KEYS')} came")
        self.stage.count("read from a compacted topic")


class Compaction(OfTopic):
    """The feature."""

    def __init__(self, stage: Stage) -> None:
        places = Places(stage, TOPIC)
        super().__init__(
            KeyProducer(stage, "keyed-producer", places, SEND_MS),
            KeyReader(stage, "keyed-reader", places, QUEUES, READ_MS),
            Maker(stage, "keyed-maker", [topic_request(TOPIC, QUEUES, "+cleanup.policy=COMPACTION")],
                  has_topic(TOPIC, "cleanup.policy", "COMPACTION")),
        )  # fmt: skip
        self.reader.gaps = True

    def check(self) -> None:
        """Of each key what was acknowledged last is there, or something later."""
        sent = self.places.history.sent
        newest: dict[tuple[int, str | None], int] = {}
        for (queue_id, offset), value in self.places.certain().items():
            of = queue_id, sent[value].key
            newest[of] = max(newest.get(of, -1), offset)
        for (queue_id, key), offset in sorted(newest.items(), key=str):
            seen = self.reader.whole[queue_id]
            if not any(at >= offset and sent[value].key == key for at, value in seen.items()):
                raise Violation("the last one of a key stays", f"{key} of {TOPIC}/{queue_id}, {offset}: gone")
        for seen in self.reader.whole.values():
            gaps = bool(seen) and max(seen) + 1 - min(seen) > len(seen)
            self.stage.count("older messages of a key went" if gaps else "nothing was compacted")
