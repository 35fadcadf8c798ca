"""When the controller elects by itself, and whom it tells."""

import json

import pytest
from tests.controller.harness import CLUSTER, SET, Cell, Client, Group, address, broker_at, register
from tests.controller.test_requests import Stage

from perseid.controller.live import DEFAULT_TIMEOUT_MS, GRAIN_MS
from perseid.controller.node import GATHER_FROM, GATHER_US, GATHER_WINDOW_MS
from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code


@pytest.fixture
def stage() -> Stage:
    """Brokers 1, 2 and 3 alive, 1 master, 1 and 2 in sync; nobody has been told anything since."""
    made = Stage(1, 2, 3)
    assert made.elect(1).code == 0 and made.alter(1, 2).code == 0
    made.group.told()
    return made


def test_a_master_whose_channel_closes_is_replaced_in_the_same_turn(stage: Stage) -> None:
    before = stage.group.now
    stage.die(1)
    assert stage.state == (2, 2, [2], 3) and stage.group.now == before, "no timer is waited for"
    header = {"masterBrokerId": "2", "masterAddress": broker_at(2), "masterEpoch": "2", "syncStateSetEpoch": "3"}
    body = b'{"syncStateSet":[2],"syncStateSetEpoch":3}'
    assert stage.group.told() == [(broker_at(2), header, body), (broker_at(3), header, body)], "the master first"


def test_a_silent_master_is_replaced_when_its_timeout_is_over(stage: Stage) -> None:
    stage.group.pass_time(3_000 - 10, among=lambda: [stage.brokers[n].beat(n) for n in (2, 3)] and None)
    assert stage.state[0] == 1
    stage.group.pass_time(10 + 2 * GRAIN_MS, among=lambda: [stage.brokers[n].beat(n) for n in (2, 3)] and None)
    assert stage.state == (2, 2, [2], 3)
    assert stage.brokers[1].closed, "and its connection is closed"


def test_a_dead_slave_changes_nothing(stage: Stage) -> None:
    stage.die(2)
    assert stage.state == (1, 1, [1, 2], 2) and not stage.group.told()


def test_b23_an_election_that_elects_nobody_is_made_once_and_again_when_somebody_can_be_elected(stage: Stage) -> None:
    stage.die(1, 2)
    assert stage.state == (None, 3, [2], 3)
    stage.group.pass_time(30_000, among=lambda: stage.brokers[3].beat(3), step=500)
    assert stage.state == (None, 3, [2], 3), "3 is alive and not in sync"
    Client(stage.cell).beat(2)
    assert stage.state == (2, 4, [2], 4), "at once when it is back"


def test_a_master_that_comes_back_is_told_that_it_is_none_any_more(stage: Stage) -> None:
    stage.die(1)
    stage.group.told()
    Client(stage.cell).beat(1)
    (notice,) = stage.group.told()
    assert notice[0] == broker_at(1) and notice[1]["masterEpoch"] == "2"


def test_notices_can_be_switched_off() -> None:
    stage = Stage(1, 2, notify_broker_role_changed=False)
    stage.elect(1)
    stage.die(1)
    assert not stage.group.told()


def test_a_broker_that_names_a_controllers_address_gets_no_notice_there() -> None:
    group = Group()
    tools = Client(group.start())
    ext = {"clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": 1}
    tools.ask(Ask.CONTROLLER_APPLY_BROKER_ID, {**ext, "registerCheckCode": f"{address('n0')};1"})
    tools.beat(1, brokerAddr=address("n0"))
    assert tools.ask(Ask.CONTROLLER_ELECT_MASTER, {"brokerName": SET, "brokerId": 1}).code == 0
    assert not group.notices


def test_a_broker_that_can_not_be_told_holds_nobody_up(stage: Stage) -> None:
    stage.group.unreachable.add(broker_at(2))
    stage.die(1)
    assert [to for to, *_ in stage.group.told()] == [broker_at(3)] and stage.state[0] == 2


def test_b19_the_close_of_an_old_channel_elects_nobody(stage: Stage) -> None:
    old = stage.brokers[1]
    stage.brokers[1] = Client(stage.cell)
    stage.brokers[1].beat(1)
    old.close()
    assert stage.state == (1, 1, [1, 2], 2)


# ---- several controllers ----


class Three:
    """Three controllers, and brokers that send heartbeats to all of them."""

    def __init__(self, *numbers: int) -> None:
        self.group = Group(3)
        self.active: Cell = self.group.start()
        self.beating: dict[int, dict[str, Client]] = {}
        self.silent: set[tuple[int, str]] = set()
        """(broker, controller): nothing gets through."""
        register(Client(self.active), *numbers)
        for number in numbers:
            self.beating[number] = {name: Client(cell) for name, cell in self.group.cells.items()}
        self.beat()

    def beat(self) -> None:
        for number, clients in self.beating.items():
            for name, client in list(clients.items()):
                cell = self.group[name]
                if client.closed and cell.running:
                    client = clients[name] = Client(cell)
                if not client.closed and (number, name) not in self.silent:
                    client.beat(number)

    def run(self, ms: int) -> None:
        for _ in range(0, ms, 500):
            self.group.pass_time(500)
            self.beat()

    def die(self, number: int) -> None:
        for client in self.beating.pop(number).values():
            if not client.closed:
                client.close()

    def elect(self, number: int) -> int:
        ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": number}
        return Client(self.active).ask(Ask.CONTROLLER_ELECT_MASTER, ext).code

    def alter(self, *ids: int) -> int:
        state = self.active.node.tables.in_sync[SET]
        body = json.dumps({"syncStateSet": ids, "syncStateSetEpoch": state.epoch}).encode()
        ext = {"brokerName": SET, "masterBrokerId": state.master, "masterEpoch": state.master_epoch}
        return Client(self.active).ask(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body).code

    def switch(self) -> Cell:
        """The active controller dies; another one becomes active."""
        self.active.kill()
        self.active = self.group.until_active()
        return self.active

    @property
    def state(self) -> tuple[int | None, int, list[int], int]:
        state = self.active.node.tables.in_sync[SET]
        return state.master, state.master_epoch, sorted(state.members), state.epoch


