"""Each message of a stamped writer comes once, wherever a reader begins and whatever was sent again; and what only
looks like a repeat always comes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.client import deduplicator as deduplicator_module
from perseid.client.deduplicator import LIMITS, Deduplicator, Limits
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.stamps import STAMP, placed, runs, sent_on

from .stamped import LAYOUT, QUEUE, message, read, stamp

STREAMS = 2
TIGHT = Limits(messages=3, batches=2, layers=1, look_back=4)


# ---- writers that keep their promises ----


@st.composite
def logs(draw: st.DrawFn) -> list[ReceivedMessage]:
    """A queue with some batches of a writer: attempts that stop anywhere and interleave, and one that ends."""
    log: list[ReceivedMessage] = []
    for batch in range(draw(st.integers(1, 4))):
        since = len(log)
        attempts: list[list[str]] = []
        for stream in range(STREAMS):
            whole = [stamp(batch, n, stream=str(stream), since=since) for n in range(draw(st.integers(0, 4)))]
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


@given(logs(), st.integers(1, 9))
def test_each_message_comes_once(log: list[ReceivedMessage], pull: int) -> None:
    repeats = Deduplicator(QUEUE, 0)
    got = read(log, 0, pull=pull, deduplicator=repeats)
    assert got == firsts(log)
    assert repeats.counts.dropped == len(log) - len(got)
    assert not (repeats.counts.differing or repeats.counts.copied or repeats.counts.untold)


@given(logs(), st.data())
def test_a_reader_that_begins_anywhere_goes_on_as_if_it_had_read_all(
    log: list[ReceivedMessage], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(log)))
    assert read(log, begin) == [offset for offset in firsts(log) if offset >= begin]


@given(logs(), st.integers(1, 2))
def test_what_was_forgotten_is_read_back(log: list[ReceivedMessage], batches: int) -> None:
    repeats = Deduplicator(QUEUE, 0, LIMITS._replace(batches=batches))
    assert read(log, 0, pull=1, deduplicator=repeats) == firsts(log)
    assert len(repeats._seen) <= batches


def test_the_other_attempt_of_an_older_batch_that_is_late_is_dropped() -> None:
    texts = [stamp(0, 0), stamp(1, 0, since=1), stamp(0, 0), stamp(1, 1, since=1)]
    assert read([message(i, text) for i, text in enumerate(texts)], 0) == [0, 1, 3]


def test_gaps_that_a_filter_leaves_are_borne() -> None:
    texts = [stamp(0, n) for n in (0, 3, 4, 9, 4, 3, 0, 5, 9, 10)]
    assert read([message(i, text) for i, text in enumerate(texts)], 0, pull=10) == [0, 1, 2, 3, 7, 9]


def test_a_copy_in_another_queue_and_retries_are_left_alone() -> None:
    text = stamp(0, 0)
    for queue in (MessageQueue("t", "a", 1), MessageQueue("%RETRY%g", "a", 0), MessageQueue("%DLQ%g", "a", 0)):
        repeats = Deduplicator(queue, 0)
        assert read([message(0, text, queue), message(1, text, queue)], 0, deduplicator=repeats) == [0, 1]
        assert not repeats.counts


# ---- reading back ----


def back(repeats: Deduplicator, offset: int, text: str | None) -> tuple[int, int] | None:
    found = [repeats.look_back(run) for run in runs(placed([message(offset, text)]))]
    return found[0] if found else None


def test_a_reader_reads_back_only_to_where_the_batch_began() -> None:
    repeats = Deduplicator(QUEUE, 100)
    assert back(repeats, 100, stamp(3, 0, since=100)) is None
    assert back(repeats, 100, None) is None
    assert back(repeats, 100, stamp(3, 0, since=90)) == (90, 100)
    repeats.learnt(90)
    assert back(repeats, 100, stamp(4, 0, since=90)) is None, "all of it is known"


def test_reading_back_has_an_end() -> None:
    begin = LIMITS.look_back + 500
    repeats = Deduplicator(QUEUE, begin)
    assert back(repeats, begin, stamp(0, 0)) == (500, begin)
    repeats.learnt(500)
    assert back(repeats, begin, stamp(0, 0)) is None


def test_forged_stamps_do_not_make_a_reader_read_back_again_and_again() -> None:
    """Each says that its batch begins at 0, and there is no room to remember what is read back."""
    limits = Limits(messages=5, batches=2, look_back=100)
    log = [message(n, stamp(n, 2**62, writer="stranger")) for n in range(1000)]
    repeats, read_back = Deduplicator(QUEUE, 500, limits), 0
    for at in range(500, 1000):
        for run in runs(placed(log[at : at + 1])):
            if (span := repeats.look_back(run)) is not None:
                read_back += span[1] - span[0]
                repeats.learn(runs(placed(log[span[0] : span[1]])))
                repeats.learnt(span[0])
            assert not repeats.repeated(run, set)
    assert read_back <= 100 + 500
    assert repeats._count <= 5 and len(repeats._seen) <= 2


# ---- what only looks like a repeat ----


def test_a_message_that_was_edited_and_forwarded_is_a_row() -> None:
    log = [message(n, stamp(0, n)) for n in range(3)]
    log += [message(3 + n, stamp(0, n), body=b"edited %d" % n) for n in range(3)]
    repeats = Deduplicator(QUEUE, 0)
    assert read(log, 0, deduplicator=repeats) == list(range(6))
    assert (repeats.counts.dropped, repeats.counts.differing) == (0, 3)
    assert read(log, 3) == [3, 4, 5], "and where the first ones were read back"


def test_a_message_that_was_forwarded_under_a_new_id_is_a_row() -> None:
    log = [message(0, stamp(0, 0)), message(1, stamp(0, 0), UNIQ_KEY="new"), message(2, stamp(0, 0))]
    repeats = Deduplicator(QUEUE, 0)
    assert read(log, 0, deduplicator=repeats) == [0, 1]
    assert (repeats.counts.dropped, repeats.counts.copied) == (1, 1)


@pytest.mark.parametrize("name", ["ORIGIN_MESSAGE_ID", "MIN_OFFSET"])
def test_a_dead_letter_that_was_put_back_as_it_was_is_a_row(name: str) -> None:
    more: dict[str, Any] = {name: "7"}
    log = [message(0, stamp(0, 0)), message(1, stamp(0, 1)), message(2, stamp(0, 0), **more)]
    repeats = Deduplicator(QUEUE, 0)
    assert read(log, 0, deduplicator=repeats) == [0, 1, 2]
    assert (repeats.counts.dropped, repeats.counts.copied) == (0, 1)


def batch_of(first: int, rows: Sequence[str], batch: int, since: int) -> list[ReceivedMessage]:
    found, digest = [], 0
    for n, row in enumerate(rows):
        digest = crc32(row.encode(), digest)
        text = stamp(batch, n, since=since, digest=f"{digest:08x}")
        found.append(message(first + n, text, body=row.encode()))
    return found


def test_batch_numbers_that_come_again_with_other_rows_are_rows() -> None:
    """A checkpoint restored from an older copy: batch 1 is planned anew, with the same rows at first."""
    log = batch_of(0, ["a", "b"], 0, 0)
    log += batch_of(2, ["c", "d"], 1, 2)
    log += batch_of(4, ["e"], 2, 4)
    log += batch_of(5, ["c", "d", "e", "f"], 1, 2)
    log += batch_of(9, ["g", "h"], 2, 4)
    log += batch_of(11, ["g", "h"], 2, 4)
    repeats = Deduplicator(QUEUE, 0)
    bodies = [log[offset].body for offset in read(log, 0, deduplicator=repeats)]
    assert bodies == [b"a", b"b", b"c", b"d", b"e", b"e", b"f", b"g", b"h"]
    assert (repeats.counts.dropped, repeats.counts.differing) == (4, 1)
    assert [log[offset].body for offset in read(log, 9)] == [b"g", b"h"]


def test_another_order_is_handed_out_and_the_warning_names_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    deduplicator_module._warned.clear()
    log = batch_of(0, ["a", "b", "c"], 0, 0) + batch_of(3, ["b", "a", "c", "d"], 0, 0)
    log += batch_of(7, ["b", "a", "c", "d"], 0, 0)
    repeats = Deduplicator(QUEUE, 0)
    with caplog.at_level(logging.WARNING):
        assert read(log, 0, deduplicator=repeats) == list(range(7)), "and the third attempt repeats the second"
    assert (repeats.counts.differing, repeats.counts.dropped) == (3, 4)
    (told,) = caplog.messages
    assert "offset 3 is message 0 of stream 0 of batch 0 of q" in told and "sequenceBy" in told


def test_one_conflicting_stamp_of_a_stranger_changes_nothing_for_the_others() -> None:
    log = [message(n, stamp(0, n)) for n in range(4)]
    forged = [stamp(0, 1, digest="0" * 8), stamp(0, 2**63 - 1), stamp(9, 0, since=2**62)]
    log += [message(4 + n, text) for n, text in enumerate(forged)]
    log += [message(7 + n, stamp(0, n)) for n in range(6)]
    log += [message(13 + n, stamp(0, n)) for n in range(6)]
    assert read(log, 0) == [*range(7), 11, 12]


def test_variants_of_a_batch_that_there_is_no_room_for_come_each_time() -> None:
    log = [message(n, stamp(0, 0, digest=f"{n % 3:08x}")) for n in range(6)]
    repeats = Deduplicator(QUEUE, 0, LIMITS._replace(layers=2))
    assert read(log, 0, deduplicator=repeats) == [0, 1, 2, 5]
    assert (repeats.counts.dropped, repeats.counts.differing) == (2, 3)


def test_the_beginning_of_a_batch_that_is_too_long_is_forgotten_and_that_is_told() -> None:
    log = [message(n, stamp(0, n)) for n in range(12)] + [message(12 + n, stamp(0, n)) for n in range(12)]
    repeats = Deduplicator(QUEUE, 0, LIMITS._replace(messages=10))
    got = read(log, 0, pull=1, deduplicator=repeats)
    assert got[:12] == list(range(12)), "all that is new"
    assert 0 < repeats.counts.untold == len(got) - 12 < 12
    assert repeats._count <= 10


def test_what_is_asked_for_again_is_handed_out_again() -> None:
    (run,) = runs(placed([message(n, stamp(0, n)) for n in range(3)]))
    repeats = Deduplicator(QUEUE, 0)
    assert repeats.repeated(run, set) == repeats.repeated(run, set) == []


def test_each_reason_is_warned_of_once_for_a_queue(caplog: pytest.LogCaptureFixture) -> None:
    deduplicator_module._warned.clear()
    log = [message(0, stamp(0, 0)), message(1, stamp(0, 0), body=b"e"), message(2, stamp(0, 0), UNIQ_KEY="n")]
    log += [message(3, stamp(0, 0), body=b"f"), message(4, stamp(0, 0), UNIQ_KEY="m")]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            read(log, 0)
        begin = LIMITS.look_back + 9
        repeats = Deduplicator(QUEUE, begin)
        for run in runs(placed([message(begin, stamp(0, 0)), message(begin + 1, stamp(0, 1))])):
            repeats.repeated(run, set)
    assert len(caplog.messages) == 3 and repeats.counts.untold == 2
    remedies = ("Leave PERSEID_STAMP out", "sequenceBy", "msgId")
    assert all(any(said in told for told in caplog.messages) for said in remedies)


# ---- random histories ----

Identity = tuple[str, str, bytes, bool]


def identity(one: ReceivedMessage) -> Identity | None:
    """What a message and its repeats share: all of the stamp but `since`, id and body; and that nobody sent it on."""
    text = one.properties.get(STAMP)
    if text is None:
        return None
    parts = text.split(":")
    return (":".join(parts[:5] + parts[6:]), one.properties.get("UNIQ_KEY", ""), one.body, bool(sent_on([one])))


class History:
    """What happens to one queue."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.log: list[ReceivedMessage] = []
        self.genuine: set[Identity] = set()
        self._since: dict[int, int] = {}

    def happen(self) -> None:
        """One thing more: an attempt, a message that is sent on, a forgery, or a plain message."""
        kind = self.draw(st.sampled_from(["attempt", "attempt", "attempt", "forward", "forge", "plain"]))
        if kind == "attempt":
            self._attempt()
        elif kind == "forward" and self.log:
            self._forward(self.draw(st.sampled_from(self.log)))
        elif kind == "forge":
            self._forge()
        else:
            self._put(None, b"plain")

    def _put(self, text: str | None, body: bytes, **more: Any) -> None:
        self.log.append(message(len(self.log), text, body=body, **more))

    def _attempt(self) -> None:
        """A batch's rows, one of three plans of them that begin alike, up to where it is killed."""
        batch, stream = self.draw(st.integers(0, 3)), self.draw(st.integers(0, STREAMS - 1))
        plan, differs_at = self.draw(st.integers(0, 2)), 2
        since = self._since.setdefault(batch, len(self.log))
        digest = 0
        for n in range(self.draw(st.integers(1, 6))):
            body = f"{batch}.{stream}.{n}.{plan if n >= differs_at else 0}".encode()
            digest = crc32(body, digest)
            text = stamp(batch, n, stream=str(stream), since=since, digest=f"{digest:08x}")
            self._put(text, body)
            self.genuine.add(identity(self.log[-1]) or ("", "", b"", False))

    def _forward(self, one: ReceivedMessage) -> None:
        props = {name: value for name, value in one.properties.items() if name not in (STAMP, "UNIQ_KEY")}
        text, body = one.properties.get(STAMP), one.body
        how = self.draw(st.sampled_from(["edited", "new id", "dead letter", "as it is"]))
        own = {} if text is None else {"UNIQ_KEY": one.properties["UNIQ_KEY"]}
        if how == "edited":
            body += b" edited"
        elif how == "new id":
            own = {"UNIQ_KEY": f"new {self.draw(st.integers(0, 2))}"}
        elif how == "dead letter":
            props["ORIGIN_MESSAGE_ID"] = "x"
        self._put(text, body, **{**props, **own})

    def _forge(self) -> None:
        numbers = st.sampled_from([0, 1, 3, 2**31, 2**62, 2**63 - 1])
        text = stamp(
            self.draw(numbers), self.draw(numbers), stream=self.draw(st.sampled_from("01x")), since=self.draw(numbers),
            digest=f"{self.draw(st.integers(0, 2)):08x}",
        )  # fmt: skip
        self._put(text, self.draw(st.sampled_from([b"forged", b"0.0.0.0"])))


