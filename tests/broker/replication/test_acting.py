"""A slave that acts for its master, from the master's death to its return: two brokers and a name server, the very
objects, whose frames are carried here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from nameserver.harness import Server, frame
from perseid.base.machine import Closed, ConnectFailed, Frames, Opened
from perseid.broker.replication import acting
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import State
from perseid.store.store import LOCK_PATH
from perseid.wire import command
from perseid.wire.bodies import DataVersion
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest

NAME_SERVER = "10.0.0.100:9876"
NOTIFIER = 100
"""The client whose machine is the name server's."""
HOSTS = ("10.0.1.0", "10.0.1.1", "10.0.1.2")
OTHER = 2
"""A master of another name."""
SECOND = 1_000


class World:
    """Broker 0 is the master, broker 1 its slave; each is there from `begin` to `kill`."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.settings = {"compatible_with_old_name_srv": False, "total_replicas": 2, **settings}
        self.as_java = False
        """What Java brokers do not tell is left out of answers."""
        self.others: dict[str, Any] = {}
        """What the other master is told."""
        self.server = Server(support_acting_master=True)
        self.server.now = self.now = NOW
        self.rigs: dict[int, Rig] = {}
        self.names_up = True
        self.ha_up = True
        self._conns = 1_000
        self._rpc: dict[tuple[int, str], int] = {}
        self._ha: dict[int, tuple[int, int]] = {}
        """A connection of the stream, at either end: whose it is, and what the other end calls it."""
        self.asked: list[tuple[int, int]] = []

    def begin(self, number: int) -> Rig:
        mine: dict[str, Any] = {"broker_role": "SLAVE" if number == 1 else "ASYNC_MASTER", "broker_id": number}
        if number == OTHER:
            mine = {"broker_name": "other", "broker_id": 0, **self.others}
        else:
            mine |= {"enable_slave_acting_master": True, **self.settings}
        rig = self.rigs[number] = Rig(
            self.root / str(number), self.now, broker_ip1=HOSTS[number], namesrv_addr=NAME_SERVER, **mine
        )
        self.carry()
        return rig

    def kill(self, number: int) -> None:
        """It is gone, without a word."""
        self.rigs.pop(number).disk.unlock(LOCK_PATH)
        for (owner, address), conn in list(self._rpc.items()):
            if owner == number or address.startswith(HOSTS[number]):
                del self._rpc[owner, address]
                if address == NAME_SERVER:
                    self.server.feed(Closed(conn, "killed"))
                elif owner in self.rigs:
                    self.rigs[owner].handle(Closed(conn, "killed"))
        for conn, (owner, _) in list(self._ha.items()):
            del self._ha[conn]
            if owner in self.rigs:
                self.rigs[owner].handle(Closed(conn, "killed"))
        self.carry()

    def later(self, ms: int = SECOND) -> None:
        for _ in range(max(1, ms // 100)):
            self.now += min(ms, 100)
            self.server.pass_time(min(ms, 100))
            for rig in self.rigs.values():
                rig.until(self.now)
            self.carry()

    # ---- what is under way ----

    def carry(self) -> None:
        """All frames and bytes, until there are none."""
        while sum(self._carry(number, rig) for number, rig in list(self.rigs.items())):
            pass

    def _carry(self, number: int, rig: Rig) -> bool:
        moved = False
        while rig.dialled:
            moved = True
            self._open(number, rig, rig.dialled.pop(0))
        for (owner, address), conn in list(self._rpc.items()):
            if owner == number:
                for one in [c for c in rig.sent.pop(conn, []) if not c.is_response]:
                    moved = True
                    self.asked.append((number, one.code))
                    self._answer(number, rig, conn, address, one)
        for conn in [conn for conn, (owner, _) in self._ha.items() if owner == number]:
            data = bytes(rig.streams[conn])
            rig.streams[conn].clear()
            if data and conn in self._ha:
                moved = True
                other = self._ha[conn][1]
                self.rigs[self._ha[other][0]].handle(Frames(other, data))
        return moved

    def _open(self, number: int, rig: Rig, address: str) -> None:
        host, _, port = address.rpartition(":")
        there = self.names_up if address == NAME_SERVER else any(HOSTS[n] == host for n in self.rigs)
        ha = port == "10912"
        if not there or (ha and not self.ha_up):
            rig.handle(ConnectFailed(address, "refused"))
            return
        self._conns += 2
        mine, theirs = self._conns, self._conns + 1
        if not ha:
            self._rpc[number, address] = mine
            rig.handle(Opened(mine, address, f"{HOSTS[number]}:4000", "", address))
            return
        master = self.rigs[HOSTS.index(host)]
        rig.streams[mine], master.streams[theirs] = bytearray(), bytearray()
        self._ha[mine], self._ha[theirs] = (number, theirs), (HOSTS.index(host), mine)
        master.handle(Opened(theirs, f"{HOSTS[number]}:4001", address, "ha"))
        rig.handle(Opened(mine, address, f"{HOSTS[number]}:4001", "ha", address))

    def _answer(self, number: int, rig: Rig, conn: int, address: str, one: command.Command) -> None:
        ext, body = dict(one.ext), bytes(one.body)
        if address == NAME_SERVER and one.is_oneway:
            self.server.feed(Frames(conn, frame(one.code, ext, body, 513, flag=2)))
            return
        if address == NAME_SERVER:
            answer = self.server.ask(one.code, ext, body, conn=conn)
        else:
            asked, client = self.rigs[HOSTS.index(address.rpartition(":")[0])], 7_000 + number
            if client not in asked.parts.connections:
                asked.handle(Opened(client, f"{HOSTS[number]}:4002", address, "main"))
            answer = asked.ask(one.code, ext, body, client=client)
        fields, said = dict(answer.ext), bytes(answer.body)
        if self.as_java:
            fields = {name: text for name, text in fields.items() if not name.startswith("perseid")}
            said = re.sub(rb',"perseidAhead":"(?:\\.|[^"\\])*"', b"", said)
        data = command.encode_response(one.opaque, answer.code, fields, said, remark=answer.remark)
        rig.handle(Frames(conn, data))

    # ---- what clients see ----

    def members(self) -> dict[str, str]:
        found: dict[str, str] = self.server.json(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "b"})[
            "brokerMemberGroup"
        ]["brokerAddrs"]
        return found

    def addresses(self, topic: str = "TBW102") -> dict[str, str]:
        route = self.server.route(topic)
        return dict(route["brokerDatas"][0]["brokerAddrs"]) if route is not None else {}

    def commit(self, number: int, offset: int, queue_id: int = 0) -> None:
        header = UpdateConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=queue_id, commit_offset=offset)
        assert self.rigs[number].ask(Code.UPDATE_CONSUMER_OFFSET, header).code == 0

    def committed(self, number: int) -> int | None:
        header = QueryConsumerOffsetRequest(consumer_group="g", topic="T", queue_id=0)
        answer = self.rigs[number].ask(Code.QUERY_CONSUMER_OFFSET, header)
        return int(answer.ext["offset"]) if answer.code == 0 else None

    def pull(self, number: int, offset: int = 0, hold_ms: int = 0) -> int | None:
        """The answer's code; None: it is held."""
        header = PullMessageRequest(
            consumer_group="g", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32,
            sys_flag=6 if hold_ms else 4,
            commit_offset=0, suspend_timeout_millis=hold_ms, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        answer = self.rigs[number].answer(self.rigs[number].tell(Code.PULL_MESSAGE, header, client=3), client=3)
        return None if answer is None else answer.code

    def state(self) -> State:
        slave = self.rigs[1].parts.mode.receiver
        assert slave is not None
        return slave.state


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A master with ten messages and a slave that has them; the group has read three."""
    return serving(World(tmp_path))


def serving(world: World) -> World:
    world.begin(0)
    world.later()
    world.begin(1)
    world.later()
    for _ in range(10):
        world.rigs[0].send("T")
    assert world.pull(0) == 0
    world.commit(0, 3)
    world.later(7 * SECOND)
    slave = world.rigs[1].parts
    assert slave.store.log.end == world.rigs[0].parts.store.log.end and world.committed(1) == 3
    assert slave.mode.acting.slaves_act and not slave.mode.acting.acting
    return world


def acts(world: World) -> bool:
    found = world.rigs[1].parts.mode.acting
    assert found is not None
    return found.acting


@pytest.mark.parametrize("old", [False, True], ids=["901 and 904", "as name servers of 4.x know them"])
def test_a_masters_death_and_return(tmp_path: Path, old: bool) -> None:
    world = serving(World(tmp_path, compatible_with_old_name_srv=old))
    assert world.members() == {"0": "10.0.1.0:10911", "1": "10.0.1.1:10911"}
    world.kill(0)
    world.later(2 * SECOND)
    assert acts(world)
    assert world.addresses() == {"0": "10.0.1.1:10911"} and world.server.perm("TBW102", "b") == 5
    assert world.pull(1) == 0, "it is read from, without slaveReadEnable"
    world.commit(1, 8)
    world.begin(0)
    world.later(3 * SECOND)
    assert world.committed(0) == 8, "the group goes on where it was"
    assert not acts(world) and world.state() is State.FOLLOWING
    assert world.members() == {"0": "10.0.1.0:10911", "1": "10.0.1.1:10911"}
    world.rigs[0].send("T")
    world.commit(0, 9)
    world.later(7 * SECOND)
    assert world.committed(1) == 9 and world.rigs[1].parts.store.log.end == world.rigs[0].parts.store.log.end
    signs = {Code.QUERY_DATA_VERSION} if old else {Code.BROKER_HEARTBEAT}
    assert {code for _, code in world.asked} & {Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT} == signs


@pytest.mark.parametrize("read", [False, True], ids=["", "slaveReadEnable"])
def test_a_master_that_comes_back_does_not_show_itself_before_it_is_prepared(tmp_path: Path, read: bool) -> None:
    """Nobody pulls from it either: a pull may commit."""
    world = serving(World(tmp_path, slave_read_enable=read))
    world.kill(0)
    world.later(2 * SECOND)
    world.commit(1, 8)
    world.ha_up = False
    master = world.begin(0)
    world.later(acting.FOLLOW_MS - 2 * SECOND)
    assert world.members() == {"1": "10.0.1.1:10911"} and acts(world)
    assert world.pull(0) == 2, "refused until then"
    assert world.rigs[0].parts.roles.is_slave
    world.later(4 * SECOND)
    assert "0" in world.members() and world.committed(0) == 8, "it does not wait for ever, and has the offsets"
    assert any("does not follow this master" in note.text for note in master.notes)


def test_a_master_alone_is_online_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin(0)
    world.later()
    assert world.members() == {"0": "10.0.1.0:10911"}
    world.rigs[0].send("T")


def test_without_name_servers_a_master_says_so_and_goes_on_asking(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.names_up = False
    master = world.begin(0)
    world.later(20 * SECOND)
    assert master.parts.roles.is_slave
    assert sum("does not say who is there" in note.text for note in master.notes) == 1
    world.names_up = True
    world.later(10 * SECOND)
    assert not master.parts.roles.is_slave and "0" in world.members()


def test_skip_pre_online(tmp_path: Path) -> None:
    world = World(tmp_path, skip_pre_online=True)
    world.names_up = False
    assert not world.begin(0).parts.roles.is_slave


def test_a_slave_that_starts_alone_acts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin(1)
    world.later(2 * SECOND)
    assert acts(world) and world.addresses() == {"0": "10.0.1.1:10911"}


def test_readers_with_an_old_route_are_held_by_who_acted(world: World) -> None:
    """They would come back at once, over and over, until they ask for the route again."""
    world.kill(0)
    world.later(2 * SECOND)
    assert world.pull(1, 10, 5 * SECOND) is None
    world.begin(0)
    world.later(3 * SECOND)
    assert not acts(world) and world.state() is State.FOLLOWING
    assert world.pull(1, 10, 5 * SECOND) is None
    world.later(acting.ROUTE_MS)
    assert world.pull(1, 10, 5 * SECOND) == 20, "PULL_RETRY_IMMEDIATELY"


def test_a_notice_is_taken_at_once(world: World) -> None:
    slave = world.rigs[1]
    notice = {"minBrokerId": "1", "minBrokerAddr": "10.0.1.1:10911", "offlineBrokerAddr": "10.0.1.0:10911"}
    assert slave.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, notice, client=NOTIFIER).code == 0
    assert acts(world) and world.state() is State.IDLE
    back = {"minBrokerId": "0", "minBrokerAddr": "10.0.1.0:10911", "haBrokerAddr": "10.0.1.0:10912"}
    assert slave.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, back, client=NOTIFIER).code == 0
    world.carry()
    assert not acts(world) and world.state() is State.FOLLOWING


def test_who_acts_copies_nothing_from_a_master_of_which_it_is_told_with_a_registration(world: World) -> None:
    """It comes back, and the name server's notice is late: what was done meanwhile would be taken away."""
    slave, copies = world.rigs[1], {(1, Code.GET_ALL_DELAY_OFFSET), (1, Code.GET_ALL_CONSUMER_OFFSET)}
    notice = {"minBrokerId": "1", "minBrokerAddr": "10.0.1.1:10911", "offlineBrokerAddr": "10.0.1.0:10911"}
    assert slave.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, notice, client=NOTIFIER).code == 0
    world.asked.clear()
    conn = world._rpc.pop((1, NAME_SERVER))
    world.server.feed(Closed(conn, "reset"))
    slave.handle(Closed(conn, "reset"))
    world.carry()
    assert (1, Code.REGISTER_BROKER) in world.asked and acts(world)
    assert copies.isdisjoint(world.asked) and world.state() is State.IDLE
    world.later(2 * SECOND)
    assert not acts(world) and world.state() is State.FOLLOWING
    assert copies <= {*world.asked}


