"""Every request with every response code (controller.md §3, 4)."""

import json
from typing import Any

import pytest
from tests.controller.harness import CLUSTER, SET, Client, Group, address, broker_at, register

from perseid.base import config as settings
from perseid.base.machine import DiskFailed
from perseid.controller.commands import MAX_TEXT
from perseid.controller.config import ControllerConfig
from perseid.controller.routes import ROUTES
from perseid.wire.codes import RequestCode as Ask
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.command import Command


class Stage:
    """One controller, and a broker set with some brokers alive, each on a connection of its own."""

    def __init__(self, *numbers: int, **config: Any) -> None:
        self.group = Group(config=config)
        self.cell = self.group.start()
        self.tools = Client(self.cell)
        register(self.tools, *numbers)
        self.brokers = {number: Client(self.cell) for number in numbers}
        for number, client in self.brokers.items():
            client.beat(number)

    def elect(self, number: int, **more: Any) -> Command:
        ext = {"clusterName": CLUSTER, "brokerName": SET, "brokerId": number, "designateElect": False} | more
        return self.tools.ask(Ask.CONTROLLER_ELECT_MASTER, ext)

    def alter(self, *ids: int, epoch: int | None = None, **more: Any) -> Command:
        state = self.cell.node.tables.in_sync.get(SET)
        ext = {"brokerName": SET, "masterBrokerId": state.master if state else 1} | more
        ext.setdefault("masterEpoch", state.master_epoch if state else 1)
        known = state.epoch if state else 0
        body = {"syncStateSet": list(ids), "syncStateSetEpoch": known if epoch is None else epoch}
        return self.tools.ask(Ask.CONTROLLER_ALTER_SYNC_STATE_SET, ext, json.dumps(body).encode())

    def apply(self, number: int, code: str, name: str = SET) -> Command:
        ext = {"clusterName": CLUSTER, "brokerName": name, "appliedBrokerId": number, "registerCheckCode": code}
        return self.tools.ask(Ask.CONTROLLER_APPLY_BROKER_ID, ext)

    def register(self, number: int, at: str = "", name: str = SET) -> Command:
        ext = {"clusterName": CLUSTER, "brokerName": name, "brokerId": number}
        return self.tools.ask(Ask.CONTROLLER_REGISTER_BROKER, {**ext, "brokerAddress": at or broker_at(number)})

    def clean(self, ids: str | None = None, *, living: bool = False, name: str = SET) -> Command:
        ext: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": name, "isCleanLivingBroker": living}
        return self.tools.ask(
            Ask.CLEAN_BROKER_DATA, ext | ({"brokerControllerIdsToClean": ids} if ids is not None else {})
        )

    def die(self, *numbers: int) -> None:
        for number in numbers:
            self.brokers.pop(number).close()

    @property
    def state(self) -> tuple[int | None, int, list[int], int]:
        state = self.cell.node.tables.in_sync[SET]
        return state.master, state.master_epoch, sorted(state.members), state.epoch


@pytest.fixture
def stage() -> Stage:
    """Brokers 1, 2 and 3 alive, 1 master, 1 and 2 in sync."""
    made = Stage(1, 2, 3)
    assert made.elect(1).code == 0
    assert made.alter(1, 2).code == 0
    assert made.state == (1, 1, [1, 2], 2)
    return made


# ---- 1001, all checks in order: the request that fails one check fails all that follow it as well ----


def test_1001_check_1_the_set_is_known(stage: Stage) -> None:
    answer = stage.alter(1, 2, brokerName="nobody", masterBrokerId=9, masterEpoch=9, epoch=9)
    assert answer.code == Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert answer.ext == {"newSyncStateSetEpoch": "0"}


def test_1001_check_2_it_changes_something(stage: Stage) -> None:
    answer = stage.alter(2, 1, masterBrokerId=9, masterEpoch=9, epoch=9)
    assert (answer.code, "equal" in (answer.remark or "")) == (Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, True)


