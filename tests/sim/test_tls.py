"""TLS in the simulator: both kinds of connections in one run, which is the same whatever the keys are."""

from __future__ import annotations

import pytest

from perseid.sim import secured
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

SEED = 35
SHORT = Options(selection=Selection(until_us=30 * US_PER_S))


@pytest.mark.sim
def test_a_seed_with_tls_gives_the_same_run_with_other_keys() -> None:
    assert secured.has_tls(SEED)
    digests = set()
    for _ in range(2):
        secured._contexts.cache_clear()
        result = MODELS["broker"].run(SEED, SHORT)
        assert result.counts["TLS handshake"] > 20 and result.counts["plain bytes where TLS is taken"] > 5
        digests.add(result.digest)
    assert len(digests) == 1


@pytest.mark.sim
@pytest.mark.parametrize("seed", [11, 59])
def test_a_seed_with_tls_keeps_all_promises(seed: int) -> None:
    result = MODELS["broker"].run(seed)
    assert secured.has_tls(seed) and not result.failure, result.failure


def test_a_few_seeds_have_it() -> None:
    assert sum(map(secured.has_tls, range(240))) == 10
