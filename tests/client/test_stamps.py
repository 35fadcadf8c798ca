"""Stamps: each message of a stamped writer comes once, wherever a reader begins, and whatever was sent again."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.stamps import MAX_LOOK_BACK, STAMP, Placed, Repeats, RepeatsDiffer, home_of, layout_of, parse, runs
from perseid.wire import properties, record

QUEUE = MessageQueue("t", "a", 0)
LAYOUT = layout_of([QUEUE])


def message(offset: int, text: str | None, queue: MessageQueue = QUEUE) -> ReceivedMessage:
    props = properties.encode({STAMP: text}) if text else b""
    raw = record.encode(record.Message(topic=queue.topic, body=b"x", queue_id=queue.queue_id, properties=props))
    record.patch(raw, offset, offset * 100, 1)
    return ReceivedMessage(record.decode(raw), queue.broker_name)


def stamp(batch: int, sequence: int, *, lane: str = "0", since: int = 0, digest: str = "", writer: str = "q") -> str:
    digest = digest or f"{crc32(f'{writer} {batch} {lane} {sequence}'.encode()):08x}"
    return f"{writer}:{batch}:{lane}:{LAYOUT}:{home_of(QUEUE)}:{since}:{sequence}:{digest}"


def read(log: Sequence[ReceivedMessage], begin: int, *, pull: int = 3, repeats: Repeats | None = None) -> list[int]:
    """The offsets that a reader gets that begins at `begin`, in pulls of `pull` messages."""
    repeats = repeats or Repeats(QUEUE, begin)
    got: list[int] = []
    for at in range(begin, len(log), pull):
        found = log[at : min(at + pull, len(log))]
        back = repeats.look_back(found)
        if back is not None:
            assert 0 <= back[0] < back[1] <= at
            repeats.learn(log[back[0] : back[1]])
            repeats.learnt(back[0])
        got += [m.queue_offset for m in repeats.fresh(found)]
    return got


LANES = 2


@st.composite
def logs(draw: st.DrawFn) -> list[ReceivedMessage]:
    """A queue with some batches of a writer: attempts that stop anywhere and interleave, and one that ends."""
    log: list[ReceivedMessage] = []
    for batch in range(draw(st.integers(1, 4))):
        since = len(log)
        attempts: list[list[str]] = []
        for lane in range(LANES):
            whole = [stamp(batch, n, lane=str(lane), since=since) for n in range(draw(st.integers(0, 4)))]
            failed = draw(st.lists(st.integers(0, len(whole)), max_size=2))
            attempts += [whole, *(whole[:length] for length in failed)]
        while any(attempts):
            turn = draw(st.sampled_from([attempt for attempt in attempts if attempt]))
            log.append(message(len(log), turn.pop(0)))
            if draw(st.booleans()):
                log.append(message(len(log), None))
    return log


def firsts(log: Sequence[ReceivedMessage]) -> list[int]:
    """The offsets of the first copies, and of all that has no stamp."""
    seen: set[str] = set()
    found = []
    for one in log:
        text = one.properties.get(STAMP)
        if text is None or text not in seen:
            found.append(one.queue_offset)
        if text is not None:
            seen.add(text)
    return found


@given(logs(), st.integers(1, 5))
def test_each_message_comes_once(log: list[ReceivedMessage], pull: int) -> None:
    assert read(log, 0, pull=pull) == firsts(log)


@given(logs(), st.integers(1, 9))
def test_runs_give_the_same(log: list[ReceivedMessage], pull: int) -> None:
    repeats, got = Repeats(QUEUE, 0), []
    for at in range(0, len(log), pull):
        found = [Placed(m.queue_offset, m.properties.get(STAMP)) for m in log[at : at + pull]]
        cut = runs(one for one in found if one.stamp is not None)
        assert repeats.look_back([run[0] for run in cut]) is None, "it has read all from the beginning"
        again = repeats.repeated(cut)
        got += [one.queue_offset for one in found if one.queue_offset not in again]
    assert got == firsts(log)


def test_a_run_is_of_one_batch_of_one_lane_and_rises() -> None:
    texts = [stamp(0, 0), stamp(0, 1), stamp(0, 5), stamp(0, 5), stamp(1, 6), stamp(1, 7, lane="1"), "x", "x:1"]
    texts.append(stamp(1, 8))
    cut = runs(Placed(at, text) for at, text in enumerate(texts))
    assert [[one.queue_offset for one in run] for run in cut] == [[0, 1, 2], [3], [4], [5], [6], [7], [8]]
    assert len(runs(Placed(at, stamp(0, 0) + more) for at, more in enumerate(("", ":1", "é")))) == 3


@given(logs(), st.data())
def test_a_reader_that_begins_anywhere_goes_on_as_if_it_had_read_all(
    log: list[ReceivedMessage], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(log)))
    assert read(log, begin) == [offset for offset in firsts(log) if offset >= begin]


@given(logs(), st.integers(1, 2))
def test_few_marks_are_enough(log: list[ReceivedMessage], marks: int) -> None:
    repeats = Repeats(QUEUE, 0, max_marks=marks)
    assert read(log, 0, pull=1, repeats=repeats) == firsts(log)
    assert len(repeats._marks) <= marks


def test_the_other_attempt_of_an_older_batch_that_is_late_is_dropped() -> None:
    texts = [stamp(0, 0), stamp(1, 0, since=1), stamp(0, 0), stamp(1, 1, since=1)]
    assert read([message(i, text) for i, text in enumerate(texts)], 0) == [0, 1, 3]


def test_a_reader_reads_back_only_to_where_the_batch_began() -> None:
    repeats = Repeats(QUEUE, 100)
    assert repeats.look_back([message(100, stamp(3, 0, since=100))]) is None
    assert repeats.look_back([message(100, stamp(3, 0, since=90)), message(101, stamp(3, 1, since=90))]) == (90, 100)
    assert repeats.look_back([message(100, None)]) is None


def test_reading_back_has_an_end() -> None:
    begin = MAX_LOOK_BACK + 500
    repeats = Repeats(QUEUE, begin)
    assert repeats.look_back([message(begin, stamp(0, 0, since=0))]) == (500, begin)
    repeats.learnt(500)
    assert repeats.look_back([message(begin, stamp(0, 0, since=0))]) is None


def test_a_copy_in_another_queue_and_retries_are_left_alone() -> None:
    text = stamp(0, 0)
    for queue in (MessageQueue("t", "a", 1), MessageQueue("%RETRY%g", "a", 0), MessageQueue("%DLQ%g", "a", 0)):
        repeats = Repeats(queue, 0)
        assert len(repeats.fresh([message(0, text, queue), message(1, text, queue)])) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "q:0:0:l:h:0:0",
        "q:-1:0:l:h:0:0:d",
        "q:a:0:l:h:0:0:d",
        "q:0:0:l:h:0:0:d:e",
        "q" * 300,
        f"q:{2**70}:0:l:h:0:0:d",
    ],
)
def test_what_is_no_stamp_says_nothing(text: str) -> None:
    assert parse(text) is None


def test_a_batch_that_was_run_again_in_another_order_is_found() -> None:
    log = [message(0, stamp(0, 0, digest="aa")), message(1, stamp(0, 1, digest="bb"))]
    again = [message(2, stamp(0, 0, digest="cc")), message(3, stamp(0, 1, digest="dd")), message(4, stamp(0, 2))]
    with pytest.raises(RepeatsDiffer, match="sequenceBy"):
        Repeats(QUEUE, 0, strict=True).fresh([*log, *again])
    repeats = Repeats(QUEUE, 0)
    assert [m.queue_offset for m in repeats.fresh([*log, *again])] == [0, 1, 3, 4]
    assert (repeats.differing, repeats.dropped) == (1, 1)