def test_1001_check_3_the_master_asks(stage: Stage) -> None:
    assert stage.alter(7, masterBrokerId=2, masterEpoch=9, epoch=9).code == Code.CONTROLLER_INVALID_MASTER


def test_1001_check_3_there_is_a_master(stage: Stage) -> None:
    stage.die(1, 2)
    assert stage.state[0] is None
    answer = stage.alter(3, masterBrokerId=1, masterEpoch=9, epoch=9)
    assert answer.code == Code.CONTROLLER_INVALID_MASTER, "B18: and no exception"
    assert "null" in (answer.remark or "")


def test_1001_check_4_its_epoch_is_the_masters(stage: Stage) -> None:
    assert stage.alter(7, masterEpoch=9, epoch=9).code == Code.CONTROLLER_FENCED_MASTER_EPOCH


def test_1001_check_5_the_epoch_of_the_set(stage: Stage) -> None:
    assert stage.alter(7, epoch=9).code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


def test_1001_check_6_all_are_registered_and_alive_in_the_order_of_their_ids(stage: Stage) -> None:
    assert stage.alter(7).code == Code.CONTROLLER_INVALID_REPLICAS
    stage.die(3)
    assert stage.alter(3, 7).code == Code.CONTROLLER_BROKER_NOT_ALIVE
    assert stage.alter(1, 3).code == Code.CONTROLLER_BROKER_NOT_ALIVE


def test_1001_check_7_the_master_is_in_it(stage: Stage) -> None:
    assert stage.alter(2, 3).code == Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


def test_1001_success(stage: Stage) -> None:
    answer = stage.alter(3, 1, 2)
    assert (answer.code, answer.ext) == (0, {"newSyncStateSetEpoch": "3"})
    assert json.loads(answer.body) == {"syncStateSet": [1, 2, 3], "syncStateSetEpoch": 3}
    assert stage.state == (1, 1, [1, 2, 3], 3)
    assert stage.alter(1).code == 0 and stage.state == (1, 1, [1], 4)


# ---- 1002 ----


def test_1002_the_first_election_takes_who_asks_alive_or_not() -> None:
    stage = Stage(1, 2)
    stage.die(2)
    answer = stage.elect(2)
    assert answer.code == 0 and stage.state == (2, 1, [2], 1)
    assert answer.ext == {
        "masterBrokerId": "2", "masterAddress": broker_at(2), "masterEpoch": "1", "syncStateSetEpoch": "1"
    }  # fmt: skip
    assert json.loads(answer.body) == {
        "brokerMemberGroup": {
            "brokerAddrs": {"1": broker_at(1), "2": broker_at(2)}, "brokerName": SET, "cluster": CLUSTER,
        },
        "syncStateSet": [2],
    }  # fmt: skip


def test_1002_the_master_still_exists(stage: Stage) -> None:
    answer = stage.elect(2)
    assert answer.code == Code.CONTROLLER_MASTER_STILL_EXIST and answer.ext["masterBrokerId"] == "1"
    assert json.loads(answer.body) == {"syncStateSet": [1, 2]}
    assert stage.state == (1, 1, [1, 2], 2), "and nothing has happened"


def test_1002_a_broker_that_asks_is_not_preferred(stage: Stage) -> None:
    stage.die(1)
    assert stage.state == (2, 2, [2], 3), "the channel told"
    assert stage.elect(3).code == Code.CONTROLLER_MASTER_STILL_EXIST


def test_1002_people_name_who_it_shall_be(stage: Stage) -> None:
    assert stage.elect(2, designateElect=True).code == 0
    assert stage.state == (2, 2, [2], 3)


def test_1002_nobody_can_be_elected(stage: Stage) -> None:
    before = stage.state
    assert stage.elect(3, designateElect=True).code == Code.CONTROLLER_ELECT_MASTER_FAILED, "3 is not in sync"
    assert stage.state == before


