"""Defects planted in transactions: each is found within so many seeds, by a client that was promised something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perseid.broker import switch
from perseid.broker.node import Broker
from perseid.broker.system_topics import HALF_TOPIC, OP_HALF_TOPIC
from perseid.broker.transactions import GROUP, TransactionService
from perseid.sim import ha_run
from perseid.sim import run as broker_run
from perseid.sim.run import Result

FIRST = 700
Mutation = Callable[[pytest.MonkeyPatch], None]


def no_books(patch: pytest.MonkeyPatch) -> None:
    """The brokers' own checks of their books are off: what the defect does has to show."""
    patch.setattr(Broker, "validate", lambda self: None)


def halves_are_delivered(patch: pytest.MonkeyPatch) -> None:
    """A half goes to its topic at once."""
    patch.setattr(TransactionService, "prepare", lambda self, message, properties: None)


def every_word_commits(patch: pytest.MonkeyPatch) -> None:
    """A half that is rolled back is delivered."""
    real = TransactionService.decide

    def decide(self: TransactionService, offset: int, half: Any, *, commit: bool) -> int:
        return real(self, offset, half, commit=True)

    patch.setattr(TransactionService, "decide", decide)


def decided_as_often_as_told(patch: pytest.MonkeyPatch) -> None:
    """Each word counts, as in the original."""
    patch.setattr(TransactionService, "current", lambda self, offset: self._moved.get(offset, offset))


def nothing_is_taken_up(patch: pytest.MonkeyPatch) -> None:
    """What was open before a start is forgotten."""
    patch.setattr(TransactionService, "_load_half", lambda self, offset, removed: None)


def progress_ahead_of_what_is_open(patch: pytest.MonkeyPatch) -> None:
    """The next start begins behind halves that are open."""
    no_books(patch)

    def tell(self: TransactionService) -> None:
        if not self.loading:
            offsets, store, now = self._broker.offsets, self._broker.store, self._broker.now
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                offsets.commit(topic, GROUP, 0, store.max_offset(topic, 0), now, 500)

    patch.setattr(TransactionService, "_tell", tell)


def nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    """Halves wait for a word for ever."""

    def check(self: TransactionService, offset: int, half: Any, now: int) -> bool:
        return False

    patch.setattr(TransactionService, "_check", check)


def checks_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A producer that says nothing is asked once more than it may be."""
    real = TransactionService._ask

    def ask(self: TransactionService, offset: int, half: Any, times: int, now: int) -> None:
        real(self, offset, half, times + 1, now)

    patch.setattr(TransactionService, "_ask", ask)


def committed_halves_stay_open(patch: pytest.MonkeyPatch) -> None:
    """What is committed is asked about again."""
    no_books(patch)
    patch.setattr(TransactionService, "_close", lambda self, offset: 0)


ALONE: list[tuple[Mutation, int]] = [
    (halves_are_delivered, 10),
    (every_word_commits, 10),
    (decided_as_often_as_told, 30),
    (nothing_is_taken_up, 20),
    (progress_ahead_of_what_is_open, 30),
    (nobody_is_asked, 10),
    (checks_are_not_counted, 20),
    (committed_halves_stay_open, 20),
]


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(("mutation", "within"), ALONE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_defect_is_found(mutation: Mutation, within: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found(mutation, within, monkeypatch, lambda seed: broker_run.run(seed, slaves=0, transactions=True))


# ---- of a broker set ----


def a_new_master_takes_up_nothing(patch: pytest.MonkeyPatch) -> None:
    """Only what a master began itself is decided."""
    no_books(patch)
    rows = tuple(part._replace(master=lambda broker: None) if part.name == "transactions" else part
                 for part in switch.PARTS)  # fmt: skip
    patch.setattr(switch, "PARTS", rows)


@pytest.mark.once
@pytest.mark.sim
def test_a_defect_of_a_new_master_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    play: Callable[[int], Result] = lambda seed: ha_run.run(seed, transactions=True, all_ack=True)  # noqa: E731
    found(a_new_master_takes_up_nothing, 10, monkeypatch, play)


BEGIN = {progress_ahead_of_what_is_open: 22}
"""Seeds that are left out, of defects that many pass over: shortly before the first that finds it."""


def found(mutation: Mutation, within: int, patch: pytest.MonkeyPatch, play: Callable[[int], Result]) -> None:
    mutation(patch)
    for seed in range(FIRST + BEGIN.get(mutation, 0), FIRST + within):
        result = play(seed)
        if result.failure:
            patch.undo()
            if not play(seed).failure:
                first = result.failure.splitlines()[0]
                print(f"{mutation.__name__}: found by seed {seed - FIRST + 1} of {within}: {first}")
                return
            mutation(patch)
    raise AssertionError(f"{mutation.__name__} was not found in {within} seeds: {mutation.__doc__}")
