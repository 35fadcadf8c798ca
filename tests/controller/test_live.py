"""Who is alive."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.controller import live
from perseid.controller.live import GRAIN_MS, Liveness, Row
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest

T0 = 1_000_000
KEY = "c", "b", 1
HOME = "10.0.0.1:4000"


def beat(number: int = 1, **more: Any) -> BrokerHeartbeatRequest:
    members: dict[str, Any] = {"cluster_name": "c", "broker_addr": f"h:{number}", "broker_name": "b"}
    return BrokerHeartbeatRequest(**members | {"broker_id": number, "heartbeat_timeout_mills": 3_000} | more)


def heard(table: Liveness, conn: int = 1, now: int = T0, peer: str = HOME, **more: Any) -> Row | None:
    request = beat(**more)
    assert request.broker_id is not None
    row = table.heard(request, request.broker_id, conn, peer, now)
    table.validate()
    return row


def test_alive_from_the_first_heartbeat_until_the_timeout_that_it_names() -> None:
    table = Liveness()
    row = heard(table)
    assert row is not None and row.key == KEY and table.alive(*KEY) is row
    assert heard(table, now=T0 + 1_000) is None, "it was alive"
    assert not table.expired(T0 + 4_000) and table.alive(*KEY)
    due = table.next_deadline()
    assert due is not None and T0 + 4_000 < due <= T0 + 4_000 + GRAIN_MS
    assert table.expired(due) == [row] and table.alive(*KEY) is None
    assert table.expired(due + 10_000) == [] and table.next_deadline() is None
    assert heard(table, now=due + 1) is row, "it is back"


def test_a_heartbeat_without_a_timeout_has_ten_seconds() -> None:
    table = Liveness()
    heard(table, heartbeat_timeout_mills=None)
    assert not table.expired(T0 + 10_000) and len(table.expired(T0 + 10_001 + GRAIN_MS)) == 1


def test_a_shorter_timeout_counts_at_once() -> None:
    table = Liveness()
    heard(table, heartbeat_timeout_mills=60_000)
    heard(table, heartbeat_timeout_mills=100, now=T0 + 1)
    assert len(table.expired(T0 + 101 + GRAIN_MS)) == 1


@pytest.mark.parametrize("timeout", [-(2**63), -1, 0, 2**63 - 1])
def test_timeouts_that_make_no_sense_are_bounded(timeout: int) -> None:
    table = Liveness()
    heard(table, heartbeat_timeout_mills=timeout)
    assert 1 <= table.rows[KEY].timeout_ms <= live.MAX_TIMEOUT_MS


def test_the_channel_that_closes_takes_its_broker_with_it() -> None:
    table = Liveness()
    row = heard(table, conn=5)
    assert table.closed(6) == [] and table.alive(*KEY)
    assert table.closed(5) == [row] and table.alive(*KEY) is None
    table.validate()


def test_b19_only_the_current_channel_counts() -> None:
    table = Liveness()
    heard(table, conn=5)
    heard(table, conn=6, now=T0 + 1_000)
    assert table.closed(5) == [] and table.alive(*KEY)
    assert len(table.closed(6)) == 1


def test_what_a_broker_says_of_its_log_may_go_down() -> None:
    """After a truncation it is shorter, and must not be elected for what it had."""
    table = Liveness()
    heard(table, epoch=2, max_offset=900)
    heard(table, epoch=2, max_offset=300, election_priority=3, confirm_offset=1)
    row = table.rows[KEY]
    assert (row.epoch, row.max_offset, row.priority, row.confirm_offset) == (2, 300, 3, 1)


def test_a_copied_disk_an_id_that_is_alive_at_another_address_is_not_taken_over() -> None:
    table = Liveness()
    heard(table, conn=5)
    with pytest.raises(KeyError, match="alive"):
        table.heard(beat(broker_addr="copy:1"), 1, 6, HOME, T0 + 1)
    table.closed(5)
    assert heard(table, conn=6, broker_addr="copy:1", now=T0 + 2) is not None, "once the other one is dead"


def test_no_judgement_of_a_broker_never_heard() -> None:
    table = Liveness(judging_from=T0 + 10_000)
    assert table.may_live(*KEY, T0) and table.alive(*KEY) is None
    assert not table.may_live(*KEY, T0 + 10_000)
    heard(table, conn=5)
    table.closed(5)
    assert not table.may_live(*KEY, T0), "it was heard, and is dead"


def test_there_are_only_so_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_ROWS", 3)
    table = Liveness()
    for number in (1, 2, 3):
        heard(table, conn=number, number=number)
    with pytest.raises(KeyError, match="3 brokers"):
        table.heard(beat(4), 4, 4, HOME, T0)
    table.closed(2)
    assert heard(table, conn=4, number=4) is not None and ("c", "b", 2) not in table.rows


STEPS = st.lists(
    st.tuples(st.sampled_from(["beat", "close", "wait"]), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2_000)),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_a_broker_is_alive_as_long_as_it_is_heard(steps: list[tuple[str, int, int, int]]) -> None:
    table, now = Liveness(), T0
    last: dict[int, tuple[int, int]] = {}
    for what, number, conn, ms in steps:
        now += ms
        for row in table.expired(now):
            heard_at, _ = last.pop(row.broker_id)
            assert now - heard_at > 3_000
        if what == "beat":
            came = table.heard(beat(number), number, conn, HOME, now)
            assert (came is None) == (number in last)
            last[number] = now, conn
        elif what == "close":
            gone = {row.broker_id for row in table.closed(conn)}
            assert gone == {one for one, (_, its) in last.items() if its == conn}
            last = {one: seen for one, seen in last.items() if one not in gone}
        table.validate()
        assert {row.broker_id for row in table.rows.values() if row.alive} == last.keys()
        assert all(now - heard_at <= 3_000 + GRAIN_MS for heard_at, _ in last.values())


def test_the_channel_of_a_broker_alive_is_not_taken_by_another_machine() -> None:
    """A stranger's heartbeat in a master's name, and the end of its connection, would end the master."""
    table = Liveness()
    heard(table, broker_addr="10.0.0.1:1")
    with pytest.raises(KeyError, match=r"come from 10\.0\.0\.1"):
        heard(table, 6, peer="10.9.9.9:5", broker_addr="10.0.0.1:1")
    assert table.closed(6) == [] and table.alive(*KEY)
    heard(table, 7, peer="10.0.0.1:4001", broker_addr="10.0.0.1:1")
    assert [row.key for row in table.closed(7)] == [KEY], "its own machine's newest is its channel"


def test_a_broker_gets_its_channel_back_from_a_stranger() -> None:
    """The stranger was there first, while nobody was alive; behind a gateway the first one's machine may go on."""
    table = Liveness()
    heard(table, 6, peer="10.9.9.9:5", broker_addr="10.0.0.1:1")
    heard(table, 7, peer="10.9.9.9:6", broker_addr="10.0.0.1:1")
    heard(table, 8, peer="10.0.0.1:4000", broker_addr="10.0.0.1:1")
    assert table.closed(7) == [] and table.alive(*KEY)
