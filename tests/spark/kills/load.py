"""A producer that never gives up: it notes what was acknowledged, and where that was stored."""

from __future__ import annotations

import threading
from hashlib import blake2b

from perseid.client import Message, ProducerOptions
from perseid.client.blocking import BlockingProducer
from perseid.client.errors import ClientError
from perseid.client.model import SendStatus

BATCH = 25
KEYS = 5
"""Of each queue."""

Place = tuple[int, int]
"""Queue and offset; there is one broker set."""


def digest_of(body: bytes) -> bytes:
    return blake2b(body, digest_size=12).digest()


class Load:
    """Sends to each queue of a topic in turn, in a thread, until it is ended."""

    def __init__(self, namesrv: str, topic: str, per_second: int) -> None:
        self._namesrv, self._topic = namesrv, topic
        self._pause_s = BATCH / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._error: BaseException | None = None
        self.acknowledged: dict[Place, bytes] = {}
        """Place and digest of each."""
        self.retries = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No more; raises what ended it before."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with BlockingProducer(self._namesrv, "kills", options=ProducerOptions(timeout_ms=2000)) as producer:
                queues = producer.queues(self._topic)
                numbers = [0] * len(queues)
                while not self._stop.is_set():
                    for at, queue in enumerate(queues):
                        first, numbers[at] = numbers[at], numbers[at] + BATCH
                        self._send(producer, at, queue, range(first, first + BATCH))
        except BaseException as error:  # whoever ends it is told
            self._error = error

    def _send(self, producer: BlockingProducer, at: int, queue: object, numbers: range) -> None:
        messages = [
            Message(self._topic, f"{at} {number} ".encode().ljust(200, b"."), tag=f"t{number % 3}",
                    keys=[f"k{at}-{number % KEYS}"])
            for number in numbers
        ]  # fmt: skip
        while not self._stop.wait(self._pause_s):
            try:
                results = producer.send_batch(messages, queue=queue)  # type: ignore[arg-type]
            except ClientError:
                self.retries += 1
                continue
            if all(result.status is SendStatus.SEND_OK for result in results):
                for message, result in zip(messages, results, strict=True):
                    self.acknowledged[result.queue.queue_id, result.queue_offset] = digest_of(message.body)
                return
            self.retries += 1
