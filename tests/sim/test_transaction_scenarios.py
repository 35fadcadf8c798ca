"""What a word does whose half is gone: the scenarios hold, and each way to do the word fails them if it looks at
nothing but the place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid import core
from perseid.broker.fast_path.core_turns import CoreCommits
from perseid.broker.transactions import requests as handlers
from perseid.sim.promises import Violation

from .transaction_scenarios import SCENARIOS, sent_anew

Scenario = Callable[[bool], None]


@pytest.mark.sim
@pytest.mark.parametrize("oneway", [False, True], ids=["answered", "oneway"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_word_does_nothing_to_the_half_at_its_place(scenario: Scenario, oneway: bool) -> None:
    scenario(oneway)


@pytest.mark.sim
@pytest.mark.parametrize("oneway", [False, True], ids=["answered", "oneway"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_handler_that_believes_words_is_noticed(
    scenario: Scenario, oneway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "names_another", lambda word, half: False)
    with pytest.raises(Violation):
        scenario(oneway)


@pytest.mark.sim
@pytest.mark.skipif(core.compiled is None, reason="there is no compiled core")
def test_a_core_that_believes_words_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = CoreCommits.commit

    def commit(self: CoreCommits, physical: int, offset: int, group: str, transaction_id: str | None) -> int:
        return real(self, physical, offset, group, None)

    monkeypatch.setattr(CoreCommits, "commit", commit)
    with pytest.raises(Violation, match="only what is committed is read"):
        sent_anew(oneway=True)
