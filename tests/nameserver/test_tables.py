"""The route tables under any sequence of what brokers and people do: the invariants hold, and all is as in a plain
model of them (`plain_tables`), which looks through everything for each change."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from sys import settrace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from perseid.base.errors import RequestRefused
from perseid.nameserver import limits
from perseid.nameserver.tables import Announcement, BrokerKey, RouteTables, in_zone
from perseid.wire.bodies import DataVersion, QueueData, TopicConfig, TopicConfigSerializeWrapper
from perseid.wire.mapping import TopicQueueMappingInfo

from .plain_tables import PlainTables

NAMES = st.sampled_from(["a", "b", "c"])
CLUSTERS = st.sampled_from(["C", "C", "C", "D"])
IDS = st.integers(0, 2)
ADDRESSES = st.sampled_from(["1:1", "1:2", "1:3", "2:1"])
TOPICS = st.sampled_from(["T", "U", "V", "rmq_sys_SYNC_BROKER_MEMBER_a"])
CONNECTIONS = st.integers(1, 4)


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tables = RouteTables()
        self.model = PlainTables()
        self.now = 0

    @rule(
        name=NAMES,
        cluster=CLUSTERS,
        broker_id=IDS,
        address=ADDRESSES,
        topics=st.lists(TOPICS, unique=True),
        counter=st.integers(0, 1),
        state=st.integers(0, 1),
        acting=st.sampled_from([None, False, True]),
        conn=CONNECTIONS,
        timeout=st.sampled_from([None, 10]),
        delete=st.booleans(),
        filters=st.sampled_from([None, [], ["f:1"]]),
    )
    def register(
        self, name, cluster, broker_id, address, topics, counter, state, acting, conn, timeout, delete, filters
    ):
        wrapper = TopicConfigSerializeWrapper({t: TopicConfig(t) for t in topics}, DataVersion(state, 0, counter))
        key = BrokerKey(cluster, address)
        said = Announcement(key, name, broker_id, "ha", None, timeout, acting, wrapper, filters)
        before = len(self.tables.live)
        digest = repr((said, delete)).encode()
        result = self.tables.repeated(key, name, broker_id, digest, conn, self.now)
        if result is None:
            result = self.tables.register(said, conn, self.now, delete_missing=delete, digest=digest)
        assert result == self.model.register(said, conn, self.now, delete_missing=delete)
        if result is None:
            assert len(topics) == 1 and len(self.tables.live) == before
        elif key in self.tables.live:
            assert self.tables.brokers[name].broker_addrs[broker_id] == address
            assert not self.tables.changed(key, wrapper.data_version)

    @rule(name=NAMES, cluster=CLUSTERS, broker_id=IDS, address=ADDRESSES)
    def unregister(self, name: str, cluster: str, broker_id: int, address: str) -> None:
        changes = self.tables.unregister(BrokerKey(cluster, address), name, broker_id)
        assert changes == self.model.unregister(BrokerKey(cluster, address), name, broker_id)
        assert BrokerKey(cluster, address) not in self.tables.live

    @rule(conn=CONNECTIONS)
    def connection_lost(self, conn: int) -> None:
        for key in self.tables.of_connection(conn):
            assert self.tables.lost(key) == self.model.lost(key)
        assert not self.tables.of_connection(conn)

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def heartbeat(self, cluster: str, address: str) -> None:
        self.tables.heard(BrokerKey(cluster, address), self.now)
        self.model.heard(BrokerKey(cluster, address), self.now)

    @rule(ms=st.integers(1, 20))
    def clock_is_set_back(self, ms: int) -> None:
        self.now -= ms

    @rule(ms=st.integers(1, 20))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        expired = [key for key, _ in self.tables.expired(self.now)]
        assert sorted(expired) == self.model.expired(self.now)
        for key in expired:
            assert self.tables.lost(key) == self.model.lost(key)
        assert not self.tables.expired(self.now)

    @rule(topic=TOPICS, cluster=st.sampled_from([None, "C", "D", "E"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.tables.delete_topic(topic, cluster)
        self.model.delete_topic(topic, cluster)
        assert cluster is not None or topic not in self.tables.topics

    @rule(topic=TOPICS, names=st.lists(NAMES))
    def register_topic(self, topic: str, names: list[str]) -> None:
        known = bool(names) and set(names) <= self.tables.brokers.keys()
        assert self.tables.register_topic(topic, [QueueData(name, 1, 1, 6) for name in names]) == known
        self.model.register_topic(topic, [QueueData(name, 1, 1, 6) for name in names])

    @rule(name=NAMES, allowed=st.booleans())
    def set_write_perm(self, name: str, allowed: bool) -> None:
        assert self.tables.set_write_perm(name, allowed=allowed) == self.model.set_write_perm(name, allowed=allowed)

    @rule(topic=TOPICS, acting=st.booleans(), zone=st.sampled_from(["", "z"]))
    def route(self, topic: str, acting: bool, zone: str) -> None:
        route = self.tables.route(topic, acting_master=acting)
        assert (route is None) == (topic not in self.tables.topics)
        if route is not None:
            assert all(broker.broker_addrs for broker in route.broker_datas)
            names = {broker.broker_name for broker in route.broker_datas}
            assert names == {row.broker_name for row in route.queue_datas} == self.tables.topics[topic].keys()
            in_zone(route, zone)

    @invariant()
    def holds(self) -> None:
        self.tables.validate()
        tables, model = self.tables, self.model
        assert dict(tables.topics) == model.queues()
        assert {name: broker.broker_addrs for name, broker in tables.brokers.items()} == model.addresses
        assert tables.clusters == model.clusters
        assert {key: (live.heard_at, live.conn) for key, live in tables.live.items()} == model.heard_of()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# ---- work, and bounds ----


class _Whole(dict[Any, Any]):
    """A table that nobody may look through."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the whole table is looked through")

    items = keys = values = __iter__  # type: ignore[assignment]


