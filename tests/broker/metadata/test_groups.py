from __future__ import annotations

from pathlib import Path

import pytest

from perseid.base.errors import RequestRefused, StoreError
from perseid.broker.config import BrokerConfig
from perseid.broker.metadata import groups
from perseid.broker.metadata.groups import SubscriptionGroupTable
from perseid.wire.bodies import SubscriptionGroupConfig

NOW = 1_700_000_000_000
OPEN = BrokerConfig()
CLOSED = BrokerConfig(auto_create_subscription_group=False)


@pytest.fixture
def table() -> SubscriptionGroupTable:
    return SubscriptionGroupTable(NOW)


def test_first_use_creates_a_group(table: SubscriptionGroupTable) -> None:
    row = table.find("g", OPEN, NOW + 1)
    assert row == SubscriptionGroupConfig("g")
    assert table.dirty and (table.version.counter, table.version.timestamp) == (1, NOW + 1)
    assert table.find("g", CLOSED, NOW) is row


def test_first_use_creates_none(table: SubscriptionGroupTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert table.find("g", CLOSED, NOW) is None
    assert table.find("bad name", OPEN, NOW) is None
    assert table.find("", OPEN, NOW) is None
    assert not table.dirty
    assert table.find("CID_RMQ_SYS_x", CLOSED, NOW) is not None, "groups of the brokers themselves are"
    monkeypatch.setattr(groups, "MAX_GROUPS", len(table))
    assert table.find("g", OPEN, NOW) is None
    with pytest.raises(RequestRefused):
        table.update(SubscriptionGroupConfig("g"), NOW)


def test_update_and_delete(table: SubscriptionGroupTable) -> None:
    table.update(SubscriptionGroupConfig("g", retry_max_times=3), NOW)
    row = table.get("g")
    assert row is not None and row.retry_max_times == 3 and table.version.counter == 1
    table.update(SubscriptionGroupConfig("g", retry_max_times=3), NOW)
    assert table.version.counter == 1, "unchanged"
    table.set_may_read("g", "T", False, NOW)
    assert table.delete("g", NOW) and not table.delete("g", NOW)
    assert "g" not in table and table.forbidden == {}


@pytest.mark.parametrize(
    ("group", "code"),
    [
        (SubscriptionGroupConfig(""), 29),
        (SubscriptionGroupConfig("a b"), 29),
        (SubscriptionGroupConfig("g", attributes={"+x": "y"}), 1),
    ],
)
def test_groups_that_can_not_be(table: SubscriptionGroupTable, group: SubscriptionGroupConfig, code: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        table.update(group, NOW)
    assert refused.value.code == code and not table.dirty


def test_attributes_of_a_java_broker_stay(table: SubscriptionGroupTable) -> None:
    table.load(b'{"subscriptionGroupTable":{"g":{"groupName":"g","attributes":{"x":"y"}}}}')
    table.update(SubscriptionGroupConfig("g", retry_max_times=1), NOW)
    row = table.get("g")
    assert row is not None and row.attributes == {"x": "y"} and row.retry_max_times == 1


def test_what_is_forbidden(table: SubscriptionGroupTable) -> None:
    assert table.may_read("g", "T")
    table.set_may_read("g", "T", True, NOW)
    assert not table.dirty and table.forbidden == {}
    table.set_may_read("g", "T", False, NOW)
    assert not table.may_read("g", "T") and table.may_read("g", "U")
    assert table.version.counter == 1
    table.set_may_read("g", "T", True, NOW)
    assert table.may_read("g", "T") and table.forbidden == {} and table.version.counter == 2
    table.validate()


def test_a_file_written_by_java(table: SubscriptionGroupTable) -> None:
    text = (Path(__file__).parents[1] / "data" / "subscriptionGroup.json").read_bytes()
    table.load(text)
    assert table.get("golden_group") == SubscriptionGroupConfig("golden_group")
    assert table.version.counter == 2
    java = SubscriptionGroupTable(NOW)
    java.rows.clear()
    java.load(text)
    assert java.to_json() == text, "byte for byte what Java writes"


def test_what_is_saved_comes_back(table: SubscriptionGroupTable) -> None:
    table.update(SubscriptionGroupConfig("g", consume_enable=False), NOW)
    table.set_may_read("g", "T", False, NOW)
    other = SubscriptionGroupTable(0)
    other.load(table.to_json())
    assert (other.rows, other.forbidden, other.version) == (table.rows, table.forbidden, table.version)
    assert not other.dirty


def test_a_file_that_is_none(table: SubscriptionGroupTable) -> None:
    with pytest.raises(StoreError, match=r"subscriptionGroup\.json"):
        table.load(b'{"subscriptionGroupTable":[]}')


def test_pages(table: SubscriptionGroupTable) -> None:
    names = sorted(table.rows)
    assert list(table.page(2, 3)) == names[2:5]
