"""The registration machine with the real caller, against name servers that are played here."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.base.machine import Closed, Connect, ConnectFailed, Effect, Note, Opened, Tick, Write
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.answers import Answers
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.registration.name_servers import FIRST_RETRY_MS, MIN_PERIOD_MS, Registration
from perseid.broker.static_topics.mappings import TopicMappings
from perseid.wire import command
from perseid.wire.bodies import KVTable, RegisterBrokerBody, TopicConfig
from perseid.wire.hashing import crc32
from perseid.wire.headers.namesrv import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from perseid.wire.rpc import Caller

NOW = 1_700_000_000_000
PERIOD = 30_000
A, B = "10.0.0.1:9876", "10.0.0.2:9876"


class Asked:
    """One request that a name server got."""

    def __init__(self, frame: Any) -> None:
        self.command = command.decode(bytes(frame))
        self.code = self.command.code

    @property
    def header(self) -> RegisterBrokerRequest:
        return self.command.header(RegisterBrokerRequest)

    @property
    def body(self) -> RegisterBrokerBody:
        return RegisterBrokerBody.decode(self.command.body)

    @property
    def topics(self) -> set[str]:
        return set(self.body.topic_config_serialize_wrapper.topic_config_table)


class Replicas:
    """Hears where the master is."""

    ha_address = "10.9.9.9:10912"
    broker_id = 0
    without_master = False

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None]] = []

    def follow(self, master: str, ha_address: str | None, now: int) -> None:
        self.told.append((master, ha_address))


class HeardTurn(Turn):
    """Each effect is carried out at once."""

    def __init__(self, world: World, answers: Answers, caller: Caller) -> None:
        super().__init__(answers, caller)
        self._world = world

    def emit(self, effect: Effect) -> None:
        self.now = self._world.now
        self._world.emit(effect)


class World:
    """A broker's surroundings, and name servers that answer when they are told to."""

    def __init__(self, namesrv: str = f"{A};{B}", **settings: Any) -> None:
        config = BrokerConfig(namesrv_addr=namesrv, broker_name="b", broker_ip1="10.9.9.9", **settings)
        self.now = NOW
        self.settings = Settings(config)
        self.topics = TopicTable(config, NOW)
        self.mappings = TopicMappings("b")
        self.caller = Caller()
        self.replicas = Replicas()
        self.turn = HeardTurn(self, Answers(config), self.caller)
        self.registration = Registration(
            self.turn, self.settings, self.caller, self.topics, self.mappings, self.replicas
        )
        self.conns: dict[str, int] = {}
        self.asked: dict[str, list[Asked]] = {A: [], B: []}
        self.notes: list[Note] = []
        self.dialled: list[str] = []
        self._conn = 0

    def emit(self, effect: Effect) -> None:
        if isinstance(effect, Write):
            address = next(a for a, conn in self.conns.items() if conn == effect.conn)
            self.asked[address].append(Asked(effect.data))
        elif isinstance(effect, Connect):
            self.dialled.append(effect.address)
        elif isinstance(effect, Note):
            self.notes.append(effect)

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.emit(effect)

    def start(self) -> None:
        self.turn.now = self.now
        self.registration.start(self.now)
        for address in list(self.dialled):
            self.open(address)

    def open(self, address: str) -> None:
        self._conn += 1
        self.conns[address] = self._conn
        self.carry_out(self.caller.handle(Opened(self._conn, address, "", dialled=address), self.now))

    def fail(self, address: str) -> None:
        self.carry_out(self.caller.handle(ConnectFailed(address, "refused"), self.now))

    def close(self, address: str) -> None:
        self.dialled.clear()
        self.carry_out(self.caller.handle(Closed(self.conns.pop(address), "gone"), self.now))
        self.registration.connection_closed(address, self.now)

    def answer(self, address: str, code: int = 0, header: Any = None, body: bytes = b"") -> Asked:
        """The name server answers its oldest request."""
        asked = self.asked[address].pop(0)
        frame = command.encode_response(asked.command.opaque, code, header or RegisterBrokerResponse(), body)
        self.carry_out(self.caller.answered(self.conns[address], command.decode(frame), self.now))
        self.registration.validate()
        return asked

    def until(self, now: int) -> None:
        self.now = self.turn.now = now
        self.carry_out(self.caller.handle(Tick(), now))
        self.registration.tick(now)

    def change(self, *names: str) -> None:
        for name in names:
            self.topics.update(TopicConfig(name, 4, 4), self.now)
        self.registration.topics_changed(self.topics.take_changed(), self.now)


