"""A broker under a controller that is this test: what it asks, what it believes, what it becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.harness import SMALL, Rig
from broker.requests import send_header
from perseid.base.machine import Closed, ConnectFailed, Frames, Opened
from perseid.broker.replication.controllers import FIND_MS
from perseid.broker.replication.identity import CLAIM_PATH, PATH
from perseid.broker.replication.manager.heartbeats import KNOCK_MS
from perseid.replication.auto_switch.epochs import PATH as EPOCHS_PATH
from perseid.replication.config import ReplicationConfig
from perseid.wire import command
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import BrokerReplicasInfo, EpochEntryCache, ReplicaIdentity, ReplicasInfo, SyncStateSet
from perseid.wire.headers import controller as headers
from perseid.wire.headers.base import Header

CONTROLLER, CONN = "10.0.0.77:9878", 500
NOTIFIER = 77
"""The client whose machine is the controller's."""
OTHER = "10.0.0.2:10911"
SEND = Code.SEND_MESSAGE_V2, send_header(), b"hello"
ALL_ACK = ReplicationConfig(all_ack_in_sync_state_set=True)


class Controlled:
    """A broker, and the controller's answers by code."""

    def __init__(self, root: Path, replication: ReplicationConfig = ALL_ACK) -> None:
        self.asked: list[int] = []
        self.answers: dict[int, tuple[int, Header | None, bytes]] = {}
        self.rig = Rig(
            root, store=SMALL, replication=replication, enable_controller_mode=True, controller_addr=CONTROLLER
        )
        self.conn = CONN
        self.own = self.rig.config.address
        leader = headers.GetMetaDataResponse(controller_leader_address=CONTROLLER, is_leader=True)
        self.say(Code.CONTROLLER_GET_METADATA_INFO, leader)
        self.say(Code.BROKER_HEARTBEAT)
        self.say(Code.CONTROLLER_GET_NEXT_BROKER_ID, headers.GetNextBrokerIdResponse(next_broker_id=1))
        self.say(Code.CONTROLLER_APPLY_BROKER_ID)
        self.say(Code.CONTROLLER_GET_SYNC_STATE_DATA, body=BrokerReplicasInfo().to_json())
        self.registered([])

    def say(self, code: int, header: Header | None = None, body: bytes = b"", status: int = 0) -> None:
        """What the controller answers from now on."""
        self.answers[code] = status, header, body

    def registered(self, members: list[int], epoch: int = 0, master: int | None = None, set_epoch: int = 0) -> None:
        """What it says about the set."""
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch).to_json()
        self.say(Code.CONTROLLER_REGISTER_BROKER, headers.RegisterBrokerToControllerResponse(), body)
        address = {None: None, 1: self.own}.get(master, OTHER)
        info = headers.GetReplicaInfoResponse(master_broker_id=master, master_address=address, master_epoch=epoch)
        self.say(Code.CONTROLLER_GET_REPLICA_INFO, info, body)

    def elects(self, epoch: int, master: int = 1, members: list[int] | None = None) -> None:
        found = headers.ElectMasterResponse(
            master_broker_id=master, master_address=self.own if master == 1 else OTHER, master_epoch=epoch,
            sync_state_set_epoch=epoch,
        )  # fmt: skip
        body = b'{"syncStateSet":%s}' % str(members or [master]).encode()
        self.say(Code.CONTROLLER_ELECT_MASTER, found, body)

    def serve(self) -> None:
        """Open what is dialled, and answer what is asked, until nothing is."""
        for _ in range(100):
            dialled, self.rig.dialled = self.rig.dialled, []
            asked = [c for c in self.rig.sent.get(self.conn, []) if not c.is_response]
            self.rig.sent[self.conn] = []
            if not dialled and not asked:
                return
            for address in dialled:
                if address == CONTROLLER:
                    self.conn += 1
                    self.rig.handle(Opened(self.conn, address, "10.0.0.1:5", "", address))
                else:
                    self.rig.handle(ConnectFailed(address, "nobody is there"))
            for request in asked:
                self.asked.append(request.code)
                if request.code in self.answers and not request.is_oneway:
                    status, header, body = self.answers[request.code]
                    self.rig.handle(Frames(self.conn, command.encode_response(request.opaque, status, header, body)))

    def wait(self, ms: int) -> None:
        end = self.rig.now + ms
        while self.rig.now < end:
            self.serve()
            self.rig.until(min(end, self.rig.now + 50))
        self.serve()

    def notify(
        self, epoch: int, master: int, members: list[int], set_epoch: int = 1, client: int = NOTIFIER
    ) -> Command:
        header = headers.NotifyBrokerRoleChangedRequest(
            master_address=self.own if master == 1 else OTHER, master_broker_id=master, master_epoch=epoch,
            sync_state_set_epoch=set_epoch,
        )  # fmt: skip
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch).to_json()
        return self.rig.ask(Code.NOTIFY_BROKER_ROLE_CHANGED, header, body, client=client)

    @property
    def manager(self) -> Any:
        return self.rig.parts.mode.manager

    def notes(self) -> str:
        return "\n".join(note.text for note in self.rig.notes)