def test_1002_of_the_controller_itself(stage: Stage) -> None:
    assert stage.elect(-1).code == Code.CONTROLLER_MASTER_STILL_EXIST
    stage.die(1, 2)
    before = stage.state
    assert before[:2] == (None, 3)
    assert stage.elect(-1).code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert stage.state == before, "B23: no epoch for nothing"


def test_1002_an_unclean_election_where_it_is_allowed() -> None:
    stage = Stage(1, 2, 3, enable_elect_unclean_master=True)
    assert stage.elect(1).code == 0
    stage.brokers[3].beat(3, maxOffset=500)
    stage.die(1)
    assert stage.state == (3, 2, [3], 2), "the one with the longest log of those alive"


def test_1002_a_set_or_a_broker_that_is_not_registered() -> None:
    stage = Stage(1)
    assert stage.elect(1, brokerName="nobody").code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert stage.elect(9).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "the original elects it"
    assert stage.elect(-1).code == Code.CONTROLLER_MASTER_NOT_AVAILABLE, "nobody is in sync yet"
    assert stage.state == (None, 0, [], 0)


# ---- ids: 1012, 1013, 1003 ----


def test_1012_the_next_id() -> None:
    stage = Stage()
    ext = {"clusterName": CLUSTER, "brokerName": SET}
    answer = stage.tools.ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, ext)
    assert answer.ext == {**ext, "nextBrokerId": "1"}
    register(stage.tools, 1, 2)
    assert stage.tools.ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, ext).ext["nextBrokerId"] == "3"
    register(stage.tools, 3 + 1)  # out of turn
    register(stage.tools, 3)
    assert stage.tools.ask(Ask.CONTROLLER_GET_NEXT_BROKER_ID, ext).ext["nextBrokerId"] == "5", "one that is free"


def test_1013_the_first_id_of_a_set_is_1() -> None:
    stage = Stage()
    assert stage.apply(2, "h:1;5").code == Code.CONTROLLER_BROKER_ID_INVALID
    assert stage.apply(1, "h:1;5").code == 0


def test_1013_the_same_code_gets_the_same_answer_and_another_none() -> None:
    stage = Stage()
    assert [stage.apply(1, code).code for code in ("h:1;5", "h:1;5", "h:1;6")] == [0, 0, 2014]
    assert stage.cell.node.tables.replicas[SET].next_id == 2
    assert stage.apply(2, "h:2;5").code == 0


def test_1013_the_address_is_in_the_code() -> None:
    stage = Stage()
    stage.apply(1, "10.1.2.3:99;5")
    assert stage.cell.node.tables.address(SET, 1) == "10.1.2.3:99"


def test_1003_who_is_not_registered() -> None:
    stage = Stage(1)
    assert stage.register(1, name="nobody").code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    answer = stage.register(9)
    assert answer.code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert answer.ext == {"clusterName": CLUSTER, "brokerName": SET}


def test_1003_with_a_master_alive_and_without() -> None:
    stage = Stage(1, 2)
    names = {"clusterName": CLUSTER, "brokerName": SET}
    answer = stage.register(1)
    assert (answer.code, answer.ext, bytes(answer.body)) == (0, names, b'{"syncStateSet":[],"syncStateSetEpoch":0}')
    stage.elect(1)
    answer = stage.register(2)
    master = {"masterBrokerId": "1", "masterAddress": broker_at(1), "masterEpoch": "1", "syncStateSetEpoch": "1"}
    assert answer.ext == names | master and bytes(answer.body) == b'{"syncStateSet":[1],"syncStateSetEpoch":1}'
    stage.die(1)
    assert stage.register(2).ext == names


def test_1003_a_new_address(stage: Stage) -> None:
    stage.die(3)
    for place in ("10.7.7.7:1", "x", "x" * MAX_TEXT):
        assert stage.register(3, place).code == 0
        assert stage.cell.node.tables.address(SET, 3) == place


# ---- 1004, 1005, 1006 ----


