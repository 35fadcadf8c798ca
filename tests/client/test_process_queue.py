"""What a consumer holds of a queue: commit offsets and flow control."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.process_queue import FlowLimits, ProcessQueue
from perseid.wire import record

QUEUE = MessageQueue("t", "a", 0)


def message(offset: int, body: bytes = b"x") -> ReceivedMessage:
    raw = record.encode(record.Message(topic="t", body=body))
    record.patch(raw, offset, offset * 100, 1)
    return ReceivedMessage(record.decode(raw), "a")


def test_only_what_is_done_from_the_beginning_on_is_committed() -> None:
    process_queue = ProcessQueue(QUEUE, 10)
    process_queue.add([message(10), message(11), message(13)], 15)
    assert process_queue.commit_offset == 10
    process_queue.done(11)
    assert process_queue.commit_offset == 10
    process_queue.done(10)
    assert process_queue.commit_offset == 13, "12 was filtered out: nobody will ever finish it"
    process_queue.done(13)
    assert process_queue.commit_offset == 15, "the next pull begins there"


def test_done_twice_counts_once() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.add([message(0), message(1)], 2)
    process_queue.done(0)
    process_queue.done(0)
    assert (process_queue.commit_offset, len(process_queue.messages)) == (1, 1)


def test_messages_that_are_held_already_are_not_taken_twice() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    assert len(process_queue.add([message(0), message(1)], 2)) == 2
    assert [m.queue_offset for m in process_queue.add([message(1), message(2)], 3)] == [2]


def test_flow_control_looks_at_count_bytes_and_span() -> None:
    limits = FlowLimits(max_messages=3, max_bytes=5000, max_span=20)
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.add([message(i) for i in range(3)], 3)
    assert process_queue.full(limits) == ""
    process_queue.add([message(3)], 4)
    assert "4 messages" in process_queue.full(limits)
    for offset in (1, 2, 3):
        process_queue.done(offset)
    assert process_queue.full(limits) == ""
    process_queue.add([message(21)], 22)
    assert "21 apart" in process_queue.full(limits)
    assert process_queue.full(limits, ordered=True) == ""
    process_queue.add([message(22, b"y" * 6000)], 23)
    assert "bytes" in process_queue.full(limits, ordered=True)


def test_the_defaults_are_the_java_clients() -> None:
    assert FlowLimits() == FlowLimits(1000, 100 * 1024 * 1024, 2000)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_nothing_unfinished_is_ever_below_the_commit_offset(data: st.DataObject) -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    open_offsets: set[int] = set()
    following, committed = 0, 0
    for _ in range(data.draw(st.integers(1, 20))):
        if open_offsets and data.draw(st.booleans()):
            offset = data.draw(st.sampled_from(sorted(open_offsets)))
            process_queue.done(offset)
            open_offsets.remove(offset)
        else:
            fresh = sorted(data.draw(st.sets(st.integers(following, following + 5), max_size=4)))
            following += 6
            process_queue.add([message(offset) for offset in fresh], following)
            open_offsets |= set(fresh)
        assert process_queue.commit_offset == min(open_offsets, default=following)
        assert process_queue.commit_offset >= committed, "an offset never goes back"
        committed = process_queue.commit_offset
        assert len(process_queue.messages) == len(open_offsets)
        assert process_queue.bytes == sum(m.record.size for m in process_queue.messages.values())
        assert process_queue.span == (max(open_offsets) - min(open_offsets) if open_offsets else 0)
