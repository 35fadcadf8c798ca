"""SQL92 filters: our expressions beside the original's, then whole consumers, stock and ours, on both brokers."""

from __future__ import annotations

from typing import Any

import pytest
import rig
from tests.sql_cases import Draw

from perseid.broker import sql92

pytestmark = pytest.mark.interop
CASES = 20_000


def ours(case: dict[str, Any]) -> str:
    """As the agent tells what Java's comes to."""
    try:
        expression = sql92.parse(case["expr"])
    except sql92.SqlError:
        return "refused"
    try:
        value = expression.result(case["properties"].get)
    except sql92.NotComparable:
        return "failed"
    return {True: "true", False: "false", None: "null"}.get(value, str(value))  # type: ignore[call-overload]


def test_drawn_expressions_come_to_what_they_come_to_in_java(java_agent: rig.Agent) -> None:
    draw = Draw(5)
    cases = [draw.case() for _ in range(CASES)]
    theirs: list[str] = []
    for first in range(0, CASES, 1000):
        theirs += java_agent("sql92", cases=cases[first : first + 1000])
    differ = [(case, java, ours(case)) for case, java in zip(cases, theirs, strict=True) if java != ours(case)]
    assert not differ, f"{len(differ)}: {differ[:10]}"
    assert {"true", "false", "null", "refused", "failed"} <= set(theirs)
