"""The audit finds what was planted between two replicas, and nothing where there is nothing."""

from __future__ import annotations

import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.jobs import replicas
from tests.spark.jobs.replicas import SIZE, Parts, at, places, rebuilt, spoilt, written

from perseid.base.errors import ConfigError
from perseid.spark.jobs.audit import Audited, audit, lines, page
from perseid.wire.host import host_from
from perseid.wire.record import decode

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

GOLDEN = Path(__file__).parents[2] / "golden"
SOUND = replicas.parts()
PLACES = places(SOUND)
MIDDLE = [place for place in PLACES if place >= SIZE][9]
"""In the middle segment, with others around it."""
EPOCHS = [(1, 0), (2, 5000), (4, 12_000)]


def one_and_other(
    tmp_path: Path, other: Parts, *, entries: bool = False, epochs: tuple[Any, Any] = (None, None)
) -> list[str]:
    left = written(tmp_path / "left", replicas.parts(entries=entries), entries=entries, epochs=epochs[0])
    right = written(tmp_path / "right", other, entries=entries, epochs=epochs[1])
    return [str(left), str(right)]


def same_size(topic: str) -> str:
    return topic[:-1] + "x"


def replaced(**more: Any) -> Callable[[Parts], int]:
    """Something else in the record, and the record sound."""

    def plant(found: Parts) -> int:
        rebuilt(found, MIDDLE, **more)
        return MIDDLE

    return plant


def flipped(where: int | Callable[[Parts, int], int], bit: int = 1) -> Callable[[Parts], int]:
    """A bit of the record."""

    def plant(found: Parts) -> int:
        spoilt(found, MIDDLE, where if isinstance(where, int) else where(found, MIDDLE), bit)
        return MIDDLE

    return plant


def a_wiped_page(found: Parts) -> int:
    data = found[SIZE]
    data[4096:8192] = bytes(4096)
    return next(place for place in PLACES if place + replicas.size_at(SOUND, place) > SIZE + 4096)


def a_wiped_record(found: Parts) -> int:
    data, offset = at(found, MIDDLE)
    size = replicas.size_at(found, MIDDLE)
    data[offset : offset + size] = bytes(size)
    return MIDDLE


def a_record_less(found: Parts) -> int:
    replicas.removed(found, MIDDLE)
    return MIDDLE


def a_record_more(found: Parts) -> int:
    replicas.inserted(found, MIDDLE)
    return MIDDLE


def another_order(found: Parts) -> int:
    replicas.swapped(found, MIDDLE, PLACES[PLACES.index(MIDDLE) + 1])
    return MIDDLE


def swapped_segments(found: Parts) -> int:
    found[0], found[SIZE] = found[SIZE], found[0]
    return 0


def a_segment_of_another_place(found: Parts) -> int:
    found[SIZE] = bytearray(found[0])
    return SIZE


def a_segment_less(found: Parts) -> int:
    del found[SIZE]
    return SIZE


def a_segment_cut_short(found: Parts) -> int:
    del found[SIZE][3000:]
    return next(place for place in PLACES if place + replicas.size_at(SOUND, place) > SIZE + 3000)


def another_topics_record(found: Parts) -> int:
    rebuilt(found, MIDDLE, topic=same_size(decode(*at(found, MIDDLE)).topic))
    return MIDDLE


def a_body_with_its_checksum(found: Parts) -> int:
    rebuilt(found, MIDDLE, body=b"body XXXXX")
    return MIDDLE


def a_blank_too_early(found: Parts) -> int:
    """Where one log's segment has its last record, the other's ends with a blank."""
    data = found[SIZE]
    last = places({SIZE: data})[-1]
    left = 2 * SIZE - last
    data[last - SIZE :] = struct.pack(">ii", left, -875286124) + bytes(left - 8)
    return last


def the_first_record(found: Parts) -> int:
    rebuilt(found, 0, queue_offset=9)
    return 0


def the_last_record(found: Parts) -> int:
    rebuilt(found, PLACES[-1], queue_offset=9)
    return PLACES[-1]


