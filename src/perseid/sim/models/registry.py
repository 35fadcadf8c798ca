"""What can be played, and how a single seed of it is played again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perseid import core
from perseid.sim import coverage
from perseid.sim.models.broker.run import Result, run, run_acting
from perseid.sim.models.dledger import run as dledger_run
from perseid.sim.models.ha import run as ha_run
from perseid.sim.models.raft import run as raft_run
from perseid.sim.options import Options
from perseid.sim.selection import WHOLE, Selection


class Model(NamedTuple):
    """A way to play a seed, and what a long run has to have met."""

    run: Callable[[int, Options], Result]
    expected: coverage.Expected
    of_swarms: coverage.Expected
    """Besides, if there were swarms."""

    def wanted(self, *, swarms: bool) -> coverage.Expected:
        """What is expected of a run that had swarms, or none."""
        return self.expected | self.of_swarms if swarms else self.expected


MODELS: dict[str, Model] = {
    "broker": Model(run, coverage.EXPECTED, coverage.OF_SLAVES),
    "acting": Model(run_acting, coverage.ACTING_EXPECTED, coverage.OF_SLAVES),
    "raft": Model(raft_run.run, coverage.RAFT_EXPECTED, coverage.OF_MEMBERS),
    "dledger": Model(dledger_run.run, coverage.DLEDGER_EXPECTED, coverage.OF_MEMBERS),
    "ha": Model(ha_run.run, coverage.HA_EXPECTED, coverage.OF_MEMBERS),
}

FORMERLY = {"group": "dledger"}
"""Names that models had before, which commands of older failures say."""


MINOR = (" synced ", " saved ", " debug: ")
"""Words of lines that a story leaves out."""


def shortened(story: list[str]) -> list[str]:
    """A trace without what only disks do."""
    return [line for line in story if not any(words in line for words in MINOR)]


@contextmanager
def on_core(wanted: bool) -> Iterator[None]:
    """What is played meanwhile has the compiled core, if it is `wanted` and there is one, or plain Python."""
    before = core.compiled
    core.compiled = before if wanted else None
    try:
        yield
    finally:
        core.compiled = before


def play(model: str, seed: int, selection: Selection = WHOLE, *, story: bool = False) -> Result:
    """Play a seed, or the part of it that is selected; never raises for what the nodes did wrong. Unless `selection`
    knows how faults began, and how slow the clients were, when all was played, all is played first."""
    runner = MODELS[model].run
    if selection.needs_whole and not selection.begun:
        whole = runner(seed, Options(selection=Selection(swarm=selection.swarm, rarities=selection.rarities)))
        selection = selection.knowing(whole.begun, whole.paces)
    return runner(seed, Options(story=story, selection=selection))


def command(model: str, seed: int, selection: Selection = WHOLE, *, with_core: bool = True) -> str:
    """The command that plays a seed, or a part of it, again. `with_core`: as it is; without it where it was played
    without."""
    plain = "" if with_core else f"{core.SWITCH}=off "
    words = ["perseid", "sim", "--seed", str(seed), *([] if model == "broker" else ["--model", model])]
    return plain + shlex.join([*words, *selection.arguments()])
