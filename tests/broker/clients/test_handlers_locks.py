from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.wire.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)

QUEUES = [MessageQueue("T", "b", i) for i in range(3)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def lock(rig: Rig, client: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    answer = rig.ask(41, None, LockBatchRequestBody("g", client, queues).to_json())
    assert answer.code == 0
    return LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set


def test_lock_and_unlock(rig: Rig) -> None:
    assert lock(rig, "a", QUEUES[:2]) == QUEUES[:2]
    assert lock(rig, "b", QUEUES) == QUEUES[2:]
    body = UnlockBatchRequestBody("g", "a", QUEUES).to_json()
    rig.tell(42, None, body, oneway=True)
    assert lock(rig, "b", QUEUES) == QUEUES
    assert rig.ask(42, None, body).code == 0
    assert lock(rig, "a", QUEUES) == []


def test_the_answer_as_java_writes_it(rig: Rig) -> None:
    answer = rig.ask(41, None, LockBatchRequestBody("g", "a", QUEUES[:1]).to_json())
    assert bytes(answer.body) == b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'


def test_a_lock_runs_out(rig: Rig) -> None:
    lock(rig, "a", QUEUES)
    rig.until(rig.now + 60_000)
    assert lock(rig, "b", QUEUES) == []
    rig.until(rig.now + 10_001)
    assert not rig.parts.locks.any_held("g", rig.now)
    assert lock(rig, "b", QUEUES) == QUEUES


def test_a_body_that_is_none(rig: Rig) -> None:
    assert rig.ask(41, None, b"x").code == 1
