"""What expressions may cost: a read ends where it was enough, and its reader goes on; a turn has an end, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker import streams
from broker.harness import Rig
from broker.pops import POP, pop_header
from broker.requests import properties, pull_header
from perseid import core
from perseid.base.machine import Frames
from perseid.broker.consume import filter as filters
from perseid.broker.consume import sql92
from perseid.broker.consume.pull import SUBSCRIPTION, SUSPEND
from perseid.core.layout import TERM_WORK
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all, encode_request
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.record import decode_all as records_of

PULL = RequestCode.PULL_MESSAGE

MESSAGES = 100
BIG = "x" * 4000
SQL = " OR ".join(f"big = '{number}'" for number in range(400)) + " OR n = '99'"
"""Looks into the big property of each message 400 times before it knows."""
ONE = sql92.parse(SQL).terms * (TERM_WORK + len(properties(UNIQ_KEY="ID10", big=BIG, n=10)))
"""The work of about one message."""


@pytest.fixture(params=streams.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "compiled", streams.WAYS[request.param])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, enable_property_filter=True)
    for n in range(MESSAGES):
        rig.send("T", 0, b"%d" % n, properties(UNIQ_KEY=f"ID{n}", big=BIG, n=n))
    return rig


def bound(monkeypatch: pytest.MonkeyPatch, rig: Rig, turn: int, read: int) -> None:
    monkeypatch.setattr(filters, "TURN_WORK", turn)
    monkeypatch.setattr(filters, "READ_WORK", read)
    monkeypatch.setattr(filters, "TERM_WORK", TERM_WORK)  # so that all ways cost the same
    rig.parts.holds.work.begin()


def wanted(sql: str, **fields: Any) -> Any:
    fields = {"sys_flag": SUBSCRIPTION, "subscription": sql, "expression_type": "SQL92", **fields}
    return pull_header(**fields)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in records_of(answer.body)] if len(answer.body) else []


def test_a_pull_looks_at_so_many_messages_and_the_next_one_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, rig, 1000 * ONE, 10 * ONE)
    at, steps = 0, []
    for _ in range(MESSAGES):
        answer = rig.ask(PULL, wanted(SQL, queue_offset=at))
        steps.append(int(answer.ext["nextBeginOffset"]) - at)
        at += steps[-1]
        if answer.code == 0:
            break
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert bodies(answer) == [b"99"] and at == MESSAGES
    assert all(9 <= step <= 11 for step in steps[:-1]) and len(steps) >= 9, steps


def test_the_first_message_is_looked_at_whatever_it_costs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sql92.parse(SQL)
    bound(monkeypatch, rig, 1, 1)
    for at in range(5):
        answer = rig.ask(PULL, wanted(SQL, queue_offset=at))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (20, str(at + 1))


def test_what_ordinary_expressions_cost_ends_no_read(rig: Rig) -> None:
    for _ in range(2):
        answer = rig.ask(PULL, wanted("n = '99' AND big IS NOT NULL OR n BETWEEN 200 AND 300"))
        assert bodies(answer) == [b"99"] and answer.ext["nextBeginOffset"] == str(MESSAGES)


def pulls(count: int, **fields: Any) -> bytes:
    header = PullMessageRequest(
        consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=SUBSCRIPTION,
        commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription=SQL, expression_type="SQL92",
    )  # fmt: skip
    for name, value in fields.items():
        setattr(header, name, value)
    return b"".join(encode_request(PULL, 1000 + number, header) for number in range(count))


def test_a_turn_of_many_pulls_has_an_end_and_each_is_answered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ask(PULL, wanted(SQL))
    bound(monkeypatch, rig, 50 * ONE, 10 * ONE)
    spent: list[int] = []
    begin = filters.Work.begin

    def noted(work: filters.Work) -> None:
        spent.append(filters.TURN_WORK - work.left)
        begin(work)

    monkeypatch.setattr(filters.Work, "begin", noted)
    rig.connect(7)
    for _ in range(3):
        rig.sent[7] = []
        spent.clear()
        rig.handle(Frames(7, pulls(30)))
        answers = rig.sent[7]
        assert len(answers) == 30 and {answer.code for answer in answers} == {20}
        steps = [int(answer.ext["nextBeginOffset"]) for answer in answers]
        assert steps[0] >= 9 and steps[-1] == 0, "who comes last in a turn that is used up is told to ask again"
        assert 50 * ONE <= max(spent) <= 70 * ONE
    assert bodies(rig.ask(PULL, wanted("n = '5'"))) == [b"5"], "and the next turn has work again"


def test_expressions_that_nobody_knows_take_work_to_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sql92.forget()
    bound(monkeypatch, rig, 3 * filters.PARSE_WORK * len(SQL), 1 << 60)
    rig.connect(7)
    data = b"".join(pulls(1, subscription=f"{SQL} OR n = 'new{number}'", queue_offset=100) for number in range(8))
    rig.handle(Frames(7, data))
    codes = [answer.code for answer in rig.sent[7]]
    assert codes[-1] == ResponseCode.SYSTEM_BUSY and codes == sorted(codes, key=lambda code: code == 2), codes
    assert codes.count(2) in (4, 5) and "try again" in (rig.sent[7][-1].remark or "")
    assert rig.ask(PULL, wanted("n > 'x", queue_offset=100)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_message_wakes_held_pulls_without_more_work_than_a_turn_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch, rig, 10 * ONE, 10 * ONE)
    rig.connect(7)
    held = pulls(40, queue_offset=MESSAGES, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=15_000)
    rig.handle(Frames(7, held))
    assert not rig.sent.get(7) and len(rig.parts.holds) == 40
    rig.send("T", 0, b"unwanted", properties(UNIQ_KEY="Z", big=BIG, n=0))
    woken = rig.sent[7]
    assert 25 <= len(woken) <= 31 and {answer.code for answer in woken} == {20}
    assert {answer.ext["nextBeginOffset"] for answer in woken} == {str(MESSAGES)}, "they ask again"
    assert len(rig.parts.holds) == 40 - len(woken)


def test_a_pop_looks_at_so_many_messages_and_the_next_one_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.parts.topics.rows["T"].read_queue_nums = 1
    bound(monkeypatch, rig, 1000 * ONE, 10 * ONE)
    found: list[bytes] = []
    tries = 0
    while not found and tries < MESSAGES:
        tries += 1
        header = pop_header(rig, exp=SQL, exp_type="SQL92", poll_time=10_000, init_mode=0)
        answer = rig.ask(POP, header)
        if answer.code == 0:
            found = bodies(answer)
        else:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, "it does not wait while there may be more"
        assert len(rig.parts.holds) == 0
    assert found == [b"99"] and 9 <= tries <= 12


def test_decoded_answers_are_frames(rig: Rig) -> None:
    assert len(list(decode_all(pulls(3)))) == 3


# ---- expressions that are too large ----


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (" OR ".join(["a=1"] * 2_000), "more than 1024 values and properties"),
        ("a IN (" + ",".join(["'x'"] * 5_000) + ")", "16384 is the limit"),
        ("a CONTAINS '" + "x" * 9_000 + "'", "more than 1024 values and properties"),
        ("(" * 100 + "a = 1" + ")" * 100, "more than 64 levels"),
        ("a > " + "1" * 5_000, "is more than"),
    ],
)
def test_an_expression_that_is_too_large_is_refused_by_name(rig: Rig, sql: str, why: str) -> None:
    answer = rig.ask(PULL, wanted(sql))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and why in (answer.remark or "")
    assert len(answer.remark or "") < 1024
    pop = rig.ask(POP, pop_header(rig, exp=sql, exp_type="SQL92", poll_time=0, init_mode=0))
    assert pop.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and why in (pop.remark or "")
