"""Which features each model plays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from perseid.sim.features.batches import Batches
from perseid.sim.features.compaction import Compaction
from perseid.sim.features.lite import Lite
from perseid.sim.features.pop import Pop
from perseid.sim.features.stage import Making
from perseid.sim.features.static import Static
from perseid.sim.selection import WHOLE, Chosen, Selection

SHARE = 0.4
"""Of the seeds: so many play a feature."""

KNOWN: dict[str, dict[str, Making]] = {
    "broker": {"batches": Batches, "compaction": Compaction, "lite": Lite, "static": Static},
    "acting": {"batches": Batches, "compaction": Compaction, "lite": Lite, "static": Static},
    "dledger": {"pop": Pop, "batches": Batches, "compaction": Compaction, "static": Static},
    "ha": {"pop": Pop, "batches": Batches, "compaction": Compaction, "lite": Lite, "static": Static},
}
"""Model → name → what makes it. POP in the first two is in `sim/models/broker/poppers.py`, with all that is sent there;
the log of a Raft group has no light queues, and refuses a store that is to have them."""


STORE: dict[str, dict[str, Any]] = {
    "lite": {"enable_lmq": True, "enable_multi_dispatch": True},
    "compaction": {
        "compaction_schedule_internal": 4_000,
        "compaction_mapped_file_size": 4_096,
        "compaction_cq_mapped_file_size": 46 * 20,
    },
}
"""Feature → settings of stores where it is played."""


def store_settings(names: Iterable[str]) -> dict[str, Any]:
    """Settings of stores for these features."""
    return {key: value for name in names for key, value in STORE.get(name, {}).items()}


def drawn(
    model: str, seed: int, given: Sequence[str] | None, selection: Selection = WHOLE
) -> dict[str, Making]:
    """The features that a seed plays. `given`: names, instead of what it draws; `selection`: less of them, each is a
    part by its name."""
    known = KNOWN[model]
    if given is None:
        given = [name for name in known if Random(f"{seed}/feature {name}").random() < SHARE]
    chosen = Chosen(seed, selection)
    return {name: make for name, make in known.items() if name in given and chosen.has(name)}
