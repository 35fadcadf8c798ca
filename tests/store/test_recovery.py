"""What a load makes of a folder: after a clean stop, after a crash, with files missing, resized, spoilt or held."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid.base.errors import CorruptLog, StoreLocked
from perseid.sim.disk import SimDisk
from perseid.store import checkpoint as checkpoints
from perseid.store.checkpoint import Checkpoint
from perseid.store.consume_queue import UNIT
from perseid.store.store import MessageStore
from perseid.wire.record import decode

from .harness import HOST, START, Node, config, message

LOG = "commitlog"
FIRST = f"{LOG}/{0:020d}"
SECOND = f"{LOG}/{2048:020d}"
UNITS = f"consumequeue/T/0/{0:020d}"


def filled(count: int = 12, **settings: object) -> Node:
    """A running store with some files of everything, all flushed."""
    node = Node(**settings)
    node.load()
    for number in range(count):
        node.now += 1000
        node.store.appends.append(message(body=b"%d" % number + bytes(300), TAGS="a", KEYS=f"k{number}"), node.now)
    node.flush()
    node.settle()
    return node


def spoil(disk: SimDisk, path: str, at: int, data: bytes) -> None:
    disk.open(path).write(at, data)


def forget_the_exact_offsets(disk: SimDisk, log_timestamp: int, queues_timestamp: int) -> None:
    """Leave a checkpoint as the original writes it."""
    disk.write("checkpoint", checkpoints.encode(Checkpoint(log_timestamp, queues_timestamp)))


# ---- clean stops ----


def test_a_new_folder_is_empty_and_clean() -> None:
    node = Node()
    report = node.load()
    assert (report.clean, report.min_offset, report.max_offset, report.truncated_bytes, report.notes) == (
        True,
        0,
        0,
        0,
        [],
    )
    assert node.disk.size("abort") is not None and node.disk.size("checkpoint") == 4096


def test_everything_is_there_after_a_clean_stop() -> None:
    node = filled()
    bodies, end = node.bodies(), node.store.log.end
    node.stop()
    assert node.disk.size("abort") is None
    report = node.load()
    assert (report.clean, report.max_offset, report.notes) == (True, end, [])
    assert node.bodies() == bodies
    done = node.store.appends.append(message(), node.now)
    assert (done.physical_offset >= end, done.queue_offset) == (True, 12)
    node.store.validate()


def test_a_clean_stop_needs_no_effect_to_be_carried_out() -> None:
    """What was handed out and never done is durable all the same, whatever comes next."""
    for seed in range(10):
        node = Node(seed)
        node.load()
        for number in range(12):
            node.store.appends.append(message(body=bytes(300), queue_id=number % 2), START)
            node.flush()
        node.effects.extend(node.store.tick(START + 60_000))
        node.stop()
        node.cut_power()
        report = node.load()
        assert report.clean and report.notes == []
        assert len(node.records()) + len(node.records(queue_id=1)) == 12


def test_a_clean_recovery_does_not_read_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    node = filled(100)
    node.stop()
    seen: list[int] = []
    original = decode
    monkeypatch.setattr("perseid.store.commit_log.decode", lambda *a, **k: seen.append(1) or original(*a, **k))
    store = MessageStore(node.disk, node.config, HOST)
    store.load(node.now)
    assert store.log.end > 15 * 2048
    assert len(seen) < 5


def test_a_clean_stop_of_the_original_with_a_record_that_no_queue_has() -> None:
    node = filled()
    node.stop()
    spoil(node.disk, f"consumequeue/T/0/{200:020d}", 20, bytes(20))
    forget_the_exact_offsets(node.disk, node.now, node.now)
    assert node.load().clean
    assert len(node.records()) == 12


# ---- crashes ----


@pytest.mark.parametrize("crash", ["kill", "cut_power"])
def test_what_was_flushed_is_there_after_a(crash: str) -> None:
    for seed in range(10):
        node = filled(30, seed=seed)
        getattr(node, crash)()
        report = node.load()
        assert not report.clean
        assert len(node.records()) == 30


def test_queues_are_built_anew_from_a_log_that_was_flushed_long_ago() -> None:
    """The power cut takes all that was not synced: here every queue and the index."""
    node = filled(30, flush_consume_queue_thorough_interval=10_000_000)
    node.pass_time(60_000)
    node.disk.remove("consumequeue")
    node.disk.remove("index")
    node.kill()
    node.load()
    assert len(node.records()) == 30
    assert len(node.store.reads.query("T", "k29", 9, 0, node.now).records) == 1


def test_a_load_is_a_promise_that_the_next_start_knows_of() -> None:
    """The abort file is durable before the store is used."""
    for seed in range(10):
        node = Node(seed)
        node.load()
        node.cut_power()
        assert not node.load().clean


def test_a_queue_whose_first_file_is_lost_begins_anew() -> None:
    """No message of it was flushed, and no file was ever removed: offset 0 comes next."""
    node = filled(2)
    node.pass_time(5_000)
    node.kill()
    node.disk.write(f"consumequeue/lost/0/{200:020d}", b"\xee" * 30 + bytes(70))
    node.load()
    assert list(node.store.queues.table) == [("T", 0)]
    assert node.store.appends.append(message("lost"), node.now).queue_offset == 0


def test_units_that_lie_are_written_again() -> None:
    node = filled(30, flush_consume_queue_thorough_interval=10_000_000)
    node.kill()
    for at, lie in ((0, bytes(20)), (20, b"\xff" * 20), (60, b"\1" * 20)):
        spoil(node.disk, UNITS, at, lie)
    node.load()
    assert len(node.records()) == 30


@pytest.mark.parametrize("lie", [b"\xff" * 20, b"\0" * 7 + b"\1" * 13, b"\0" * 20 + b"\1" * 20])
def test_units_behind_the_end_are_cut_off(lie: bytes) -> None:
    node = filled(12)
    node.pass_time(5_000)
    node.kill()
    spoil(node.disk, f"consumequeue/T/0/{200:020d}", 40, lie)
    report = node.load()
    assert len(node.records()) == 12
    assert any("cut off" in note and "unit 12" in note for note in report.notes)


def test_a_queue_that_was_durable_and_is_gone_makes_all_be_built_anew() -> None:
    node = filled(20)
    for number in range(20):
        node.store.appends.append(message("other", body=b"%d" % number), node.now)
    node.pass_time(5_000)
    node.store.appends.append(message(), node.now)
    node.kill()
    node.disk.remove("consumequeue")
    report = node.load()
    assert len(node.records()) == 21 and len(node.records("other")) == 20
    assert any("built anew" in note for note in report.notes)


def test_a_rebuild_that_is_cut_short_begins_again() -> None:
    for point in range(5, 160, 3):
        node = filled(20, seed=point)
        node.store.appends.append(message("other"), node.now)
        node.pass_time(5_000)
        node.store.appends.append(message(), node.now)
        node.flush()
        node.settle()
        node.kill()
        node.disk.remove("consumequeue/T")
        node.disk.crash_in = point
        try:
            node.load()
        except BaseException as crash:
            assert type(crash).__name__ == "CrashPoint"
        node.kill() if point % 2 else node.cut_power()
        node.load()
        assert len(node.records()) == 21 and len(node.records("other")) == 1


@pytest.mark.parametrize("crash", ["stop", "kill", "cut_power"])
def test_a_rebuild_keeps_the_next_offset_of_a_queue_whose_records_are_gone(crash: str) -> None:
    """Retention has removed all records of T, and a queue that is damaged makes all be built anew (sim 3055)."""
    node = filled(12, file_reserved_time=0)
    for _ in range(12):
        node.store.appends.append(message("other", body=bytes(300)), node.now)
    node.pass_time(5_000)
    node.now += 10_000
    node.store.retention.delete_now(node.now)
    node.pass_time(60_000)
    assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (12, 12)
    assert 0 < node.store.reads.min_offset("other", 0) < 12
    node.store.appends.append(message("other"), node.now)
    node.flush()
    node.settle()
    getattr(node, crash)()
    node.disk.remove("consumequeue/other")
    forget_the_exact_offsets(node.disk, 0, 0) if crash == "stop" else None
    node.load()
    assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (12, 12)
    assert node.store.reads.max_offset("other", 0) == 13
    assert node.store.appends.append(message(), node.now).queue_offset == 12


@pytest.mark.parametrize(
    ("offset", "size", "is_one"), [(5, 100, False), (-1, 100, False), (0, 0, False), (None, 100, True)]
)
def test_what_a_crash_left_behind_the_last_unit_of_such_a_queue_is_none(
    offset: int | None, size: int, is_one: bool
) -> None:
    """Its records are gone, so only the order of its units tells: each is of a later record than the one before."""
    node = filled(12, file_reserved_time=0)
    for _ in range(12):
        node.store.appends.append(message("other", body=bytes(300)), node.now)
    node.pass_time(5_000)
    node.now += 10_000
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    last = queue.raw(11)
    assert last is not None
    node.store.retention.delete_now(node.now)
    node.pass_time(60_000)
    node.kill()
    behind = last.physical_offset + last.size if offset is None else offset
    node.disk.open(f"consumequeue/T/0/{200:020d}").write(40, UNIT.pack(behind, size, 0))
    node.load()
    assert node.store.reads.max_offset("T", 0) == (13 if is_one else 12)


def test_a_hole_in_a_queue_is_filled() -> None:
    node = filled(20)
    node.stop()
    node.disk.remove(f"consumequeue/T/0/{100:020d}")
    report = node.load()
    assert f"consumequeue/T/0/{100:020d}" in report.notes[0]
    assert len(node.records()) == 20


@pytest.mark.parametrize("moment", [0, 3, 6, 20])
def test_the_rule_of_times_of_the_original(moment: int) -> None:
    """Its checkpoint has no offsets: begin with the last file whose first record is old enough."""
    node = filled(30)
    node.kill()
    node.disk.remove("consumequeue") if moment == 0 else None
    forget_the_exact_offsets(node.disk, START + moment * 1000, START + (moment + 9) * 1000)
    report = node.load()
    assert not report.clean and len(node.records()) == 30


def test_the_first_file_is_the_one_of_the_checkpoint() -> None:
    """Records 0-4 in the first file (seconds 1-5), 5-9 in the second (6-10), ...: three seconds are given."""
    node = filled(30)
    per_file = len([r for r in node.records() if r.physical_offset < 2048])
    starts = []
    for second in (1, per_file + 3, per_file + 4, 2 * per_file + 4):
        node.kill()
        forget_the_exact_offsets(node.disk, START + second * 1000, START + 90_000)
        seen: list[int] = []
        store = MessageStore(node.disk, node.config, HOST)
        walk = store.log.walk
        store.log.walk = lambda at, seen=seen, walk=walk: seen.append(at) or walk(at)  # type: ignore[method-assign,func-returns-value]
        store.load(node.now)
        starts.append(seen[0])
    assert starts == [0, 0, 2048, 4096]


# ---- the tail ----


@pytest.mark.parametrize("at", [0, 4, 30, 90, 200])
def test_a_torn_tail_is_cut_off_and_stays_dead(at: int) -> None:
    """A record of which bytes are missing is cut off with all behind it; records written over it never meet it."""
    node = filled(3)
    flushed = node.store.log.end
    torn = [node.store.appends.append(message(body=b"torn" * 50, A="b"), node.now) for _ in range(2)]
    node.kill()
    spoil(node.disk, FIRST, torn[0].physical_offset + at, b"\xee\xee\xee\xee\xee")
    report = node.load()
    assert node.store.log.end == flushed and len(node.records()) == 3
    assert report.truncated_bytes == 2 * torn[0].size
    assert any(f"{FIRST}: at byte {flushed}" in note for note in report.notes)
    node.cut_power()  # the zeros are durable
    node.load()
    assert not any(node.store.log.segments.view(flushed, 2048 - flushed))
    node.store.appends.append(message(body=b"new!" * 50, A="b"), node.now)  # as long as the torn one
    node.kill()
    node.load()
    assert len(node.records()) == 4


@pytest.mark.parametrize(
    ("found", "why"),
    [(b"prop\x01a\0b\x02", "zero byte"), (b"prop\x01\xff\xfe\x02", "UTF-8"), (b"prop\x01abc-", "without an end")],
    ids=["zeros", "garbage", "another last byte"],
)
def test_what_the_checksum_does_not_cover_is_doubted_where_nothing_was_flushed(found: bytes, why: str) -> None:
    node = filled(3)
    flushed = node.store.log.end
    node.pass_time(3_000)
    torn = message(body=b"whole body")
    torn.properties = b"prop\x01abc\x02"
    record = node.store.appends.append(torn, node.now)
    node.kill()
    at = record.physical_offset + record.size
    path = f"{LOG}/{at // 2048 * 2048:020d}"
    spoil(node.disk, path, at % 2048 - len(found), found)
    report = node.load()
    assert node.store.log.end == flushed
    assert any(why in note for note in report.notes)


def test_properties_have_an_end_though_the_client_sent_none() -> None:
    """As clients before 4.9.4 do."""
    node = filled(0)
    old = message()
    old.properties = b"TAGS\x01a\x02KEYS\x01b"
    node.store.appends.append(old, node.now)
    assert node.records()[0].properties == b"TAGS\x01a\x02KEYS\x01b\x02"


def test_odd_properties_that_were_flushed_are_kept() -> None:
    node = filled(3)
    odd = message(body=b"odd")
    odd.properties = b"a\x01\0\xff\x02"
    node.store.appends.append(odd, node.now)
    node.flush()
    node.settle()
    node.pass_time(3_000)
    node.kill()
    node.load()
    assert node.bodies()[-1] == b"odd"


@pytest.mark.parametrize("stopped", [True, False])
def test_a_corrupt_tail_of_what_was_durable_is_refused(stopped: bool) -> None:
    """Not cut off in silence: the file, the offset, and what to do."""
    node = filled(12)
    node.pass_time(3_000)
    last = node.records()[-1]
    node.stop() if stopped else node.kill()
    path = f"{LOG}/{last.physical_offset // 2048 * 2048:020d}"
    at = last.physical_offset % 2048
    spoil(node.disk, path, at + 100, b"!")
    with pytest.raises(CorruptLog, match=r"does not match its checksum.*backup.*truncateCorruptLog") as caught:
        node.load()
    assert (caught.value.path, caught.value.offset) == (path, at)
    with pytest.raises(CorruptLog):
        node.load()
    node.config = config(truncate_corrupt_log=True)
    report = node.load()
    assert len(node.records()) == 11
    assert any("given up" in note for note in report.notes)
    node.stop()
    node.config = config()
    assert node.load().notes == []


def test_a_corrupt_tail_of_the_original_is_cut_off_as_it_does() -> None:
    node = filled(12)
    last = node.records()[-1]
    node.stop()
    forget_the_exact_offsets(node.disk, node.now, node.now)
    spoil(node.disk, f"{LOG}/{last.physical_offset // 2048 * 2048:020d}", last.physical_offset % 2048 + 100, b"!")
    report = node.load()
    assert report.clean and report.truncated_bytes == last.size
    assert node.store.log.end == last.physical_offset and len(node.records()) == 11
    assert node.store.reads.query("T", "k11", 9, 0, node.now).records == []


# ---- files that are missing, resized, held ----


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_file_of_the_log_is_named(stopped: bool, which: int) -> None:
    node = filled(20)
    node.pass_time(3_000)
    start = node.store.log.segments.starts[which]
    node.stop() if stopped else node.kill()
    node.disk.remove(f"{LOG}/{start:020d}")
    if which == 0:  # like one that retention removed: only the queues still know it
        node.disk.remove("checkpoint")
        node.load()
        assert node.store.log.start == 2048 and node.store.reads.min_offset("T", 0) > 0
        assert len(node.records()) == 20 - node.store.reads.min_offset("T", 0)
        return
    with pytest.raises(CorruptLog, match="the file is missing") as caught:
        node.load()
    assert (caught.value.path, caught.value.offset) == (f"{LOG}/{start:020d}", start)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_missing_file_of_the_originals_log_is_named(stopped: bool) -> None:
    node = filled(20)
    node.stop() if stopped else node.kill()
    forget_the_exact_offsets(node.disk, node.now, node.now)
    node.disk.remove(SECOND)
    with pytest.raises(CorruptLog, match="later ones are there") as caught:
        node.load()
    assert (caught.value.path, caught.value.offset) == (SECOND, 2048)


def test_a_log_that_is_gone_is_named() -> None:
    node = filled(3)
    node.stop()
    node.disk.remove(LOG)
    with pytest.raises(CorruptLog, match="no file is left of a log"):
        node.load()


def test_queues_without_a_log_go() -> None:
    node = filled(3)
    node.stop()
    node.disk.remove(LOG)
    node.disk.remove("checkpoint")
    report = node.load()
    assert node.disk.list("consumequeue/T") == [] and node.store.reads.max_offset("T", 0) == 0
    assert node.disk.list("index") == [] and "no log" in report.notes[0]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (SECOND, "mappedFileSizeCommitLog"),
        (UNITS, "mappedFileSizeConsumeQueue"),
        ("index", "maxIndexNum"),
    ],
)
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"], ids=["shorter", "longer"])
def test_a_resized_file_is_named(path: str, key: str, change: Callable[[bytes], bytes]) -> None:
    node = filled(12)
    node.stop()
    path = f"index/{node.disk.list('index')[0]}" if path == "index" else path
    content = node.disk.read(path)
    assert content is not None
    node.disk.write(path, change(content))
    with pytest.raises(CorruptLog, match=key) as caught:
        node.load()
    assert caught.value.path == path
    assert caught.value.offset == min(len(content), len(change(content)))


def test_other_file_sizes_are_named() -> None:
    node = filled(12)
    node.stop()
    node.config = config(commit_log_file_bytes=4096)
    with pytest.raises(CorruptLog, match="2048 bytes, mappedFileSizeCommitLog says 4096"):
        node.load()


def test_empty_files_and_strange_names_are_left_out() -> None:
    node = filled(12)
    starts = list(node.store.log.segments.starts)
    node.stop()
    end = starts[-1] + 2048
    for path in (f"{LOG}/{end:020d}", f"consumequeue/T/0/{300:020d}", "index/99991231235959999"):
        node.disk.write(path, b"")
    for path in (f"{LOG}/notes.txt", "consumequeue/T/x/1", "consumequeue/stray", "index/7", f"{LOG}/folder/1"):
        node.disk.write(path, b"?")
    node.load()
    assert node.store.log.segments.starts == starts and len(node.records()) == 12
    assert node.disk.size(f"{LOG}/{end:020d}") is None


def test_a_locked_folder_is_refused_and_left_alone() -> None:
    node = filled(3)
    other = MessageStore(node.disk, node.config, HOST)
    with pytest.raises(StoreLocked, match="lock"):
        other.load(node.now)
    node.store.appends.append(message(), node.now)
    node.stop()
    other.load(node.now)
    assert other.reads.max_offset("T", 0) == 4


def test_a_load_that_fails_lets_the_lock_go() -> None:
    node = filled(12)
    node.stop()
    content = node.disk.read(FIRST)
    assert content is not None
    node.disk.write(FIRST, content[:-1])
    with pytest.raises(CorruptLog):
        node.load()
    node.disk.write(FIRST, content)
    assert len(node.load().notes) == 0


# ---- what the sim found ----


@pytest.mark.parametrize("size", [500, 12_000])
def test_bytes_whose_sync_failed_are_written_again(size: int) -> None:
    """A failed fsync leaves clean pages; the next life must not take them for durable (sim S3). `size`: in the last
    page, which is written anyway, or in some before it."""
    for seed in range(20):
        node = Node(seed, commit_log_file_bytes=1 << 16)
        node.load()
        node.store.appends.append(message(body=b"x" * size, KEYS="k"), node.now)
        node.disk.failing["sync"] = 1
        node.flush()
        with pytest.raises(OSError):
            node.settle()
        node.kill()
        node.load()  # finds the record in the page cache, and promises it
        assert len(node.records()) == 1
        node.cut_power()
        node.load()
        assert len(node.records()) == 1


def test_folders_of_files_that_an_earlier_life_made_are_synced() -> None:
    """A process that dies before its folder was synced leaves a file that the next power cut takes (sim S2)."""
    for seed in range(20):
        node = filled(3, seed=seed)
        node.store.appends.append(message(body=bytes(1900)), node.now)
        node.store.appends.append(message(queue_id=1), node.now)
        node.kill()
        node.load()
        node.store.appends.append(message(), node.now)
        node.flush()
        node.settle()
        node.cut_power()
        node.load()
        assert len(node.records()) == 5 and len(node.records(queue_id=1)) == 1


def test_a_deleted_topic_stays_deleted_when_the_power_takes_its_first_new_record() -> None:
    """Its new unit may be durable, and the records of the old topic still stand in the log."""
    found = set()
    for seed in range(12):
        node = Node(seed, flush_commit_log_thorough_interval=1 << 40)
        node.load()
        for body in (b"old 0", b"old 1"):
            node.store.appends.append(message(body=body), node.now)
        node.flush()
        node.settle()
        node.pass_time(10_000)
        node.effects.extend(node.store.delete_topic("T"))
        node.store.appends.append(message(body=b"new"), node.now)
        node.settle()
        node.pass_time(10_000)
        node.cut_power()
        node.load()
        found.add(tuple(node.bodies()) if node.store.queues.get("T", 0) is not None else None)
    assert found == {None, (b"new",)}
