"""Ours against what Java's said once: what each request asks for, and what it gets. No Java is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import questions
import recorded
import secured
import verdicts
from differences import DIFFERENCES

from perseid.broker.kernel.request import Connection, Request
from perseid.wire.command import decode, encode_request

DIVERGENCE = Path(__file__).resolve().parents[3] / "docs" / "divergence.md"
HERE = Connection(1, "127.0.0.1:1", "127.0.0.1:2")
FIELDS = questions.Question._fields
VERDICTS = recorded.read(recorded.VERDICTS)


def _once(asks: Sequence[Sequence[Any]]) -> list[tuple[str, list[str]]]:
    """Each resource once: a second look at it decides nothing."""
    first: dict[str, tuple[str, list[str]]] = {}
    for resource, actions in asks:
        first.setdefault(resource, (resource, actions))
    return [*first.values()]


def _asked_by_ours(case: dict[str, Any]) -> list[tuple[str, list[str]]]:
    route = questions.rows()[case["code"]]
    command = decode(encode_request(case["code"], 1, case["ext"], case["body"].encode()))
    header = command.header(route.header) if route.header else None
    asked = route.asks(Request(HERE, command, header), secured.CLUSTER)
    return [(one.key, [action.value for action in one.actions]) for one in asked]


def test_each_request_asks_for_what_it_asks_for_on_java() -> None:
    """Or for more, as `DIFFERENCES` says, whose rows all count."""
    left = {(code, about) for code, difference in DIFFERENCES.items() for about in difference.asks}
    for case in VERDICTS:
        code, about = case["code"], case["about"]
        ours, javas = _once(_asked_by_ours(case)), _once(case["asks"])
        if (code, about) in left:
            left.remove((code, about))
            assert ours == DIFFERENCES[code].asks[about] != javas, f"{code} {about}"
        else:
            assert ours == javas, f"{code} {about}"
    assert not left, "no such questions"


def _expected(case: dict[str, Any]) -> dict[str, str]:
    """What ours says to whom: as on Java, where it asks for the same."""
    difference = DIFFERENCES.get(case["code"])
    if difference is None or case["about"] not in difference.asks:
        return dict(case["verdicts"])
    return {**verdicts.NOT_AUTHENTICATED, **verdicts.by_policies(difference.asks[case["about"]])}


@pytest.mark.slow
def test_each_request_gets_what_it_gets_on_java(tmp_path: Path) -> None:
    """Over the wire, by each kind of user, at a broker as operators start it."""
    cluster = secured.cluster("asked", "perseid", tmp_path)
    try:
        asked = [(questions.Question(*(case[f] for f in FIELDS)), _once(_asked_by_ours(case))) for case in VERDICTS]
        found = verdicts.table(cluster.broker, asked)
    finally:
        cluster.stop()
    wrong = [
        f"{case['code']} {case['about']}: {kind}: {row[kind]}, not {wanted}"
        for case, row in zip(VERDICTS, found, strict=True)
        for kind, wanted in _expected(case).items()
        if row[kind] != wanted
    ]
    assert not wrong, "\n".join(wrong)


def test_each_difference_is_a_row_of_the_document() -> None:
    """By its code."""
    rows = " ".join(line for line in DIVERGENCE.read_text().splitlines() if line.startswith("| users: "))
    named = {int(number) for number in re.findall(r"\b\d+\b", rows)}
    assert {int(code) for code in DIFFERENCES} <= named
