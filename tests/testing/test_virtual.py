"""The broker in virtual time, as a user's test sees it."""

import time

import pytest

from perseid.base.errors import PerseidError, RequestRefused
from perseid.store.config import SYNC_FLUSH, StoreConfig
from perseid.testing.virtual import VirtualBroker

SYNC = StoreConfig(
    commit_log_file_bytes=1 << 16,
    consume_queue_file_bytes=400,
    max_hash_slot_num=50,
    max_index_num=200,
    flush_disk_type=SYNC_FLUSH,
)


def bodies(broker: VirtualBroker, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in broker.pull(topic, queue_id)]


def test_send_and_pull() -> None:
    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        sent = [broker.send("orders", b"%d" % n, queue_id=0, tag="odd" if n % 2 else "even") for n in range(5)]
        assert [one.queue_offset for one in sent] == [0, 1, 2, 3, 4]
        assert bodies(broker) == [b"0", b"1", b"2", b"3", b"4"]
        pulled = broker.pull("orders", 0, expression="odd")
        assert [message.tag for message in pulled] == ["odd", "odd"] and pulled.max_offset == 5


def test_time_passes_when_the_test_says_so() -> None:
    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"later", queue_id=0, delay_level=9)  # five minutes
        begin, real = broker.now, time.perf_counter()
        broker.advance(299_000)
        assert bodies(broker) == []
        broker.advance(2_000)
        assert bodies(broker) == [b"later"]
        assert broker.now - begin >= 301_000 and time.perf_counter() - real < 60


def test_a_pull_waits_in_virtual_time() -> None:
    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        begin = broker.now
        assert not broker.pull("orders", 0, wait_ms=15_000)
        assert 15_000 <= broker.now - begin < 16_000


@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_messages_survive_a_power_cut_under_sync_flush(seed: int) -> None:
    with VirtualBroker(store=SYNC, seed=seed) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(10):
            broker.send("orders", b"%d" % number, queue_id=0)
        broker.cut_power()
        broker.start()
        assert bodies(broker) == [b"%d" % number for number in range(10)]


def test_offsets_survive_a_clean_stop_and_a_crash_after_their_save() -> None:
    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"one", queue_id=0)
        broker.pull("orders", 0, group="readers")
        broker.commit("readers", "orders", 0, 1)
        broker.stop()
        broker.start()
        assert broker.committed("readers", "orders", 0) == 1
        broker.commit("readers", "orders", 0, 0)
        broker.advance(6_000)
        broker.crash()
        assert not broker.running
        broker.start()
        assert broker.committed("readers", "orders", 0) == 0


def test_refusals_and_silence_are_errors() -> None:
    with VirtualBroker() as broker:
        broker.create_topic("orders", queues=1)
        with pytest.raises(RequestRefused, match="queueId"):
            broker.send("orders", b"x", queue_id=9)
        broker.crash()
        with pytest.raises(PerseidError, match="no answer"):
            broker.send("orders", b"x")
        assert any("killed" in line for line in broker.story("broker"))
