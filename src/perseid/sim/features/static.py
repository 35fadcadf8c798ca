"""Static topics: logical queues of several items, which an operator moves from one physical queue to the next.

- each logical offset is one message for ever, wherever its item is, and whatever became of the mapping meanwhile; what
  was acknowledged is where the answer said, or, while its item had no logical offset, somewhere in its logical queue;
- a reader gets the whole logical queue, over the gaps between items, and nothing that is before an item;
- what a broker knows is what an operator asked for; of what all brokers have on their disks none goes back to an older
  step (`mapped.py`), and a stale operator's request is refused; in the end all know the last step;
- a group's offset is one that was committed, in logical offsets.
"""

from __future__ import annotations

from perseid.sim.facts import Sent
from perseid.sim.features.mapped import (
    NEVER,
    OLDER,
    PHYSICAL,
    QUEUES,
    TOPIC,
    MappedPlaces,
    Plan,
    mark_of,
)
from perseid.sim.features.places import GROUP, OfTopic, Producer, Reader
from perseid.sim.features.stage import AGAIN_MS, NO_TEMPLATE, UNKNOWN, Maker, Stage
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import to_ext
from perseid.wire.headers.offsets import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from perseid.wire.record import Record

SIZES = (8, 40, 300)
SEND_MS, READ_MS, MOVE_MS = 350, 500, 2_500
COMMIT_WITH_PULL, SUSPEND = 1, 2
SUSPEND_MS = (500, 2_000)
BEFORE = 0.4
"""So many of the moves go to a queue that had messages before."""
NOT_LOGICAL = {"lo": "false"}


def send_header(queue_id: int, value: bytes) -> SendMessageRequestV2:
    """A message to a queue of the topic."""
    return SendMessageRequestV2(
        producer_group="mapped-producers", topic=TOPIC, default_topic=NO_TEMPLATE, default_topic_queue_nums=QUEUES,
        queue_id=queue_id, sys_flag=0, born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01{value.decode()}\x02",
    )  # fmt: skip


