"""What seeds of the simulator have found, played (see `ha_scenarios`): each case as it was, without anything drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.models.ha.broker import HA_PORT
from perseid.sim.models.ha.clients import Producer
from perseid.sim.models.ha.members import Replica
from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.models.raft.group import PORT, Group, Watched
from perseid.sim.models.raft.run import both_ways
from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_all
from perseid.wire.ha_auto import encode_report, encode_slave_handshake
from perseid.wire.headers.controller import NotifyBrokerRoleChangedRequest
from perseid.wire.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

from .ha_stage import Stage

REFUSED = (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER)
SAYS_MS = 50
ENOUGH_BYTES = 5 * 4_096
"""More than a flush by the clock waits for."""


class Held:
    """What some machines say to others at the controllers' ports, or answer there, held back until it is let go."""

    def __init__(self, stage: Stage, senders: list[Watched], receivers: list[Watched]) -> None:
        network = stage.ha.network
        drivers, others = [one.driver for one in senders], [one.driver for one in receivers]
        self._holds, self._held = True, list[tuple[End, bytes]]()
        self._write = write = network.write

        def held(end: End, data: bytes) -> None:
            at_a_controllers_port = f":{PORT}" in end.address[-6:] + end.other.address[-6:]
            if self._holds and at_a_controllers_port and end.owner in drivers and end.other.owner in others:
                self._held.append((end, data))
            else:
                write(end, data)

        network.write = held  # type: ignore[method-assign]

    def has(self, code: int) -> bool:
        """Is there a command with this code?"""
        return any(command.code == code for _, data in self._held for command in decode_all(data))

    def let_go_up_to(self, *codes: int) -> bool:
        """Those up to the first answer with such a code; False: there is none."""
        while self._held:
            end, data = self._held.pop(0)
            self._write(end, data)
            if any(command.code in codes for command in decode_all(data) if command.is_response):
                return True
        return False

    def let_go(self) -> None:
        """All; none is held from now on."""
        self.let_go_up_to()
        self._holds = False


class Speaker:
    """Somebody at a master's port of replication who says that it is a replica, and that it has everything."""

    name = "speaker"

    def __init__(self, stage: Stage, master: Replica, claimed: int) -> None:
        self._ha, self._master, self._claimed = stage.ha, master, claimed
        self._end: End | None = None
        self._says = False
        stage.ha.network.dial(self, stage.ha.client_ip(self.name), f"{master.driver.ip}:{HA_PORT}", frames=len)

    def opened(self, end: End, listener: str, dialled: str) -> None:
        self._end = end
        self._ha.network.write(end, encode_slave_handshake(self._claimed, from_last_file=False, learner=False))

    def _say(self) -> None:
        if self._end is not None and self._end.open:
            self._ha.network.write(self._end, encode_report(self._master.end))
            self._ha.scheduler.after(SAYS_MS * US_PER_MS, self._say)

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None:
        """It is answered: what it says is heard from now on."""
        if not self._says:
            self._says = True
            self._say()

    def closed(self, end: End, reason: str) -> None: ...


def _proposes(master: Replica, replica: Replica) -> bool:
    return master.look is not None and replica.id in master.look.proposed


def _part(stage: Stage, these: list[Watched], those: list[Watched]) -> None:
    """Cut machines off from others; both sides know at once."""
    stage.cut([one.name for one in these], [one.name for one in those])
    others = [one.driver for one in those]
    for end in list(stage.ha.network.ends.values()):
        if end.owner in [one.driver for one in these] and end.other.owner in others:
            stage.ha.network.reset(end, "cut", 0, 0)


def _without_controllers(stage: Stage) -> tuple[Replica, Replica]:
    """A master that reaches no controller, and is to be elected again when it does, and a slave that follows it, and is
    not in sync."""
    stage.send(10)
    master, (slave,) = stage.master, stage.slaves
    stage.ha.crash(slave)
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    stage.send(3)  # the master knows it by now
    stage.cut([master.name], stage.controllers())
    stage.ha.restart(slave)
    stage.until(lambda: _proposes(master, slave), "the slave follows")
    stage.until(lambda: stage.ha.agreed.master is None, "there is no master")
    return master, slave


def late_answer_of_a_proposal(**given: Any) -> None:
    """C10, seed 500097: a master is elected again while the answer to a proposal of its is on its way. That answer is a
    refusal, and speaks of the old proposal alone: whom the next one names is waited for."""
    stage = Stage(2, **given)
    master, slave = _without_controllers(stage)
    epoch = master.epoch
    requests = Held(stage, [master], [stage.active()])
    stage.heal()
    stage.until(lambda: requests.has(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET), "the slave is proposed")
    answers = Held(stage, [*stage.ha.controllers], [master])
    requests.let_go()
    stage.until(lambda: slave.id in stage.ha.agreed.members and master.epoch > epoch, "the next proposal is applied")
    stage.cut([slave.name], [master.name])
    if not answers.let_go_up_to(*REFUSED):
        raise Violation("the scenario goes on", "the first proposal was not refused")
    stage.run(1)
    answers.let_go()
    stage.heal()
    stage.send(10)
    stage.finish()