def test_1004(stage: Stage) -> None:
    answer = stage.tools.ask(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": SET})
    assert answer.ext == {"masterBrokerId": "1", "masterAddress": broker_at(1), "masterEpoch": "1"}
    assert bytes(answer.body) == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
    answer = stage.tools.ask(Ask.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "nobody"})
    assert (answer.code, answer.ext) == (Code.CONTROLLER_BROKER_METADATA_NOT_EXIST, {})


def test_1005_any_controller_answers() -> None:
    group = Group(3)
    active = group.start()
    for cell in group.cells.values():
        answer = Client(cell).ask(Ask.CONTROLLER_GET_METADATA_INFO)
        assert answer.code == 0
        assert answer.ext == {
            "group": "cg", "controllerLeaderId": active.name, "controllerLeaderAddress": address(active.name),
            "isLeader": "true" if cell is active else "false",
            "peers": "".join(f"{name}:{address(name)};" for name in group.cells),
        }  # fmt: skip


def test_1005_before_there_is_a_leader() -> None:
    group = Group(3)
    group["n0"].start()
    answer = Client(group["n0"]).ask(Ask.CONTROLLER_GET_METADATA_INFO)
    assert answer.ext == {
        "group": "cg", "isLeader": "false", "peers": "".join(f"{name}:{address(name)};" for name in group.cells)
    }  # fmt: skip


def test_1006(stage: Stage) -> None:
    stage.die(3)
    answer = stage.tools.ask(Ask.CONTROLLER_GET_SYNC_STATE_DATA, body=json.dumps([SET, "nobody"]).encode())
    one = [{"alive": n < 3, "brokerAddress": broker_at(n), "brokerId": n, "brokerName": SET} for n in (1, 2, 3)]
    assert json.loads(answer.body) == {
        "replicasInfoTable": {
            SET: {
                "inSyncReplicas": one[:2], "masterAddress": broker_at(1), "masterBrokerId": 1, "masterEpoch": 1,
                "notInSyncReplicas": one[2:], "syncStateSetEpoch": 2,
            }
        }
    }  # fmt: skip


# ---- 1009, 1010 ----


def test_1009_and_1010() -> None:
    stage = Stage()

    def all_settings() -> dict[str, str]:
        return settings.pairs(bytes(stage.tools.ask(Ask.GET_CONTROLLER_CONFIG).body).decode())

    assert all_settings()["scanInactiveMasterInterval"] == "5000"
    assert settings.to_properties(ControllerConfig()).items() <= all_settings().items()
    body = b"scanInactiveMasterInterval=77\nmappedFileSize=1073741824\n"
    answer = stage.tools.ask(Ask.UPDATE_CONTROLLER_CONFIG, body=body)
    assert answer.code == 0 and all_settings()["scanInactiveMasterInterval"] == "77"
    saved = stage.cell.disk.read("controller.properties")
    assert saved is not None and b"scanInactiveMasterInterval=77\n" in saved
    assert stage.tools.ask(Ask.UPDATE_CONTROLLER_CONFIG).code == 0, "nothing is asked for"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"configStorePath=/x", Code.NO_PERMISSION),
        (b"rocketmqHome=/x", Code.NO_PERMISSION),
        (b"configBlackList=", Code.NO_PERMISSION),
        (b"scanInactiveMasterInterval=soon", Code.SYSTEM_ERROR),
        (b"scanInactiveMasterInterval=5\nisProcessReadEvent=maybe", Code.SYSTEM_ERROR),
        (b"\xff\xfe", Code.SYSTEM_ERROR),
        (b"scanInactiveMasterInterval=5\nwhatIsThis=1", Code.SYSTEM_ERROR),
        (b"scanInactiveMasterInterval=5\ncontrollerDLegerPeers=n0-evil:1", Code.SYSTEM_ERROR),
        (b"controllerStorePath=/tmp/other", Code.SYSTEM_ERROR),
        (b"bindAddress=1.2.3.4", Code.SYSTEM_ERROR),
        (b"heartBeatTimeIntervalMs=1", Code.SYSTEM_ERROR),
        (b"controllerType=jRaft", Code.SYSTEM_ERROR),
        (b"scanInactiveMasterInterval=0", Code.SYSTEM_ERROR),
    ],
)
def test_1009_refused(body: bytes, code: int) -> None:
    stage = Stage()
    answer = stage.tools.ask(Ask.UPDATE_CONTROLLER_CONFIG, body=body)
    assert answer.code == code
    if code == Code.SYSTEM_ERROR and b"=" in body:
        assert body.rpartition(b"\n")[2].partition(b"=")[0].decode() in (answer.remark or ""), "by its name"
    assert stage.cell.node.config == ControllerConfig(), "all or nothing"
    assert stage.cell.disk.read("controller.properties") is None


