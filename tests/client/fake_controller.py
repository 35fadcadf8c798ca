"""A controller as far as tools ask it, alone or one of several, and a broker under it; scriptable as its parent."""

from __future__ import annotations

from dataclasses import dataclass, field

from perseid.wire import bodies, controller, fastjson
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers import controller as headers

from .fake import BROKER, Answer, FakeServer, _Peer


@dataclass
class Group:
    """What all controllers of a test know; `active` is the address of the one that leads."""

    active: str = ""
    peers: list[str] = field(default_factory=list)
    sets: dict[str, controller.ReplicasInfo] = field(default_factory=dict)
    cleaned: list[headers.CleanBrokerDataRequest] = field(default_factory=list)
    elected: list[headers.ElectMasterRequest] = field(default_factory=list)


def replica(number: int, address: str, *, alive: bool = True, name: str = BROKER) -> controller.ReplicaIdentity:
    return controller.ReplicaIdentity(name, number, address, alive)


class FakeController(FakeServer):
    """One controller of a group; it serves as name server and broker besides."""

    def __init__(self, group: Group, topics: dict[str, int] | None = None) -> None:
        super().__init__(topics)
        self.group = group
        self.settings = {"enableElectUncleanMaster": "false", "controllerType": "DLedger"}
        self.epochs = controller.EpochEntryCache("fake", BROKER, 0, [controller.Epoch(1, 0)], 100)
        self.changed_config: list[bytes] = []

    async def start(self) -> None:
        await super().start()
        if not self.group.active:
            self.group.active = self.address
        self.group.peers.append(f"n{len(self.group.peers)}:{self.address}")

    def _on_controller_get_metadata_info(self, peer: _Peer, command: Command) -> Answer:
        leader = next((p.partition(":")[0] for p in self.group.peers if p.endswith(self.group.active)), None)
        return Answer(
            header=headers.GetMetaDataResponse(
                group="g",
                controller_leader_id=leader if self.group.active else None,
                controller_leader_address=self.group.active or None,
                is_leader=self.group.active == self.address,
                peers="".join(f"{p};" for p in self.group.peers),
            )
        )

    def _refusal(self) -> Answer | None:
        if self.group.active != self.address:
            return Answer(ResponseCode.CONTROLLER_NOT_LEADER, remark="The controller is not in leader state")
        return None

    def _on_controller_get_sync_state_data(self, peer: _Peer, command: Command) -> Answer:
        names = fastjson.loads(command.body)
        table = {name: self.group.sets[name] for name in names if name in self.group.sets}
        return self._refusal() or Answer(body=controller.BrokerReplicasInfo(table).to_json())

    def _on_controller_elect_master(self, peer: _Peer, command: Command) -> Answer:
        request = command.header(headers.ElectMasterRequest)
        self.group.elected.append(request)
        found = self.group.sets.get(request.broker_name)
        if refused := self._refusal():
            return refused
        if found is None:
            return Answer(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark="unknown")
        chosen = [r for r in found.in_sync_replicas if r.broker_id == request.broker_id and r.alive]
        if not chosen:
            return Answer(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, headers.ElectMasterResponse(), remark="failed")
        code = ResponseCode.SUCCESS
        if found.master_broker_id == request.broker_id:
            code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        else:
            found.master_broker_id, found.master_address = chosen[0].broker_id, chosen[0].broker_address
            found.master_epoch += 1
        header = headers.ElectMasterResponse(
            master_broker_id=found.master_broker_id,
            master_address=found.master_address,
            master_epoch=found.master_epoch,
            sync_state_set_epoch=found.sync_state_set_epoch,
        )
        members = bodies.BrokerMemberGroup("fake", request.broker_name, {request.broker_id: self.address})
        body = fastjson.dumps(controller.ElectMasterResponseBody(members, [request.broker_id]))  # keys without quotes
        return Answer(code, header, bytes(body))

    def _on_get_controller_config(self, peer: _Peer, command: Command) -> Answer:
        return Answer(body="".join(f"{k}={v}\n" for k, v in self.settings.items()).encode())

    def _on_update_controller_config(self, peer: _Peer, command: Command) -> Answer:
        self.changed_config.append(bytes(command.body))
        if b"configStorePath" in bytes(command.body):
            return Answer(ResponseCode.NO_PERMISSION, remark="Can not update config in black list.")
        return Answer()

    def _on_clean_broker_data(self, peer: _Peer, command: Command) -> Answer:
        request = command.header(headers.CleanBrokerDataRequest)
        self.group.cleaned.append(request)
        if refused := self._refusal():
            return refused
        if not request.is_clean_living_broker and "1" in (request.broker_controller_ids_to_clean or "").split(";"):
            return Answer(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark="Broker is still alive")
        return Answer()

    def _on_get_broker_epoch_cache(self, peer: _Peer, command: Command) -> Answer:
        return Answer(body=self.epochs.to_json())
