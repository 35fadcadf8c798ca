"""Which features the models play, as the documents say; and a run that misses one of their states has failed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from perseid.sim import coverage
from perseid.sim.coverage import FEATURES
from perseid.sim.features.places import Places
from perseid.sim.features.played import KNOWN, drawn
from perseid.sim.models.registry import MODELS, play
from perseid.sim.promises import Violation
from perseid.sim.selection import Selection

from .ha_stage import Stage as ClusterStage

TESTING = Path(__file__).parents[2] / "docs" / "testing.md"
ROW = re.compile(r"^\| (\w+) \|" + r" (yes|no)[^|]*\|" * 4, re.MULTILINE)


def test_the_table_of_features_is_what_is_played() -> None:
    rows = {row[0]: dict(zip(("broker", "acting", "dledger", "ha"), row[1:], strict=True))
            for row in ROW.findall(TESTING.read_text())}  # fmt: skip
    assert len(rows) >= 5
    for model, known in KNOWN.items():
        for name in known:
            assert rows[name][model] == "yes", f"{name} is played in {model}"
        for name in set().union(*KNOWN.values()) - known.keys():
            by_another = name == "pop" and model in ("broker", "acting")
            assert (rows[name][model] == "yes") == by_another, f"{name} is not played in {model} by `sim/features`"


@pytest.mark.parametrize("model", KNOWN)
def test_what_features_meet_is_expected(model: str) -> None:
    missing = coverage.missing(Counter(), MODELS[model].expected)
    for name in KNOWN[model]:
        assert f"feature {name}" in missing and set(FEATURES[name]) <= set(missing)


def test_each_feature_is_drawn_for_itself() -> None:
    alone = [seed for seed in range(200) if list(drawn("ha", seed, None)) == ["lite"]]
    assert alone and all("lite" in drawn("broker", seed, None) for seed in alone)
    shares = Counter(name for seed in range(500) for name in drawn("ha", seed, None))
    assert all(150 < shares[name] < 250 for name in KNOWN["ha"])
    assert list(drawn("ha", 1, ("pop", "batches"))) == ["pop", "batches"]


def test_features_are_parts_that_can_be_left_out_and_swarms_draw_them() -> None:
    part = Selection(only_parts=frozenset({"pop", "client1"}))
    assert list(drawn("ha", 1, ("pop", "batches"), part)) == ["pop"]
    swarm, names = Selection(swarm=True), tuple(KNOWN["ha"])
    whole = {seed: set(drawn("ha", seed, None)) for seed in range(300)}
    fewer = {seed: set(drawn("ha", seed, None, swarm)) for seed in whole}
    assert all(fewer[seed] <= whole[seed] for seed in whole)
    for name in names:
        had = [seed for seed in whole if name in whole[seed]]
        assert len(had) / 2 < sum(name in fewer[seed] for seed in had) < len(had), name


@pytest.mark.once
@pytest.mark.sim
def test_what_is_left_of_a_seed_says_which_features_it_has() -> None:
    whole = play("broker", 9_000_007)
    features = set(drawn("broker", 9_000_007, None))
    assert features and features < whole.parts
    part = play("broker", 9_000_007, Selection(only_parts=frozenset({"static"})))
    assert not part.failure and part.parts == {"static"} & features
    assert [name for name in FEATURES if part.counts[f"feature {name}"]] == sorted(part.parts)


@pytest.mark.sim
def test_nothing_is_copied_everywhere_while_somebody_in_sync_is_away() -> None:
    """A topic was made, its master was killed at once, and the others had the same: the tables of a fresh broker (seed:
    ha 731000000). Who is away may lead when it is back, with what it had."""
    cluster = ClusterStage(2)
    copied = cluster.ha.stage.copied
    for away in (cluster.slaves[0], cluster.master):
        cluster.until(copied, "all have the same tables")
        cluster.ha.crash(away)
        assert not copied()
        cluster.ha.restart(away)


class Counts:
    """As much of a stage as a history asks."""

    losses = unread = 0

    def holds(self, mark: int) -> bool:
        return mark == self.losses


def test_a_place_keeps_its_message_until_something_may_be_lost() -> None:
    stage = Counts()
    places = Places(stage, "t")  # type: ignore[arg-type]
    first, second = places.new(0, 8), places.new(0, 8)
    places.acknowledged((0, 5), first, 0)
    assert places.certain() == {(0, 5): first.value}
    with pytest.raises(Violation, match="a place keeps its message"):
        places.observed((0, 5), second.value, 0)
    stage.losses = 1
    assert places.certain() == {}
    places.observed((0, 5), second.value, 1)
    stage.unread = 1
    places.observed((0, 5), second.value, 1)
    with pytest.raises(Violation, match="a place keeps its message"):
        places.observed((0, 5), first.value, 1)