def test_1009_takes_the_key_that_the_original_reads_in_files() -> None:
    stage = Stage()
    assert stage.tools.ask(Ask.UPDATE_CONTROLLER_CONFIG, body=b"processReadEvent=true").code == 0
    assert stage.cell.node.config.is_process_read_event


def test_1009_that_can_not_be_saved_says_so() -> None:
    stage = Stage()
    stage.cell.hold = True
    asked = stage.tools.send(Ask.UPDATE_CONTROLLER_CONFIG, body=b"scanInactiveMasterInterval=77\n")
    assert stage.tools.answer(asked) is None, "it waits for the disk"
    stage.cell.do(DiskFailed("controller.properties", "full"))
    answer = stage.tools.answer(asked)
    assert answer is not None and answer.code == Code.SYSTEM_ERROR and "full" in (answer.remark or "")


# ---- 1011 ----


def test_1011_living_brokers_stay(stage: Stage) -> None:
    assert [stage.clean(ids).code for ids in (None, "", "1", "2;1", "3")] == [2009] * 5
    assert stage.clean("x").code == 2009 and "x" in (stage.clean("1;x").remark or "")
    assert stage.clean("9", name="nobody").code == 2009
    assert stage.state == (1, 1, [1, 2], 2) and set(stage.cell.node.tables.replicas[SET].brokers) == {1, 2, 3}


def test_1011_dead_ones_go(stage: Stage) -> None:
    stage.die(3)
    assert stage.clean("3").code == 0
    assert set(stage.cell.node.tables.replicas[SET].brokers) == {1, 2} and stage.state == (1, 1, [1, 2], 2)


def test_1011_a_whole_set_goes(stage: Stage) -> None:
    stage.die(1, 2, 3)
    assert stage.clean().code == 0
    assert not stage.cell.node.tables.replicas and not stage.cell.node.tables.in_sync


def test_1011_keeps_to_the_ids_also_with_living_brokers(stage: Stage) -> None:
    assert stage.clean("1", living=True).code == 0, "the original removes the whole set"
    assert set(stage.cell.node.tables.replicas[SET].brokers) == {2, 3}
    assert stage.state == (None, 2, [2], 2), "C3: no master outside of the set"
    stage.group.pass_time(6_000, among=lambda: [stage.brokers[n].beat(n) for n in (2, 3)] and None)
    assert stage.state == (2, 3, [2], 3)


def test_1011_leaves_no_set_without_anybody_in_sync(stage: Stage) -> None:
    answer = stage.clean("1;2", living=True)
    assert answer.code == 2009 and "in sync" in (answer.remark or "")
    assert stage.state == (1, 1, [1, 2], 2)
    assert stage.clean("1;2;3", living=True).code == 0
    assert not stage.cell.node.tables.replicas


# ---- the rest ----


def test_any_other_request_is_not_supported() -> None:
    stage = Stage()
    for code in (10, 103, 905, 1007, 1008, 1014, 2_000, -1):
        answer = stage.tools.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_one_way_requests_get_no_answer() -> None:
    stage = Stage()
    for code in [*ROUTES, 99]:
        stage.tools.send(code, {}, b"{", oneway=True)
    stage.group.run()
    assert not stage.tools.got
