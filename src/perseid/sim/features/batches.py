"""Records of several messages: topics with batch consume queues, whose units stand for several offsets each.

A batch is there as a whole or not at all; each message is where the answer to its batch says; readers get whole
records, from the one on that holds the offset they ask for.
"""

from __future__ import annotations

from perseid.sim.facts import Sent
from perseid.sim.features.places import OfTopic, Places, Producer, Reader
from perseid.sim.features.stage import NO_TEMPLATE, Maker, Stage, has_topic, topic_request
from perseid.sim.promises import Violation
from perseid.wire import batch, inner
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from perseid.wire.record import Record

TOPIC, QUEUES = "batched", 2
SIZES = (8, 40, 300)
COUNTS = (1, 2, 3, 8, 20)
"""Messages of a batch."""
ALONE = 0.3
"""So many of the sends are of one message, which is no batch."""
SEND_MS, READ_MS = 700, 700


class BatchProducer(Producer):
    """Sends batches, and messages alone, to a topic with BatchCQ."""

    def __init__(self, stage: Stage, name: str, places: Places) -> None:
        super().__init__(stage, name, places, SEND_MS)
        self.batches: list[tuple[bytes, ...]] = []
        """Values of each batch."""

    def send(self) -> None:
        """Send one batch."""
        queue_id, alone = self.random.randrange(QUEUES), self.random.random() < ALONE
        count = 1 if alone else self.random.choice(COUNTS)
        sents = [self.places.new(queue_id, self.random.choice(SIZES)) for _ in range(count)]
        if not alone:
            self.batches.append(tuple(sent.value for sent in sents))
        self._send(sents, alone=alone, retries=self.random.choice((0, 0, 1)))

    def _send(self, sents: list[Sent], *, alone: bool, retries: int) -> None:
        for sent in sents:
            sent.attempts += 1
        header = SendMessageRequestV2(
            producer_group="batch-producers", topic=TOPIC, default_topic=NO_TEMPLATE, default_topic_queue_nums=QUEUES,
            queue_id=sents[0].queue_id, sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{sents[0].value.decode()}\x02", batch=not alone,
        )  # fmt: skip
        body = sents[0].body if alone else batch.encode([(0, sent.body, b"") for sent in sents])

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                said = reply.header(SendMessageResponse)
                for at, sent in enumerate(sents, said.queue_offset):
                    self.places.acknowledged((said.queue_id, at), sent, mark)
                self.stage.count("sent to a topic with BatchCQ" if alone else "batch record stored")
            elif retries:
                self.later(0, 500, lambda: self._send(sents, alone=alone, retries=retries - 1))
                return
            self.next()

        code = RequestCode.SEND_MESSAGE_V2 if alone else RequestCode.SEND_BATCH_MESSAGE
        self.call(code, header, answered, body)


class Batches(OfTopic):
    """The feature."""

    producer: BatchProducer

    def __init__(self, stage: Stage) -> None:
        places = Places(stage, TOPIC)
        super().__init__(
            BatchProducer(stage, "batch-producer", places),
            Reader(stage, "batch-reader", places, QUEUES, READ_MS, self._messages),
            Maker(stage, "batch-maker", [topic_request(TOPIC, QUEUES, "+queue.type=BatchCQ")],
                  has_topic(TOPIC, "queue.type", "BatchCQ")),
        )  # fmt: skip

    def _messages(self, record: Record) -> list[Record]:
        self.stage.count("batch record read" if inner.is_wrapped(record.sys_flag) else "read alone, with BatchCQ")
        return inner.unwrap(record)

    def check(self) -> None:
        """Besides, each batch is whole."""
        super().check()
        for queue_id, seen in self.reader.whole.items():
            self._whole(queue_id, seen)

    def _whole(self, queue_id: int, seen: dict[int, bytes]) -> None:
        """Each batch is there as a whole, one message behind the other."""
        first = {values[0]: values for values in self.producer.batches}
        rest = {value for values in self.producer.batches for value in values[1:]}
        at = min(seen, default=0)
        while at in seen:
            values = first.get(seen[at], (seen[at],))
            got = tuple(seen.get(at + number, b"") for number in range(len(values)))
            if got != values or seen[at] in rest:
                raise Violation("a batch is whole", f"{TOPIC}/{queue_id}@{at}: {got}, sent {values}")
            at += len(values)