def old_word_while_a_proposal_is_under_way(**given: Any) -> None:
    """C10: the controllers have taken a proposal in, and not agreed on it yet, when they answer a master that asks who
    is in sync: what it knew. That ends no proposal: whom it names is waited for."""
    stage = Stage(2, **given)
    stage.send(10)
    master, (slave,), active = stage.master, stage.slaves, stage.active()
    stage.ha.crash(slave)
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    stage.send(10)
    rest = [one for one in stage.ha.controllers if one is not active]
    stage.ha.restart(slave)
    stage.until(lambda: slave.look is not None and slave.look.master_epoch == master.epoch, "it knows its master")
    for one in rest:
        one.driver.stall(True)
    stage.until(lambda: _proposes(master, slave), "the slave is proposed")
    stage.cut([slave.name], [master.name])
    stage.until(lambda: (look := master.look) is not None and look.flushed > slave.end, "the master has more")
    notice = NotifyBrokerRoleChangedRequest(
        master_address=master.address, master_broker_id=master.id, master_epoch=master.epoch + 9,
        sync_state_set_epoch=1,
    )  # fmt: skip
    stage.operator.ask(master.address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, notice, lambda reply: None, b"{}")
    stage.run(0.5)  # a notice of who is no controller makes it ask
    for one in rest:
        one.driver.stall(False)
    stage.until(lambda: slave.id in stage.ha.agreed.members, "the proposal is applied")
    stage.run(0.5)
    stage.heal()
    stage.send(10)
    stage.finish()


def stranger_is_no_node(**given: Any) -> None:
    """inSyncReplicas, seed 510188: somebody says at the port of replication that it is a replica of which nobody has
    heard, or one that is gone: it is none of the nodes that have a message."""
    stage = Stage(3, all_ack=False, nodes=3, **given)
    stage.send(10, *stage.producers)
    master, (near, far) = stage.master, stage.slaves
    stage.ha.crash(far)
    stage.run(1)
    before = stage.acknowledged
    for claimed in (99, near.id, far.id):
        Speaker(stage, master, claimed)
    stage.run(8)
    if stage.acknowledged != before:
        raise Violation("inSyncReplicas", f"{stage.acknowledged - before} were acknowledged with one node too few")
    stage.ha.restart(far)
    stage.send(10)
    stage.finish()


def stranger_in_the_place_of_a_replica(**given: Any) -> None:
    """C4: a replica in sync stands still, and somebody else says at the port of replication that it is that one: it is
    not believed, and displaces nobody."""
    stage = Stage(2, not_caught_up_ms=30_000, **given)
    stage.send(10, *stage.producers)
    master, (slave,) = stage.master, stage.slaves
    slave.driver.stall(True)
    Speaker(stage, master, slave.id)
    stage.run(14)
    slave.driver.stall(False)
    stage.send(10)
    stage.finish()


class Unborn(Stage):
    """A cluster of controllers; its brokers have never been started."""

    def begin_quietly(self) -> None:
        self.ha.namesrv.start()
        Group.start(self.ha)
        self.until(lambda: any(one.active for one in self.ha.controllers), "an active controller")


def unknown_to_a_deposed_controller(**given: Any) -> None:
    """C7, seed 510125: a broker has its id from a new controller, and asks the old one, which does not know yet that it
    is deposed, and has never heard of that id: it does not say so, for the broker would be told to give it up. It is
    the only one in sync."""
    stage = Unborn(2, controllers_beat_ms=2_000, **given)
    first, second = stage.ha.replicas
    old = stage.active()
    rest = [one for one in stage.ha.controllers if one is not old]
    _part(stage, [old], [*rest, first])
    stage.until(lambda: any(one.active for one in rest), "another controller")
    stage.ha.restart(first)
    stage.until(lambda: stage.ha.master is first, "the first broker is master")
    stage.ha.crash(first)
    stage.cut([first.name], [one.name for one in rest])
    for pair in both_ways([first.name], [old.name]):
        stage.ha.network.heal(*pair)
    if not old.active:
        raise Violation("the scenario goes on", f"{old.name} knows that it is deposed")
    stage.ha.restart(first)
    stage.run(10)
    stage.heal()
    stage.ha.restart(second)
    stage.until(lambda: len(stage.ha.agreed.members) == 2, "both are in sync")
    stage.send(10)
    stage.finish()


def _unissued(replica: Replica) -> int:
    """So much of its log no flush was asked for."""
    assert replica.broker is not None
    log = replica.broker.parts.store.log
    return log.end - log.issued