def master(root: Path, **more: Any) -> Controlled:
    """One that was elected."""
    made = Controlled(root, **more)
    made.elects(1)
    made.wait(300)
    assert not made.rig.parts.roles.is_slave
    return made


def test_a_first_start_ends_as_master(tmp_path: Path) -> None:
    made = Controlled(tmp_path)
    assert made.rig.ask(*SEND).code == ResponseCode.SERVICE_NOT_AVAILABLE, "fenced"
    made.elects(1)
    made.wait(300)
    order = [Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID, Code.CONTROLLER_REGISTER_BROKER,
             Code.BROKER_HEARTBEAT, Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_ELECT_MASTER]  # fmt: skip
    assert [code for code in dict.fromkeys(made.asked) if code in order] == order
    assert (tmp_path / PATH).read_text() == "C#b#1" and not (tmp_path / CLAIM_PATH).exists()
    assert (tmp_path / EPOCHS_PATH).read_bytes().endswith(b"\n1-0\n")
    assert made.rig.ask(*SEND).code == 0
    cache = EpochEntryCache.from_json(made.rig.ask(Code.GET_BROKER_EPOCH_CACHE).body)
    assert [entry.epoch for entry in cache.epoch_list] == [1] and cache.broker_id == 0
    told = made.rig.ask(Code.EXCHANGE_BROKER_HA_INFO).header(headers.ExchangeHaInfoResponse)
    assert told.master_ha_address == made.rig.parts.mode.ha_address


def test_b24_a_lost_answer_repeats_the_claim(tmp_path: Path) -> None:
    made = Controlled(tmp_path)
    del made.answers[Code.CONTROLLER_APPLY_BROKER_ID]
    made.wait(300)
    claim = (tmp_path / CLAIM_PATH).read_text()
    made.rig.handle(Closed(made.conn, "lost"))
    made.say(Code.CONTROLLER_APPLY_BROKER_ID)
    made.wait(2_000)
    assert made.asked.count(Code.CONTROLLER_GET_NEXT_BROKER_ID) == 1, "the id is not given up"
    assert claim.startswith("C#b#1#") and (tmp_path / PATH).read_text() == "C#b#1"


