"""Defects planted in transactions: each is found within so many seeds, by a client that was promised something else."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perseid.broker.kernel.roles import Roles, nothing
from perseid.broker.node import Broker
from perseid.broker.transactions.service import GROUP, TransactionService
from perseid.sim.models.broker import run as broker_run
from perseid.sim.models.ha import run as ha_run
from perseid.sim.options import Options
from perseid.wire.names import HALF_TOPIC, OP_HALF_TOPIC

from .planted import Mutation, seek

FIRST = 700


def no_self_checks(patch: pytest.MonkeyPatch) -> None:
    """The brokers' own checks of their own state are off: what the defect does has to show."""
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
    no_self_checks(patch)

    def tell(self: TransactionService) -> None:
        if not self.loading:
            offsets, reads, now = self._offsets, self._reads, self._turn.now
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                offsets.commit(topic, GROUP, 0, reads.max_offset(topic, 0), now, 500)

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
    no_self_checks(patch)
    patch.setattr(TransactionService, "_close", lambda self, offset: 0)


ALONE: list[Mutation] = [
    halves_are_delivered,
    every_word_commits,
    decided_as_often_as_told,
    nothing_is_taken_up,
    progress_ahead_of_what_is_open,
    nobody_is_asked,
    checks_are_not_counted,
    committed_halves_stay_open,
]


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("mutation", ALONE)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    seek(mutation, partial(broker_run.run, options=Options(slaves=0, transactions=True, features=())), first=FIRST)


# ---- of a broker set ----


def a_new_master_takes_up_nothing(patch: pytest.MonkeyPatch) -> None:
    """Only what a master began itself is decided."""
    no_self_checks(patch)
    real = Roles.become

    def become(self: Roles, *, master: bool) -> None:
        self._hooks = [one._replace(lead=nothing) if one.name == "transactions" else one for one in self._hooks]
        real(self, master=master)

    patch.setattr(Roles, "become", become)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_a_defect_of_a_new_master_is_found() -> None:
    options = Options(transactions=True, settings={"all_ack": True}, features=())
    seek(a_new_master_takes_up_nothing, partial(ha_run.run, options=options), first=FIRST)