class Operator(Maker):
    """Makes the topic, moves its logical queues, asks for old steps again; and for the last one, when a master has lost
    it with what was younger than a copy."""

    def __init__(self, stage: Stage, name: str, plan: Plan, places: MappedPlaces) -> None:
        super().__init__(stage, name, [], lambda machine: TOPIC in machine.parts.mappings.rows)
        self.plan, self.places = plan, places
        self.pause_ms = MOVE_MS * stage.scheduler.pace
        self.acknowledged = False
        """Was the last step answered, and was it not lost since?"""
        self.moving = self.ending = False

    # ---- a maker ----

    def work(self) -> None:
        """Ask for what is wanted next; over and over."""
        plan = self.plan
        known = plan.look()
        if self.acknowledged and known is not None and known < plan.last:
            self.stage.count("step of a mapping went with its master")
            self.acknowledged = False
        if not self.acknowledged:
            self._ask_last()
            return
        undecided, chance = plan.undecided(), self.random.random()
        if undecided and (self.ending or chance < 0.5):
            self._decide(self.random.choice(undecided))
        elif not self.moving or self.ending:
            self._soon()
        elif chance < 0.75 and plan.last:
            self._stale(self.random.randrange(plan.last))
        elif self._next_physical < PHYSICAL:
            self._move()
        else:
            self._soon()

    def again(self, driver: object) -> bool:
        """It asks on its own, when it sees that a master has lost what it asked for. Is there something to ask?"""
        return not self.acknowledged

    def unprepared(self) -> str:
        return "" if self.acknowledged else f"{self.name} has not made all"

    def unfinished(self) -> str:
        """What is still to come of the mapping; "": nothing."""
        plan = self.plan
        known = plan.look()
        if self.acknowledged and known == plan.last and plan.durable == plan.last and not plan.undecided():
            return ""
        return f"step {plan.last} of the mapping of {TOPIC} is not everywhere: {known} led, {plan.durable} all had"

    def _soon(self) -> None:
        low_ms, high_ms = (0, 2 * self.pause_ms) if self.moving and not self.ending else AGAIN_MS
        self.later(low_ms, high_ms, self.work)

    # ---- steps ----

    @property
    def _next_physical(self) -> int:
        return max(self.plan.logical) + 1

    def _ask_last(self) -> None:
        number = self.plan.last
        code, header, body = self.plan.request(number)

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.acknowledged = number == self.plan.last
                self.stage.count("step of a mapping acknowledged")
            self.later(*AGAIN_MS, self.work)

        self.call(code, header, answered, body)

    def _stale(self, number: int) -> None:
        """An operator comes too late with a step: whoever knows a later one refuses it."""
        code, header, body = self.plan.request(number)
        driver, repeats = self.driver, self.stage.repeats
        before = NEVER if driver is None or driver.machine is None else self.plan.number_of(driver)
        lives = driver.lives if driver is not None else 0

        def answered(reply: Command | None, mark: int) -> None:
            taken = reply is not None and reply.code == ResponseCode.SUCCESS
            same = driver is not None and driver is self.stage.master() and driver.lives == lives
            if taken and same and repeats == self.stage.repeats and before > number:
                raise Violation(OLDER, f"{self.name}: step {number} is taken where {before} was known")
            if reply is not None:
                self.stage.count("old step of a mapping taken by who has lost the later ones" if taken
                                 else "old step of a mapping refused")  # fmt: skip
            self._soon()

        self.call(code, header, answered, body)

    def _move(self) -> None:
        """A logical queue is to go on in a physical one that nobody has used, or that had messages before."""
        decided = sorted(self.plan.queues.keys() - set(self.plan.undecided()))
        if not decided:
            self._soon()
            return
        queue_id, physical = self.random.choice(decided), self._next_physical
        self.plan.logical[physical] = queue_id
        if self.random.random() < BEFORE:
            self._before(queue_id, physical, self.random.randint(1, 3), 0)
        else:
            self._extend(queue_id, physical, 0)

    def _before(self, queue_id: int, physical: int, count: int, start: int) -> None:
        """Send so many messages to the physical queue itself; the item begins behind the last one of them."""
        sent = self.places.new(queue_id, 8)
        sent.attempts += 1

        def answered(reply: Command | None, mark: int) -> None:
            following = start
            if reply is not None and reply.code == ResponseCode.SUCCESS and mark != UNKNOWN:
                following = reply.header(SendMessageResponse).queue_offset + 1
                self.plan.starts[physical] = mark
            if count > 1:
                self._before(queue_id, physical, count - 1, following)
            else:
                self._extend(queue_id, physical, following)

        header = {**to_ext(send_header(physical, sent.value)), **NOT_LOGICAL}
        self.call(RequestCode.SEND_MESSAGE_V2, header, answered, sent.body)

    def _extend(self, queue_id: int, physical: int, start: int) -> None:
        self.stage.count("logical queue moved to a queue with messages" if start else "logical queue moved")
        self.plan.extend(queue_id, physical, start, self.plan.steps[-1].epoch + self.random.randint(1, 1_000))
        self.acknowledged = False
        self._ask_last()

    def _decide(self, queue_id: int) -> None:
        """The item before ends, where its physical queue does: the last one gets its logical offset."""
        old = self.plan.queues[queue_id][-2]

        def answered(reply: Command | None, mark: int) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS:
                self.later(*AGAIN_MS, self.work)
                return
            self.plan.decide(queue_id, reply.header(OffsetResponse).offset)
            self.acknowledged = False
            self._ask_last()

        asked = {"topic": TOPIC, "queueId": str(old.queue_id), **NOT_LOGICAL}
        self.call(RequestCode.GET_MAX_OFFSET, asked, answered)


class LogicalProducer(Producer):
    """Sends to logical queues."""

    places: MappedPlaces

    def send(self) -> None:
        """Send one message."""
        sent = self.places.new(self.random.randrange(QUEUES), self.random.choice(SIZES))
        self._send(sent, self.random.choice((0, 0, 1)))

    def _send(self, sent: Sent, retries: int) -> None:
        sent.attempts += 1
        asked, plan = self.driver, self.places.plan
        knew, least = Plan.knows(asked), plan.least(sent.queue_id)

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                mark = mark_of(asked, mark) if knew else UNKNOWN
                if mark != UNKNOWN:
                    self._taken(sent, reply.header(SendMessageResponse), mark, least)
            elif retries:
                self.later(0, 500, lambda: self._send(sent, retries - 1))
                return
            self.next()

        self.call(RequestCode.SEND_MESSAGE_V2, send_header(sent.queue_id, sent.value), answered, sent.body)

    def _taken(self, sent: Sent, said: SendMessageResponse, mark: int, least: int) -> None:
        """A broker that knows the mapping has taken it."""
        where, offset = f"{TOPIC}/{sent.queue_id}", said.queue_offset
        if said.queue_id != sent.queue_id:
            raise Violation("right queue", f"{sent} was sent to {where}, {said.queue_id} says the answer")
        if 0 <= offset < least and not self.stage.may_forget():
            raise Violation("a logical queue goes on in its last item", f"{where}: {offset}, not from {least} on")
        self.places.acknowledged((sent.queue_id, offset), sent, mark)
        self.stage.count("sent to a logical queue" if offset >= 0 else "sent without an offset yet")


