"""Our brokers under controllers: masters killed back and forth under load, alone and with Java brokers.

A stock Java producer's messages are numbered; nothing acknowledged is missing, logs are the same byte for byte in the
end, and so are the files of epochs. What a Java replica loses or mislabels by B2, B9 or B10 is counted and named, where
its own log shows it (broker_sets.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
import ways
from broker_sets import BrokerSet, kill_masters

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(900, 3_600), func_only=True)]

ALONE_OR_THREE = rig.many(1, 3)
SETS = {
    "java_controllers-perseid_perseid": (("java",) * ALONE_OR_THREE, ("perseid", "perseid")),
    "java_controllers-java_perseid": (("java",), ("java", "perseid")),
    "jraft_controllers-perseid_perseid": (("jraft",) * ALONE_OR_THREE, ("perseid", "perseid")),
    "perseid_controllers-perseid_perseid_perseid": (("perseid",) * 3, ("perseid",) * 3),
    **rig.many({}, {
        "jraft_controllers-java_perseid": (("jraft",) * 3, ("java", "perseid")),
        "mixed_controllers-perseid_perseid": (("java", "java", "perseid"), ("perseid", "perseid")),
    }),
}  # fmt: skip
KILLS = rig.many(2, 20)
EVENTS = 1_100
"""Of mixed controllers before the first kill: more than what the original makes an empty snapshot after (B26)."""


@pytest.fixture
def client(perseid_cluster: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    made = rig.Client(java_agent, perseid_cluster)
    yield made
    made.close()


@pytest.mark.parametrize("kinds", ways.in_ci(SETS, "java_controllers-java_perseid"))
def test_masters_are_killed_back_and_forth_and_nothing_is_lost(
    kinds: tuple[tuple[str, ...], tuple[str, ...]], perseid_cluster: rig.Cluster, client: rig.Client, workshop: Path,
    name: str,
) -> None:  # fmt: skip
    made = BrokerSet(perseid_cluster, workshop / f"auto-{name}", *kinds)
    mixed = {"java", "perseid"} <= set(kinds[0])
    try:
        made.start()
        if mixed:
            made.controllers.decide(EVENTS)
        kill_masters(made, client, name, KILLS, lead=mixed)
    finally:
        made.kill()
