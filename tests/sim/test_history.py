"""Each promise of the history is broken once."""

from collections.abc import Callable

import msgspec
import pytest

from perseid.sim.facts import Place, Sent
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.wire.record import Message, Record, decode, encode, patch

TOPIC = "orders"


def record(sent: Sent, offset: int, physical: int = 0, queue_id: int = 0) -> Record:
    message = Message(topic=sent.topic, body=sent.body, queue_id=queue_id)
    data = encode(message)
    patch(data, offset, physical, 1)
    return decode(data)


def sent_to(history: History, queue_id: int = 0, attempts: int = 1) -> Sent:
    sent = history.new(TOPIC, queue_id, "producer", 1, 40)
    sent.attempts = attempts
    return sent


def pull(history: History, asked: int, offsets: list[int], following: int, log_start: int = 0) -> None:
    records = [record(sent_to(history), offset) for offset in offsets]
    history.order.pulled(TOPIC, 0, asked, records, following, all_tags=True, log_start=log_start)


def test_what_is_right_is_accepted() -> None:
    history = History()
    sent = sent_to(history, attempts=2)
    history.acknowledged(sent, Place(TOPIC, 0, 5), 100, 1, sure=True)
    assert history.saw(record(sent, 5, 100), 2) is sent
    history.saw(record(sent, 6, 300), 3)
    pull(history, 3, [3, 4], 5)
    pull(history, 3, [], 7)
    history.order.saw_max(TOPIC, 0, 7, floor=history.order.known_max(TOPIC, 0))


def test_a_place_may_change_once_it_is_forgotten() -> None:
    history = History()
    one, two = sent_to(history), sent_to(history)
    history.acknowledged(one, Place(TOPIC, 0, 5), 100, 1, sure=False)
    history.forget([Place(TOPIC, 0, 5)])
    history.acknowledged(two, Place(TOPIC, 0, 5), 100, 1, sure=False)


def test_a_place_that_was_deleted_stays_known_one_that_was_lost_does_not() -> None:
    history = History()
    sent, place = sent_to(history, attempts=2), Place(TOPIC, 0, 5)
    for lost, known in ((False, {place}), (True, set())):
        history.acknowledged(sent, place, 100, 1, sure=False)
        history.forget([place], lost=lost)
        assert (sent.places, history.order.acked) == (known, {})


def place_changes(history: History) -> None:
    one, two = sent_to(history), sent_to(history)
    history.acknowledged(one, Place(TOPIC, 0, 5), 100, 1, sure=False)
    history.saw(record(two, 5, 100), 2)


def never_sent(history: History) -> None:
    other = History()
    history.saw(record(sent_to(other), 0), 1)


def other_bytes(history: History) -> None:
    sent = sent_to(history)
    history.saw(msgspec.structs.replace(record(sent, 0), body=sent.body[:-1] + b"?"), 1)


def other_queue(history: History) -> None:
    history.saw(record(sent_to(history, queue_id=1), 0, queue_id=0), 1)


def other_topic(history: History) -> None:
    history.saw(msgspec.structs.replace(record(sent_to(history), 0), topic="events"), 1)


def a_tag_of_its_own(history: History) -> None:
    history.saw(msgspec.structs.replace(record(sent_to(history), 0), properties=b"TAGS\x01x\x02"), 1)


def twice(history: History) -> None:
    sent = sent_to(history)
    history.saw(record(sent, 0, 0), 1)
    history.saw(record(sent, 1, 200), 1)


def a_gap(history: History) -> None:
    pull(history, 3, [3, 5], 6)


def a_gap_where_something_is(history: History) -> None:
    history.acknowledged(sent_to(history), Place(TOPIC, 0, 4), 500, 1, sure=False)
    pull(history, 3, [3, 5], 6, log_start=100)


def backwards(history: History) -> None:
    pull(history, 3, [4, 4], 5, log_start=100)


def a_wrong_next(history: History) -> None:
    pull(history, 3, [3], 5)


def a_falling_maximum(history: History) -> None:
    history.order.saw_max(TOPIC, 0, 9, 0)
    history.order.saw_max(TOPIC, 0, 8, floor=9)


def a_lost_commit(history: History) -> None:
    for offset in (3, 4):
        commits, number = history.offsets.commit("group", TOPIC, 0, offset, 1)
        commits.unanswered.discard(number)
    history.offsets.saved({f"{TOPIC}@group": {"0": 4}})
    history.life_ended()
    history.offsets.answered("group", TOPIC, 0, 3)


def a_forgotten_commit(history: History) -> None:
    history.offsets.commit("group", TOPIC, 0, 3, 1)
    history.offsets.saved({f"{TOPIC}@group": {"0": 3}})
    history.offsets.answered("group", TOPIC, 0, None)


@pytest.mark.parametrize(
    ("breach", "invariant"),
    [
        (place_changes, "a place never changes"),
        (never_sent, "nothing invented"),
        (other_bytes, "exact bytes"),
        (other_queue, "right queue"),
        (other_topic, "right topic"),
        (a_tag_of_its_own, "exact bytes"),
        (twice, "no duplicates but by retries"),
        (a_gap, "offsets are contiguous"),
        (a_gap_where_something_is, "offsets are contiguous"),
        (backwards, "offsets ascend"),
        (a_wrong_next, "offsets are contiguous"),
        (a_falling_maximum, "the maximum never falls"),
        (a_lost_commit, "committed offsets last"),
        (a_forgotten_commit, "committed offsets last"),
    ],
)
def test_a_broken_promise_is_named(breach: Callable[[History], None], invariant: str) -> None:
    with pytest.raises(Violation) as raised:
        breach(History())
    assert raised.value.invariant == invariant


def test_old_messages_may_be_left_out() -> None:
    history = History()
    history.acknowledged(sent_to(history), Place(TOPIC, 0, 3), 50, 1, sure=False)
    pull(history, 3, [5], 6, log_start=100)


def test_a_commit_without_an_answer_may_come_late() -> None:
    history = History()
    history.offsets.commit("group", TOPIC, 0, 3, 1)
    commits, number = history.offsets.commit("group", TOPIC, 0, 4, 1)
    commits.unanswered.discard(number)
    commits.acked = number
    history.offsets.answered("group", TOPIC, 0, 4)
    history.offsets.answered("group", TOPIC, 0, 3)
