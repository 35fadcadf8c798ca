"""The clients of a broker set: they find the master by the name server's route, and again when it does not serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.models.raft.group import PORT
from perseid.sim.process import Process
from perseid.sim.promises import Violation
from perseid.sim.promises.timers import delay_of
from perseid.wire.bodies import TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.controller import CleanBrokerDataRequest, ElectMasterRequest, GetReplicaInfoRequest
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import decode_all

if TYPE_CHECKING:
    from perseid.sim.models.ha.cluster import Ha

MASTER = 0
TRIES = 3
"""Of one send, as a real producer's."""
TRY_PAUSE_MS = 50
ROUTE_PAUSE_MS = 300
"""Between two questions for a route that has no master."""
SIZES = (12, 40, 300, 1_500)
DELAYED = 0.08
"""So many of the sends ask for a delay."""
UNANSWERED = 1 << 62


class Client(Process):
    """Knows the route."""

    def __init__(self, ha: Ha, name: str, pause_ms: int) -> None:
        super().__init__(ha, name)
        self.ha = ha
        self.pause_ms = pause_ms * ha.scheduler.pace
        self.brokers: dict[int, str] = {}
        """Role id → address; 0 is the master."""
        self._asking = False

    def begin(self) -> None:
        """Go on after a while."""
        self.later(0, 2 * self.pause_ms, self.work)

    def work(self) -> None:
        """One thing; `begin` again when it is done."""

    def find(self, then: Callable[[], None], topic: str = TOPIC) -> None:
        """Ask the name server, for the default topic's route when it knows no other; go on when there is a master."""

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                for broker in TopicRouteData.from_json(reply.body).broker_datas:
                    self.brokers = dict(broker.broker_addrs)
                self.ha.count("route found" if MASTER in self.brokers else "route without a master")
            self.later(0, 1, then) if MASTER in self.brokers else self.later(1, ROUTE_PAUSE_MS, again)

        def again() -> None:
            self.find(then, AUTO_CREATE_TOPIC if topic == TOPIC else TOPIC)

        header = GetRouteInfoByTopicRequest(topic=topic)
        self.ask(self.ha.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, answered)


class Producer(Client):
    """Sends numbered messages, one after the other, each up to three times."""

    def __init__(self, ha: Ha, name: str, pause_ms: int) -> None:
        super().__init__(ha, name, pause_ms)
        self.acknowledged = 0
        self.sizes: tuple[int, ...] = SIZES
        self.delayed_share = DELAYED
        self._number = 0
        self.queues: list[int] | None = None
        """Those that it sends to; None: any."""

    def work(self) -> None:
        self._number += 1
        body = f"{self.name}.{self._number}.".encode().ljust(self.random.choice(self.sizes), b"x")
        delayed = self.random.random() < self.delayed_share and self.queues is None
        asked = delay_of(self._number, timed=self.ha.settings.timed) if delayed else ""
        properties = f"UNIQ_KEY\x01{self.name}.{self._number}\x02" + asked
        self._try(body, properties, TRIES)

    def _try(self, body: bytes, properties: str, tries: int) -> None:
        if MASTER not in self.brokers:
            self.find(lambda: self._try(body, properties, tries))
            return
        queue_id = self.random.choice(self.queues) if self.queues else self.random.randrange(QUEUES)
        header = SendMessageRequestV2(
            producer_group="p", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=QUEUES,
            queue_id=queue_id, sys_flag=0, born_timestamp=1, flag=0, properties=properties,
        )  # fmt: skip
        self.ha.history.sends(body, delayed="DELAY" in properties)
        called_us = self.scheduler.now_us

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.acknowledged += 1
                if "DELAY" not in properties:
                    said = reply.header(SendMessageResponse)
                    now_us = self.scheduler.now_us
                    self.ha.history.queues.sent(TOPIC, said.queue_id, said.queue_offset, called_us, now_us)
                self.sent(queue_id)
                self.begin()
                return
            if reply is not None and reply.code in (
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
                ResponseCode.FLUSH_DISK_TIMEOUT,
            ):
                self.begin()  # sent, as far as a producer is concerned
                return
            self.brokers.clear()
            if tries > 1:
                self.later(0, 2 * TRY_PAUSE_MS, lambda: self._try(body, properties, tries - 1))
            else:
                self.begin()

        self.ask(self.brokers[MASTER], RequestCode.SEND_MESSAGE_V2, header, answered, body)

    def sent(self, queue_id: int) -> None:
        """A message was acknowledged."""


class Probe(Producer):
    """Sends to each queue until each has taken one."""

    def __init__(self, ha: Ha, name: str) -> None:
        super().__init__(ha, name, 20)
        self.queues = list(range(QUEUES))

    @property
    def left(self) -> list[int]:
        return self.queues or []

    def sent(self, queue_id: int) -> None:
        self.queues = [one for one in self.left if one != queue_id]
        if not self.queues:
            self.stop()