def test_a_master_heeds_no_notice(world: World) -> None:
    notice = {"minBrokerId": "1", "minBrokerAddr": "10.0.1.1:10911"}
    assert world.rigs[0].ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, notice, client=NOTIFIER).code == 0
    world.rigs[0].send("T")


# ---- whose table counts ----


def test_who_acts_and_was_told_nothing_has_nothing_later(world: World) -> None:
    """It may have taken itself for it for a moment, by old notices, while another slave acted (simulator, `acting`,
    swarm, seed 8600045): its table must not hide what was committed there."""
    offsets = world.rigs[1].parts.offsets
    before = offsets.version.to_json()
    world.kill(0)
    world.later(2 * SECOND)
    assert acts(world) and offsets.version.to_json() == before
    world.commit(1, 8)
    assert offsets.version.timestamp == world.now, "from the first commit on it is"


@pytest.mark.parametrize("java", [False, True])
def test_what_was_committed_while_the_master_was_away_is_later_than_its_last_changes(
    tmp_path: Path, java: bool
) -> None:
    """The master's version rose once more than the slave's copy, and the slave's few commits don't make up for it."""
    world = serving(World(tmp_path, consumer_offset_update_version_step=3, flush_consumer_offset_interval=100))
    world.commit(0, 4)
    world.commit(0, 5)
    world.later(200)
    world.as_java = java
    assert world.committed(1) == 3, "not copied yet"
    assert world.rigs[0].parts.offsets.version.counter > world.rigs[1].parts.offsets.version.counter
    world.kill(0)
    world.later(2 * SECOND)
    world.commit(1, 8)
    world.begin(0)
    assert world.rigs[0].parts.offsets.query("T", "g", 0) == 5, "its own file"
    world.later(3 * SECOND)
    assert world.committed(0) == 8


