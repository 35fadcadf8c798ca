"""The store's settings as RocketMQ's own files write them."""

from __future__ import annotations

import pytest

from perseid.base import config
from perseid.base.errors import ConfigError
from perseid.store.config import SYNC_FLUSH, StoreConfig

TEXT = """
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=200
flushDiskType=SYNC_FLUSH
fileReservedTime=48
deleteWhen=04;16
maxHashSlotNum=50
checkCRCOnRecover=false
diskMaxUsedSpaceRatio=88
"""


def test_the_originals_keys_and_defaults() -> None:
    read = config.build(StoreConfig, config.read(TEXT, "broker.conf"))
    assert (read.commit_log_file_bytes, read.consume_queue_file_bytes, read.max_hash_slot_num) == (65536, 200, 50)
    assert (read.flush_disk_type, read.file_reserved_time, read.delete_when) == (SYNC_FLUSH, 48, "04;16")
    assert (read.check_crc_on_recover, read.disk_max_used_space_ratio) == (False, 88)
    default = StoreConfig()
    assert (default.commit_log_file_bytes, default.consume_queue_file_bytes) == (1 << 30, 6_000_000)
    assert (default.max_index_num, default.max_message_size, default.max_record_bytes) == (
        20_000_000,
        4194304,
        4194304 + 65536,
    )
    assert default.in_memory_bytes == default.physical_memory_bytes * 40 // 100


@pytest.mark.parametrize("line", ["flushDiskType=SOMETIMES", "maxIndexNum=1", "mappedFileSizeCommitLog=x"])
def test_values_that_cannot_be(line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        config.build(StoreConfig, config.read(line, "broker.conf"))