class Reader(Client):
    """Reads all queues from their beginning, in order, and commits; sometimes from a slave."""

    def __init__(self, ha: Ha, name: str, pause_ms: int) -> None:
        super().__init__(ha, name, pause_ms)
        self.next = dict.fromkeys(range(QUEUES), 0)
        self._epochs = dict.fromkeys(range(QUEUES), 0)
        """Of the master, when a commit of a queue was last answered (`UNANSWERED`: the last was not): what it commits
        itself may be too much after a loss."""

    def work(self) -> None:
        if MASTER not in self.brokers:
            self.find(self.work)
            return
        roll = self.random.random()
        if roll < 0.15:
            self._commit(self.random.randrange(QUEUES))
        elif roll < 0.25:
            self._committed(self.random.randrange(QUEUES))
        else:
            self._pull(self.random.randrange(QUEUES))

    def _ask(self, broker: int, code: int, header: Header, done: Callable[[Command], None]) -> None:
        def answered(reply: Command | None) -> None:
            if reply is None or reply.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):
                self.brokers.clear()
            else:
                done(reply)
            self.begin()

        self.ask(self.brokers[broker], code, header, answered)

    def _pull(self, queue_id: int) -> None:
        slaves = sorted(number for number in self.brokers if number != MASTER)
        broker = self.random.choice(slaves) if slaves and self.random.random() < 0.25 else MASTER
        asked = self.next[queue_id]
        header = PullMessageRequest(
            consumer_group=self.name, topic=TOPIC, queue_id=queue_id, queue_offset=asked, max_msg_nums=16, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip

        called_us = self.scheduler.now_us

        def done(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                end = reply.header(PullMessageResponse).max_offset
                self.ha.history.queues.ends(TOPIC, queue_id, end, called_us, self.scheduler.now_us)
                for at, record in enumerate(decode_all(reply.body), asked):
                    if (record.queue_id, record.queue_offset) != (queue_id, at):
                        raise Violation("C11", f"{queue_id}@{at} was to come, {record.queue_offset} came")
                self.next[queue_id] = reply.header(PullMessageResponse).next_begin_offset
            elif reply.code == ResponseCode.PULL_OFFSET_MOVED and broker == MASTER:
                begin, master = reply.header(PullMessageResponse).next_begin_offset, self.ha.master
                is_whole = master is not None and (begin < asked or not master.start)
                if self.ha.certain and is_whole and self.ha.current(self.brokers.get(MASTER, "")):
                    raise Violation("C11", f"{queue_id}@{asked} was there to be read, and is no more")
                self.next[queue_id] = begin

        self._ask(broker, RequestCode.PULL_MESSAGE, header, done)

    def _commit(self, queue_id: int) -> None:
        self._epochs[queue_id] = UNANSWERED

        def done(reply: Command) -> None:
            self._epochs[queue_id] = self.ha.agreed.master_epoch

        header = UpdateConsumerOffsetRequest(self.name, TOPIC, queue_id, self.next[queue_id])
        self._ask(MASTER, RequestCode.UPDATE_CONSUMER_OFFSET, header, done)

    def _committed(self, queue_id: int) -> None:
        """C11: a group is never ahead of its queue, after whatever change of masters."""
        asked = self.brokers[MASTER]

        def done(reply: Command) -> None:
            master = self.ha.master
            if reply.code == ResponseCode.SUCCESS and master is not None and master.address == asked:
                offset, end = int(reply.ext["offset"]), master.queue_end(TOPIC, queue_id)
                self.ha.count("a group's offset was asked for")
                if offset > end and self._epochs[queue_id] < self.ha.agreed.master_epoch:
                    raise Violation("C11", f"{self.name} has committed {offset} of {queue_id}, which ends at {end}")

        header = QueryConsumerOffsetRequest(self.name, TOPIC, queue_id)
        self._ask(MASTER, RequestCode.QUERY_CONSUMER_OFFSET, header, done)


class Operator(Process):
    """People with tools: they ask any controller, and tell the active one."""

    def __init__(self, ha: Ha, name: str) -> None:
        super().__init__(ha, name)
        self.ha = ha

    def begin(self) -> None:
        """Look around now and then."""
        self.later(500, 4_000, self._look)

    def _look(self) -> None:
        address = f"{self.random.choice(self.ha.controllers).driver.ip}:{PORT}"
        name = self.ha.set_name

        def done(reply: Command | None) -> None:
            self.begin()

        kind = self.random.randrange(4)
        if kind == 0:
            self.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO, None, done)
        elif kind == 1:
            self.ask(address, RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(name), done)
        elif kind == 2:
            body = f'["{name}"]'.encode()
            self.ask(address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, done, body)
        else:
            replica = self.random.choice(self.ha.replicas)
            self.ask(replica.address, RequestCode.GET_BROKER_EPOCH_CACHE, None, done)

    def elect(self, broker_id: int) -> None:
        """Let this broker be master: electMaster."""
        header = ElectMasterRequest("DefaultCluster", self.ha.set_name, broker_id, designate_elect=True)
        self._tell(RequestCode.CONTROLLER_ELECT_MASTER, header, "elect")

    def clean(self, broker_id: int, *, living: bool = False) -> None:
        """Forget a broker: cleanBrokerMetadata."""
        header = CleanBrokerDataRequest(
            "DefaultCluster", self.ha.set_name, str(broker_id), is_clean_living_broker=living
        )
        self._tell(RequestCode.CLEAN_BROKER_DATA, header, "clean")

    def _tell(self, code: int, header: Header, what: str) -> None:
        def done(reply: Command | None) -> None:
            said = "nobody" if reply is None else ResponseCode(reply.code).name
            self.ha.count(f"operator's {what}: {said}")

        for one in self.ha.controllers:
            if one.active:
                self.ask(f"{one.driver.ip}:{PORT}", code, header, done)
                return