class LogicalReader(Reader):
    """Reads logical queues, commits with pulls or alone, and asks where its group is."""

    def __init__(self, stage: Stage, name: str, places: MappedPlaces) -> None:
        super().__init__(stage, name, places, QUEUES, READ_MS)
        self.plan = places.plan
        self.attempts: dict[int, set[int]] = {queue_id: set() for queue_id in range(QUEUES)}
        """What was committed, perhaps."""

    def work(self) -> None:
        """Pull; or commit, or ask for the group's offset."""
        chance, queue_id = self.random.random(), self.random.randrange(QUEUES)
        if self.auditing or chance < 0.7:
            super().work()
        elif chance < 0.85:
            self._commit(queue_id)
        else:
            self._query(queue_id)

    def asks(self, header: PullMessageRequest) -> None:
        """Some pulls wait, some commit."""
        if self.random.random() < 0.5:
            header.sys_flag |= SUSPEND
            header.suspend_timeout_millis = self.random.randint(*SUSPEND_MS)
        if self.random.random() < 0.3:
            self.attempts[header.queue_id].add(header.queue_offset)
            header.sys_flag |= COMMIT_WITH_PULL
            header.commit_offset = header.queue_offset

    def records_of(self, queue_id: int, raw: list[Record], found: PullMessageResponse) -> list[Record]:
        """With logical queues and offsets. Violation when they are not what the mapping says."""
        if not Plan.knows(self.driver):
            return []
        items = {item.queue_id: item for item in self.plan.queues[queue_id]}
        for record in raw:
            item = items.get(record.queue_id)
            if item is None:
                raise Violation("right queue", f"{TOPIC}/{queue_id} is not made of {record.queue_id}")
            offset = record.queue_offset + (found.offset_delta or 0)
            if record.queue_offset < item.start_offset:
                what = f"{TOPIC}/{queue_id} begins in {item.queue_id} at {item.start_offset}"
                raise Violation("what is before an item is not shown", f"{what}: {record.queue_offset} came")
            if offset != item.logical(record.queue_offset):
                what = f"{record.queue_offset} of {item.queue_id} is {item.logical(record.queue_offset)}"
                raise Violation("a logical offset is one message", f"{TOPIC}/{queue_id}: {what}, came as {offset}")
            record.queue_id, record.queue_offset = queue_id, offset
            self.stage.count("read from a logical queue" if item.gen == 0 else "read from where it was moved to")
        return raw

    def _commit(self, queue_id: int) -> None:
        offset = self.next[queue_id]
        self.attempts[queue_id].add(offset)
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
        )
        self.call(RequestCode.UPDATE_CONSUMER_OFFSET, header, lambda reply, mark: self._later())

    def _query(self, queue_id: int) -> None:
        asked = self.driver

        def answered(reply: Command | None, mark: int) -> None:
            certain = mark_of(asked, mark) == 0 and not self.stage.unread and self.stage.holds(0)
            if reply is not None and reply.code == ResponseCode.SUCCESS and certain:
                offset = reply.header(OffsetResponse).offset
                attempts = self.attempts[queue_id]
                if offset and offset not in attempts:
                    where = f"{GROUP} in {TOPIC}/{queue_id}"
                    raise Violation("committed offsets last", f"{where}: {offset}, of {sorted(attempts)}")
                self.stage.count("logical offset of a group")
            self._later()

        header = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
        self.call(RequestCode.QUERY_CONSUMER_OFFSET, header, answered)

    def _later(self) -> None:
        self.later(0, self.pause_ms, self.work)


class Static(OfTopic):
    """The feature."""

    places: MappedPlaces
    maker: Operator

    def __init__(self, stage: Stage) -> None:
        plan = Plan(stage)
        places = MappedPlaces(plan)
        super().__init__(
            LogicalProducer(stage, "mapped-producer", places, SEND_MS),
            LogicalReader(stage, "mapped-reader", places),
            Operator(stage, "mapped-operator", plan, places),
        )

    def begin(self) -> None:
        """Clients begin, and the operator moves queues."""
        super().begin()
        self.maker.moving = True

    def wind_down(self) -> None:
        """Nothing new is begun."""
        super().wind_down()
        self.maker.ending = True

    def left(self) -> str:
        """The mapping first: then all can be read."""
        return self.maker.unfinished() or super().left()

    def check(self) -> None:
        """Besides, what was acknowledged while it had no offset is there, too."""
        super().check()
        for queue_id, value in self.places.surely_somewhere():
            if value not in self.reader.whole[queue_id].values():
                raise Violation("nothing acknowledged is lost", f"{value.decode()} is not in {TOPIC}/{queue_id}")