@pytest.mark.parametrize(("java", "wanted"), [(False, 8), (True, 3)], ids=["", "of a Java slave"])
def test_what_came_to_a_slave_after_the_master_had_asked_it_is_not_lost_with_an_older_table(
    tmp_path: Path, java: bool, wanted: int
) -> None:
    """The slave had not heard yet that the master was back (simulator, `acting`, swarm, seed 8910022). When the master
    goes again, the slave tells where the group is; the master's table is the later one, and must not take it back."""
    world = serving(World(tmp_path, consumer_offset_update_version_step=1, flush_consumer_offset_interval=100))
    world.kill(0)
    world.later(2 * SECOND)
    world.begin(0)
    while world.rigs[0].parts.roles.is_slave:
        world.later(100)
    assert acts(world)
    world.commit(1, 8)
    world.later(12 * SECOND)
    assert not acts(world) and (world.committed(0), world.committed(1)) == (3, 8), "copied, and kept"
    world.commit(0, 0, queue_id=1)
    world.later(200)
    world.kill(0)
    world.later(2 * SECOND)
    assert acts(world) and world.committed(1) == 8
    world.as_java = java
    master, slave = world.begin(0).parts.offsets, world.rigs[1].parts.offsets
    assert acting.later(master.version, slave.version) and master.query("T", "g", 0) == 3
    world.later(3 * SECOND)
    assert world.committed(0) == wanted, "a Java slave does not say what was committed to itself alone"
    assert master.query("T", "g", 1) == 0


