"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): who may read a queue in order (broker.md §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.broker.request import Reply, Request
from perseid.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody

if TYPE_CHECKING:
    from perseid.broker.node import Broker

MAX_QUEUES = 100_000
"""Queues of one request; the rest is not locked."""


def lock_batch(broker: Broker, request: Request) -> Reply:
    """The queues of the request that the client holds now."""
    body = LockBatchRequestBody.from_json(request.body)
    taken = broker.locks.lock(body.consumer_group, body.mq_set[:MAX_QUEUES], body.client_id, broker.turn.now)
    return Reply(body=LockBatchResponseBody(lock_ok_mq_set=taken).to_json())


def unlock_batch(broker: Broker, request: Request) -> Reply:
    """Give locks back; those of other clients stay."""
    body = UnlockBatchRequestBody.from_json(request.body)
    broker.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
    return Reply()
