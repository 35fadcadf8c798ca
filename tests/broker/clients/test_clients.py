from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from perseid.base.errors import RequestRefused
from perseid.base.machine import Close, Write
from perseid.broker.clients import members as module
from perseid.broker.clients.members import Client, ConsumerTable, ProducerTable
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.answers import Answers
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.groups import SubscriptionGroupTable
from perseid.wire import command
from perseid.wire.bodies import ConsumerData, SubscriptionData, SubscriptionGroupConfig
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.rpc import Caller

NOW = 1_700_000_000_000
SILENCE = BrokerConfig().channel_expired_timeout


class Surroundings:
    """A turn and settings; what the tables write and close."""

    def __init__(self, config: BrokerConfig) -> None:
        self.settings = Settings(config)
        self.turn = Turn(Answers(config), Caller())
        self.effects = self.turn.begin(NOW)

    def __iter__(self) -> Iterator[Turn | Settings]:
        return iter((self.turn, self.settings))

    @property
    def closed(self) -> list[int]:
        return [effect.conn for effect in self.effects if isinstance(effect, Close)]

    def told(self) -> list[tuple[int, str]]:
        """Who was told since the last look that which group changed."""
        notices = []
        self.turn.end()
        for write in [effect for effect in self.effects if isinstance(effect, Write)]:
            self.effects.remove(write)
            data = write.data if isinstance(write.data, bytes) else b"".join(write.data)
            for notice in command.decode_all(data):
                assert notice.code == 40 and notice.is_oneway
                notices.append((write.conn, notice.header(NotifyConsumerIdsChangedRequest).consumer_group))
        return sorted(notices)


@pytest.fixture
def around() -> Any:
    return Surroundings(BrokerConfig())


def client(conn: int, seen: int = NOW, client_id: str = "") -> Client:
    return Client(conn, client_id or f"c{conn}", 0, 513, f"10.0.0.{conn}:1", seen)


def wants(*topics: str, version: int = 1) -> list[SubscriptionData]:
    return [SubscriptionData(topic, "*", sub_version=version) for topic in topics]


def heard(
    table: ConsumerTable,
    who: Client,
    topics: list[SubscriptionData] | None = None,
    *,
    group: str = "g",
    model: str = "CLUSTERING",
    notify: bool = True,
    **more: Any,
) -> bool:
    data = ConsumerData(group, message_model=model, subscription_data_set=wants("T") if topics is None else topics)
    return table.heard(data, who, notify=notify, **more)


# ---- producers ----


def test_producers_come_and_go(around: Any) -> None:
    table = ProducerTable(*around)
    table.register("p", client(1))
    table.register("p", client(2))
    table.register("q", client(1))
    assert "p" in table and [c.conn for c in table.clients("p")] == [1, 2]
    assert table.find("c2") is not None and table.find("c9") is None
    assert set(table.groups()) == {"p", "q"}
    table.unregister("p", 1)
    table.unregister("p", 1)
    table.unregister("unknown", 1)
    table.validate()
    table.connection_closed(1)
    assert "q" not in table and [c.conn for c in table.clients("p")] == [2]
    table.connection_closed(99)
    table.validate()


def test_another_producer_is_asked_each_time(around: Any) -> None:
    table = ProducerTable(*around)
    assert table.any_client("p") is None
    for conn in (1, 2, 3):
        table.register("p", client(conn))
    asked = [found.conn for _ in range(6) if (found := table.any_client("p"))]
    assert sorted(asked) == [1, 1, 2, 2, 3, 3] and set(asked[:3]) == {1, 2, 3}


def test_silent_producers_expire(around: Any) -> None:
    table = ProducerTable(*around)
    table.register("p", client(1))
    table.register("q", client(1))
    table.register("p", client(2))
    table.register("p", client(2, NOW + 1))
    table.expire(NOW + SILENCE)
    assert len(table.clients("p")) == 2
    table.expire(NOW + SILENCE + 1)
    assert [c.conn for c in table.clients("p")] == [2] and "q" not in table
    assert around.closed == [1]
    table.validate()


