from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perseid.base.errors import RequestRefused, StoreError
from perseid.broker.config import BrokerConfig
from perseid.broker.metadata import topics
from perseid.broker.metadata.topics import (
    MAX_QUEUES,
    TopicTable,
    Values,
    alter_attributes,
    group_name_fault,
    parse_attributes,
    topic_name_fault,
)
from perseid.wire.bodies import TopicConfig

NOW = 1_700_000_000_000
CONFIG = BrokerConfig(broker_cluster_name="C", broker_name="b")


@pytest.fixture
def table() -> TopicTable:
    return TopicTable(CONFIG, NOW)


def create(table: TopicTable, topic: str, queue_nums: int = 4, template: str = "TBW102") -> TopicConfig | None:
    return table.create_on_send(topic, default_topic=template, queue_nums=queue_nums, config=CONFIG, now=NOW + 1)


# ---- names ----


def test_names() -> None:
    assert topic_name_fault("Topic_1-%|") is None
    assert topic_name_fault("a" * 127) is None
    assert topic_name_fault("%RETRY%" + "a" * 248) is None
    for bad in ("", "  ", "a b", "ä", "a@b", "a" * 128, "%DLQ%" + "a" * 251):
        assert topic_name_fault(bad) is not None
    assert group_name_fault("a" * 120) is None
    for bad in ("", "a b", "a" * 121):
        assert group_name_fault(bad) is not None


# ---- creation on send ----


def test_a_first_send_creates_the_topic_after_its_template(table: TopicTable) -> None:
    row = create(table, "T")
    assert row == TopicConfig("T", 4, 4, 6)
    assert table.get("T") is row
    assert (table.version.counter, table.version.timestamp) == (1, NOW + 1)
    assert table.take_changed() == {"T"}
    assert create(table, "T", 7) is row
    assert table.version.counter == 1 and not table.changed


def test_a_new_topic_has_no_more_queues_than_its_template(table: TopicTable) -> None:
    row = create(table, "T", 100)
    assert row is not None and row.write_queue_nums == 8
    row = create(table, "U", -3)
    assert row is not None and row.write_queue_nums == 0


def test_no_template_no_topic(table: TopicTable) -> None:
    assert create(table, "T", template="nothing") is None
    assert create(table, "T", template="BenchmarkTest") is None  # not inheritable
    assert "T" not in table and not table.changed


def test_no_topic_without_auto_creation() -> None:
    config = BrokerConfig(auto_create_topic_enable=False)
    table = TopicTable(CONFIG, NOW)  # a saved table may still hold the template
    assert table.create_on_send("T", default_topic="TBW102", queue_nums=1, config=config, now=NOW) is None
    row = table.create_on_send("T", default_topic="C", queue_nums=1, config=config, now=NOW)
    assert row is not None and row.perm == 6


