"""SQL92 expressions with the original's answers, and pulls that filter by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sql_cases import result

from broker.harness import NOW, Rig
from broker.requests import SUSPEND, properties, pull_header
from perseid.broker.consume import filter as filters
from perseid.broker.consume import sql92
from perseid.wire.command import Command
from perseid.wire.hashing import tag_code
from perseid.wire.record import decode_all

PULL, CHECK_CLIENT = 11, 46
SUBSCRIPTION = 4
DATA = Path(__file__).parents[1] / "data"
VECTORS = json.loads((DATA / "sql92_vectors.json").read_text())
DRAWN = json.loads((DATA / "sql92.json").read_text())
"""Drawn by tests/sql_cases.py, answered by rocketmq-filter 5.5.0."""


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["expr"])
def test_vectors(case: dict[str, Any]) -> None:
    wanted = {"MQFilterException": "refused", "RuntimeException": "failed"}.get(case.get("error", ""))
    assert result(case) == (wanted or case["result"])


def test_drawn_expressions_come_to_what_they_come_to_in_java() -> None:
    differ = [(case, result(case)) for case in DRAWN if result(case) != case["result"]]
    assert not differ and len(DRAWN) > 300


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a value, a property or ( is needed"),
        ("a >", "a value, a property or ( is needed"),
        ("a IN (1)", "a string in '…' is needed"),
        ("a = 'x", "can't be read"),
        ("(" * 1000 + "a", "more than 64 levels"),
        ("NOT " * 1000 + "a", "more than 64 levels"),
        ("a = 1 OR " * 3000, "characters"),
        ("a = " * 100 + "a", "more than 64 links"),
        ("a" + " IS NULL" * 100, "more than 64 links"),
        ("a" + " CONTAINS 'x'" * 100, "more than 64 links"),
        ("a BETWEEN 5 AND 1", "wrong order"),
        ("5", "a condition is needed"),
    ],
)
def test_what_can_not_be_read_says_where(text: str, why: str) -> None:
    with pytest.raises(sql92.SqlError) as caught:
        sql92.parse(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a = '1' OR " * 500 + "a = 'x'", True),
        ("a = 'x' AND " * 511 + "a = 'x'", True),
        ("a = 'x' AND " * 511 + "a = 'y'", False),
        ("a = 'x' AND b = 'y' OR " * 255 + "NOT a = 'x'", False),
        ("a = " * 63 + "a", False),
        ("NOT (" * 20 + "a = 'x'" + ")" * 20, True),
    ],
)
def test_a_long_expression_is_asked_of_messages_as_a_short_one_is(text: str, wanted: bool) -> None:
    assert sql92.parse(text).wants({"a": "x"}.get) is wanted


def test_a_property_that_is_no_number_is_not_wanted_and_no_error() -> None:
    expression = sql92.parse("a > 5")
    assert not expression.wants({"a": "abc"}.get) and expression.wants({"a": "6"}.get)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TAGS = 'a'", {"a"}),
        ("TAGS IN ('a', 'b') AND n > 3", {"a", "b"}),
        ("n > 3 AND (TAGS = 'a' OR TAGS = 'b')", {"a", "b"}),
        ("TAGS IN ('a', 'b') AND TAGS IN ('b', 'c')", {"b"}),
        ("TAGS = 'a' OR n > 3", None),
        ("NOT TAGS = 'a'", None),
        ("TAGS <> 'a'", None),
        ("TAGS NOT IN ('a')", None),
        ("(TAGS = 'a') = FALSE", None),
        ("(TAGS = 'a') IS NOT NULL", None),
        ("TAGS IS NOT NULL", None),
        ("tags = 'a'", None),
        ("TAGS CONTAINS 'a'", None),
    ],
)
def test_the_tags_that_an_expression_asks_for(text: str, tags: set[str] | None) -> None:
    assert sql92.parse(text).tags == tags


@given(st.data())
def test_what_is_wanted_has_one_of_these_tags(data: st.DataObject) -> None:
    parts = st.sampled_from(
        ["TAGS = 'a'", "TAGS = 'b'", "TAGS IN ('a', 'b')", "TAGS NOT IN ('a')", "TAGS IS NULL", "n > 3", "n = 'x'"]
    )
    text = data.draw(
        st.recursive(
            parts,
            lambda inner: st.one_of(
                st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda some: f"({' '.join(some)})"),
                inner.map(lambda one: f"NOT ({one})"),
                inner.map(lambda one: f"(({one}) = FALSE)"),
            ),
            max_leaves=6,
        )
    )
    has = data.draw(st.dictionaries(st.sampled_from(["TAGS", "n"]), st.sampled_from(["a", "b", "c", "4", "x"])))
    try:
        expression = sql92.parse(text)
    except sql92.SqlError:
        return
    if expression.wants(has.get) and expression.tags is not None:
        assert has.get("TAGS") in expression.tags


# ---- pulls ----


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, enable_property_filter=True)
    for n in range(10):
        rig.send("T", 0, b"%d" % n, properties(UNIQ_KEY=f"ID{n}", TAGS=f"Tag{n % 2}", n=n))
    return rig


def pulled(rig: Rig, sql: str, **fields: Any) -> Command:
    wanted = {"sys_flag": SUBSCRIPTION, "subscription": sql, "expression_type": "SQL92"}
    return rig.ask(PULL, pull_header(**(wanted | fields)))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_all(answer.body)]


def test_a_pull_gets_what_the_expression_wants(rig: Rig) -> None:
    answer = pulled(rig, "n > 3 AND TAGS = 'Tag0'")
    assert answer.code == 0 and bodies(answer) == [b"4", b"6", b"8"] and answer.ext["nextBeginOffset"] == "10"
    answer = pulled(rig, "n BETWEEN 2 AND 5", max_msg_nums=2)
    assert bodies(answer) == [b"2", b"3"] and answer.ext["nextBeginOffset"] == "4"
    answer = pulled(rig, "n > 100")
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "10")


def test_the_second_pull_is_filtered_too(rig: Rig) -> None:
    for _ in range(3):
        assert bodies(pulled(rig, "n = 7")) == [b"7"]


@pytest.mark.parametrize(("sql", "code"), [("n >", 23), ("n >= '9'", 23)])
def test_an_expression_that_can_not_be_read_is_refused(rig: Rig, sql: str, code: int) -> None:
    answer = pulled(rig, sql)
    assert answer.code == code and "parse the consumer's subscription failed" in (answer.remark or "")


def test_another_kind_of_filter_is_refused(rig: Rig) -> None:
    assert pulled(rig, "x", expression_type="XPATH").code == 1


def test_without_the_setting_sql_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"x", properties(UNIQ_KEY="ID"))
    answer = pulled(rig, "n > 1")
    assert answer.code == 1 and "SQL92" in (answer.remark or "")


def subscription(sql: str, version: int = 100) -> dict[str, Any]:
    return {"topic": "T", "subString": sql, "subVersion": version, "expressionType": "SQL92"}


def heartbeat(rig: Rig, sql: str) -> None:
    data = {
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription(sql)],
    }  # fmt: skip
    body = json.dumps({"clientID": "c", "consumerDataSet": [data], "producerDataSet": []}).encode()
    assert rig.ask(34, None, body).code == 0


def test_a_group_s_own_expression_counts_for_pulls_that_bring_none(rig: Rig) -> None:
    heartbeat(rig, "n < 2")
    assert bodies(pulled(rig, "", sys_flag=0, subscription=None)) == [b"0", b"1"]
    heartbeat(rig, "n <")
    assert pulled(rig, "", sys_flag=0, subscription=None, consumer_group="g").code in (0, 27)


@pytest.mark.parametrize(("sql", "code"), [("n > 1", 0), ("n >", 23)])
def test_a_consumer_that_starts_asks_whether_its_expression_is_understood(rig: Rig, sql: str, code: int) -> None:
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription(sql)}).encode()
    assert rig.ask(CHECK_CLIENT, None, body).code == code


def test_a_held_pull_wakes_for_what_it_wants_alone(rig: Rig) -> None:
    wanted: dict[str, Any] = {"subscription": "n > 50", "expression_type": "SQL92", "queue_offset": 10}
    opaque = rig.tell(PULL, pull_header(sys_flag=SUBSCRIPTION | SUSPEND, **wanted), client=2)
    rig.send("T", 0, b"low", properties(UNIQ_KEY="L", n=3))
    assert rig.answer(opaque, 2) is None
    rig.send("T", 0, b"high", properties(UNIQ_KEY="H", n=60))
    answer = rig.answer(opaque, 2)
    assert answer is not None and bodies(answer) == [b"high"] and rig.now == NOW


def test_filters_without_an_expression_ask_no_record() -> None:
    plain = filters.of("TAG", "a || b", filters.Work(), sql=False)
    assert plain.wants_record(filters.Work(), 0) is None and plain.wants_tag is not None
    assert filters.of(None, "*", filters.Work(), sql=True) == filters.Filter()


def test_an_expression_about_tags_asks_no_record_of_another_tag() -> None:
    wanted = filters.of("SQL92", "TAGS = 'Tag0' AND n > 3", filters.Work(), sql=True)
    assert wanted.wants_tag is not None
    assert wanted.wants_tag(tag_code("Tag0")) and not wanted.wants_tag(tag_code("Tag1"))
    assert filters.of("SQL92", "n > 3", filters.Work(), sql=True).wants_tag is None


def test_delayed_messages_are_asked_for_their_tags_themselves(rig: Rig) -> None:
    """Their units say when they are due, in the place of tags."""
    rig.send("T", 0, b"later", properties(UNIQ_KEY="D", TAGS="late", DELAY="18"))
    answer = pulled(rig, "TAGS = 'late'", topic="SCHEDULE_TOPIC_XXXX", queue_id=17, queue_offset=0)
    assert answer.code == 0 and bodies(answer) == [b"later"]