@pytest.mark.parametrize("counter", [0, 9], ids=["an equal version", "a later one"])
def test_delayed_messages_that_a_java_slave_sent_elsewhere_are_not_delivered_again(world: World, counter: int) -> None:
    for _ in range(3):
        world.rigs[0].send("T", properties="DELAY\x013\x02")
    world.later(4 * SECOND)
    world.kill(0)
    world.later(2 * SECOND)
    world.as_java = True
    delay = world.rigs[1].parts.delay
    delay.adopt({3: 2}, DataVersion(counter=counter, timestamp=delay.version.timestamp))
    world.begin(0)
    assert world.rigs[0].parts.delay.offsets.get(3, 0) == 0
    world.later(2 * SECOND)
    assert not world.rigs[0].parts.roles.is_slave and world.rigs[0].parts.delay.offsets[3] == 2
    world.later(10 * SECOND)
    assert world.rigs[0].parts.store.reads.max_offset("T", 0) == 11, "ten, and the third of the delayed ones"


@pytest.mark.parametrize(
    ("theirs", "ours", "wanted"),
    [
        ((0, 5, 9), (0, 4, 9), True),
        ((0, 4, 9), (0, 5, 9), False),
        ((0, 4, 10), (0, 5, 9), True),
        ((1, 0, 0), (0, 5, 9), True),
        ((0, 5, 9), (0, 5, 9), False),
    ],
    ids=["more changes", "fewer", "fewer, but later", "a newer state", "the same"],
)
def test_which_table_is_later(theirs: tuple[int, int, int], ours: tuple[int, int, int], wanted: bool) -> None:
    def version(of: tuple[int, int, int]) -> DataVersion:
        return DataVersion(state_version=of[0], counter=of[1], timestamp=of[2])

    assert acting.later(version(theirs), version(ours)) is wanted


