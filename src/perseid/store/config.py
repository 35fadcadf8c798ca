"""What a store can be told: the original's keys and defaults. Times are milliseconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import JAVA_INT, option

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes, flush rhythm, recovery and retention of one store."""

    commit_log_file_bytes: int = option(
        1 << 30,
        "The size of a file of the log. It limits a message's size, and is what retention removes at a time. It must "
        "stay as it is on a folder in use, and be the same on a master and its slaves.",
        section="Files",
        unit="bytes",
        key="mappedFileSizeCommitLog",
        low=256,
    )
    consume_queue_file_bytes: int = option(
        300_000 * 20,
        "The size of a file of a consume queue, 20 bytes a message. It must stay as it is on a folder in use.",
        unit="bytes",
        key="mappedFileSizeConsumeQueue",
        low=20,
    )
    batch_consume_queue_file_bytes: int = option(
        300_000 * 46,
        "The same for queues of topics with `queue.type=BatchCQ`, 46 bytes a batch.",
        unit="bytes",
        key="mapperFileSizeBatchConsumeQueue",
        low=46,
    )
    max_hash_slot_num: int = option(
        5_000_000,
        "Hash slots of an index file. Fewer slots make queries by key slower.",
        unit="slots",
        low=1,
    )
    max_index_num: int = option(
        20_000_000,
        "Keys of an index file. With the default and `maxHashSlotNum` a file has 420 MB.",
        unit="keys",
        low=2,
    )
    message_index_enable: bool = option(
        True,
        "Messages can be found by their keys. With `false` sends are a little cheaper, and queries by key find "
        "nothing.",
    )

    max_message_size: int = option(
        4 << 20,
        "The largest body that is taken; beyond it a send is refused (code 13). Producers have a limit of their own (4 "
        "MiB).",
        section="Messages",
        unit="bytes",
        low=1,
        high=JAVA_INT,
        live=True,
    )
    message_delay_level: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "The delays of levels 1, 2, 3 and so on. Don't change the order on a folder with waiting messages: a message "
        "knows its level, not its delay.",
        form=(r"\s*(\d{1,9}[smhd](\s+|$))+", "a list of numbers followed by s, m, h or d, like 1s 5s 1m"),
    )

    enable_lmq: bool = option(
        False,
        "Light message queues: a message also stands in the queues that its property `INNER_MULTI_DISPATCH` names. "
        "Needs `enableMultiDispatch`; one without the other stops the start.",
        section="Light message queues",
    )
    enable_multi_dispatch: bool = option(
        False,
        "Needed for `enableLmq`, and allowed with it alone.",
    )
    enable_lmq_quota: bool = option(
        False,
        "The number of light queues is limited to `maxLmqConsumeQueueNum`.",
    )
    max_lmq_consume_queue_num: int = option(
        20_000,
        "With `enableLmqQuota`: a message that would make another light queue is refused when there are so many.",
        unit="queues",
        low=0,
    )

    enable_compaction: bool = option(
        True,
        "Topics with `cleanup.policy=COMPACTION` are compacted, and read from their compacted log. With `false` they "
        "are read as ordinary topics.",
        section="Compacted topics",
    )
    compaction_mapped_file_size: int = option(
        100 << 20,
        "The size of a file of a compacted log.",
        unit="bytes",
        low=256,
    )
    compaction_cq_mapped_file_size: int = option(
        10 << 20,
        "The size of a file of a compacted queue, 46 bytes a message.",
        unit="bytes",
        low=92,
    )
    compaction_schedule_internal: int = option(
        15 * 60 * 1000,
        "How often each queue of a compacted topic is compacted. More often keeps fewer old values, and reads and "
        "writes more.",
        unit="ms",
        low=1,
    )
    max_offset_map_size: int = option(
        100 << 20,
        "Memory for the keys of a compaction, 24 bytes a key. It is divided by `compactionThreadNum`; keys beyond it "
        "wait for another run.",
        unit="bytes",
        low=1,
    )
    compaction_thread_num: int = option(
        6,
        "By how much `maxOffsetMapSize` is divided. RocketMQ compacts so many queues at a time; Perseid compacts one.",
        low=1,
    )

    flush_disk_type: str = option(
        ASYNC_FLUSH,
        "`SYNC_FLUSH`: a send is acknowledged when its message is on disk (fsync), and a power cut takes nothing that "
        "was acknowledged. `ASYNC_FLUSH`: it is acknowledged before, and a power cut may take what came after the last "
        "flush. A crash of the process alone takes nothing in either case.",
        section="Flushing to disk",
        choices=(ASYNC_FLUSH, SYNC_FLUSH),
        important=True,
    )
    flush_interval_commit_log: int = option(
        500,
        "With `ASYNC_FLUSH`: how often the log is flushed, if at least `flushCommitLogLeastPages` are new.",
        unit="ms",
        low=1,
    )
    flush_commit_log_least_pages: int = option(
        4,
        "With `ASYNC_FLUSH`: fewer new pages wait for `flushCommitLogThoroughInterval`. 0: each interval flushes.",
        unit="pages of 4 KiB",
        low=0,
    )
    flush_commit_log_thorough_interval: int = option(
        10_000,
        "The log is flushed after so long, however little is new: the most that a power cut takes on a quiet broker.",
        unit="ms",
        low=1,
    )
    flush_consume_queue_thorough_interval: int = option(
        60_000,
        "How often consume queues and index are flushed. They are made anew from the log after a crash, so this "
        "decides how much is read then.",
        unit="ms",
        low=1,
    )
    checkpoint_interval_ms: int = option(
        1_000,
        "How often the checkpoint is saved: how far log, queues and index are known to be on disk, where a start after "
        "a crash begins to read.",
        unit="ms",
        low=1,
        ours=True,
    )
    replay_limit_bytes: int = option(
        64 << 20,
        "Queues and index are flushed early when a crash would have more of the log than this to be read again: it "
        "limits the time of a start after a crash.",
        unit="bytes",
        low=0,
        ours=True,
    )

    check_crc_on_recover: bool = option(
        True,
        "Each message's checksum is compared where the log is checked at a start. `false` starts sooner and does not "
        "notice damaged bodies.",
        section="Start after a crash",
        key="checkCRCOnRecover",
    )
    truncate_corrupt_log: bool = option(
        False,
        "Start although the log is damaged before the place up to which it was on disk: what follows is given up, "
        "acknowledged messages too. Otherwise the broker does not start, and says where the damage is. Use it once, "
        "after saving the folder.",
        ours=True,
    )

    file_reserved_time: int = option(
        72,
        "Files of the log that were last written longer ago than this are removed, in the hours of `deleteWhen` or "
        "when the disk fills up, whether or not their messages were consumed. It is also the most that a half message "
        "waits for a decision.",
        section="Retention",
        unit="h",
        low=0,
        live=True,
    )
    delete_when: str = option(
        "04",
        "When old files are removed: hours from 00 to 23 in the machine's time zone, with `;` between them.",
        unit="hours of the day",
        form=(r"([01]?\d|2[0-3])(;([01]?\d|2[0-3]))*;?", "a list of hours from 00 to 23, like 04;16"),
        live=True,
    )
    disk_max_used_space_ratio: int = option(
        75,
        "When the disk of the log is fuller than this, files older than `fileReservedTime` are removed at any hour.",
        unit="%",
        low=1,
        high=100,
        live=True,
    )
    clean_file_forcibly_enable: bool = option(
        True,
        "Above `diskSpaceCleanForciblyRatio` files are removed however young they are. With `false` nothing young is "
        "removed, and sends stop at `diskSpaceWarningLevelRatio`.",
        live=True,
    )
    disk_space_clean_forcibly_ratio: int = option(
        85,
        "From here on the oldest files are removed, young ones too (`cleanFileForciblyEnable`). Unread messages in "
        "them are lost.",
        unit="%",
        low=1,
        high=100,
        live=True,
    )
    disk_space_warning_level_ratio: int = option(
        90,
        "When the disk is fuller than this, sends are refused until it has room again. Keep it above "
        "`diskSpaceCleanForciblyRatio`.",
        unit="%",
        low=1,
        high=100,
        live=True,
    )
    delete_file_batch_max: int = option(
        10,
        "How many files one round removes at most.",
        unit="files",
        low=1,
        live=True,
    )
    delete_commit_log_files_interval: int = option(
        100,
        "The pause between two removals in a round, so that the disk has time for others.",
        unit="ms",
        low=0,
    )
    clean_resource_interval: int = option(
        10_000,
        "How often the disk's fullness and the age of files are looked at.",
        unit="ms",
        low=1,
    )
    clean_resource_first_ms: int = option(
        60_000,
        "How long after the start they are looked at first. RocketMQ always waits a minute.",
        unit="ms",
        low=0,
        ours=True,
    )

    physical_memory_bytes: int = option(
        8 << 30,
        "No effect in a file: the process takes the machine's memory. What counts as being in memory depends on it.",
        section="Reads",
        unit="bytes",
        low=1,
        ours=True,
        computed="the machine's memory",
    )
    access_message_in_memory_max_ratio: int = option(
        40,
        "So much of the machine's memory, counted back from the log's end, is taken to be in the page cache. Reads "
        "before it have the lower limits below, and `slaveReadEnable` sends them to a slave.",
        unit="%",
        low=0,
        high=100,
    )
    max_transfer_bytes_on_message_in_memory: int = option(
        262_144,
        "The most bytes of one answer to a pull, for messages in memory. At least one message is always given.",
        unit="bytes",
        low=1,
    )
    max_transfer_count_on_message_in_memory: int = option(
        32,
        "The most messages of one answer to a pull, for messages in memory. Raise it together with the consumers' "
        "batch size.",
        unit="messages",
        low=1,
    )
    max_transfer_bytes_on_message_in_disk: int = option(
        65_536,
        "The same for messages that have to be read from the disk.",
        unit="bytes",
        low=1,
    )
    max_transfer_count_on_message_in_disk: int = option(
        8,
        "The same for messages that have to be read from the disk.",
        unit="messages",
        low=1,
    )
    max_filter_message_size: int = option(
        16_000,
        "How much of a consume queue (20 bytes a message) one read looks through for messages that a filter wants.",
        unit="bytes",
        low=20,
    )
    max_msgs_num_batch: int = option(
        64,
        "The most messages that a query by key finds, whatever it asks for.",
        unit="messages",
        low=1,
        high=JAVA_INT,
        live=True,
    )
    hot_bytes: int = option(
        64 << 20,
        "So much of the log's end is taken to be in memory without asking the system; what is older may be fetched "
        "from the disk beforehand, so that other requests don't wait.",
        unit="bytes",
        key="hotBytes",
        low=0,
        ours=True,
    )

    timer_log_file_bytes: int = option(
        100 << 20,
        "The size of a file of the timer log.",
        section="Timers",
        unit="bytes",
        key="mappedFileSizeTimerLog",
        low=256,
    )
    timer_precision_ms: int = option(
        1_000,
        "The width of a slot of the timer wheel, and so how exactly a message's time is kept: 100, 200, 500 or 1000. "
        "Other values count as the next lower one of these.",
        unit="ms",
        low=1,
    )
    timer_roll_window_slot: int = option(
        172_800,
        "A message whose time is further ahead than so many slots is written anew on its way, so that the log's "
        "retention does not take it. Keep the window, times `timerPrecisionMs`, below `fileReservedTime`.",
        unit="slots",
        low=0,
    )
    timer_flush_interval_ms: int = option(
        1_000,
        "How often the timer wheel is saved. After a crash it is made anew from there.",
        unit="ms",
        low=1,
    )
    timer_wheel_slots: int = option(
        2 * 604_800,
        "Slots of the wheel's file. With another number than the default RocketMQ can't open the folder.",
        unit="slots",
        key="timerWheelSlots",
        low=256,
        ours=True,
    )

    process_id: int = option(
        0,
        "No effect in a file: the process writes its number here, and into the file `abort`.",
        section="Set by the process",
        key="processId",
        ours=True,
        computed="the process's number",
    )

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