def test_an_id_that_is_taken_is_given_up(tmp_path: Path) -> None:
    made = Controlled(tmp_path)
    made.say(Code.CONTROLLER_APPLY_BROKER_ID, status=ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    made.say(Code.CONTROLLER_GET_NEXT_BROKER_ID, headers.GetNextBrokerIdResponse(next_broker_id=7))
    made.rig.until(made.rig.now)
    for _ in range(3):
        if made.asked.count(Code.CONTROLLER_APPLY_BROKER_ID) >= 1:
            made.say(Code.CONTROLLER_APPLY_BROKER_ID)
        made.serve()
        made.rig.until(made.rig.now + 100)
    made.wait(300)
    assert (tmp_path / PATH).read_text() == "C#b#7"


def test_controllers_are_asked_by_strangers_words_now_and_then_only(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.wait(20_000)
    made.asked.clear()
    for _ in range(100):
        assert made.notify(9, 2, [2], client=66).code == ResponseCode.NO_PERMISSION
        made.wait(100)
    assert 2 <= made.asked.count(Code.CONTROLLER_GET_REPLICA_INFO) <= 10_000 // FIND_MS + 1
    assert not made.rig.parts.roles.is_slave


def test_a_controller_that_does_not_lead_is_asked_no_more(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.say(Code.CONTROLLER_GET_REPLICA_INFO, status=ResponseCode.CONTROLLER_NOT_LEADER)
    made.asked.clear()
    made.wait(6_000)
    assert Code.CONTROLLER_GET_METADATA_INFO in made.asked
    assert not made.rig.parts.roles.is_slave, "its role stays"


def test_a_copied_disk_does_not_register_while_the_other_lives(tmp_path: Path) -> None:
    (tmp_path / PATH).write_text("C#b#1")
    (tmp_path / EPOCHS_PATH).write_text("0\n0\n")
    made = Controlled(tmp_path)
    twin = ReplicaIdentity(broker_name="b", broker_id=1, broker_address="10.9.9.9:1", alive=True)
    table = BrokerReplicasInfo(replicas_info_table={"b": ReplicasInfo(in_sync_replicas=[twin])})
    made.say(Code.CONTROLLER_GET_SYNC_STATE_DATA, body=table.to_json())
    made.wait(3_000)
    assert Code.CONTROLLER_REGISTER_BROKER not in made.asked and "copy" in made.notes()
    assert Code.BROKER_HEARTBEAT not in made.asked
    made.say(Code.CONTROLLER_GET_SYNC_STATE_DATA, body=BrokerReplicasInfo().to_json())
    made.wait(2_000)
    assert Code.CONTROLLER_REGISTER_BROKER in made.asked


def test_a_wiped_disk_with_an_old_id_can_not_be_elected(tmp_path: Path) -> None:
    (tmp_path / PATH).write_text("C#b#1")
    made = Controlled(tmp_path)
    made.registered([1, 2], epoch=4)
    made.elects(5)
    made.wait(12_000)
    assert Code.BROKER_HEARTBEAT not in made.asked and "wiped" in made.notes()
    made.notify(5, 1, [1])
    made.wait(100)
    assert made.rig.parts.roles.is_slave and made.rig.parts.mode.manager.role.fenced


def test_an_epoch_is_led_in_one_life_only(tmp_path: Path) -> None:
    made = master(tmp_path)
    assert made.rig.ask(*SEND).code == 0
    made.rig.disk.unlock("lock")
    again = Controlled(tmp_path)
    again.registered([1], epoch=1, master=1, set_epoch=1)
    again.wait(2_000)
    assert again.rig.parts.roles.is_slave and "earlier life" in again.notes()
    assert again.asked.count(Code.BROKER_HEARTBEAT) <= 3 and again.rig.closed, "it knocked, and is silent"
    again.asked.clear()
    again.wait(KNOCK_MS - 3_000)
    assert Code.BROKER_HEARTBEAT not in again.asked
    again.registered([1], epoch=2)
    again.elects(3)
    again.wait(6_000)
    assert not again.rig.parts.roles.is_slave
    assert (tmp_path / EPOCHS_PATH).read_text().splitlines()[2:] == ["1-0", f"3-{again.rig.parts.store.log.end}"]


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_stale_notice_changes_nothing(tmp_path: Path, epoch: int) -> None:
    made = master(tmp_path)
    made.notify(epoch, 2, [2])
    made.wait(100)
    assert not made.rig.parts.roles.is_slave and made.manager.role.epoch == 1


def test_a_foreign_master_of_a_newer_epoch_is_followed(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.notify(1, 1, [1, 2], set_epoch=2)
    waits = made.rig.tell(*SEND)
    assert made.rig.answer(waits) is None, "replica 2 has to have it"
    made.notify(2, 2, [2], set_epoch=3)
    assert made.rig.parts.roles.is_slave and made.rig.parts.mode.broker_id == 1
    answer = made.rig.answer(waits)
    assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR
    assert made.rig.ask(*SEND).code == ResponseCode.SYSTEM_BUSY


def test_a_strangers_notice_of_another_master_is_refused(tmp_path: Path) -> None:
    """From a machine that is no controller's, in the last epoch that there is: after it no real one would count."""
    made = master(tmp_path)
    answer = made.notify((1 << 31) - 1, 2, [2], client=9)
    made.wait(100)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert not made.rig.parts.roles.is_slave and made.manager.role.epoch == 1
    assert "10.0.0.9, where no controller is" in made.notes()
    made.notify(2, 2, [2])
    assert made.rig.parts.roles.is_slave and made.manager.role.epoch == 2


def test_a_notice_that_is_no_json(tmp_path: Path) -> None:
    made = master(tmp_path)
    header = headers.NotifyBrokerRoleChangedRequest(master_address=OTHER, master_broker_id=2, master_epoch=9)
    answer = made.rig.ask(Code.NOTIFY_BROKER_ROLE_CHANGED, header, b"{nonsense", client=NOTIFIER)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not made.rig.parts.roles.is_slave


def test_b7_elected_again_a_master_goes_on(tmp_path: Path) -> None:
    made = master(tmp_path)
    assert made.rig.send("T").queue_offset == 0
    made.notify(4, 1, [1], set_epoch=9)
    made.wait(50)
    assert made.rig.send("T").queue_offset == 1
    assert made.rig.parts.topics.version.state_version == 4


def test_too_few_in_sync(tmp_path: Path) -> None:
    made = master(tmp_path, replication=ReplicationConfig(all_ack_in_sync_state_set=True, min_in_sync_replicas=2))
    answer = made.rig.ask(*SEND)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "in-sync replicas not enough" in (answer.remark or "")


def test_the_next_queue_offset_is_never_given_twice(tmp_path: Path) -> None:
    made = master(tmp_path)
    made.notify(1, 1, [1, 2], set_epoch=2)
    made.rig.tell(*SEND)
    assert made.rig.parts.store.reads.max_offset("T", 0) == 0, "nobody sees it yet"
    made.notify(2, 2, [2], set_epoch=3)
    made.notify(3, 1, [1], set_epoch=4)
    made.wait(50)
    assert made.rig.parts.store.reads.max_offset("T", 0) == 1
    assert made.rig.send("T").queue_offset == 1
