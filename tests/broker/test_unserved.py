"""What this broker does not serve yet: each is refused with 3, so that a client knows, and none is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.broker.routes import ROUTES
from perseid.wire.codes import RequestCode as Code

from .harness import Rig

LATER = {
    "transactions": [Code.RESUME_CHECK_HALF_MESSAGE],
    "request and reply": [
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    ],
    "POP": [
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.BATCH_ACK_MESSAGE,
        Code.PEEK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.NOTIFICATION,
        Code.POLLING_INFO,
        Code.POP_ROLLBACK,
        Code.QUERY_ASSIGNMENT,
        Code.SET_MESSAGE_REQUEST_MODE,
    ],
    "replicas": [
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.RESET_MASTER_FLUSH_OFFSET,
    ],
    "relays to clients": [
        Code.GET_CONSUMER_RUNNING_INFO,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    ],
    "statistics and cleaning": [
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS,
        Code.QUERY_CONSUME_QUEUE,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
    ],
    "static topics, RocksDB": [
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ],
}


@pytest.mark.parametrize("reason", LATER)
def test_refused_with_3(tmp_path: Path, reason: str) -> None:
    rig = Rig(tmp_path)
    for code in LATER[reason]:
        assert code not in ROUTES, f"{code.name} is served now: take it off the list"
        answer = rig.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")


def test_a_code_that_nobody_knows(tmp_path: Path) -> None:
    assert Rig(tmp_path).ask(31_999).code == 3
