"""Single seeds are played again as they were, on the core or without it."""

import os
import subprocess
import sys

import pytest
from tests.combinations import at_each_change

from perseid import core
from perseid.sim.models.registry import MODELS, command, on_core

DIGEST = "from perseid.sim.models.registry import MODELS; print(MODELS['{}'].run({}).digest)"


@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize("model", at_each_change(("broker", "dledger"), "broker"))
@pytest.mark.parametrize("with_core", [True, False])
def test_a_seed_of_a_campaign_is_the_same_in_a_process_of_its_own(model: str, with_core: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), core.SWITCH: "" if with_core else "off"}
    alone = subprocess.run(
        [sys.executable, "-c", DIGEST.format(model, 12)], env=environment, capture_output=True, text=True, timeout=200,
        check=True,
    )  # fmt: skip
    with on_core(with_core):
        assert MODELS[model].run(12).digest == alone.stdout.strip()


def test_the_command_says_what_has_to_be_switched_off() -> None:
    assert command("broker", 3) == "perseid sim --seed 3"
    assert command("ha", 3, with_core=False) == "PERSEID_CORE=off perseid sim --seed 3 --model ha"