@pytest.fixture
def world() -> World:
    """A broker that has registered with A and B."""
    world = World()
    world.start()
    world.answer(A)
    world.answer(B)
    return world


def test_the_first_registration_says_everything() -> None:
    world = World()
    world.start()
    for address in (A, B):
        assert not world.registration.tried
        asked = world.answer(address)
        header = asked.header
        assert asked.code == 103
        assert (header.broker_name, header.broker_addr, header.cluster_name) == (
            "b",
            "10.9.9.9:10911",
            "DefaultCluster",
        )
        assert (header.broker_id, header.ha_server_addr) == (0, "10.9.9.9:10912")
        assert header.body_crc32 == crc32(asked.command.body)
        assert asked.topics == set(world.topics.rows)
        assert asked.body.topic_config_serialize_wrapper.data_version == world.topics.version
        assert world.registration.registered(address)
    assert world.registration.tried


def test_a_start_is_not_held_up_by_a_name_server_that_is_silent() -> None:
    world = World()
    world.start()
    world.answer(A)
    world.until(NOW + world.settings.current.register_broker_timeout_mills)
    assert world.registration.tried and not world.registration.registered(B)


def test_once_a_period(world: World) -> None:
    assert world.registration.next_deadline() == NOW + PERIOD
    world.until(NOW + PERIOD - 1)
    assert world.asked == {A: [], B: []}
    world.until(NOW + PERIOD)
    assert len(world.asked[A]) == len(world.asked[B]) == 1
    assert world.registration.next_deadline() is None, "both are under way"


def test_the_period_has_bounds() -> None:
    world = World(A, register_name_server_period=1)
    world.start()
    world.answer(A)
    assert world.registration.next_deadline() == NOW + MIN_PERIOD_MS
    world = World(A, register_name_server_period=10**9)
    world.start()
    world.answer(A)
    assert world.registration.next_deadline() == NOW + 60_000


def test_a_changed_topic_is_sent_alone_and_at_once(world: World) -> None:
    world.change("T")
    assert world.answer(A).topics == {"T"}
    assert world.answer(B).topics == {"T"}
    assert world.registration.next_deadline() == NOW + PERIOD


def test_a_deleted_topic_makes_it_a_whole_one(world: World) -> None:
    world.change("T", "U")
    world.answer(A)
    world.topics.delete("T", world.now)
    world.registration.topics_changed(world.topics.take_changed(), world.now)
    assert world.answer(A).topics == set(world.topics.rows)


def test_what_changes_meanwhile_follows_in_one(world: World) -> None:
    world.change("T")
    world.change("U")
    world.change("V")
    assert len(world.asked[A]) == 1
    assert world.answer(A).topics == {"T"}
    assert world.answer(A).topics == {"U", "V"}
    assert world.asked[A] == []


def test_a_whole_one_comes_in_time_in_spite_of_small_ones(world: World) -> None:
    for i in range(1, 4):
        world.until(NOW + i * 10_000 - 1)
        world.change(f"T{i}")
        assert world.answer(A).topics == {f"T{i}"}
    world.until(NOW + PERIOD)
    assert world.answer(A).topics == set(world.topics.rows)


@pytest.mark.parametrize("how", ["refused", "timeout"])
def test_a_change_that_did_not_arrive_goes_with_the_next(world: World, how: str) -> None:
    world.change("T")
    world.answer(B)
    if how == "refused":
        world.answer(A, code=1)
    else:
        world.asked[A].clear()
        world.until(NOW + world.settings.current.register_broker_timeout_mills)
    assert not world.registration.registered(A)
    world.change("U")
    assert world.asked[A] == [], "the next try waits"
    world.until(world.now + FIRST_RETRY_MS)
    asked = world.answer(A)
    assert asked.topics == set(world.topics.rows) and {"T", "U"} <= asked.topics
    assert world.registration.registered(A)
    assert world.registration.registered(B), "each name server on its own"