def flush_asked_for_before_a_cut(**given: Any) -> None:
    """Seed 510000: a slave, whose disk is slow, has what another slave, which becomes master, has not. While the
    checkpoint is saved that has to come before the cut, offsets are to be saved behind a flush: that ends after the
    cut."""
    stage = Stage(3, sync_flush=False, report_durable=False, log_file_bytes=64 << 10, **given)
    stage.send(10)
    master, (near, far) = stage.master, stage.slaves
    crowd = [Producer(stage.ha, f"crowd{number}", 15) for number in range(16)]
    for one in crowd:
        one.sizes = (600,)
    stage.clients += crowd
    stage.readers[0].begin()
    stage.run(12)  # slaves copy offsets now and then, and save them each 5 s
    near.driver.sync_us = (US_PER_S, US_PER_S)
    for one in crowd[:12]:
        one.begin()
    stage.until(lambda: _unissued(near) > ENOUGH_BYTES, "much is not flushed")
    stage.until(lambda: _unissued(near) < ENOUGH_BYTES, "a flush is asked for")
    stage.until(lambda: _unissued(near) > 0 and near.end == far.end, "both have more")
    stage.ha.network.block(master.name, far.name)
    for one in crowd[12:]:
        one.begin()
    stage.until(lambda: near.end > far.end, "one has more than the other")
    stage.operator.elect(far.id)
    stage.until(lambda: stage.ha.master is far, "the other one is master")
    for one in crowd:
        one.stop()
    cuts = stage.ha.counts["log cut"]
    stage.until(lambda: stage.ha.counts["log cut"] > cuts, "it cuts its log", 59)
    stage.run(3)
    near.driver.heal()
    stage.heal()
    stage.send(10)
    stage.finish()


def offsets_of_groups_when_elected_again(**given: Any) -> None:
    """C11, seed 7000016: with acknowledgements by the master alone a reader has seen, at a master that was cut off,
    what is lost with it, and commits that to the next one, which is elected again: the group is not ahead of its
    queue then."""
    stage = Stage(2, all_ack=False, **given)
    stage.readers[0].begin()
    stage.send(10)  # its group is known from its first request on
    stage.readers[0].stop()
    master, _ = _without_controllers(stage)
    group, answers = stage.readers[0].name, list[Command | None]()
    for queue_id in range(QUEUES):
        commit = UpdateConsumerOffsetRequest(group, TOPIC, queue_id, 1_000_000)
        stage.operator.ask(master.address, RequestCode.UPDATE_CONSUMER_OFFSET, commit, answers.append)
    stage.until(lambda: len(answers) == QUEUES, "the commits")
    epoch = stage.ha.agreed.master_epoch
    stage.heal()
    stage.until(lambda: stage.ha.master is master and stage.ha.agreed.master_epoch > epoch, "it is master again")
    said: dict[int, int] = {}
    for queue_id in range(QUEUES):
        query = QueryConsumerOffsetRequest(group, TOPIC, queue_id)
        stage.operator.ask(
            stage.master.address, RequestCode.QUERY_CONSUMER_OFFSET, query,
            lambda reply, queue_id=queue_id: said.update({queue_id: int(reply.ext["offset"])}),  # type: ignore[misc]
        )  # fmt: skip
    stage.until(lambda: len(said) == QUEUES, "the offsets")
    for queue_id, offset in said.items():
        end = stage.master.queue_end(TOPIC, queue_id)
        if offset > end:
            raise Violation("C11", f"{group} has committed {offset} of {queue_id}, which ends at {end}")
    stage.finish()


def joins_after_the_epoch_began(**given: Any) -> None:
    """C4: a master with a slow disk is elected again, with a tail that is not flushed, and that nobody else has: a
    slave that has what is confirmed comes in sync when it has that tail as well, and not before."""
    stage = Stage(2, **given)
    master, slave = _without_controllers(stage)
    epoch = stage.ha.agreed.master_epoch
    for one in stage.producers:
        one.begin()
    master.driver.sync_us = (900_000, 1_000_000)
    stage.heal()
    stage.until(lambda: stage.ha.master is master and stage.ha.agreed.master_epoch > epoch, "it is master again")
    stage.until(lambda: slave.id in stage.ha.agreed.members, "the slave is in sync")
    master.driver.heal()
    stage.send(10)
    stage.finish()


def controller_restarted_while_nothing_happens(**given: Any) -> None:
    """C13, seed 8100308: a controller is killed soon after an entry was committed, and comes back when nothing more is
    appended: it has the entry, and learns that it is committed, though no push of its leader was lost."""
    stage = Stage(2, **given)
    (slave,) = stage.slaves
    stage.ha.crash(slave)
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    stage.ha.restart(slave)
    stage.until(lambda: slave.id in stage.ha.agreed.members, "the slave is in sync")
    for one in stage.ha.controllers:
        if not one.active:
            stage.ha.crash(one)
            stage.ha.restart(one)
            break
    stage.until(lambda: not stage.ha.settled(), "it has all that is committed", 20, "C13")
    stage.send(10)
    stage.finish()


SCENARIOS: list[Callable[..., None]] = [
    late_answer_of_a_proposal,
    old_word_while_a_proposal_is_under_way,
    stranger_is_no_node,
    stranger_in_the_place_of_a_replica,
    unknown_to_a_deposed_controller,
    flush_asked_for_before_a_cut,
    offsets_of_groups_when_elected_again,
    joins_after_the_epoch_began,
    controller_restarted_while_nothing_happens,
]