def announcement(number: int, topics: int, *, first: int = 0, counter: int = 1) -> Announcement:
    table = {f"T{first + i}": TopicConfig(f"T{first + i}") for i in range(topics)}
    wrapper = TopicConfigSerializeWrapper(table, DataVersion(0, 0, counter))
    return Announcement(BrokerKey("C", f"1:{number}"), f"b{number}", 0, "ha", None, None, None, wrapper, None)


def filled(others: int) -> RouteTables:
    """Three brokers with three topics each, among others with thirty."""
    tables = RouteTables()
    for number in range(others + 3):
        said = announcement(number, 3) if number < 3 else announcement(number, 30)
        assert tables.register(said, number, 0, digest=b"%d" % number) is not None
    tables.validate()
    own = ("topics", "brokers", "clusters", "live")
    for name in (*own, "_filters", "_mappings", "_by_conn", "_topics_of", "_names_of"):
        setattr(tables, name, _Whole(getattr(tables, name)))
    return tables


def operations(work: Callable[[], object]) -> int:
    """How many instructions of Python a piece of work takes."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    settrace(trace)
    try:
        work()
    finally:
        settrace(None)
    return count


def _broker_gone(tables: RouteTables) -> None:
    (key,) = tables.of_connection(1)
    assert tables.lost(key) == []


def _unregistered(tables: RouteTables) -> None:
    tables.unregister(BrokerKey("C", "1:1"), "b1", 0)


def _two_expire(tables: RouteTables) -> None:
    tables.live[BrokerKey("C", "1:2")].timeout_ms = tables.live[BrokerKey("C", "1:1")].timeout_ms = 5
    for number in (1, 2):
        tables.heard(BrokerKey("C", f"1:{number}"), 1)
    gone = tables.expired(1_000)
    assert len(gone) == 2
    for key, _ in gone:
        tables.lost(key)


def _wiped(tables: RouteTables) -> None:
    assert tables.set_write_perm("b1", allowed=False) == 3


def _told_again(tables: RouteTables) -> None:
    assert tables.repeated(BrokerKey("C", "1:1"), "b1", 0, b"1", 1, 5) is not None


def _less_told(tables: RouteTables) -> None:
    assert tables.register(announcement(1, 2, counter=2), 1, 5, delete_missing=True) is not None


@pytest.mark.parametrize("work", [_broker_gone, _unregistered, _two_expire, _wiped, _told_again, _less_told])
def test_a_change_costs_what_it_changes_and_not_what_others_have(work: Callable[[RouteTables], None]) -> None:
    few, many = filled(5), filled(1_000)
    small, large = operations(lambda: work(few)), operations(lambda: work(many))
    assert 0 < large <= small + 100, f"{small} instructions among 5 other brokers, {large} among 1,000"


def test_the_cost_of_a_removal_follows_what_is_removed() -> None:
    costs = []
    for topics in (100, 200, 400):
        tables = RouteTables()
        tables.register(announcement(1, topics), 1, 0)
        costs.append(operations(lambda tables=tables: tables.lost(BrokerKey("C", "1:1"))))  # type: ignore[misc]
    assert costs[2] - costs[1] == 2 * (costs[1] - costs[0]) > 0


def test_an_unchanged_registration_costs_the_same_whatever_it_holds() -> None:
    costs = []
    for topics in (10, 1_000):
        tables = RouteTables()
        tables.register(announcement(1, topics), 1, 0, digest=b"1")
        costs.append(operations(lambda tables=tables: _told_again(tables)))  # type: ignore[misc]
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    ("limit", "most", "new"),
    [
        ("MAX_BROKERS", 3, announcement(9, 2)),
        ("MAX_PROCESSES", 3, announcement(9, 2)),
        ("MAX_ROWS", 9, announcement(1, 4)),
        ("MAX_PROCESSES_OF_CONNECTION", 1, announcement(9, 2)),
        ("MAX_NAMES_OF_PROCESS", 1, replace(announcement(1, 2), name="other")),
        ("MAX_IDS", 1, replace(announcement(9, 2), name="b1", id=1)),
        ("MAX_CLUSTERS", 1, replace(announcement(9, 2), key=BrokerKey("D", "1:9"))),
        ("MAX_NAME_CHARS", 9, replace(announcement(9, 2), name="b" * 10)),
        ("MAX_TOPIC_CHARS", 2, announcement(1, 2, first=10)),
        ("MAX_FILTERS", 1, replace(announcement(1, 3), filters=["f:1", "f:2"])),
        ("MAX_REGISTERED_TOPICS", 3, announcement(1, 4)),
    ],
)
def test_each_limit_refuses_what_is_new_and_lets_what_is_known_be_said_again(
    limit: str, most: int, new: Announcement, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = RouteTables()
    for number in range(3):
        assert tables.register(announcement(number, 3), number, 0) is not None
    known = repr(vars(tables))
    monkeypatch.setattr(limits, limit, most)
    with pytest.raises(RequestRefused) as refused:
        tables.register(new, 1, 0)
    assert refused.value.code == 1 and str(most) in refused.value.remark
    assert repr(vars(tables)) == known, "a refused registration changes nothing"
    for number in range(3):
        assert tables.register(announcement(number, 3, counter=2), number, 0) is not None
    tables.validate()


def test_mappings_of_static_topics_are_bounded_for_they_outlive_their_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_MAPPINGS", 2)
    tables = RouteTables()
    for number, fits in ((1, True), (1, True), (2, False)):
        said = announcement(number, 3)
        said.topics.topic_queue_mapping_info_map.update(
            {f"S{number}{i}": TopicQueueMappingInfo(topic=f"S{number}{i}", bname=said.name) for i in range(2)}
        )
        if fits:
            assert tables.register(said, 1, 0) is not None
        else:
            with pytest.raises(RequestRefused, match="mappings"):
                tables.register(said, 1, 0)
        tables.lost(said.key)
        tables.validate()


def test_stale_deadlines_do_not_pile_up() -> None:
    tables = RouteTables()
    for now in range(1_000):
        tables.register(announcement(1, 3), 1, now)
        tables.unregister(BrokerKey("C", "1:1"), "b1", 0)
    assert len(tables._due) <= 2 + limits.SPARE_DEADLINES
    tables.validate()
