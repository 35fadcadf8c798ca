"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): who may read a queue in order (broker.md §9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.broker.kernel.asks import SUB, a_group, a_topic, in_body
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.turn import Turn
from perseid.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from perseid.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    from perseid.broker.clients.locks import QueueLocks

MAX_QUEUES = 100_000
"""Queues of one request; the rest is not locked."""


LOCKS = in_body(
    LockBatchRequestBody,
    lambda body: (a_group(body.consumer_group, SUB), *(a_topic(queue.topic, SUB) for queue in body.mq_set)),
)
"""Asked for by codes 41 and 42."""


@dataclass(slots=True, kw_only=True)
class LockRequests:
    """Requests for locks of queues."""

    turn: Turn
    locks: QueueLocks

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(Code.LOCK_BATCH_MQ, None, self.lock_batch, asks=LOCKS),
            Route(Code.UNLOCK_BATCH_MQ, None, self.unlock_batch, asks=LOCKS),
        )

    def lock_batch(self, request: Request) -> Reply:
        """The queues of the request that the client holds now."""
        body = LockBatchRequestBody.from_json(request.body)
        taken = self.locks.lock(body.consumer_group, body.mq_set[:MAX_QUEUES], body.client_id, self.turn.now)
        return Reply(body=LockBatchResponseBody(lock_ok_mq_set=taken).to_json())

    def unlock_batch(self, request: Request) -> Reply:
        """Give locks back; those of other clients stay."""
        body = UnlockBatchRequestBody.from_json(request.body)
        self.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return Reply()