@pytest.fixture
def three() -> Three:
    made = Three(1, 2, 3)
    assert made.elect(1) == 0 and made.alter(1, 2) == 0
    made.run(1_000)
    made.group.told()
    return made


def test_only_the_active_controller_acts(three: Three) -> None:
    others = [cell for cell in three.group.cells.values() if cell is not three.active]
    for cell in others:
        assert not cell.node.active and cell.node.tables.in_sync == three.active.node.tables.in_sync
        three.beating[1][cell.name].close()
    three.group.run()
    assert three.state == (1, 1, [1, 2], 2), "the master's connections to others say nothing to the active one"
    assert {cell.node.live.alive(CLUSTER, SET, 2) is not None for cell in others} == {True}, "all tables are warm"


def test_a_new_active_controller_knows_who_is_alive(three: Three) -> None:
    three.run(16_000)
    three.switch()
    assert three.state == (1, 1, [1, 2], 2)
    three.run(12_000)
    assert three.state == (1, 1, [1, 2], 2) and not three.group.told(), "nothing happens to those alive"
    three.die(1)
    assert three.state == (2, 2, [2], 3)


def test_master_and_active_controller_die_together(three: Three) -> None:
    three.active.kill()
    three.die(1)
    three.active = three.group.until_active()
    three.group.run()
    assert three.state == (2, 2, [2], 3)
    assert {to for to, *_ in three.group.told()} == {broker_at(2), broker_at(3)}


def test_b20_a_master_that_dies_after_a_switch_is_found(three: Three) -> None:
    three.switch()
    three.silent |= {(1, name) for name in three.group.cells}
    three.run(4_000)
    assert three.state == (2, 2, [2], 3)


def test_b21_a_broker_never_heard_is_not_judged_before_a_whole_timeout(three: Three) -> None:
    next_one = next(cell for cell in three.group.cells.values() if cell is not three.active)
    for cell in three.group.cells.values():  # nobody but the active one has ever heard of broker 1
        if cell is not three.active:
            cell.node.live.rows.pop((CLUSTER, SET, 1))
            cell.node.live._by_conn.pop(three.beating[1][cell.name].conn)
            three.silent.add((1, cell.name))
    three.switch()
    assert next_one.running
    assert three.elect(2) == Code.CONTROLLER_MASTER_STILL_EXIST, "also when a broker asks"
    three.run(DEFAULT_TIMEOUT_MS - 2_000)
    assert three.state == (1, 1, [1, 2], 2)
    three.run(3_000)
    assert three.state == (2, 2, [2], 3)


def test_b21_heard_in_time_it_stays_master(three: Three) -> None:
    for cell in three.group.cells.values():
        if cell is not three.active:
            cell.node.live.rows.pop((CLUSTER, SET, 1))
            cell.node.live._by_conn.pop(three.beating[1][cell.name].conn)
            three.silent.add((1, cell.name))
    three.switch()
    three.run(6_000)
    three.silent.clear()
    three.run(20_000)
    assert three.state == (1, 1, [1, 2], 2)


def test_an_election_that_nobody_was_told_of_is_told_by_the_next_controller(three: Three) -> None:
    told = three.group.unreachable
    told |= {broker_at(number) for number in (1, 2, 3)}
    three.die(1)
    assert three.state == (2, 2, [2], 3) and not three.group.told()
    told.clear()
    three.switch()
    three.group.run()
    assert {(to, ext["masterEpoch"]) for to, ext, _ in three.group.told()} == {(broker_at(2), "2"), (broker_at(3), "2")}


def test_an_election_long_ago_is_not_told_again(three: Three) -> None:
    three.die(1)
    three.run(16_000)
    three.group.told()
    three.switch()
    three.group.run()
    assert not three.group.told()


def test_a_controller_gathers_heartbeats_only_where_very_many_come(stage: Stage) -> None:
    node, group = stage.cell.node, stage.group

    def beats(count: int) -> None:
        for _ in range(count):
            stage.brokers[2].beat(2)
        group.now += GATHER_WINDOW_MS
        stage.brokers[3].beat(3)

    beats(2)
    assert node.gathers() == 0
    beats(GATHER_FROM)
    assert node.gathers() == GATHER_US
    stage.brokers[3].ask(Ask.CONTROLLER_GET_METADATA_INFO)
    assert node.gathers() == 0, "who asks may ask again at once"
    beats(2)
    assert node.gathers() == 0