def test_tries_come_further_apart_and_never_end() -> None:
    world = World(A)
    world.registration.start(NOW)
    gaps = []
    for _ in range(8):
        world.fail(A)
        due = world.registration.next_deadline()
        assert due is not None
        gaps.append(due - world.now)
        world.until(due)
        while not world.dialled:  # the caller waits between dials as well
            later = world.caller.next_deadline()
            assert later is not None
            world.until(later)
        world.dialled.clear()
    assert gaps[:6] == [1000, 2000, 4000, 8000, 16_000, 30_000]
    assert gaps[-1] == PERIOD
    assert [note.level for note in world.notes] == ["warning"], "said once"
    world.open(A)
    world.answer(A)
    assert world.registration.registered(A) and world.notes[-1].level == "info"


def test_a_lost_connection_is_dialled_and_registered_anew(world: World) -> None:
    world.close(A)
    assert world.dialled == [A]
    world.open(A)
    assert world.answer(A).topics == set(world.topics.rows)
    assert world.registration.registered(A) and world.asked[B] == []


def test_a_connection_lost_during_a_registration(world: World) -> None:
    world.change("T")
    world.asked[A].clear()
    world.close(A)
    assert not world.registration.registered(A)
    world.until(NOW + FIRST_RETRY_MS)
    world.open(A)
    assert "T" in world.answer(A).topics


def test_the_other_connections_do_not_matter(world: World) -> None:
    world.registration.connection_closed("10.0.0.77:10911", NOW)
    assert world.registration.next_deadline() == NOW + PERIOD


def test_order_topics_and_the_master_are_read_back(world: World) -> None:
    world.change("T")
    world.answer(
        A,
        header=RegisterBrokerResponse(master_addr="10.9.9.1:10911", ha_server_addr="10.9.9.1:10912"),
        body=KVTable({"T": "b:4", "unknown": "x:1"}).to_json(),
    )
    assert world.topics.is_order("T") and "T" in world.topics.changed
    assert world.registration.master_address == "10.9.9.1:10911"
    assert world.replicas.told == [("10.9.9.1:10911", "10.9.9.1:10912")]


def test_an_unreadable_order_configuration_is_noted(world: World) -> None:
    world.change("T")
    world.answer(A, body=b"nonsense")
    assert world.notes[-1].level == "warning" and world.registration.registered(A)


def test_what_the_broker_may_not_do_its_topics_may_not_either() -> None:
    world = World(A, broker_permission=4)
    world.start()
    table = world.answer(A).body.topic_config_serialize_wrapper.topic_config_table
    assert table["TBW102"].perm == 4 and table["SELF_TEST_TOPIC"].perm == 4
    row = world.topics.get("TBW102")
    assert row is not None and row.perm == 7


def test_a_new_permission_is_in_the_next_body(world: World) -> None:
    world.settings.current = BrokerConfig(namesrv_addr=f"{A};{B}", broker_permission=4)
    world.topics.bump(NOW)
    world.registration.topics_changed(world.topics.take_changed(), NOW)
    table = world.answer(A).body.topic_config_serialize_wrapper.topic_config_table
    assert table["TBW102"].perm == 4


def test_the_compressed_form() -> None:
    world = World(A, compressed_register=True)
    world.start()
    asked = world.answer(A)
    assert bytes(asked.command.body[:1]) == b"\x78" and not asked.header.compressed
    assert asked.topics == set(world.topics.rows)


def test_a_clean_stop_takes_the_entries_back(world: World) -> None:
    world.close(B)
    world.registration.stop(NOW)
    asked = world.asked[A].pop()
    header = asked.command.header(UnregisterBrokerRequest)
    assert asked.code == 104 and (header.broker_name, header.broker_id) == ("b", 0)
    assert header.broker_addr == "10.9.9.9:10911"
    world.until(NOW + 10 * PERIOD)
    world.change("T")
    assert world.asked[A] == [] and world.registration.next_deadline() is None


def test_no_name_server() -> None:
    world = World("")
    world.start()
    world.change("T")
    assert world.registration.next_deadline() is None and world.registration.name_servers == []


def test_a_first_start_has_a_version_of_its_own() -> None:
    world = World(A)
    world.topics.version.timestamp = 0
    world.registration.start(NOW)
    assert world.topics.version.timestamp == NOW and world.topics.version.counter == 1
