"""What the original's class for policies says is what `recorded/policies.json` holds."""

from __future__ import annotations

import policy_cases
import pytest
import record
import recorded
import rig


def test_the_file_has_each_case() -> None:
    """Without Java: it is the one that `record.py` would ask about."""
    cases = recorded.read(recorded.POLICIES)
    assert [{k: v for k, v in case.items() if k != "refused"} for case in cases] == policy_cases.cases()
    reasons = {case["refused"] for case in cases}
    assert reasons == {"", "no matched policies.", "the decision is deny."}


@pytest.mark.interop
def test_java_decides_as_recorded(java_agent: rig.Agent) -> None:
    assert record.policies(java_agent) == recorded.POLICIES.read_text()