def test_the_table_is_bounded(table: TopicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MAX_TOPICS", len(table))
    assert create(table, "T") is None
    assert table.ensure("%RETRY%g", 1, NOW) is None
    with pytest.raises(RequestRefused):
        table.update(TopicConfig("T"), NOW)
    assert table.update(TopicConfig("BenchmarkTest", 1, 1), NOW)


# ---- retry topics ----


def test_ensure_creates_once_and_keeps_order_up_to_date(table: TopicTable) -> None:
    first = table.ensure("%RETRY%g", 1, NOW)
    assert first == TopicConfig("%RETRY%g", 1, 1, 6)
    assert table.ensure("%RETRY%g", 5, NOW) is first
    ordered = table.ensure("%RETRY%g", 1, NOW, order=True)
    assert ordered is not None and ordered.order and ordered.read_queue_nums == 1
    assert table.version.counter == 2
    assert not first.order, "rows are replaced, not changed"


# ---- changes by operators ----


def test_update_and_delete(table: TopicTable) -> None:
    assert table.update(TopicConfig("T", 2, 3, 6, attributes={"+message.type": "FIFO"}), NOW)
    row = table.get("T")
    assert row is not None and row.attributes == {"message.type": "FIFO"} and row.write_queue_nums == 3
    assert not table.update(TopicConfig("T", 2, 3, 6), NOW), "the same again"
    assert not table.update(TopicConfig("T", 2, 3, 6, attributes={"+message.type": "FIFO"}), NOW)
    assert table.version.counter == 1
    assert table.update(TopicConfig("T", 2, 3, 4, attributes={"-message.type": ""}), NOW)
    assert table.get("T") == TopicConfig("T", 2, 3, 4)
    table.take_changed()
    assert table.delete("T", NOW) and not table.delete("T", NOW)
    assert "T" not in table and table.take_changed() == {"T"}
    assert table.version.counter == 3


@pytest.mark.parametrize("queues", [-1, MAX_QUEUES + 1])
def test_impossible_numbers_of_queues_are_refused(table: TopicTable, queues: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        table.update(TopicConfig("T", queues, 1), NOW)
    assert refused.value.code == 29
    assert "T" not in table


def test_attribute_texts() -> None:
    assert parse_attributes(None) == parse_attributes("") == {}
    assert parse_attributes("+a=b,-c") == {"+a": "b", "-c": ""}
    for bad in ("a=b", "c", "-a=b", "+a", "+a=1,+a=2", "-a,-a"):
        with pytest.raises(RequestRefused) as refused:
            parse_attributes(bad)
        assert refused.value.code == 1 and ("twice" in refused.value.remark) is ("," in bad)


@pytest.mark.parametrize(
    ("current", "changes"),
    [
        (None, {"-message.type": ""}),
        (None, {"+unknown": "x"}),
        (None, {"+message.type": "NONSENSE"}),
        ({}, {"+queue.type": "BatchCQ"}),
        ({"queue.type": "BatchCQ"}, {"+queue.type": "SimpleCQ"}),
        ({"queue.type": "BatchCQ"}, {"-queue.type": ""}),
        ({}, {"+cleanup.policy": "COMPACTION"}),
        (None, {"+cleanup.policy": "COMPACT"}),
        (None, {"+reserve.time": "5"}),
        (None, {"message.type": "FIFO"}),
        ({}, {"-message.type": ""}),
        ({}, {"+queue.type": "SimpleCQ"}),
        ({"message.type": "FIFO"}, {"+message.type": "DELAY", "-message.type": ""}),
    ],
)
def test_attributes_that_can_not_be(current: dict[str, str] | None, changes: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as refused:
        alter_attributes(current, changes)
    assert refused.value.code == 1


def test_attributes_that_can_be() -> None:
    for kind in ("SimpleCQ", "BatchCQ"):
        assert alter_attributes(None, {"+queue.type": kind}) == {"queue.type": kind}
    assert alter_attributes({"message.type": "FIFO"}, {"+message.type": "DELAY"}) == {"message.type": "DELAY"}


@pytest.mark.parametrize(("anything", "numbers"), [(True, None), (False, range(-1, 30)), (False, None)])
def test_what_an_attribute_can_be(anything: bool, numbers: range | None) -> None:
    """A text that is not empty and no longer than a name; a number of a range; a word."""
    values = Values("yes", "no", anything=anything, numbers=numbers)
    said = ["", "yes", "maybe", "x" * 127, "x" * 128, "-2", "-1", "0", "29", "30", "007", "1" * 20, "1.5", "+3"]
    if anything:
        expected = ["yes", "maybe", "x" * 127, "-2", "-1", "0", "29", "30", "007", "1" * 20, "1.5", "+3"]
    else:
        expected = ["yes"] + (["-1", "0", "29", "007"] if numbers else [])
    assert [text for text in said if text in values] == expected


def test_a_topic_that_is_made_once_more_as_it_is_has_not_changed(table: TopicTable) -> None:
    """Its maker asks again when the answer was lost; another master may know the topic already."""
    wanted = TopicConfig(topic_name="T", attributes={"+queue.type": "BatchCQ", "+message.type": "NORMAL"})
    assert table.update(wanted, NOW)
    before, counter = table.rows["T"], table.version.counter
    assert not table.update(wanted, NOW)
    assert table.rows["T"] == before and table.version.counter == counter and table.batch_topics == {"T"}
    with pytest.raises(RequestRefused):
        table.update(msgspec.structs.replace(wanted, attributes={"+queue.type": "SimpleCQ"}), NOW)
    assert table.rows["T"] == before


def test_order_comes_from_the_name_server(table: TopicTable) -> None:
    create(table, "T")
    table.take_changed()
    table.set_order(["T", "unknown"], NOW)
    assert table.is_order("T") and not table.is_order("unknown")
    assert table.take_changed() == {"T"}
    counter = table.version.counter
    table.set_order(["T"], NOW)
    assert table.version.counter == counter


def test_system_names(table: TopicTable) -> None:
    for name in ("TBW102", "C", "b", "C_REPLY_TOPIC", "rmq_sys_anything", "CHECKPOINT_TOPIC"):
        assert table.is_system(name)
    assert not table.is_system("T") and not table.is_system("%RETRY%g")
    assert {"TBW102", "C", "CHECKPOINT_TOPIC"} <= set(table.system_topics())


def test_a_bump_registers_all_anew(table: TopicTable) -> None:
    table.bump(NOW)
    assert table.version.counter == 1 and table.take_changed() == set(table.rows)


# ---- the file ----


def test_a_file_written_by_java(table: TopicTable) -> None:
    text = (Path(__file__).parents[1] / "data" / "topics.json").read_bytes()
    table.load(text)
    assert table.get("GoldenA") == TopicConfig("GoldenA", 4, 4, 6)
    assert table.get("TBW102") == TopicConfig("TBW102", 4, 4, 7), "the file wins over the default"
    assert "C" in table and not table.changed
    assert (table.version.counter, table.version.timestamp) == (4, 1795254971404)

    java = TopicTable(CONFIG, NOW)
    java.rows.clear()
    java.load(text)
    assert java.to_json() == text, "byte for byte what Java writes"


def test_what_is_saved_comes_back(table: TopicTable) -> None:
    table.update(TopicConfig("T", 2, 3, 6, "MULTI_TAG", 1, True, {"+message.type": "FIFO"}), NOW)
    other = TopicTable(CONFIG, NOW)
    other.load(table.to_json())
    assert other.rows == table.rows and other.version == table.version


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"topicConfigTable":{"T":{"perm":"x"}}}', b'"\xff'])
def test_a_file_that_is_none(table: TopicTable, text: bytes) -> None:
    with pytest.raises(StoreError, match=r"topics\.json"):
        table.load(text)


def test_pages(table: TopicTable) -> None:
    names = sorted(table.rows)
    assert list(table.page(0, 3)) == names[:3]
    assert list(table.page(3, 1000)) == names[3:]
    assert table.page(1000, 3) == {}
    table.validate()