def test_groups_of_a_connection_are_bounded(around: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS_OF_CONNECTION", 2)
    producers, consumers = ProducerTable(*around), ConsumerTable(*around)
    for group in ("a", "b", "c", "a"):
        producers.register(group, client(1))
        heard(consumers, client(1), group=group)
    assert set(producers.groups()) == set(consumers.groups()) == {"a", "b"}
    producers.validate()
    consumers.validate()


# ---- consumers: who is told what ----


def test_members_are_told_when_one_joins_and_leaves(around: Any) -> None:
    table = ConsumerTable(*around)
    heard(table, client(1))
    assert around.told() == [(1, "g")]
    heard(table, client(2))
    assert around.told() == [(1, "g"), (2, "g")]
    heard(table, client(2))
    assert around.told() == [], "nothing new"
    assert table.client_ids("g") == ["c1", "c2"]
    table.unregister("g", 1)
    assert around.told() == [(2, "g")]
    table.unregister("g", 1)
    table.unregister("unknown", 2)
    table.connection_closed(2)
    assert around.told() == [] and table.group("g") is None and table.client_ids("g") == []
    table.validate()


def test_a_closed_connection_leaves_all_its_groups(around: Any) -> None:
    table = ConsumerTable(*around)
    for group in ("g", "h"):
        heard(table, client(1), group=group)
        heard(table, client(2), group=group)
    around.told()
    table.connection_closed(1)
    assert around.told() == [(2, "g"), (2, "h")]
    table.validate()


def test_members_are_told_when_topics_come_and_go_but_not_of_new_versions(around: Any) -> None:
    table = ConsumerTable(*around)
    heard(table, client(1), wants("T"))
    around.told()
    heard(table, client(1), wants("T", version=2))
    assert around.told() == []
    heard(table, client(1), wants("T", "U", version=2))
    assert around.told() == [(1, "g")]
    heard(table, client(1), wants("U", version=2))
    assert around.told() == [(1, "g")]
    assert table.groups_of("U") == {"g"} and table.groups_of("T") == set()


def test_an_older_subscription_changes_nothing(around: Any) -> None:
    table = ConsumerTable(*around)
    heard(table, client(1), [SubscriptionData("T", "new", sub_version=5)])
    heard(table, client(2), [SubscriptionData("T", "old", sub_version=4)])
    known = table.subscription("g", "T")
    assert known is not None and known.sub_string == "new"


@pytest.mark.parametrize("case", ["broadcast", "group says no", "broker says no"])
def test_nobody_is_told(around: Any, case: str) -> None:
    table = ConsumerTable(*around)
    if case == "broker says no":
        around.settings.current = BrokerConfig(notify_consumer_ids_changed_enable=False)
    model = "BROADCASTING" if case == "broadcast" else "CLUSTERING"
    for conn in (1, 2):
        heard(table, client(conn), model=model, notify=case != "group says no")
    table.connection_closed(1)
    assert around.told() == []


def test_silent_consumers_expire_and_the_others_are_told(around: Any) -> None:
    table = ConsumerTable(*around)
    heard(table, client(1))
    heard(table, client(2, NOW + 5))
    around.told()
    table.expire(NOW + SILENCE)
    assert around.told() == [] and around.effects == []
    table.expire(NOW + SILENCE + 1)
    assert around.told() == [(2, "g")]
    assert around.closed == [1]
    assert table.client("g", "c1") is None and table.client("g", "c2") is not None
    table.validate()


# ---- heartbeats, version 2 ----


def test_a_changed_fingerprint_asks_for_the_subscriptions(around: Any) -> None:
    table = ConsumerTable(*around)
    assert not heard(table, client(1), fingerprint=11)
    assert not heard(table, client(1), [], fingerprint=11, without_subscriptions=True)
    assert table.subscription("g", "T") is not None, "they stay as they were"
    assert heard(table, client(1), [], fingerprint=12, without_subscriptions=True)
    assert not heard(table, client(1), wants("U"), fingerprint=12)
    assert table.groups_of("T") == set()


def test_a_broker_that_restarted_asks_for_the_subscriptions(around: Any) -> None:
    table = ConsumerTable(*around)
    assert heard(table, client(1), [], fingerprint=11, without_subscriptions=True)
    assert table.client_ids("g") == ["c1"]


# ---- what a pull finds ----


def pull(version: int = 1, topic: str = "T", group: str = "g") -> PullMessageRequest:
    return PullMessageRequest(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=version,
    )


def test_the_subscription_of_a_pull(around: Any) -> None:
    table, groups = ConsumerTable(*around), SubscriptionGroupTable(NOW)
    heard(table, client(1), wants("T", version=5))
    assert table.subscription_for_pull(groups, pull(5)).topic == "T"
    assert table.subscription_for_pull(groups, pull(4)).topic == "T"


def test_refusals_of_a_pull(around: Any) -> None:
    table, groups = ConsumerTable(*around), SubscriptionGroupTable(NOW)

    def code(header: PullMessageRequest) -> int:
        with pytest.raises(RequestRefused) as refused:
            table.subscription_for_pull(groups, header)
        return refused.value.code

    assert code(pull()) == 24, "nobody is there"
    heard(table, client(1), wants("T", version=5), model="BROADCASTING")
    assert code(pull(topic="U")) == 24
    assert code(pull(6)) == 25
    groups.set_may_read("g", "T", False, NOW)
    assert code(pull(6)) == 16
    groups.set_may_read("g", "T", True, NOW)
    groups.update(SubscriptionGroupConfig("g", consume_broadcast_enable=False), NOW)
    assert code(pull()) == 16


def test_a_pulls_own_subscription_compensates_for_missing_heartbeats(around: Any) -> None:
    table = ConsumerTable(*around)
    life = around.settings.current.subscription_expired_timeout
    table.compensate("g", SubscriptionData("T", "a", sub_version=NOW))
    table.compensate("g", SubscriptionData("U", "b", sub_version=NOW + 1))
    assert table.subscription("g", "T") is not None
    assert table.subscription("g", "T", compensated=False) is None
    heard(table, client(1), [SubscriptionData("T", "heard", sub_version=1)])
    assert cast(SubscriptionData, table.subscription("g", "T")).sub_string == "heard"
    table.connection_closed(1)
    table.expire(NOW + life + 1)
    assert table.subscription("g", "T") is None and table.subscription("g", "U") is not None
    table.expire(NOW + life + 2)
    assert table.subscription("g", "U") is None and not table._compensated


def test_compensations_are_bounded(around: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COMPENSATED", 1)
    table = ConsumerTable(*around)
    table.compensate("g", SubscriptionData("T"))
    table.compensate("h", SubscriptionData("T"))
    assert table.subscription("g", "T") is not None and table.subscription("h", "T") is None
