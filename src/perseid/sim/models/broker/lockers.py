"""Two ordered consumers that fight for the locks of queues: never may both believe that they hold one.

A lock lives for a minute from when the broker gave it, and dies with the broker's process. What its holder
knows is a little later than what the broker knows, so the check counts from when the lock was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.clients.locks import LOCK_LIFE_MS
from perseid.sim.models.broker.client import Client
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS
from perseid.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue, UnlockBatchRequestBody
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

GROUP = "ordered"
Holders = dict[MessageQueue, tuple[str, int, int]]
"""Queue → who was given its lock last, until when it surely has it, and in which life of the broker."""


class Locker(Client):
    """Asks for the locks of some queues, and gives them back now and then. All lockers share `holders`."""

    def __init__(self, cluster: Cluster, name: str, holders: Holders, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.holders = holders
        self.pause_ms = pause_ms
        self.given_back: dict[MessageQueue, int] = {}
        """Unlocks without an answer: they may still come to the broker, however late."""
        self.unlocked_us: dict[MessageQueue, int] = {}
        """When it was last asked to unlock: what was locked before is locked no more, whichever answer comes first."""
        self.queues = [
            MessageQueue(topic.name, cluster.broker_name, queue_id)
            for topic in cluster.topics
            for queue_id in range(topic.queues)
        ]

    def work(self) -> None:
        queues = self.random.sample(self.queues, self.random.randrange(1, len(self.queues) + 1))
        if self.random.random() < 0.3:
            self._unlock(queues)
        else:
            self._lock(queues)
        self.later(0, 2 * self.pause_ms, self.work)

    def _lock(self, queues: list[MessageQueue]) -> None:
        body = LockBatchRequestBody(consumer_group=GROUP, client_id=self.name, mq_set=queues)
        asked_us, life = self.scheduler.now_us, self.cluster.broker.lives

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS or life != self.cluster.broker.lives:
                return
            now_us = self.scheduler.now_us
            for queue in LockBatchResponseBody.from_json(reply.body).lock_ok_mq_set:
                self.cluster.count("queue locked")
                if self.unlocked_us.get(queue, -1) >= asked_us:
                    continue
                holder, until_us, in_life = self.holders.get(queue, ("", 0, 0))
                if holder not in ("", self.name) and now_us < until_us and in_life == life:
                    raise Violation("one holder a lock", f"{queue} is held by {holder} and was given to {self.name}")
                if not self.given_back.get(queue):
                    self.holders[queue] = (self.name, asked_us + LOCK_LIFE_MS * US_PER_MS, life)
            if len(queues) > len(LockBatchResponseBody.from_json(reply.body).lock_ok_mq_set):
                self.cluster.count("queue lock refused")

        self.call(RequestCode.LOCK_BATCH_MQ, None, answered, body.to_json())

    def _unlock(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self.unlocked_us[queue] = self.scheduler.now_us
            self.given_back[queue] = self.given_back.get(queue, 0) + 1
            if self.holders.get(queue, ("",))[0] == self.name:
                del self.holders[queue]
        body = UnlockBatchRequestBody(consumer_group=GROUP, client_id=self.name, mq_set=queues)

        def answered(reply: Command | None) -> None:
            if reply is not None:
                for queue in queues:
                    self.given_back[queue] -= 1

        self.call(RequestCode.UNLOCK_BATCH_MQ, None, answered, body.to_json())
