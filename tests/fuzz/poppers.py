"""Two brokers that are popped from, one with the core and one with the handlers alone: the bytes of an input say what
is sent, popped and acknowledged, and which bytes of the frames are changed."""

import json
from collections.abc import Iterator

from perseid.base.machine import Frames
from perseid.wire import pop
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest, PopMessageRequest
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.pop import BatchAck

try:
    from .twins import CONN, Twins
except ImportError:  # run.py puts this folder on the path
    from twins import CONN, Twins  # type: ignore[no-redef]

TOPIC, GROUPS = "p", ("g", "h")
FILTERS = ("*", "a", "b || a")
INVISIBLE_MS = (60_000, 60_000, 400)
MAX_OUT = 512
SEEDS = [
    bytes([0, 40, 1, 0, 3, 0, 32]) * 3,
    bytes([0, 9, 1, 4, 3, 0, 5, 6, 2, 30, 3, 2, 5, 4, 1, 1]) * 2,
    bytes([0, 70, 2, 0, 2, 1, 5, 3, 3, 0, 70, 7, 0, 200, 1]),
]

Delivery = tuple[str, str, int, int, str]
"""Group, topic, queue, offset and handle."""


class PopTwins(Twins):
    """They know what was handed out."""

    def __init__(self) -> None:
        super().__init__()
        self._out: list[Delivery] = []
        self._asked: dict[int, str] = {}
        self._opaque = 0

    def play(self, data: bytes) -> bool:
        """Let both do what the bytes say, in one read. False when it is time for new twins."""
        read = b"".join(self._frames(iter(data)))
        return not read or self.compare(read)

    def _compare(self, data: bytes) -> None:
        did, wanted = (self._play(broker, Frames(CONN, data)) for broker in (self.with_core, self.alone))
        assert did == wanted, f"the core's broker did {did}, the other {wanted}"
        for frame in wanted:
            if isinstance(frame, bytes):
                self._learn(json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")]))
        del self._out[:-MAX_OUT]

    def _learn(self, answer: dict[str, object]) -> None:
        fields, group = answer.get("extFields"), self._asked.pop(int(str(answer["opaque"])), None)
        if group is None or not isinstance(fields, dict) or "startOffsetInfo" not in fields:
            return
        starts, offsets = (pop.parse_info(fields[name]) for name in ("startOffsetInfo", "msgOffsetInfo"))
        for (retry, queue_id), listed in offsets.items():
            topic = pop.real_topic(TOPIC, group, retry)
            for offset in listed.split(","):
                handle = (
                    f"{starts[retry, queue_id]} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} "
                    f"{retry} b {queue_id} {offset}"
                )
                self._out.append((group, topic, int(queue_id), int(offset), handle))

    def _frames(self, said: Iterator[int]) -> Iterator[bytes]:
        for kind in said:
            first, second = next(said, 0), next(said, 0)
            if kind % 8 == 0:
                yield from (self._send(number) for number in range(first % 80))
            elif kind % 8 <= 2:
                yield self._pop(first, second)
            elif kind % 8 <= 4:
                at = first % (len(self._out) or 1)
                yield from map(self._ack, self._out[at : at + second % 80])
            elif self._out and kind % 8 == 5:
                frame = bytearray(self._ack(self._out[-1 - first % len(self._out)]))
                frame[8 + second % (len(frame) - 8)] ^= 1 + first % 255
                yield bytes(frame)
            elif self._out and kind % 8 == 6:
                yield self._change(self._out[first % len(self._out)], second)
            elif self._out:
                yield self._batch(self._out[first % len(self._out)])

    def _frame(self, code: int, header: object, body: bytes = b"") -> bytes:
        self._opaque += 1
        return bytes(encode_request(code, self._opaque, header, body))  # type: ignore[arg-type]

    def _send(self, number: int) -> bytes:
        text = f"TAGS\x01{'ab'[number % 2]}\x02"
        header = SendMessageRequestV2("s", TOPIC, "TBW102", 4, number % 3, 0, self.now, 0, properties=text)
        return self._frame(RequestCode.SEND_MESSAGE_V2, header, b"x")

    def _pop(self, first: int, second: int) -> bytes:
        group = GROUPS[first % 2]
        header = PopMessageRequest(
            consumer_group=group, topic=TOPIC, queue_id=(-1, -1, -1, 1)[second % 4], max_msg_nums=32,
            invisible_time=INVISIBLE_MS[second % 3], poll_time=0, born_time=self.now, init_mode=0, exp_type="TAG",
            exp=FILTERS[first % 3], order=False,
        )  # fmt: skip
        made = self._frame(RequestCode.POP_MESSAGE, header)
        self._asked[self._opaque] = group
        return made

    def _ack(self, one: Delivery) -> bytes:
        group, topic, queue_id, offset, handle = one
        header = AckMessageRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, extra_info=handle, offset=offset
        )
        return self._frame(RequestCode.ACK_MESSAGE, header)

    def _change(self, one: Delivery, time_ms: int) -> bytes:
        group, topic, queue_id, offset, handle = one
        header = ChangeInvisibleTimeRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, extra_info=handle, offset=offset,
            invisible_time=time_ms,
        )  # fmt: skip
        return self._frame(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    def _batch(self, one: Delivery) -> bytes:
        group, _, queue_id, offset, text = one
        handle = pop.parse_handle(text)
        ack = BatchAck(
            group, TOPIC, handle.retry, handle.start_offset, queue_id, handle.revive_queue, handle.pop_time,
            handle.invisible_time, (offset,),
        )  # fmt: skip
        return self._frame(RequestCode.BATCH_ACK_MESSAGE, None, pop.batch_ack_body("b", [ack]))


_twins: list[PopTwins] = []


def pops(data: bytes) -> None:
    """Pops and acknowledgements by the core beside the handlers: the same answers, the same log."""
    if not _twins:
        _twins.append(PopTwins())
    if not all(_twins[0].play(one) for one in (data, data)):
        _twins.clear()
