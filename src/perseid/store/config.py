"""What a store can be told: the original's keys and defaults. Times are milliseconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import JAVA_INT, option

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes, flush rhythm, recovery and retention of one store."""

    # files
    commit_log_file_bytes: int = option(1 << 30, key="mappedFileSizeCommitLog", low=256)
    consume_queue_file_bytes: int = option(300_000 * 20, key="mappedFileSizeConsumeQueue", low=20)
    batch_consume_queue_file_bytes: int = option(300_000 * 46, key="mapperFileSizeBatchConsumeQueue", low=46)
    max_hash_slot_num: int = option(5_000_000, low=1)
    max_index_num: int = option(20_000_000, low=2)
    message_index_enable: bool = True

    # messages
    max_message_size: int = option(4 << 20, low=1, high=JAVA_INT, live=True)
    message_delay_level: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        form=(r"\s*(\d{1,9}[smhd](\s+|$))+", "a list of numbers followed by s, m, h or d, like 1s 5s 1m"),
    )

    # light message queues
    enable_lmq: bool = False
    """Both or none: whether messages stand in the light queues that they name (`store.lmq`)."""
    enable_multi_dispatch: bool = False
    enable_lmq_quota: bool = False
    max_lmq_consume_queue_num: int = option(20_000, low=0)
    """With enableLmqQuota a message that would make another light queue is refused beyond so many."""

    # compacted topics
    enable_compaction: bool = True
    compaction_mapped_file_size: int = option(100 << 20, low=256)
    compaction_cq_mapped_file_size: int = option(10 << 20, low=92)
    compaction_schedule_internal: int = option(15 * 60 * 1000, low=1)
    """How often each queue is compacted."""
    max_offset_map_size: int = option(100 << 20, low=1)
    """Bytes of the original's maps of keys, 24 for each: of all its threads."""
    compaction_thread_num: int = option(6, low=1)
    """Its map has so many parts; here one queue is compacted at a time."""

    # flush
    flush_disk_type: str = option(ASYNC_FLUSH, choices=(ASYNC_FLUSH, SYNC_FLUSH), important=True)
    flush_interval_commit_log: int = option(500, low=1)
    flush_commit_log_least_pages: int = option(4, low=0)
    flush_commit_log_thorough_interval: int = option(10_000, low=1)
    flush_consume_queue_thorough_interval: int = option(60_000, low=1)
    checkpoint_interval_ms: int = option(1_000, low=1)
    replay_limit_bytes: int = option(64 << 20, low=0)
    """Queues and index are flushed early when a crash would have more of the log than this to be read again."""

    # recovery
    check_crc_on_recover: bool = option(True, key="checkCRCOnRecover")
    truncate_corrupt_log: bool = False
    """Start in spite of a log that ends before what is known to be durable: what follows is given up."""

    # retention
    file_reserved_time: int = option(72, low=0, live=True)
    delete_when: str = option(
        "04",
        form=(r"([01]?\d|2[0-3])(;([01]?\d|2[0-3]))*;?", "a list of hours from 00 to 23, like 04;16"),
        live=True,
    )
    disk_max_used_space_ratio: int = option(75, low=1, high=100, live=True)
    clean_file_forcibly_enable: bool = option(True, live=True)
    disk_space_clean_forcibly_ratio: int = option(85, low=1, high=100, live=True)
    disk_space_warning_level_ratio: int = option(90, low=1, high=100, live=True)
    delete_file_batch_max: int = option(10, low=1, live=True)
    delete_commit_log_files_interval: int = option(100, low=0)
    clean_resource_interval: int = option(10_000, low=1)
    clean_resource_first_ms: int = option(60_000, low=0)

    # reads
    physical_memory_bytes: int = option(8 << 30, low=1)
    """Of the machine: how much of the log's end is taken to be in memory depends on it."""
    access_message_in_memory_max_ratio: int = option(40, low=0, high=100)
    max_transfer_bytes_on_message_in_memory: int = option(262_144, low=1)
    max_transfer_count_on_message_in_memory: int = option(32, low=1)
    max_transfer_bytes_on_message_in_disk: int = option(65_536, low=1)
    max_transfer_count_on_message_in_disk: int = option(8, low=1)
    max_filter_message_size: int = option(16_000, low=20)
    """The least bytes of a consume queue that one read looks at."""
    max_msgs_num_batch: int = option(64, low=1, high=JAVA_INT, live=True)

    # timers
    timer_log_file_bytes: int = option(100 << 20, key="mappedFileSizeTimerLog", low=256)
    timer_precision_ms: int = option(1_000, low=1)
    """Of a slot of the wheel; 100, 200, 500 or 1000, others count as the next lower one of them."""
    timer_roll_window_slot: int = option(172_800, low=0)
    """A message further away than so many slots is stored anew on its way."""
    timer_flush_interval_ms: int = option(1_000, low=1)
    timer_wheel_slots: int = option(2 * 604_800, key="timerWheelSlots", low=256)
    """Of the wheel's file; with another number than the original's it can't open the folder. A setting of ours."""

    process_id: int = option(0, key="processId")
    """What stands in the abort file; set by the process, not by a file."""

    hot_bytes: int = option(64 << 20, key="hotBytes", low=0)
    """So much of the log's end is taken to be in memory without asking; a setting of ours."""

    @property
    def lmq(self) -> bool:
        """May messages name light queues?"""
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def max_record_bytes(self) -> int:
        return self.max_message_size + 65_536

    @property
    def in_memory_bytes(self) -> int:
        """So much of the log's end is taken to be in the page cache."""
        return self.physical_memory_bytes * self.access_message_in_memory_max_ratio // 100
