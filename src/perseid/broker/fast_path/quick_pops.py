"""POP, the quick way: requests that repeat earlier ones but for their numbers.

The ordinary handlers (`broker/pop`) are the reference. After one has answered an acknowledgement, those like it are
*prepared* (as pulls are: `quick_pulls`): what its checks came to counts until the generation ends, or the topic's row
or the queue is another one. Then the compiled core reads acknowledgements of one checkpoint in a row, and makes their
answers; what the handler would do with them one by one is done once for all (`PopService.gather_run`).

Left to the handlers: static topics, lite topics, messages popped in order, messages that are not out any more, the
second port, signed requests, headers with escapes, and checkpoints of an earlier master that have not come yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.kernel.request import VIP_LISTENER, Connection
from perseid.broker.pop.gathered import Run
from perseid.core.layout import HANDLE, OFFSET, OPAQUE
from perseid.store.consume_queue import ConsumeQueue
from perseid.wire import pop
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command, response_head
from perseid.wire.headers.pop import AckMessageRequest
from perseid.wire.pop import Ack, Handle

if TYPE_CHECKING:
    from perseid.broker.kernel.generation import Generation
    from perseid.broker.kernel.roads import Roads
    from perseid.broker.pop.requests import PopRequests
    from perseid.broker.static_topics.mappings import TopicMappings
    from perseid.core import Core
    from perseid.core.pops import Pops as CorePops
    from perseid.store.queues import Queues

POP_HINT = b"2000"
"""What stands behind `{"code":` in requests of POP, at byte 16 of a frame."""
MAX_PREPARED = 20_000
"""Of one broker. When there are more, all are learnt anew."""
_ACK = OPAQUE | OFFSET | HANDLE
_SAMPLE = 1_111_111_111


class PreparedAck(NamedTuple):
    """What the checks of one acknowledgement came to."""

    generation: int
    header: AckMessageRequest
    topic: TopicConfig
    queue: ConsumeQueue


class QuickPops:
    """The requests of POP of one broker that the compiled core answers."""

    def __init__(
        self, requests: PopRequests, queues: Queues, generation: Generation, mappings: TopicMappings, compiled: Core,
        roads: Roads,
    ) -> None:  # fmt: skip
        self._requests = requests
        self._queues = queues
        self._generation = generation
        self._mappings = mappings
        self._roads = roads
        before, _, behind = response_head(_SAMPLE, 0).partition(b"%d" % _SAMPLE)
        size = len(before) + len(behind)
        words = (size - 4).to_bytes(4, "big") + (size - 8).to_bytes(4, "big")
        self._pops: CorePops = compiled.pops.Pops(words + before[8:], behind)
        self._prepared: dict[bytes, PreparedAck] = {}
        self.key = b""
        """Of the frame that `take` left to the ordinary handler; `b""` when it can't be prepared."""

    @staticmethod
    def may_be(data: Buffer, at: int) -> bool:
        """Does a frame look like a request of POP?"""
        return data[at + 16 : at + 20] == POP_HINT

    def take(self, conn: Connection, data: Buffer, at: int) -> int:
        """Do what can be done quickly of the requests from `at` on: where the first other one begins."""
        while True:
            self.key = self._pops.find(data, at)
            prepared = self._prepared.get(self.key)
            if prepared is None or not self._is_good(prepared, conn):
                return at
            begin, at = at, self._acknowledge(prepared, conn, data, at)
            if begin == at or not self.may_be(data, at):
                return at

    def _acknowledge(self, prepared: PreparedAck, conn: Connection, data: Buffer, at: int) -> int:
        """Take the acknowledgements of one checkpoint that begin at `at`."""
        pops, service = self._pops, self._requests.pop
        try:
            handle = pop.parse_handle(str(pops.handle(data), "ascii"))
        except RequestRefused:
            return at
        if not 0 <= handle.revive_queue < service.revive_queues or self._requests.appender.overload() is not None:
            return at
        ack = self._ack(prepared.header, handle, pops.offset)
        left = service.left_of(ack.key)
        if not left or not (prepared.queue.first_offset <= left[0] and left[-1] <= prepared.queue.shown_offset):
            return at
        if not pops.begin(data, set(left), service.room(ack, handle.revive_queue)):
            return at
        at = pops.take(data, at)
        if pops.count:
            self._roads.fast[RequestCode.ACK_MESSAGE] += pops.count
            run = Run(conn.id, pops.offsets, pops.count, pops.answers())
            service.gather_run(ack, handle.revive_queue, run)
        return at

    def _ack(self, header: AckMessageRequest, handle: Handle, offset: int) -> Ack:
        return Ack(
            header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
            handle.broker_name, (offset,), revive_time=handle.pop_time + handle.invisible_time,
        )  # fmt: skip

    def _is_good(self, prepared: PreparedAck, conn: Connection) -> bool:
        """Would the checks of the ordinary handler come to the same?"""
        requests, header = self._requests, prepared.header
        return (
            prepared.generation == self._generation.number
            and conn.listener != VIP_LISTENER
            and self._queues.get(header.topic, header.queue_id) is prepared.queue
            and requests.topics.rows.get(header.topic) is prepared.topic
        )

    def learn(self, conn: Connection, command: Command) -> None:
        """Prepare requests like the one that `take` left, which the ordinary handler has answered, if that may be."""
        if command.code != RequestCode.ACK_MESSAGE or command.flag or conn.listener == VIP_LISTENER:
            return
        try:
            header = command.header(AckMessageRequest)
        except RequestRefused:
            return
        pops, row = self._pops, self._requests.topics.rows.get(header.topic)
        queue = self._queues.get(header.topic, header.queue_id)
        if header.lite_topic or row is None or queue is None or header.topic in self._mappings.rows:
            return
        as_read = pops.found == _ACK and (pops.opaque, pops.offset) == (command.opaque, header.offset)
        if not as_read or not 0 <= header.queue_id < row.read_queue_nums:
            return
        if len(self._prepared) >= MAX_PREPARED:
            self._prepared.clear()
        self._prepared[self.key] = PreparedAck(self._generation.number, header, row, queue)
