"""The route tables under any sequence of what brokers and people do: the invariants hold."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from perseid.nameserver.tables import Announcement, BrokerKey, RouteTables, in_zone
from perseid.wire.bodies import DataVersion, QueueData, TopicConfig, TopicConfigSerializeWrapper

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
        result = self.tables.register(said, conn, self.now, delete_missing=delete)
        if result is None:
            assert len(topics) == 1 and len(self.tables.live) == before
        elif key in self.tables.live:
            assert self.tables.brokers[name].broker_addrs[broker_id] == address
            assert not self.tables.changed(key, wrapper.data_version)

    @rule(name=NAMES, cluster=CLUSTERS, broker_id=IDS, address=ADDRESSES)
    def unregister(self, name: str, cluster: str, broker_id: int, address: str) -> None:
        self.tables.unregister(BrokerKey(cluster, address), name, broker_id)
        assert BrokerKey(cluster, address) not in self.tables.live

    @rule(conn=CONNECTIONS)
    def connection_lost(self, conn: int) -> None:
        for key in self.tables.of_connection(conn):
            self.tables.lost(key)
        assert not self.tables.of_connection(conn)

    @rule(ms=st.integers(1, 20))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        for key, _ in self.tables.expired(self.now):
            self.tables.lost(key)
        assert not self.tables.expired(self.now)

    @rule(topic=TOPICS, cluster=st.sampled_from([None, "C", "D", "E"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.tables.delete_topic(topic, cluster)
        assert cluster is not None or topic not in self.tables.topics

    @rule(topic=TOPICS, names=st.lists(NAMES))
    def register_topic(self, topic: str, names: list[str]) -> None:
        known = bool(names) and set(names) <= self.tables.brokers.keys()
        assert self.tables.register_topic(topic, [QueueData(name, 1, 1, 6) for name in names]) == known

    @rule(name=NAMES, allowed=st.booleans())
    def set_write_perm(self, name: str, allowed: bool) -> None:
        self.tables.set_write_perm(name, allowed=allowed)

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


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
