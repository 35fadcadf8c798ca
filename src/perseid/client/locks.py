"""Queue locks at the brokers: in ordered mode a queue has one consumer at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from perseid.base.errors import PerseidError
from perseid.client.model import MessageQueue
from perseid.client.session import Session
from perseid.wire import bodies
from perseid.wire.codes import RequestCode

log = logging.getLogger("perseid.client")

LOCK_TIMEOUT_MS = 1000


class QueueLocks:
    """Locks of one group's member."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._asked_for: set[MessageQueue] = set()

    async def acquire(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, or confirm locks that we hold; gives back those that are ours now."""
        results = await asyncio.gather(*(self._lock(name, mine) for name, mine in self._by_broker(queues).items()))
        return {queue for locked in results for queue in locked}

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; an error is only logged, for the broker forgets them after 60 s anyway."""
        queues = list(queues)
        self._asked_for.difference_update(queues)
        for name, mine in self._by_broker(queues).items():
            body = bodies.UnlockBatchRequestBody(self._group, self._session.client_id, _wire(mine)).to_json()
            try:
                address = await self._session.broker(name)
                await self._session.connections.ask(
                    address, RequestCode.UNLOCK_BATCH_MQ, None, body, timeout_ms=LOCK_TIMEOUT_MS
                )
            except PerseidError as error:
                log.info("queues at %s could not be unlocked: %s", name, error)

    async def release_all(self) -> None:
        """Give back all that were asked for, also those whose answer was lost."""
        await self.release(self._asked_for)

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        body = bodies.LockBatchRequestBody(self._group, self._session.client_id, _wire(queues)).to_json()
        try:
            address = await self._session.broker(broker_name, queues[0].topic)
            self._asked_for.update(queues)
            answer = await self._session.connections.ask(
                address, RequestCode.LOCK_BATCH_MQ, None, body, timeout_ms=LOCK_TIMEOUT_MS
            )
            locked = bodies.LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set
        except PerseidError as error:
            log.warning("%d queues at %s could not be locked: %s", len(queues), broker_name, error)
            return []
        return [MessageQueue(q.topic, q.broker_name, q.queue_id) for q in locked]

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in sorted(queues):
            found[self._session.routes.home(queue)].append(queue)
        return found


def _wire(queues: list[MessageQueue]) -> list[bodies.MessageQueue]:
    return [bodies.MessageQueue(*queue) for queue in queues]
