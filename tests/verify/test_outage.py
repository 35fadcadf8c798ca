"""The phases of an outage."""

from __future__ import annotations

import pytest

from perseid.verify import Outage
from perseid.verify.outage import CONTROLLER_PHASES, FIRST_ACK


def outage(**seen: float) -> Outage:
    one = Outage("a", "h:1", CONTROLLER_PHASES, last_ack=10.0, noticed=10.01, time_ms=0)
    for name, at in seen.items():
        one.note(name.replace("_", " "), at, name)
    return one


def lengths(one: Outage) -> dict[str, float]:
    return {part.name: round(part.length_ms, 3) for part in one.phases() if part.seen}


def test_parts_follow_one_another_and_fill_the_window() -> None:
    one = outage(detection=10.003, election=10.020, role_change=10.030, route=10.041)
    assert one.phases() == [] and one.length_ms is None
    one.first_ack = 10.050
    assert lengths(one) == {"detection": 3, "election": 17, "role change": 10, "route": 11, FIRST_ACK: 9}
    assert one.length_ms == pytest.approx(50) == sum(lengths(one).values())


def test_what_was_seen_late_ended_before_what_followed_from_it() -> None:
    one = outage(election=10.020, role_change=10.045, route=10.030)
    one.first_ack = 10.040
    assert lengths(one) == {"election": 20, "role change": 10, "route": 0, FIRST_ACK: 10}
    assert [part.name for part in one.phases() if not part.seen] == ["detection"]


def test_a_known_cause_begins_the_window() -> None:
    one = outage(election=10.020)
    one.cause = type(one.seen["election"])(9.995, "SIGKILL")
    one.first_ack = 10.030
    told = one.to_json()
    assert (told["lengthMs"], told["from"], told["parts"][1]["ms"]) == (35.0, "SIGKILL", 25.0)