def test_an_equal_table_takes_no_group_back(tmp_path: Path) -> None:
    offsets = Rig(tmp_path).parts.offsets
    offsets.commit("T", "g", 0, 7, NOW, 500)
    version = DataVersion(counter=3)
    offsets.take_over({"T@g": {0: 5, 1: 4, -1: 3}}, version, highest=True)
    assert (offsets.queues_of("T", "g"), offsets.version) == ({0: 7, 1: 4}, version)
    offsets.take_over({"T@g": {0: 5, 2: -4}}, version, highest=False)
    assert offsets.queues_of("T", "g") == {0: 5, 1: 4}


# ---- strangers ----


def test_a_strangers_notice_makes_no_slave_act(world: World) -> None:
    """Believed, the slave would leave its master, or follow the log of whoever says so."""
    slave = world.rigs[1]
    for minimum, where in (("1", "10.0.1.1"), ("0", "10.0.0.66")):
        notice = {"minBrokerId": minimum, "minBrokerAddr": f"{where}:10911", "haBrokerAddr": f"{where}:10912"}
        answer = slave.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, notice, client=66)
        assert answer.code == ResponseCode.NO_PERMISSION
    world.carry()
    assert not acts(world) and world.state() is State.FOLLOWING
    assert "10.0.0.66, where no name server is" in notes_of(slave)


