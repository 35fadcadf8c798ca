"""What seeds of the simulator have found about POP in a broker set, without anything drawn (see `ha_scenarios`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.models.ha.members import Replica
from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.promises import Violation
from perseid.wire import pop
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.pop import AckMessageRequest, PopMessageRequest, PopMessageResponse
from perseid.wire.pop import BatchAck, Handle
from perseid.wire.record import decode_all

from .ha_stage import Stage

GROUP = "poppers"
INVISIBLE_MS, TIMEOUT_MS = 20_000, 5_000


class Popping(Stage):
    """Somebody pops what producers send, and acknowledges it."""

    def __init__(self, brokers: int, **given: Any) -> None:
        super().__init__(brokers, **given)
        self.out: dict[bytes, Handle] = {}
        """Body → the handle of its first delivery."""
        self.acked: set[bytes] = set()
        """What a broker said to be acknowledged."""

    def _asked(self, broker: Replica, code: int, header: Header | None, body: bytes = b"") -> Command | None:
        """What a broker answers; None: nothing in time."""
        answers: list[Command | None] = []
        self.operator.ask(broker.address, code, header, answers.append, body, timeout_ms=TIMEOUT_MS)
        self.until(lambda: bool(answers), "an answer")
        return answers[0]

    def pop(self, broker: Replica) -> bool:
        """Does anything come? Violation when it is acknowledged."""
        request = PopMessageRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=32, invisible_time=INVISIBLE_MS, poll_time=0,
            born_time=0, init_mode=0,
        )  # fmt: skip
        answer = self._asked(broker, RequestCode.POP_MESSAGE, request)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        header = answer.header(PopMessageResponse)
        starts = pop.parse_info(header.start_offset_info)
        for record in decode_all(answer.body):
            body = bytes(record.body)
            if body in self.acked:
                raise Violation("what is acknowledged does not come again", f"{body[:20]!r} at {broker.name}")
            start = int(starts.get((pop.NORMAL, str(record.queue_id)), "0"))
            self.out.setdefault(body, Handle(
                start, header.pop_time, header.invisible_time, header.revive_qid, pop.NORMAL, self.ha.set_name,
                record.queue_id, record.queue_offset,
            ))  # fmt: skip
        return True

    def pop_all(self, broker: Replica) -> None:
        """Until nothing comes."""
        while self.pop(broker):
            pass

    def ack(self, broker: Replica, body: bytes) -> None:
        """A request for this message alone."""
        one = self.out[body]
        header = AckMessageRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=one.queue_id, extra_info=str(one), offset=one.offset
        )
        self._told(self._asked(broker, RequestCode.ACK_MESSAGE, header), body)

    def ack_in_a_batch(self, broker: Replica, body: bytes) -> None:
        """A request of the form that names several."""
        one = self.out[body]
        row = BatchAck(
            GROUP, TOPIC, one.retry, one.start_offset, one.queue_id, one.revive_queue, one.pop_time,
            one.invisible_time, (one.offset,),
        )  # fmt: skip
        text = pop.batch_ack_body(self.ha.set_name, [row])
        self._told(self._asked(broker, RequestCode.BATCH_ACK_MESSAGE, None, text), body)

    def _told(self, answer: Command | None, body: bytes) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self.acked.add(body)


def acknowledged_at_a_deposed_master(**given: Any) -> None:
    """POP, seed 530975250028: a master that is cut off does not know yet that another one leads, and knows nothing of
    what that one handed out. What it answers as acknowledged, of the messages that it has and of those that it has not,
    does not come again."""
    stage = Popping(2, **given)
    stage.send(10)
    stage.producers[0].stop()
    stage.run(1)
    old, (new,) = stage.master, stage.slaves
    had = [old.queue_end(TOPIC, queue_id) for queue_id in range(QUEUES)]
    stage.cut([old.name], stage.others(old.name))  # nothing in its log waits for others, and nothing will
    stage.until(lambda: stage.ha.master is new, "the other one is master")
    stage.send(10, stage.producers[1])
    stage.pop_all(new)
    known = [body for body, one in stage.out.items() if one.offset < had[one.queue_id]]
    unknown = [body for body, one in stage.out.items() if one.offset > had[one.queue_id]]
    if not (old.is_master and len(known) > 2 and unknown):
        raise Violation("the scenario goes on", f"{old.name} is no master, or {known} and {unknown} are too few")
    stage.ack(new, known[0])
    if known[0] not in stage.acked:
        raise Violation("the scenario goes on", "nothing is acknowledged")
    stage.ack_in_a_batch(old, unknown[0])
    stage.ack_in_a_batch(old, known[1])
    stage.ack(old, known[2])
    stage.run(INVISIBLE_MS / 1_000)
    stage.pop_all(new)
    stage.heal()
    stage.send(10, stage.producers[1])
    stage.finish()


SCENARIOS: list[Callable[..., None]] = [
    acknowledged_at_a_deposed_master,
]
