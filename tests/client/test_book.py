"""What a consumer holds of a queue: commit offsets and flow control."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.client.book import FlowLimits, QueueBook
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.wire import record

QUEUE = MessageQueue("t", "a", 0)


def message(offset: int, body: bytes = b"x") -> ReceivedMessage:
    raw = record.encode(record.Message(topic="t", body=body))
    record.patch(raw, offset, offset * 100, 1)
    return ReceivedMessage(record.decode(raw), "a")


def test_only_what_is_done_from_the_beginning_on_is_committed() -> None:
    book = QueueBook(QUEUE, 10)
    book.add([message(10), message(11), message(13)], 15)
    assert book.commit_offset == 10
    book.done(11)
    assert book.commit_offset == 10
    book.done(10)
    assert book.commit_offset == 13, "12 was filtered out: nobody will ever finish it"
    book.done(13)
    assert book.commit_offset == 15, "the next pull begins there"


def test_done_twice_counts_once() -> None:
    book = QueueBook(QUEUE, 0)
    book.add([message(0), message(1)], 2)
    book.done(0)
    book.done(0)
    assert (book.commit_offset, len(book.messages)) == (1, 1)


def test_messages_that_are_held_already_are_not_taken_twice() -> None:
    book = QueueBook(QUEUE, 0)
    assert len(book.add([message(0), message(1)], 2)) == 2
    assert [m.queue_offset for m in book.add([message(1), message(2)], 3)] == [2]


def test_flow_control_looks_at_count_bytes_and_span() -> None:
    limits = FlowLimits(max_messages=3, max_bytes=5000, max_span=20)
    book = QueueBook(QUEUE, 0)
    book.add([message(i) for i in range(3)], 3)
    assert book.full(limits) == ""
    book.add([message(3)], 4)
    assert "4 messages" in book.full(limits)
    for offset in (1, 2, 3):
        book.done(offset)
    assert book.full(limits) == ""
    book.add([message(21)], 22)
    assert "21 apart" in book.full(limits)
    assert book.full(limits, ordered=True) == ""
    book.add([message(22, b"y" * 6000)], 23)
    assert "bytes" in book.full(limits, ordered=True)


def test_the_defaults_are_the_java_clients() -> None:
    assert FlowLimits() == FlowLimits(1000, 100 * 1024 * 1024, 2000)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_nothing_unfinished_is_ever_below_the_commit_offset(data: st.DataObject) -> None:
    book = QueueBook(QUEUE, 0)
    open_offsets: set[int] = set()
    following, committed = 0, 0
    for _ in range(data.draw(st.integers(1, 20))):
        if open_offsets and data.draw(st.booleans()):
            offset = data.draw(st.sampled_from(sorted(open_offsets)))
            book.done(offset)
            open_offsets.remove(offset)
        else:
            fresh = sorted(data.draw(st.sets(st.integers(following, following + 5), max_size=4)))
            following += 6
            book.add([message(offset) for offset in fresh], following)
            open_offsets |= set(fresh)
        assert book.commit_offset == min(open_offsets, default=following)
        assert book.commit_offset >= committed, "an offset never goes back"
        committed = book.commit_offset
        assert len(book.messages) == len(open_offsets)
        assert book.bytes == sum(m.record.size for m in book.messages.values())
        assert book.span == (max(open_offsets) - min(open_offsets) if open_offsets else 0)