def another_history(found: Parts) -> int:
    """From a place on another master wrote: other records of other sizes."""
    data, offset = at(found, MIDDLE)
    fresh = bytearray(data[:offset])
    while True:
        raw = replicas.one(SIZE + len(fresh), body=b"another master's words")
        if len(fresh) + len(raw) + 8 > SIZE:
            break
        fresh += raw
    data[:] = fresh + struct.pack(">ii", SIZE - len(fresh), -875286124) + bytes(SIZE - len(fresh) - 8)
    return MIDDLE


def properties(found: Parts, place: int) -> int:
    return replicas.size_at(found, place) - 3


PLANTED: dict[str, tuple[Callable[[Parts], int], str, str]] = {
    # name: what is done, the kind of the first divergence, what else is said (a field that differs, or what is corrupt)
    "a bit of a body": (flipped(replicas.body_at), "differing", "the body does not match its checksum"),
    "a bit of a magic": (flipped(4), "missing", "are no record"),
    "a bit of a size": (flipped(3, 2), "missing", "are no record"),
    "a bit of an own place": (flipped(30), "missing", "it says that it stands at"),
    "a bit of the properties": (flipped(properties), "differing", "properties"),
    "a bit of a checksum": (flipped(11), "differing", "the body does not match its checksum"),
    "a body with its checksum": (a_body_with_its_checksum, "differing", "body"),
    "a queue offset": (replaced(queue_offset=123_456), "differing", "queueOffset"),
    "a queue": (replaced(queue_id=77), "differing", "queueId"),
    "a store time": (replaced(store_timestamp=1_700_000_999_999), "differing", "storeTimestamp"),
    "a born time": (replaced(born_timestamp=1), "differing", "bornTimestamp"),
    "a storing host": (replaced(store_host=host_from("10.0.0.9:10911")), "differing", "storeHost"),
    "a sender": (replaced(born_host=host_from("10.0.0.9:4000")), "differing", "bornHost"),
    "a flag": (replaced(flag=5), "differing", "flag"),
    "a transaction": (replaced(sys_flag=0x8), "differing", "sysFlag"),
    "a retry": (replaced(reconsume_times=3), "differing", "reconsumeTimes"),
    "a half message's place": (replaced(prepared_transaction_offset=9), "differing", "preparedTransactionOffset"),
    "another topic's record": (another_topics_record, "differing", "topic"),
    "a wiped record": (a_wiped_record, "missing", "zeros, and the log goes on behind them"),
    "a wiped page": (a_wiped_page, "missing", "are no record"),
    "a record less": (a_record_less, "differing", ""),
    "a record more": (a_record_more, "differing", ""),
    "another order": (another_order, "differing", ""),
    "another history": (another_history, "differing", ""),
    "a blank where a record should be": (a_blank_too_early, "missing", ""),
    "the first record": (the_first_record, "differing", "queueOffset"),
    "the last record": (the_last_record, "differing", "queueOffset"),
    "swapped segments": (swapped_segments, "missing", "it says that it stands at"),
    "a segment of another place": (a_segment_of_another_place, "missing", "it says that it stands at"),
    "a segment less": (a_segment_less, "missing", "no file has them"),
    "a segment cut short": (a_segment_cut_short, "missing", "no file has them"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_divergence_is_found(spark: Any, tmp_path: Path, name: str) -> None:
    plant, kind, words = PLANTED[name]
    other = replicas.parts()
    place = plant(other)
    found = audit(spark, folders=one_and_other(tmp_path, other))
    (pair,) = found.pairs
    assert (pair.first, pair.findings[0].kind, found.is_equal) == (place, kind, False)
    told = [*pair.findings[0].fields, *(why for _, why in found.replicas[1].damage)]
    assert not words or any(words in text for text in told), told
    stored = pair.findings[0].left or pair.findings[0].right
    assert stored is not None and sum(pair.topics[stored.topic].values()) > 0
    assert found.replicas[0].corrupt == 0, "nothing is wrong with the other one"
    assert any(f"first divergence is at {place}" in line for line in lines(found))


@pytest.mark.parametrize("share_bytes", [1000, 5000, SIZE])
def test_the_same_is_found_however_the_logs_are_cut(spark: Any, tmp_path: Path, share_bytes: int) -> None:
    other = replicas.parts()
    for plant in (a_wiped_page, the_first_record, the_last_record):
        plant(other)
    folders = one_and_other(tmp_path, other)
    whole, cut = audit(spark, folders=folders), audit(spark, folders=folders, share_bytes=share_bytes)
    assert (whole.pairs[0].topics, whole.pairs[0].findings) == (cut.pairs[0].topics, cut.pairs[0].findings)
    assert whole.replicas == cut.replicas and len(whole.pairs[0].findings) == 20


@pytest.mark.parametrize(
    ("plant", "fields"),
    [
        (lambda data: struct.pack_into(">q", data, 16, 9), ("term",)),
        (lambda data: struct.pack_into(">q", data, 8, 9), ("the entry's head",)),
        (lambda data: struct.pack_into(">i", data, 32, 9), ("the entry's head",)),
    ],
    ids=["term", "index", "channel"],
)
def test_entries_of_a_group_are_compared_with_their_heads(
    spark: Any, tmp_path: Path, plant: Callable[[bytearray], None], fields: tuple[str, ...]
) -> None:
    other = replicas.parts(entries=True)
    plant(other[SIZE])
    found = audit(spark, folders=one_and_other(tmp_path, other, entries=True))
    (pair,) = found.pairs
    (finding,) = pair.findings
    assert (finding.kind, finding.place, finding.fields) == ("differing", SIZE, fields)
    if fields == ("term",):
        assert finding.left is not None and finding.right is not None
        assert (finding.left.term, finding.right.term) == (3, 9) and "term 3/9" in "".join(lines(found))


@pytest.mark.parametrize(
    ("theirs", "first", "epochs"),
    [
        ([(1, 0), (2, 5000), (3, 12_000)], 12_000, (4, 3)),
        ([(1, 0), (2, 6000), (4, 12_000)], 5000, (2, 1)),
        ([(1, 0), (4, 12_000)], 5000, (2, 1)),
        ([(2, 5000), (3, 9000), (4, 12_000)], 9000, (2, 3)),
    ],
    ids=["another epoch", "begins later", "one less", "one more"],
)
def test_the_same_bytes_under_other_epochs_are_a_divergence(
    spark: Any, tmp_path: Path, theirs: list[tuple[int, int]], first: int, epochs: tuple[int, int]
) -> None:
    found = audit(spark, folders=one_and_other(tmp_path, replicas.parts(), epochs=(EPOCHS, theirs)))
    (pair,) = found.pairs
    assert (pair.first, pair.divergences, pair.is_equal) == (first, 0, False)
    assert pair.epochs is not None and (pair.epochs.left, pair.epochs.right) == epochs


def test_what_differs_although_the_epochs_say_it_is_one_history_is_said(spark: Any, tmp_path: Path) -> None:
    other = replicas.parts()
    rebuilt(other, MIDDLE, queue_offset=1)
    found = audit(spark, folders=one_and_other(tmp_path, other, epochs=(EPOCHS, EPOCHS)))
    (pair,) = found.pairs
    assert pair.epochs is None and pair.agreed == found.replicas[0].end and pair.first == MIDDLE
    assert f"at {MIDDLE}, epoch 2;" in "".join(lines(found)) and "one history up to" in "".join(lines(found))


# ---- nothing where there is nothing ----


def behind(found: Parts) -> tuple[int, int]:
    del found[2 * SIZE]
    return 0, 2


def in_the_middle_of_a_record(found: Parts) -> tuple[int, int]:
    data = found[2 * SIZE]
    data[2000:] = bytes(len(data) - 2000)
    return 0, 3


def retention(found: Parts) -> tuple[int, int]:
    del found[0]
    return SIZE, 3


def the_rest_behind_the_blank(found: Parts) -> tuple[int, int]:
    data = found[0]
    end = places({0: data})[-1]
    end += replicas.size_at(found, end)
    data[end + 8 :] = b"x" * (SIZE - end - 8)
    return 0, 3


def a_file_that_is_prepared(found: Parts) -> tuple[int, int]:
    found[3 * SIZE] = bytearray(SIZE)
    return 0, 3


def nothing_at_all(found: Parts) -> tuple[int, int]:
    return 0, 3


@pytest.mark.parametrize(
    "change",
    [
        nothing_at_all, behind, in_the_middle_of_a_record, retention, the_rest_behind_the_blank,
        a_file_that_is_prepared,
    ],
)  # fmt: skip
def test_what_is_no_divergence(spark: Any, tmp_path: Path, change: Callable[[Parts], tuple[int, int]]) -> None:
    other = replicas.parts()
    begin, segments = change(other)
    found = audit(spark, folders=one_and_other(tmp_path, other, epochs=(EPOCHS, [(2, 5000), (4, 12_000)])))
    (pair,) = found.pairs
    assert found.is_equal and pair.first is None and (pair.begin, pair.end) == (begin, found.replicas[1].end)
    left, right = found.replicas
    assert left.records == len(PLACES) and left.topics.keys() == {"orders", "paid", "orders-eu"}
    assert 0 < right.records <= left.records and right.begin == begin
    assert (segments - 1) * SIZE < right.end <= left.end
    if right.end < left.end:
        assert any(f"{left.end - right.end} bytes behind" in line for line in lines(found))


def test_each_of_three_is_held_against_each(spark: Any, tmp_path: Path) -> None:
    """The first is behind: the other two differ where it has nothing."""
    short, other = replicas.parts(), replicas.parts()
    del short[2 * SIZE]
    the_last_record(other)
    folders = [*one_and_other(tmp_path, other), str(written(tmp_path / "short", short))]
    found = audit(spark, folders=[folders[2], *folders[:2]])
    assert [pair.first for pair in found.pairs] == [None, None, PLACES[-1]]
    assert [pair.is_equal for pair in found.pairs] == [True, True, False]


def test_two_logs_without_a_common_offset_are_not_called_equal(spark: Any, tmp_path: Path) -> None:
    early, late = replicas.parts(), replicas.parts()
    del early[2 * SIZE], early[SIZE], late[0]
    folders = [str(written(tmp_path / "early", early)), str(written(tmp_path / "late", late))]
    found = audit(spark, folders=folders)
    assert not found.is_equal and not found.pairs[0].is_compared
    assert "nothing was compared" in "".join(lines(found))


# ---- what Java wrote ----


def unpacked(tmp_path: Path, name: str) -> list[str]:
    with tarfile.open(GOLDEN / "store_logs" / f"{name}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    return sorted(str(path) for path in tmp_path.glob("b*/store"))


def checked(found: Audited) -> None:
    assert all(replica.corrupt == 0 and replica.records > 200 for replica in found.replicas)
    assert {"GoldenA", "GoldenB"} <= found.replicas[0].topics.keys()


@pytest.mark.parametrize("name", ["controller", "dledger"])
def test_javas_replicas_agree_where_they_overlap(spark: Any, tmp_path: Path, name: str) -> None:
    found = audit(spark, folders=unpacked(tmp_path, name))
    checked(found)
    assert [pair.first for pair in found.pairs] == [None] * len(found.pairs), lines(found)
    assert found.is_equal and len(found.replicas) == (2 if name == "controller" else 3)
    if name == "controller":
        assert all(replica.epochs for replica in found.replicas)


def test_a_divergence_planted_in_javas_log_is_found(spark: Any, tmp_path: Path) -> None:
    folders = unpacked(tmp_path, "controller")
    path = Path(folders[1]) / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(bytes(data))
    found = audit(spark, folders=folders)
    assert not found.is_equal and found.pairs[0].first is not None and found.pairs[0].first <= 30_000


# ---- bad input ----


@pytest.mark.parametrize(
    ("folders", "more", "words"),
    [
        (["good"], {}, "two or more store folders"),
        (["good", "good/"], {}, "is given twice"),
        (["good", "nowhere"], {}, "there is no such folder"),
        (["good", "without"], {}, "no log is there; looked for"),
        (["good", "empty"], {}, "its log holds no record"),
        (["good", "a,b"], {}, "can't have a comma"),
        (["good"] * 17, {}, "at most 16"),
        (["good", "other"], {"max_record_bytes": "much"}, "maxRecordBytes='much' is no size"),
        (["good", "other"], {"samples": 0}, "samples=0"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(
    spark: Any, tmp_path: Path, folders: list[str], more: dict[str, Any], words: str
) -> None:
    written(tmp_path / "good", replicas.parts())
    written(tmp_path / "other", replicas.parts())
    (tmp_path / "without" / "config").mkdir(parents=True)
    written(tmp_path / "empty", {0: bytearray(SIZE)})
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        audit(spark, folders=[f"{tmp_path}/{folder}" for folder in folders], **more)


def test_an_epoch_file_that_cannot_be_read_is_corrupt(spark: Any, tmp_path: Path) -> None:
    folders = one_and_other(tmp_path, replicas.parts(), epochs=(EPOCHS, EPOCHS))
    (Path(folders[1]) / "epochFileCheckpoint").write_text("2\n17\n1-0\n")
    found = audit(spark, folders=folders)
    assert not found.is_equal and "epochFileCheckpoint" in found.replicas[1].damage[0][1]


def before_it_runs(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """The audit has looked how far the logs go; then this happens, and then they are compared."""
    from perseid.spark.jobs import audit as module

    run = module._run

    def later(*arguments: Any) -> Any:
        happens()
        return run(*arguments)

    monkeypatch.setattr(module, "_run", later)


def test_a_log_that_is_being_written_is_compared_as_far_as_it_was(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replicas.parts()
    half = bytearray(other[2 * SIZE])
    end = [place for place in PLACES if place > 2 * SIZE][5]
    half[end - 2 * SIZE :] = bytes(3 * SIZE - end)
    folders = one_and_other(tmp_path, {**other, 2 * SIZE: half})
    grown = Path(folders[1]) / "commitlog" / f"{2 * SIZE:020d}"
    before_it_runs(monkeypatch, lambda: grown.write_bytes(bytes(other[2 * SIZE])))
    found = audit(spark, folders=folders)
    assert found.is_equal and found.pairs[0].end == end
    assert [replica.is_written for replica in found.replicas] == [False, True]
    assert "its log changed meanwhile" in "".join(lines(found))


def test_a_segment_that_goes_away_meanwhile_is_told(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = one_and_other(tmp_path, replicas.parts())
    before_it_runs(monkeypatch, (Path(folders[1]) / "commitlog" / f"{SIZE:020d}").unlink)
    found = audit(spark, folders=folders)
    assert not found.is_equal and "the file is gone since the audit began" in found.replicas[1].damage[0][1]


def test_a_file_that_was_cut_short_is_corrupt_although_nothing_diverges(spark: Any, tmp_path: Path) -> None:
    other = replicas.parts()
    del other[2 * SIZE][2000:]
    found = audit(spark, folders=one_and_other(tmp_path, other))
    assert not found.is_equal and found.pairs[0].divergences == 0 and found.replicas[1].corrupt == 1
    assert "and the file ends after" in found.replicas[1].damage[0][1]


# ---- the command ----


def test_the_command_says_by_its_exit_code_whether_they_agree(command: Callable[..., Any], tmp_path: Path) -> None:
    other = replicas.parts()
    rebuilt(other, MIDDLE, queue_offset=1)
    left, right = one_and_other(tmp_path, other)
    same = str(written(tmp_path / "same", replicas.parts()))
    report = tmp_path / "report.html"
    good = command("audit", left, same)
    assert good.exit_code == 0 and f"equal from 0 to {PLACES[-1] + replicas.size_at(SOUND, PLACES[-1])}" in good.stdout
    bad = command("audit", left, right, "--json", "--report", report)
    assert bad.exit_code == 3
    told = json.loads(bad.stdout.splitlines()[-1])
    assert told["event"] == "done" and told["pairs"][0]["first"] == MIDDLE and told["equal"] is False
    assert told["pairs"][0]["findings"][0]["fields"] == ["queueOffset"]
    text = report.read_text()
    assert "They do not agree." in text and f"{MIDDLE:,}" in text and "data:image/svg+xml;base64," in text
    wrong = command("audit", left, tmp_path / "nowhere")
    assert wrong.exit_code == 1 and "there is no such folder" in wrong.stderr
    assert command("audit", left, right, "--report", tmp_path / "no" / "r.html").exit_code == 2


def test_the_report_of_replicas_that_agree(spark: Any, tmp_path: Path) -> None:
    text = page(audit(spark, folders=one_and_other(tmp_path, replicas.parts()))).html()
    assert "They agree." in text and "The first divergences" not in text and "<script" not in text