@pytest.mark.parametrize("away", [False, True])
def test_a_strangers_invitation_is_not_followed(world: World, away: bool) -> None:
    """Also while the master is away: the slave waits for that one, and takes no log of somebody else's."""
    slave = world.rigs[1]
    if away:
        world.kill(0)
        world.later(3 * SECOND)
        assert acts(world)
    before = world.state()
    invitation = {"masterHaAddress": "10.0.0.66:10912", "masterAddress": "10.0.1.0:10911", "masterFlushOffset": "0"}
    slave.ask(Code.EXCHANGE_BROKER_HA_INFO, invitation, client=66)
    assert "10.0.0.66:10912" not in slave.dialled and world.state() is before
    assert "10.0.0.66, where the master (10.0.1.0:10911) is not" in notes_of(slave)
    if away:
        world.begin(0)
        world.later(5 * SECOND)
    assert world.state() is State.FOLLOWING and not acts(world)


def test_a_broker_that_believes_everybody_says_so(tmp_path: Path) -> None:
    rig = Rig(
        tmp_path, broker_role="SLAVE", broker_id=1, enable_slave_acting_master=True,
        replication=ReplicationConfig(check_peer_addresses=False),
    )  # fmt: skip
    assert "checkPeerAddresses=false" in notes_of(rig)
    assert rig.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, {"minBrokerId": "1", "minBrokerAddr": "1.1.1.1:1"}).code == 0


def notes_of(rig: Rig) -> str:
    return "\n".join(note.text for note in rig.notes)


# ---- bad input ----

BAD = {"empty": "", "negative": "-1", "huge": "9" * 30, "of the wrong type": "{x}", "without a port": "10.0.0.1:"}


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("field", ["minBrokerId", "minBrokerAddr", "brokerName", "haBrokerAddr"])
def test_a_notice_that_makes_no_sense_changes_nothing(world: World, field: str, value: str) -> None:
    good = {"minBrokerId": "0", "minBrokerAddr": "10.0.1.0:10911", "haBrokerAddr": "10.0.1.0:10912", "brokerName": "b"}
    spoilt = {**good, field: BAD[value]}
    assert world.rigs[1].ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, spoilt, client=NOTIFIER).code in (0, 1)
    for missing in ("minBrokerId", "minBrokerAddr"):
        notice = {name: text for name, text in good.items() if name != missing}
        assert world.rigs[1].ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, notice, client=NOTIFIER).code == 1
    assert not acts(world) and world.state() is State.FOLLOWING


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("field", ["masterHaAddress", "masterAddress", "masterFlushOffset"])
def test_an_invitation_that_makes_no_sense_is_not_followed(world: World, field: str, value: str) -> None:
    good = {"masterHaAddress": "10.0.1.0:10912", "masterAddress": "10.0.1.0:10911", "masterFlushOffset": "0"}
    slave = world.rigs[1]
    slave.handle(Opened(600, f"{HOSTS[0]}:4003", "10.0.1.1:10911", "main"))
    answer = slave.ask(Code.EXCHANGE_BROKER_HA_INFO, {**good, field: BAD[value]}, client=600)
    assert answer.code in (0, 1)
    assert world.state() is State.FOLLOWING


def test_where_nobody_acts_both_are_ignored(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_role="SLAVE", broker_id=1)
    assert rig.ask(Code.NOTIFY_MIN_BROKER_ID_CHANGE, {"minBrokerId": "1", "minBrokerAddr": "1.1.1.1:1"}).code == 0
    invitation = {"masterHaAddress": "1.1.1.1:2", "masterAddress": "1.1.1.1:1", "masterFlushOffset": "0"}
    assert rig.ask(Code.EXCHANGE_BROKER_HA_INFO, invitation).code == 0
    slave = rig.parts.mode.receiver
    assert slave is not None and slave.state is State.IDLE
