"""What clients were answers of queues and of groups' offsets: what one order explains is accepted, everything else is
found. The checks are held against a search through all orders, on small histories."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.sim.models.broker.run import run
from perseid.sim.options import Options
from perseid.sim.promises import linear_queues
from perseid.sim.promises.linear_queues import NEVER_US, LengthAnswer, Queues, Step, explain_offsets, explain_queue
from perseid.sim.promises.offsets import GroupOffsets
from perseid.sim.promises.ordering import QueueOrder

from .planted import seek

times = st.integers(0, 6)


def spans() -> Any:
    return st.tuples(times, times).map(lambda pair: (min(pair), max(pair)))


@st.composite
def answers(draw: Any) -> list[LengthAnswer]:
    ends = draw(st.permutations(range(1, 5)))[: draw(st.integers(0, 4))]
    sends = [LengthAnswer(*draw(spans()), length, True) for length in ends]
    lengths = [LengthAnswer(*draw(spans()), draw(st.integers(0, 4)), False) for _ in range(draw(st.integers(0, 2)))]
    return sends + lengths


def grows(history: list[LengthAnswer]) -> bool:
    """Is there an order? By trying all: each operation at a moment of its own, the queue's other messages between."""
    for order in permutations(history):
        at, length, fits = 0, 0, True
        for one in order:
            at = max(at, one.called)
            before = one.length - 1 if one.is_send else one.length
            if at > one.answered or before < length:
                fits = False
                break
            length = one.length
        if fits:
            return True
    return False


@given(answers())
def test_queues_are_judged_as_by_trying_all_orders(history: list[LengthAnswer]) -> None:
    assert (explain_queue(history) == "") == grows(history), explain_queue(history)


@st.composite
def steps(draw: Any) -> list[Step]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        called, answered = draw(spans())
        commits = draw(st.booleans())
        answered = NEVER_US if commits and draw(st.integers(0, 3)) == 0 else answered
        found.append(Step(called, answered, draw(st.integers(0, 2)), commits))
    return found


def registers(history: list[Step]) -> bool:
    """Is there an order? By trying all, with and without each commit that was not answered."""
    optional = [n for n, one in enumerate(history) if one.answered == NEVER_US]
    for mask in range(1 << len(optional)):
        left = {n for k, n in enumerate(optional) if mask >> k & 1}
        for order in permutations([one for n, one in enumerate(history) if n not in left]):
            at, value = 0, None
            for one in order:
                at = max(at, one.called)
                if at > one.answered or not (one.is_commit or value in (None, one.offset)):
                    break
                value = one.offset
            else:
                return True
    return False


@given(steps())
def test_offsets_are_judged_as_by_trying_all_orders(history: list[Step]) -> None:
    assert (explain_offsets(history) == "") == registers(history), explain_offsets(history)


def test_an_end_from_before_an_acknowledged_send_is_out_of_date() -> None:
    history = [LengthAnswer(0, 5, 1, True), LengthAnswer(6, 7, 0, False)]
    assert explain_queue(history) == "offset 0 was taken by 5 µs, and offset 0 still free at 6 µs"
    assert explain_queue(history, fresh=False) == "", "a master that is none any more may say so"


def test_a_send_behind_another_one_that_began_later_is_found() -> None:
    history = [LengthAnswer(0, 5, 2, True), LengthAnswer(6, 9, 1, True)]
    assert "offset 1 was taken by 5 µs" in explain_queue(history, fresh=False)


def test_an_end_that_nobody_could_have_seen_yet_is_found() -> None:
    history = [LengthAnswer(0, 1, 3, False), LengthAnswer(2, 3, 2, True)]
    assert explain_queue(history, fresh=False)


def test_a_commit_that_is_gone_is_found() -> None:
    history = [Step(0, 1, 5, True), Step(2, 3, 9, True), Step(4, 5, 5, False)]
    assert explain_offsets(history) == "offset 5 was read between 4 and 5 µs, which no order explains"
    late = [*history, Step(1, NEVER_US, 5, True)]
    assert explain_offsets(late) == "", "a commit that nobody answered came late"


def test_a_search_that_takes_too_long_tells_nothing() -> None:
    many = [Step(0, 100, n, True) for n in range(12)] + [Step(0, 100, 99, False), Step(200, 201, 98, False)]
    assert explain_offsets(many, limit=50) is None
    queues = Queues()
    for one in many:
        if one.is_commit:
            queues.committed("g", "t", 0, 1, one.offset, one.called, one.answered)
        else:
            queues.asked("g", "t", 0, 1, one.offset, one.called, one.answered)
    assert explain_offsets(many) is None and not queues.explain()
    assert queues.counts == {"offsets of a group are undecided": 1}


def test_queues_with_losses_are_left_out_and_counted() -> None:
    queues = Queues()
    queues.sent("t", 0, 0, 0, 5)
    queues.ends("t", 0, 0, 6, 7)
    assert queues.explain().startswith("t/0: ")
    queues.lost([("t", 0)])
    assert queues.explain() == "" and queues.counts["queue with losses, not checked for linearizability"] == 1


# ---- planted, with the other checks of the same facts off ----


def others_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupOffsets, "answered", lambda self, *args: None)
    patch.setattr(QueueOrder, "saw_max", lambda self, *args: None)


def ends_are_out_of_date(patch: pytest.MonkeyPatch) -> None:
    """The end that a broker names is that of a moment ago."""
    others_off(patch)
    real = linear_queues.Queues.ends

    def late(self: linear_queues.Queues, topic: str, queue: int, end: int, *when: int) -> None:
        real(self, topic, queue, max(end - 2, 0), *when)

    patch.setattr(linear_queues.Queues, "ends", late)


def commits_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """One commit in three is answered, and not kept."""
    others_off(patch)
    real, calls = ConsumerOffsets.commit, [0]

    def commit(self: ConsumerOffsets, topic: str, group: str, *args: Any) -> Any:
        calls[0] += group == "readers"
        return real(self, topic, group, *args) if group != "readers" or calls[0] % 3 else False

    patch.setattr(ConsumerOffsets, "commit", commit)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize("mutation", [ends_are_out_of_date, commits_are_forgotten])
def test_a_planted_defect_is_found(mutation: Any) -> None:
    seek(mutation, partial(run, options=Options(features=())), promise="linearizable", first=31_000)
