"""Which queue is next."""

from perseid.client.latency import QueueChooser
from perseid.client.model import MessageQueue

A = [MessageQueue("t", "a", i) for i in range(2)]
B = [MessageQueue("t", "b", i) for i in range(2)]


def test_queues_take_turns() -> None:
    chooser = QueueChooser(3)
    assert [chooser.choose("t", A + B, 0, None) for _ in range(5)] == [B[1], A[0], A[1], B[0], B[1]]


def test_the_broker_that_failed_is_not_next_when_there_is_another() -> None:
    chooser = QueueChooser(0)
    assert {chooser.choose("t", A + B, 0, "a").broker_name for _ in range(6)} == {"b"}
    assert chooser.choose("t", A, 0, "a") in A


def test_slow_brokers_rest_as_long_as_the_table_says() -> None:
    chooser = QueueChooser(0, avoid_slow_brokers=True)
    chooser.report("a", 600, 1000, failed=False)
    assert chooser.choose("t", A + B, 1500, None).broker_name == "b"
    assert not chooser.healthy("a", 2999)
    assert chooser.healthy("a", 3000)


def test_a_failure_counts_as_ten_seconds() -> None:
    chooser = QueueChooser(0, avoid_slow_brokers=True)
    chooser.report("a", 5, 0, failed=True)
    assert not chooser.healthy("a", 9_999)
    assert chooser.healthy("a", 10_000)


def test_when_all_rest_the_one_that_is_back_first_is_taken() -> None:
    chooser = QueueChooser(0, avoid_slow_brokers=True)
    chooser.report("a", 16_000, 0, failed=False)
    chooser.report("b", 600, 0, failed=False)
    assert chooser.choose("t", A + B, 10, None).broker_name == "b"


def test_latency_is_not_looked_at_unless_asked_for() -> None:
    chooser = QueueChooser(0)
    chooser.report("a", 60_000, 0, failed=True)
    assert chooser.choose("t", A + B, 1, None) == A[0]
