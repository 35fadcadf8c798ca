from __future__ import annotations

from perseid.broker.config import BrokerConfig
from perseid.broker.metadata import system_topics as system
from perseid.wire import names, pop


def rows(**settings: object) -> dict[str, tuple[int, int]]:
    config = BrokerConfig(broker_cluster_name="C", broker_name="b", **settings)  # type: ignore[arg-type]
    return {row.topic_name: (row.read_queue_nums, row.perm) for row in system.default_rows(config)}


def test_the_topics_of_a_new_broker() -> None:
    assert rows() == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_settings_add_and_take_away() -> None:
    assert "TBW102" not in rows(auto_create_topic_enable=False)
    assert rows(default_topic_queue_nums=4)["TBW102"] == (4, 7)
    assert rows(cluster_topic_enable=False)["C"] == (16, 1)
    assert rows(broker_topic_enable=False)["b"] == (1, 1)
    assert "rmq_sys_wheel_timer" not in rows(timer_wheel_enable=False)
    assert rows(trace_topic_enable=True)["RMQ_SYS_TRACE_TOPIC"] == (1, 6)
    assert rows(trace_topic_enable=True, msg_trace_topic_name="my_trace")["my_trace"] == (1, 6)


def test_reading_and_writing_queues_are_as_many() -> None:
    assert all(row.read_queue_nums == row.write_queue_nums for row in system.default_rows(BrokerConfig()))


def test_names_of_retry_topics() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert (pop.retry_topic_v1("t", "g"), pop.retry_topic_v2("t", "g")) == ("%RETRY%g_t", "%RETRY%g+t")
