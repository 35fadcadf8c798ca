"""One kill of each kind, while an archive and a sink run; `make soak` has fifty (tests/spark/kills/soak.py)."""

from collections import Counter
from pathlib import Path

import pytest
from tests.spark.kills.soak import KINDS, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SEED = 8


@pytest.mark.long
def test_what_was_killed_leaves_each_message_once(tmp_path: Path) -> None:
    outcome = run(tmp_path, len(KINDS), SEED)
    print(outcome)
    assert outcome.kills == Counter(KINDS)
    assert outcome.found.source >= outcome.found.acknowledged > 0
