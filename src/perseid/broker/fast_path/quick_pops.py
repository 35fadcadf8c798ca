"""POP, the quick way: requests that repeat earlier ones but for their numbers.

The ordinary handlers (`broker/pop`) are the reference. After one has answered a pop or an acknowledgement, those like
it are *prepared* (as pulls are: `quick_pulls`): what its checks came to counts until the generation ends, or the rows
that they looked at are others. A prepared pop is neither decoded nor checked again; what it finds, and writes, is the
handler's (`PopRequests.take`). Acknowledgements of one checkpoint in a row are read by the compiled core, which makes
their answers; what the handler would do with them one by one is done once for all (`PopService.gather_run`).

Left to the handlers: static topics, lite topics, messages popped in order, messages that are not out any more, the
second port, signed requests, headers with escapes, and checkpoints of an earlier master that have not come yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.kernel.answers import GATHER_BYTES
from perseid.broker.kernel.request import VIP_LISTENER, Connection, Request
from perseid.broker.pop.gathered import Run
from perseid.broker.pop.requests import LATE_MS, Admitted, Popped, PopRequests
from perseid.core.layout import CUT_BORN_TIME, CUT_HANDLE, CUT_OFFSET, CUT_OPAQUE
from perseid.store.consume_queue import ConsumeQueue
from perseid.wire import pop
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command, decode_at, response_head
from perseid.wire.headers.pop import AckMessageRequest, PopMessageRequest, PopMessageResponse
from perseid.wire.pop import Ack, Handle

if TYPE_CHECKING:
    from perseid.broker.kernel.generation import Generation
    from perseid.broker.kernel.roads import Roads
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.static_topics.mappings import TopicMappings
    from perseid.core import Core
    from perseid.core.pops import Pops as CorePops
    from perseid.store.queues import Queues

POP_HINT = b"2000"
"""What stands behind `{"code":` in requests of POP, at byte 16 of a frame."""
MAX_PREPARED = 20_000
"""Of one broker. When there are more, all are learnt anew."""
_ACK = CUT_OPAQUE | CUT_OFFSET | CUT_HANDLE
_POP = CUT_OPAQUE | CUT_BORN_TIME
_SAMPLE = 1_111_111_111
_SAMPLES = PopMessageResponse(
    pop_time=_SAMPLE + 1, invisible_time=_SAMPLE + 2, revive_qid=_SAMPLE + 3, rest_num=_SAMPLE + 4,
    start_offset_info="%STARTS", msg_offset_info="%OFFSETS",
)  # fmt: skip


class PreparedAck(NamedTuple):
    """What the checks of one acknowledgement came to."""

    generation: int
    header: AckMessageRequest
    topic: TopicConfig
    queue: ConsumeQueue


class PreparedPop(NamedTuple):
    """What the checks of one pop came to."""

    generation: int
    header: PopMessageRequest
    checked: Admitted


class QuickPops:
    """The requests of POP of one broker that need not be read and checked anew."""

    def __init__(
        self, requests: PopRequests, queues: Queues, generation: Generation, mappings: TopicMappings, compiled: Core,
        roads: Roads, saves: Saves,
    ) -> None:  # fmt: skip
        self._requests = requests
        self._queues = queues
        self._generation = generation
        self._mappings = mappings
        self._roads = roads
        self._saves = saves
        before, _, behind = response_head(_SAMPLE, 0).partition(b"%d" % _SAMPLE)
        size = len(before) + len(behind)
        words = (size - 4).to_bytes(4, "big") + (size - 8).to_bytes(4, "big")
        self._pops: CorePops = compiled.pops.Pops(words + before[8:], behind)
        self._found = _found_text()
        self._prepared: dict[bytes, PreparedAck | PreparedPop] = {}
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
            if prepared is None or prepared.generation != self._generation.number or conn.listener == VIP_LISTENER:
                return at
            take = self._pop if isinstance(prepared, PreparedPop) else self._acknowledge
            begin, at = at, take(prepared, conn, data, at)  # type: ignore[arg-type]  # each with its own kind
            if begin == at or not self.may_be(data, at):
                return at

    # ---- pops ----

    def _pop(self, prepared: PreparedPop, conn: Connection, data: Buffer, at: int) -> int:
        """Answer the pop whose frame begins at `at`, or let it wait: where the frame ends, else `at`."""
        requests, pops, header, checked = self._requests, self._pops, prepared.header, prepared.checked
        service, now = requests.pop, requests.turn.now
        header.born_time = pops.born_time if pops.born_time > 0 else now
        if (
            now - header.born_time - header.poll_time > LATE_MS
            or now >= checked.until
            or requests.topics.rows.get(header.topic) is not checked.topic
            or requests.groups.rows.get(header.consumer_group) is not checked.group
            or requests.appender.overload() is not None
            or self._saves.due
            or not service.loaded
            or service.full
        ):
            return at
        end, opaque = pops.end, pops.opaque
        self._roads.fast[RequestCode.POP_MESSAGE] += 1
        found = Popped(header.max_msg_nums, requests.holds.work)
        try:
            places = requests.places(header, checked.topic)
            parts = requests.cold(header, checked.wanted, places)
            if parts:
                requests.fetches.wait(self._request(header, conn, data, at), parts)
                return end
            requests.take(header, places, checked.wanted, found)
            if not found.buffers:
                self._miss(prepared, self._request(header, conn, data, at), found)
                return end
        except RequestRefused as refused:
            requests.turn.write(conn.id, response_head(opaque, refused.code, remark=refused.remark))
            return end
        if found.rest > 0:
            requests.holds.pops.more(header.topic, header.consumer_group, header.queue_id)
        self._answer(header, conn, opaque, found)
        return end

    def _miss(self, prepared: PreparedPop, request: Request, found: Popped) -> None:
        """Answer a pop that found nothing, or let it wait."""
        requests = self._requests
        reply = requests.answer(request, request.header, prepared.checked.wanted, found)
        if reply is not None:
            requests.turn.reply(request, reply)

    @staticmethod
    def _request(header: PopMessageRequest, conn: Connection, data: Buffer, at: int) -> Request:
        """The pop whose frame begins at `at`, as it is handed to those that let it wait."""
        command, _ = decode_at(memoryview(data), at)
        return Request(conn, command, replace(header))

    def _answer(self, header: PopMessageRequest, conn: Connection, opaque: int, found: Popped) -> None:
        requests, size = self._requests, sum(map(len, found.buffers))
        queue_id = requests.pop.revive_queue(header.invisible_time)
        starts, offsets = ";".join(found.starts), ";".join(found.offsets)
        text = self._found % (
            requests.turn.now, header.invisible_time, queue_id, found.rest, starts, offsets, opaque
        )  # fmt: skip
        words = (4 + len(text) + size << 32 | len(text)).to_bytes(8, "big")
        pieces: list[Buffer] = [words + text.encode(), *found.buffers]
        requests.appender.acknowledge_pieces(
            conn.id, [b"".join(pieces)] if size <= GATHER_BYTES else pieces, found.end
        )

    # ---- acknowledgements ----

    def _acknowledge(self, prepared: PreparedAck, conn: Connection, data: Buffer, at: int) -> int:
        """Take the acknowledgements of one checkpoint that begin at `at`."""
        pops, requests, header = self._pops, self._requests, prepared.header
        service = requests.pop
        if (
            requests.topics.rows.get(header.topic) is not prepared.topic
            or self._queues.get(header.topic, header.queue_id) is not prepared.queue
            or requests.appender.overload() is not None
        ):
            return at
        try:
            handle = pop.parse_handle(str(pops.handle(data), "ascii"))
        except RequestRefused:
            return at
        if not 0 <= handle.revive_queue < service.revive_queues:
            return at
        ack = self._ack(header, handle, pops.offset)
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

    # ---- learning ----

    def learn(self, conn: Connection, command: Command) -> None:
        """Prepare requests like the one that `take` left, which the ordinary handler has answered, if that may be."""
        if command.flag or conn.listener == VIP_LISTENER or self._pops.opaque != command.opaque:
            return
        prepared: PreparedAck | PreparedPop | None
        try:
            if command.code == RequestCode.ACK_MESSAGE:
                prepared = self._learn_ack(command.header(AckMessageRequest))
            elif command.code == RequestCode.POP_MESSAGE:
                prepared = self._learn_pop(Request(conn, command, command.header(PopMessageRequest)))
            else:
                return
        except RequestRefused:
            return
        if prepared is None or prepared.header.topic in self._mappings.rows:
            return
        if len(self._prepared) >= MAX_PREPARED:
            self._prepared.clear()
        self._prepared[self.key] = prepared

    def _learn_ack(self, header: AckMessageRequest) -> PreparedAck | None:
        row, queue = self._requests.topics.rows.get(header.topic), self._queues.get(header.topic, header.queue_id)
        if header.lite_topic or row is None or queue is None or not 0 <= header.queue_id < row.read_queue_nums:
            return None
        if self._pops.found != _ACK or self._pops.offset != header.offset:
            return None
        return PreparedAck(self._generation.number, header, row, queue)

    def _learn_pop(self, request: Request) -> PreparedPop | None:
        header: PopMessageRequest = request.header
        if header.order or self._pops.found != _POP or self._pops.born_time != header.born_time:
            return None
        waited = self._requests.turn.now - header.born_time
        if header.born_time > 0 and waited - header.poll_time > LATE_MS:
            return None  # the handler did not get as far as the checks, which make groups
        checked = self._requests.admit(request)
        return PreparedPop(self._generation.number, header, checked)


def _found_text() -> str:
    """The header of an answer with messages, with places for the time of the pop, the invisible time, the revive queue,
    how many are left, where the messages begin, their offsets, and the opaque."""
    text = response_head(_SAMPLE, 0, _SAMPLES, remark="FOUND")[8:].decode()
    for name, number in (("popTime", 1), ("invisibleTime", 2), ("reviveQid", 3), ("restNum", 4), ("opaque", 0)):
        assert name in text, f"an answer to a pop has no {name}"
        text = text.replace(str(_SAMPLE + number), "%d")
    return text.replace("%STARTS", "%s").replace("%OFFSETS", "%s")
