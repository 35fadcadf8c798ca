"""What this broker does not serve yet: each is refused with 3, so that a client knows, and none is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.wire.codes import RequestCode as Code

LATER = {
    "POP in RocksDB": [Code.POP_ROLLBACK],
    "RocksDB": [
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ],
    "how files are read": [Code.SET_COMMITLOG_READ_MODE],
    "what nobody serves": [Code.GET_TOPIC_NAME_LIST, Code.TRIGGER_DELETE_FILES, Code.SUSPEND_CONSUMER],
}


@pytest.mark.parametrize("reason", LATER)
def test_refused_with_3(tmp_path: Path, reason: str) -> None:
    rig = Rig(tmp_path)
    for code in LATER[reason]:
        assert code not in rig.parts.dispatch.routes, f"{code.name} is served now: take it off the list"
        answer = rig.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")


def test_a_code_that_nobody_knows(tmp_path: Path) -> None:
    assert Rig(tmp_path).ask(31_999).code == 3
