"""Clients that go wherever routes show a master, also one that can only be read; see `acting`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.clients.locks import LOCK_LIFE_MS
from perseid.sim.facts import VALUE_BYTES
from perseid.sim.models.broker.acting import ActingHistory, Queue, acts
from perseid.sim.models.broker.client import Client
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS
from perseid.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.offsets import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.record import decode_all

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster
    from perseid.sim.models.broker.slaves import Slave

SUBSCRIPTION = 4
COMMITS_AGAIN = 0.2
"""Of the pulls that brought nothing a group commits once more where it is."""

Locks = dict[tuple[str, int, MessageQueue], tuple[str, int]]
"""Broker, its life, queue → whose the lock is, and until when it surely is."""


class Wanderer(Client):
    """Reads, commits and locks wherever the route shows a master. `locks`: shared by all of them."""

    goes_to_slaves = True

    def __init__(self, cluster: Cluster, name: str, acting: ActingHistory, locks: Locks) -> None:
        super().__init__(cluster, name)
        self.group = f"wandering-{name}"
        self.acting, self.locks = acting, locks
        self.queues: list[Queue] = [(topic.name, n) for topic in cluster.topics for n in range(topic.queues)]
        self.positions: dict[Queue, int] = {}

    def work(self) -> None:
        for queue in self.queues:
            self.later(0, 1_000, lambda queue=queue: self._resume(queue))  # type: ignore[misc]
        self.later(1_000, 3_000, self._look)
        self.later(1_000, 3_000, self._lock)

    def _look(self) -> None:
        self._ask_route()
        self.later(1_000, self.scheduler.slowed(4_000), self._look)

    @property
    def _slave(self) -> Slave | None:
        return self.cluster.slaves.at(self.broker_address)

    # ---- offsets ----

    def _resume(self, queue: Queue) -> None:
        header = QueryConsumerOffsetRequest(consumer_group=self.group, topic=queue[0], queue_id=queue[1])

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                self.later(200, 1_000, lambda: self._resume(queue))
                return
            offset = reply.header(OffsetResponse).offset if reply.code == ResponseCode.SUCCESS else 0
            if offset and offset not in self.acting.attempts.get((self.group, queue), ()):
                raise Violation("offsets that were committed", f"{self.group} in {queue}: {offset} never was")
            self.positions.setdefault(queue, offset)
            self._pull(queue)

        self.call(RequestCode.QUERY_CONSUMER_OFFSET, header, answered)

    def commit_all(self) -> None:
        """Say once more where it is: a slave that heard of it last keeps that until its master knows it, too."""
        for queue in self.positions:
            self._commit(queue)

    def _commit(self, queue: Queue) -> None:
        offset, slave = self.positions[queue], self._slave
        acted = slave is not None and acts(slave)
        number = self.acting.tried(self.group, queue, offset)
        header = UpdateConsumerOffsetRequest(
            consumer_group=self.group, topic=queue[0], queue_id=queue[1], commit_offset=offset
        )

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.acting.committed(self.group, queue, number, slave, acted=acted)

        self.call(RequestCode.UPDATE_CONSUMER_OFFSET, header, answered)

    # ---- messages ----

    def _pull(self, queue: Queue) -> None:
        asked, slave = self.positions[queue], self._slave
        header = PullMessageRequest(
            consumer_group=self.group, topic=queue[0], queue_id=queue[1], queue_offset=asked, max_msg_nums=8,
            sys_flag=SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
            expression_type="TAG",
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            pulled = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
            if reply is not None and reply.code in (*pulled, ResponseCode.PULL_RETRY_IMMEDIATELY):
                self._read(queue, asked, reply, slave)
                if self.positions[queue] != asked or self.random.random() < COMMITS_AGAIN:
                    self._commit(queue)
            self.later(300, self.scheduler.slowed(3_000 * self.scheduler.pace), lambda: self._pull(queue))

        self.call(RequestCode.PULL_MESSAGE, header, answered)

    def _read(self, queue: Queue, asked: int, reply: Command, slave: Slave | None) -> None:
        after = asked
        for record in decode_all(reply.body) if reply.code == ResponseCode.SUCCESS else ():
            sent = self.history.sent.get(bytes(record.body[:VALUE_BYTES]))
            if sent is None or sent.body != record.body or (record.topic, record.queue_id) != queue:
                raise Violation("exact bytes", f"{self.broker_address}: {queue}@{record.queue_offset} was not sent")
            if record.queue_offset < after:
                raise Violation("offsets ascend", f"{queue}: {record.queue_offset} after {after}")
            after = record.queue_offset + 1
            if slave is not None:
                self.cluster.count("read from who acts")
        self.positions[queue] = reply.header(PullMessageResponse).next_begin_offset

    # ---- locks ----

    def _lock(self) -> None:
        slave, asked_us = self._slave, self.scheduler.now_us
        driver = slave.driver if slave is not None else self.cluster.broker
        life, name = driver.lives, driver.name
        queues = [MessageQueue(topic, self.cluster.broker_name, queue_id) for topic, queue_id in self.queues]
        body = LockBatchRequestBody(consumer_group="wandering", client_id=self.name, mq_set=queues)

        def answered(reply: Command | None) -> None:
            self.later(2_000, 20_000, self._lock)
            if reply is None or reply.code != ResponseCode.SUCCESS or life != driver.lives:
                return
            for queue in LockBatchResponseBody.from_json(reply.body).lock_ok_mq_set:
                holder, until_us = self.locks.get((name, life, queue), ("", 0))
                if holder not in ("", self.name) and self.scheduler.now_us < until_us:
                    raise Violation("one holder a lock", f"{queue} at {name}: {holder} has it, and now {self.name}")
                self.locks[name, life, queue] = self.name, asked_us + LOCK_LIFE_MS * US_PER_MS
                if slave is not None:
                    self.cluster.count("locked at who acts")

        self.call(RequestCode.LOCK_BATCH_MQ, None, answered, body.to_json())
