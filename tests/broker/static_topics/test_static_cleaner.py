"""What is taken away from mappings of static topics, and what stays."""

from __future__ import annotations

from dataclasses import replace

from broker.static_cluster import TOPIC, Cluster
from perseid.broker.static_topics.cleaner import INTERVAL_MS
from perseid.testing.machines import SMALL_STORE
from perseid.wire.codes import ResponseCode

ALWAYS = replace(SMALL_STORE, delete_when=";".join(f"{hour:02}" for hour in range(24)))
NEVER = replace(SMALL_STORE, delete_when="")


def items(cluster: Cluster, name: str, queue_id: int) -> list[str] | None:
    """The brokers of a logical queue's items, as one broker knows them."""
    found = cluster.broker(name).parts.mappings.rows[TOPIC].hosted_queues.get(queue_id)
    return None if found is None else [item.bname for item in found]


def a_round(cluster: Cluster) -> None:
    cluster.advance(INTERVAL_MS + 10_000)


def test_a_first_item_goes_with_its_messages() -> None:
    cluster = Cluster("a", "b", store=ALWAYS)
    cluster.create("a", "a")
    cluster.send("a", 0, b"x")
    cluster.remap(0, "a", "b")
    begin = cluster.remap(1, "a", "b")
    cluster.send("b", 1, b"y")
    a_round(cluster)
    assert items(cluster, "b", 0) == ["a", "b"], "its message is still there"
    assert items(cluster, "b", 1) == ["b"], "there was none"
    assert cluster.offset("b", 31, 1) == begin, "the queue begins with the next item"
    pulled = cluster.pull("b", 1, 0)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, begin)
    assert cluster.pull("b", 1, begin).bodies == [b"y"]
    before = cluster.config("b")
    cluster.cut_power("b")
    cluster.advance(1_000)
    assert cluster.config("b") == before, "it was saved"


def test_an_item_stays_while_the_next_one_has_no_place() -> None:
    cluster = Cluster("a", "b", store=ALWAYS)
    cluster.create("a", "b")
    moved = cluster.begin_remap(0, "a", "b")
    a_round(cluster)
    assert items(cluster, "b", 0) == ["a", "b"]
    cluster.end_remap(0, moved)
    a_round(cluster)
    assert items(cluster, "b", 0) == ["b"]


def test_who_led_a_queue_that_was_moved_twice_forgets_it() -> None:
    cluster = Cluster("a", "b", "c", store=ALWAYS)
    cluster.create("a", "b", "c")
    cluster.send("a", 0, b"x")
    cluster.remap(0, "a", "b")
    a_round(cluster)
    assert items(cluster, "a", 0) == ["a", "b"], "moved once"
    cluster.send("b", 0, b"y")
    cluster.remap(0, "b", "c")
    a_round(cluster)
    assert items(cluster, "a", 0) is None
    assert items(cluster, "b", 0) == items(cluster, "c", 0) == ["a", "b", "c"]
    assert cluster.pull("c", 0, 0).bodies == [b"x"], "its messages stay"


def test_nothing_goes_in_other_hours() -> None:
    cluster = Cluster("a", "b", store=NEVER)
    cluster.create("a", "b")
    cluster.remap(0, "a", "b")
    a_round(cluster)
    assert items(cluster, "b", 0) == ["a", "b"]


def test_nothing_goes_while_a_broker_is_away_and_the_next_round_makes_up() -> None:
    cluster = Cluster("a", "b", store=ALWAYS)
    cluster.create("a", "b")
    cluster.remap(0, "a", "b")
    cluster.nodes["a"].crash()
    a_round(cluster)
    assert items(cluster, "b", 0) == ["a", "b"]
    cluster.nodes["a"].start()
    a_round(cluster)
    assert items(cluster, "b", 0) == ["b"]