def check_nothing_is_lost(log: Sequence[ReceivedMessage], begin: int, got: Sequence[int]) -> None:
    """All that is no repeat of something came; and of repeats one came, unless one stands before the beginning."""
    handed = {identity(log[offset]) for offset in got} | {identity(one) for one in log[:begin]}
    for one in log[begin:]:
        name = identity(one)
        if name is None or name[3] or name[1].startswith("new"):
            assert one.queue_offset in got, "it is no stamped writer's"
        assert name in handed


@given(st.data(), st.integers(1, 12), st.integers(1, 9))
def test_whatever_happens_each_message_comes_and_true_repeats_once(data: st.DataObject, length: int, pull: int) -> None:
    history = History(data)
    for _ in range(length):
        history.happen()
    log = history.log
    got = read(log, 0, pull=pull)
    check_nothing_is_lost(log, 0, got)
    times = Counter(identity(log[at]) for at in got)
    assert {name: times[name] for name in history.genuine} == dict.fromkeys(history.genuine, 1)
    begin = data.draw(st.integers(0, len(log)))
    check_nothing_is_lost(log, begin, read(log, begin, pull=pull))
    for limits in (TIGHT, TIGHT._replace(batches=1, look_back=0), TIGHT._replace(messages=1, layers=3)):
        deduplicator = Deduplicator(QUEUE, begin, limits)
        check_nothing_is_lost(log, begin, read(log, begin, pull=pull, deduplicator=deduplicator))


@given(st.data(), st.integers(1, 10))
def test_ranges_that_are_read_by_themselves_lose_nothing(data: st.DataObject, length: int) -> None:
    """As Spark reads: each range by a reader that knows nothing."""
    history = History(data)
    for _ in range(length):
        history.happen()
    log = history.log
    cuts = sorted({0, len(log), *data.draw(st.lists(st.integers(0, len(log)), max_size=3))})
    got: list[int] = []
    for begin, end in pairwise(cuts):
        got += read(log[:end], begin)
    check_nothing_is_lost(log, 0, got)


def test_the_layout_is_part_of_what_a_message_is() -> None:
    other = stamp(0, 0).replace(f":{LAYOUT}:", ":ffffffff:", 1)
    assert read([message(0, stamp(0, 0)), message(1, other), message(2, other)], 0) == [0, 1]
