"""Who may ask what of a broker: Java's verdicts, recorded, and ours beside them."""

from __future__ import annotations

import pytest
import questions
import record
import recorded
import rig
import verdicts


def test_the_file_has_each_request() -> None:
    """Those that our route table has rows for, and those of users and policies, as they would be asked."""
    cases = recorded.read(recorded.VERDICTS)
    assert [questions.Question(*(case[name] for name in questions.Question._fields)) for case in cases] == (
        questions.questions()
    )
    assert {case["code"] for case in cases} >= questions.rows().keys()


def test_java_lets_nobody_in_without_a_user() -> None:
    """And a Super user everywhere; what it asks for is what a user needs a policy for."""
    for case in recorded.read(recorded.VERDICTS):
        said, asks = case["verdicts"], case["asks"]
        who = {name: said[name] for name in ("nobody", "unknown", "disabled", "wrong secret")}
        assert who == verdicts.NOT_AUTHENTICATED, case
        assert said["super"] == verdicts.PASSED, case
        assert {k: v for k, v in said.items() if k not in who} == verdicts.by_policies(asks), case


@pytest.mark.interop
@pytest.mark.xdist_group("security")
def test_java_says_what_is_recorded(java_agent: rig.Agent, java_secured: rig.Cluster) -> None:
    assert record.of_java(java_agent, java_secured.broker) == recorded.VERDICTS.read_text()
