"""What may be written: each command looks at the state, and says what is to be answered, and which events have to be
applied first (controller.md §4). Nothing changes here.

All checks of a command stand in the original's order, with its codes and its words. A command is decided when all that
was written about its set before is applied (`writes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from perseid.base.hosts import is_same_machine
from perseid.base.machine import Millis
from perseid.controller import policy
from perseid.controller.config import ControllerConfig
from perseid.controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UpdateBrokerAddress,
)
from perseid.controller.live import Liveness, Row
from perseid.controller.request import Reply
from perseid.controller.state import FIRST_ID, SyncState, Tables
from perseid.wire import controller as bodies
from perseid.wire.bodies import BrokerMemberGroup
from perseid.wire.codes import ResponseCode as Code
from perseid.wire.headers import controller as headers
from perseid.wire.headers.base import LONG_MAX, Header

MAX_REPLICAS = 1_000
"""Of one set."""
MAX_TEXT = 1_024
"""Characters of a name, an address or a code."""


class Facts(Protocol):
    """What a command looks at."""

    tables: Tables
    live: Liveness
    config: ControllerConfig
    now: Millis


@dataclass(slots=True)
class Outcome:
    """What a command comes to: the answer, once the events are applied."""

    reply: Reply
    events: Sequence[Event] = ()
    elected: bool = False
    """It makes a master, whom others have to hear of."""


def refused(code: int, remark: str, header: Header | None = None) -> Outcome:
    """Nothing happens."""
    return Outcome(Reply(code, header, remark=remark))


def _body(members: Sequence[int] | frozenset[int], epoch: int) -> bytes:
    return bodies.SyncStateSet(sorted(members), epoch).to_json()


def _alive(facts: Facts, state: SyncState, broker_id: int) -> Row | None:
    return facts.live.alive(state.cluster, state.name, broker_id)


def _may_live(facts: Facts, state: SyncState, broker_id: int) -> bool:
    return facts.live.may_live(state.cluster, state.name, broker_id, facts.now)


def _is_of(facts: Facts, state: SyncState, broker_id: int, peer: str) -> bool:
    """Does a connection of `peer` come from that broker's machine: where it is registered, or whence its heartbeats
    come (behind a gateway, or by a name)?"""
    row = _alive(facts, state, broker_id)
    places = [facts.tables.address(state.name, broker_id) or "", row.peer if row is not None else ""]
    return any(is_same_machine(peer, one) for one in places)


# ---- who is in sync ----


def alter_sync_state_set(
    facts: Facts, request: headers.AlterSyncStateSetRequest, proposed: bodies.SyncStateSet, peer: str
) -> Outcome:
    """1001 (§4.1), from the master's own machine: whoever else says it would make a master of a replica that lacks what
    was acknowledged."""
    name, new = request.broker_name, frozenset(proposed.sync_state_set)

    def refuse(code: Code, remark: str) -> Outcome:
        return refused(code, remark, headers.AlterSyncStateSetResponse(0))

    def reject(code: Code, why: str) -> Outcome:
        return refuse(code, f"Rejecting alter syncStateSet request because {why}")

    if not facts.tables.known(name):
        return refuse(Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, f"Broker-set: {name} is not known")
    state, brokers = facts.tables.in_sync[name], facts.tables.replicas[name].brokers
    if new == state.members:
        return refuse(
            Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        )
    if state.master is None or state.master != request.master_broker_id:
        why = f"the current leader is:{{{_java(state.master)}}}, not {{{request.master_broker_id}}}"
        return reject(Code.CONTROLLER_INVALID_MASTER, why)
    if not _is_of(facts, state, state.master, peer):
        return reject(Code.CONTROLLER_INVALID_MASTER, f"it comes from {peer}, where the master is not")
    if request.master_epoch != state.master_epoch:
        why = f"the current master epoch is:{{{state.master_epoch}}}, not {{{request.master_epoch}}}"
        return reject(Code.CONTROLLER_FENCED_MASTER_EPOCH, why)
    if proposed.sync_state_set_epoch != state.epoch:
        why = f"the current syncStateSet epoch is:{{{state.epoch}}}, not {{{proposed.sync_state_set_epoch}}}"
        return reject(Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, why)
    for broker_id in sorted(new):
        if broker_id not in brokers:
            return reject(Code.CONTROLLER_INVALID_REPLICAS, f"the replicas {{{broker_id}}} don't exist")
        if not _may_live(facts, state, broker_id):
            return reject(
                Code.CONTROLLER_BROKER_NOT_ALIVE, f"the replicas {{{broker_id}}}, id: {{{broker_id}}} are not alive"
            )
    if state.master not in new:
        why = f"the newSyncStateSet don't contains origin leader {{{state.master}}}"
        return reject(Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, why)
    epoch = state.epoch + 1
    reply = Reply(header=headers.AlterSyncStateSetResponse(epoch), body=_body(new, epoch))
    return Outcome(reply, [AlterSyncStateSet(name, sorted(new))])


def _java(value: int | None) -> str:
    return "null" if value is None else str(value)


# ---- who is master ----


def elect_master(facts: Facts, request: headers.ElectMasterRequest) -> Outcome:
    """1002 (§4.2), by a broker, by people (`designateElect`), or by the controller itself (no id)."""
    name, sender = request.broker_name, request.broker_id
    if not facts.tables.known(name):
        return refused(
            Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered", headers.ElectMasterResponse()
        )
    state = facts.tables.in_sync[name]
    by_controller = sender == headers.NO_BROKER
    if state.master_epoch == 0 and not by_controller:
        if sender not in facts.tables.replicas[name].brokers:
            return refused(
                Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"BrokerId: {sender} hasn't been registered in broker-set: {name}",
                headers.ElectMasterResponse(),
            )
        chosen: int | None = sender
    else:
        chosen = _chosen(facts, state, sender if request.designate_elect and not by_controller else None)
    if chosen is not None and chosen == state.master:
        remark = f"The old master {chosen} is still alive, not need to elect new master for broker {name}"
        body = bodies.ElectMasterResponseBody(sync_state_set=sorted(state.members)).to_json()
        return Outcome(Reply(Code.CONTROLLER_MASTER_STILL_EXIST, _master(facts.tables, state), body, remark))
    if chosen is not None:
        return _elected(facts.tables, state, chosen)
    if not by_controller:
        return refused(
            Code.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master", headers.ElectMasterResponse()
        )
    no_master = refused(
        Code.CONTROLLER_MASTER_NOT_AVAILABLE, "The master is not available", headers.ElectMasterResponse()
    )
    undecided = any(_may_live(facts, state, one) for one in state.members)
    if state.master is not None and not undecided:
        no_master.events = [ElectMaster(name, False)]
    return no_master


def _chosen(facts: Facts, state: SyncState, prefer: int | None) -> int | None:
    """By the policy; the old master also when there is no judgement of it yet."""
    old = state.master
    if prefer is None and old in state.members and _may_live(facts, state, old):
        return old
    everybody = facts.tables.replicas[state.name].brokers if facts.config.enable_elect_unclean_master else None
    return policy.elect(sorted(state.members), everybody, old, prefer, lambda one: _alive(facts, state, one))


def _master(tables: Tables, state: SyncState) -> headers.ElectMasterResponse:
    address = tables.address(state.name, state.master)
    return headers.ElectMasterResponse(state.master, address, state.master_epoch, state.epoch)


def _elected(tables: Tables, state: SyncState, master: int) -> Outcome:
    brokers = tables.replicas[state.name].brokers
    header = headers.ElectMasterResponse(
        master, tables.address(state.name, master), state.master_epoch + 1, state.epoch + 1
    )
    group = BrokerMemberGroup(state.cluster, state.name, {key: one.address for key, one in sorted(brokers.items())})
    body = bodies.ElectMasterResponseBody(group, [master]).to_json()
    return Outcome(Reply(header=header, body=body), [ElectMaster(state.name, True, master)], elected=True)


# ---- ids ----


def next_broker_id(facts: Facts, request: headers.GetNextBrokerIdRequest) -> Outcome:
    """1012 (§4.4): no reservation. The id is one that is free, whatever ids were taken out of turn."""
    info = facts.tables.replicas.get(request.broker_name) if facts.tables.known(request.broker_name) else None
    free = FIRST_ID if info is None else info.next_id
    while info is not None and free in info.brokers:
        free += 1
    return Outcome(Reply(header=headers.GetNextBrokerIdResponse(request.cluster_name, request.broker_name, free)))


def apply_broker_id(facts: Facts, request: headers.ApplyBrokerIdRequest) -> Outcome:
    """1013: the one authority over ids. The same code again gets the same answer."""
    name, wanted, code = request.broker_name, request.applied_broker_id, request.register_check_code
    header = headers.ApplyBrokerIdResponse(request.cluster_name, name)
    address = code.partition(";")[0]
    if not name or not address or max(len(name), len(code), len(request.cluster_name)) > MAX_TEXT:
        return refused(Code.CONTROLLER_BROKER_ID_INVALID, f"{MAX_TEXT} characters are the most, 1 the least", header)
    event = ApplyBrokerId(request.cluster_name, name, address, code, wanted)
    if not facts.tables.known(name):
        if wanted == FIRST_ID:
            return Outcome(Reply(header=header), [event])
        remark = f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: {wanted}"
        return refused(Code.CONTROLLER_BROKER_ID_INVALID, remark, header)
    brokers = facts.tables.replicas[name].brokers
    taken = brokers.get(wanted)
    if taken is not None and taken.check_code == code:
        return Outcome(Reply(header=header))
    if taken is not None or not FIRST_ID <= wanted < LONG_MAX or len(brokers) >= MAX_REPLICAS:
        return refused(
            Code.CONTROLLER_BROKER_ID_INVALID, f"Fail to apply brokerId: {wanted} in broker-set: {name}", header
        )
    return Outcome(Reply(header=header), [event])


def register_broker(facts: Facts, request: headers.RegisterBrokerToControllerRequest) -> Outcome:
    """1003: the last step, or a new address, which nobody alive may have at another place (a copied disk)."""
    name, broker_id, tables = request.broker_name, request.broker_id, facts.tables
    header = headers.RegisterBrokerToControllerResponse(request.cluster_name, name)
    need = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if not tables.known(name):
        return refused(need, f"Broker-set: {name} hasn't been registered in controller", header)
    address = tables.address(name, broker_id)
    if address is None:
        return refused(need, f"BrokerId: {broker_id} hasn't been registered in broker-set: {name}", header)
    state = tables.in_sync[name]
    moved = address != request.broker_address
    row = _alive(facts, state, broker_id)
    if moved and row is not None and row.address != request.broker_address:
        remark = f"BrokerId: {broker_id} of broker-set: {name} is in use by the broker at {row.address}, which is alive"
        return refused(Code.CONTROLLER_BROKER_ID_INVALID, remark, header)
    if not 0 < len(request.broker_address) <= MAX_TEXT:
        return refused(Code.CONTROLLER_INVALID_REQUEST, f"an address has 1 to {MAX_TEXT} characters", header)
    if state.master is not None and _may_live(facts, state, state.master):
        header.master_broker_id, header.master_epoch = state.master, state.master_epoch
        header.sync_state_set_epoch = state.epoch
        itself = state.master == broker_id
        header.master_address = request.broker_address if itself else tables.address(name, state.master)
    reply = Reply(header=header, body=_body(state.members, state.epoch))
    event = UpdateBrokerAddress(request.cluster_name, name, request.broker_address, broker_id)
    return Outcome(reply, [event] if moved else ())


# ---- what is known ----


def replica_info(facts: Facts, request: headers.GetReplicaInfoRequest) -> Outcome:
    """1004."""
    tables, name = facts.tables, request.broker_name
    if not tables.known(name):
        remark = "Broker metadata is not existed"
        return refused(Code.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark, headers.GetReplicaInfoResponse())
    state = tables.in_sync[name]
    header = headers.GetReplicaInfoResponse(state.master, tables.address(name, state.master), state.master_epoch)
    return Outcome(Reply(header=header, body=_body(state.members, state.epoch)))


def sync_state_data(facts: Facts, names: Sequence[str]) -> Outcome:
    """1006: of those sets that are known."""
    tables, found = facts.tables, bodies.BrokerReplicasInfo()
    for name in names:
        if not tables.known(name):
            continue
        state = tables.in_sync[name]
        info = bodies.ReplicasInfo(
            state.master, tables.address(name, state.master), state.master_epoch, state.epoch
        )
        for broker_id, replica in sorted(tables.replicas[name].brokers.items()):
            alive = _alive(facts, state, broker_id) is not None
            one = bodies.ReplicaIdentity(name, broker_id, replica.address, alive)
            (info.in_sync_replicas if broker_id in state.members else info.not_in_sync_replicas).append(one)
        found.replicas_info_table[name] = info
    return Outcome(Reply(body=found.to_json()))


# ---- forgetting ----


def clean_broker_data(facts: Facts, request: headers.CleanBrokerDataRequest) -> Outcome:
    """1011 (§4.5). Unlike the original's, it keeps to the ids also when those alive may go, and leaves no set without
    anybody in sync."""
    name, tables = request.broker_name, facts.tables

    def refuse(remark: str) -> Outcome:
        return refused(Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)

    text = (request.broker_controller_ids_to_clean or "").strip()
    parts = [part.strip() for part in text.split(";") if part.strip()]
    state = tables.in_sync.get(name) if tables.known(name) else None
    if not request.is_clean_living_broker and not parts and state is not None and state.master is not None:
        return refuse(f"Broker {name} is still alive, clean up failure")
    if any(not (part.isascii() and part.isdecimal() and len(part) <= 19) for part in parts):
        return refuse(
            "Please set the option <brokerControllerIdsToClean> according to the format, exception: "
            f'java.lang.NumberFormatException: For input string: "{text[:80]}"'
        )
    ids = sorted({int(part) for part in parts})
    if state is None:
        return refuse(f"Broker {name} is not existed,clean broker data failure.")
    for broker_id in ids:
        if not request.is_clean_living_broker and _may_live(facts, state, broker_id):
            return refuse(f"Broker [{name},  {broker_id}] is still alive, clean up failure")
    known = set(tables.replicas[name].brokers)
    if not ids or known <= set(ids):
        return Outcome(Reply(), [CleanBrokerData(name)])
    if state.members <= set(ids):
        return refuse(
            f"Nobody of {name} would be in sync any more: elect another master, or clean all of the broker-set"
        )
    clean = CleanBrokerData(name, ids)
    return Outcome(Reply(), [ElectMaster(name, False), clean] if state.master in ids else [clean])


