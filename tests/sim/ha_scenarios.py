"""What users of the original suffered from, played: each function is a case, and raises Violation when it goes wrong.

All of them end as a seed does: everything heals, the set serves, all brokers come to the same log, and what was
acknowledged is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.models.broker.operator import create_topic
from perseid.sim.models.ha.broker import HA_PORT, IDENTITY
from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.models.raft.group import PORT
from perseid.sim.models.raft.run import both_ways
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.offsets import QueryConsumerOffsetRequest
from perseid.wire.headers.topics import GetTopicConfigRequest

from .ha_stage import Stage


def controller_and_master_killed_together(**given: Any) -> None:
    """#7689: the active controller and the master die together, with messages that nobody else has; what is sent then
    takes no queue offset of theirs."""
    stage = Stage(**given)
    stage.send(20)
    master = stage.master
    stage.shut_replication(master)
    stage.run(1)  # what is sent now only the master has
    stage.ha.crash(stage.active())
    stage.ha.crash(master)
    stage.run(0.5)
    for one in (*stage.ha.controllers, *stage.ha.replicas):
        stage.ha.restart(one)
    stage.heal()
    stage.send(20, *stage.producers)
    stage.finish()


def isolated_master_with_clients(**given: Any) -> None:
    """#7017: a partition leaves the master and its clients on one side; what they send there is not acknowledged, and
    what was is there afterwards."""
    stage = Stage(**given)
    stage.send(20)
    old, inside = stage.master, [stage.master.name, stage.producers[0].name]
    stage.cut(inside, stage.others(*inside))
    before = stage.acknowledged
    stage.until(lambda: stage.ha.master is not None and stage.ha.master is not old, "another master")
    if stage.acknowledged != before:
        raise Violation("C4", f"{stage.acknowledged - before} were acknowledged by a master alone")
    stage.send(10, stage.producers[1])
    stage.heal()
    stage.finish()


def confirm_offset_of_an_unrecognised_master(**given: Any) -> None:
    """#6662: an old master and a slave in a partition, and its connection breaks: nothing more is confirmed there."""
    stage = Stage(**given)
    stage.send(20)
    old, (near, far) = stage.master, stage.slaves
    inside = [old.name, near.name, stage.producers[0].name, stage.readers[0].name]
    stage.readers[0].begin()
    stage.cut(inside, stage.others(*inside))
    stage.until(lambda: stage.ha.agreed.master == far.id, "a change")
    stage.shut_replication(old)
    for end in list(stage.ha.network.ends.values()):
        if end.owner is near.driver and end.other.owner is old.driver:
            stage.ha.network.reset(end, "cut", 0, 0)
    stage.run(15)
    stage.heal()
    stage.finish()


def killed_with_an_unconfirmed_tail(**given: Any) -> None:
    """#6609: a master is killed with messages that nobody has confirmed, and comes back as a slave: readers never saw
    them, and no queue that they saw gets shorter."""
    stage = Stage(**given)
    for reader in stage.readers:
        reader.begin()
    stage.send(20)
    master = stage.master
    for one in stage.slaves:
        stage.cut([master.name], [one.name])
    stage.run(2)
    stage.ha.crash(master)
    stage.run(0.2)
    stage.ha.restart(master)
    stage.run(2)
    stage.heal()
    stage.send(20)
    stage.finish()


def power_lost_after_a_cut(**given: Any) -> None:
    """#10666: a slave cuts what diverged, and its power fails before anything is written in its place, again and
    again: what was cut never comes back."""
    stage = Stage(**given)
    for turn in range(4):
        stage.send(10, *stage.producers)
        old = stage.master
        for one in stage.slaves:
            stage.cut([old.name], [one.name])
        stage.run(1)
        stage.ha.cut_power(old) if turn % 2 else stage.ha.crash(old)
        stage.until(lambda old=old: stage.ha.master not in (old, None), "another master")  # type: ignore[misc]
        stage.heal()
        cuts = stage.ha.counts["log cut"]
        stage.ha.restart(old)
        stage.until(lambda cuts=cuts: stage.ha.counts["log cut"] > cuts, "it cuts its log")  # type: ignore[misc]
        stage.ha.cut_power(old)
        stage.run(0.2)
        stage.ha.restart(old)
        stage.until(lambda: len(stage.ha.agreed.members) == 3, "all are in sync")
    stage.finish()


def elected_again_with_a_live_stream(**given: Any) -> None:
    """#9689, #6344: the same master is elected again while its slaves stay connected; epochs and offsets go on."""
    stage = Stage(**given)
    for reader in stage.readers:
        reader.begin()
    stage.send(20, *stage.producers)
    master, (second, third) = stage.master, stage.slaves
    stage.cut([third.name], [master.name])
    stage.until(lambda: third.id not in stage.ha.agreed.members, "the third is out of sync")
    stage.cut([master.name, second.name], stage.controllers())
    stage.until(lambda: stage.ha.agreed.master is None, "there is no master")
    epoch = stage.ha.agreed.master_epoch
    stage.heal()
    stage.until(lambda: stage.ha.master is not None and stage.ha.agreed.master_epoch > epoch, "a master again")
    stage.send(20)
    stage.finish()


def old_master_at_the_name_server(**given: Any) -> None:
    """#6316: after a partition the old master registers once more: the route names the new one."""
    stage = Stage(**given)
    stage.send(10)
    old = stage.master
    stage.cut([old.name], stage.controllers() + [one.name for one in stage.slaves])
    stage.until(lambda: stage.ha.master not in (old, None), "another master")
    client = stage.producers[1]
    for _ in range(35):  # the old one registers each half minute
        stage.run(2)
        found: list[str] = []
        client.find(lambda found=found: found.append(client.brokers[0]))  # type: ignore[misc]
        stage.until(lambda found=found: bool(found), "a route")  # type: ignore[misc]
        if found[0] == old.address:
            raise Violation("C8", f"the route names {old.name}, whom nobody elected; master is {stage.master.name}")
    stage.heal()
    stage.send(10)
    stage.finish()


def slow_shrink(**given: Any) -> None:
    """#9897: a slave stalls: sends go on as soon as it is out of sync, not after it."""
    stage = Stage(**given)
    stage.send(10)
    slave = stage.slaves[0]
    slave.driver.stall(True)
    took = stage.until(lambda: slave.id not in stage.ha.agreed.members, "it is out of sync", 20)
    stage.send(10)
    slave.driver.stall(False)
    stage.until(lambda: slave.id in stage.ha.agreed.members, "it is back in sync", 20)
    if took > 20:
        raise Violation("C13", f"out of sync after {took:.1f} s")
    stage.finish()


def metadata_lost_on_a_switch(**given: Any) -> None:
    """#9804: a topic that was made before the master died is there afterwards."""
    stage = Stage(**given)
    stage.send(5)
    old, answers = stage.master, []
    ask = stage.operator.ask
    ask(old.address, RequestCode.UPDATE_AND_CREATE_TOPIC, create_topic("made", 7), lambda reply: answers.append(reply))
    stage.until(lambda: bool(answers), "the topic is made")
    if answers[0] is None or answers[0].code != ResponseCode.SUCCESS:
        raise Violation("the scenario goes on", f"no topic: {answers[0]}")
    stage.run(12)  # slaves copy tables now and then
    stage.ha.crash(old)
    stage.until(lambda: stage.ha.master not in (old, None), "another master")

    def told(reply: Command | None) -> None:
        answers.append(reply.keep() if reply is not None else None)

    ask(stage.master.address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest("made"), told)
    stage.until(lambda: len(answers) == 2, "an answer")
    if answers[1] is None or answers[1].code != ResponseCode.SUCCESS or b'"readQueueNums":7' not in answers[1].body:
        raise Violation("topics stay", f"{answers[1]}")
    stage.ha.restart(old)
    stage.finish()


def stale_channel_closes(**given: Any) -> None:
    """B19, #11045: a broker's first connection is half-open, its heartbeats come on a second one; when the first is
    noticed to be gone, nothing happens to the broker."""
    stage = Stage(**given)
    stage.send(10)
    before, master = stage.elections(), stage.master
    for one in list(stage.ha.network.ends.values()):
        if one.owner is master.driver and one.other.address.endswith(f":{PORT}"):
            stage.ha.network.reset(one, "vanished", 0, 2 * US_PER_S + 500 * US_PER_MS)
    stage.run(12)
    if stage.elections() != before or stage.master is not master:
        raise Violation("C13", "an election, and nobody was dead")
    stage.finish()


def controller_switch_then_the_master_dies(**given: Any) -> None:
    """B20, #5712: a new active controller knows who is alive, and notices who dies."""
    stage = Stage(**given)
    stage.send(10)
    first = stage.active()
    stage.ha.crash(first)
    stage.until(lambda: any(one.active for one in stage.ha.controllers if one is not first), "another controller")
    stage.run(0.3)
    old = stage.master
    stage.ha.crash(old)
    took = stage.until(lambda: stage.ha.master not in (old, None), "another master", 20)
    stage.ha.count("the next master after a controller's switch")
    if took > 15:
        raise Violation("C13", f"the next master after {took:.1f} s")
    stage.ha.restart(first)
    stage.ha.restart(old)
    stage.finish()


def new_controller_without_heartbeats(**given: Any) -> None:
    """B21: a new active controller has not heard the master yet, for six seconds: it does not take it for dead."""
    stage = Stage(**given)
    stage.send(10)
    before, master, first = stage.elections(), stage.master, stage.active()
    rest = [one for one in stage.ha.controllers if one is not first]
    for one in rest:  # they have never heard of any broker
        stage.ha.crash(one)
    names = [one.name for one in stage.ha.replicas]
    stage.cut(names, [one.name for one in rest])
    for one in rest:
        stage.ha.restart(one)
    stage.until(lambda: any(one.active for one in stage.ha.controllers), "an active controller")
    stage.ha.crash(first)
    stage.until(lambda: any(one.active for one in rest), "another controller")
    slave = stage.slaves[0]
    for one in rest:  # one that is in sync is heard, the master is not
        for pair in both_ways([slave.name], [one.name]):
            stage.ha.network.heal(*pair)
    stage.run(6)
    stage.heal()
    stage.run(3)
    if stage.elections() != before or stage.master is not master:
        raise Violation("C6", "an election, though the master was never silent for a whole timeout")
    stage.ha.restart(first)
    stage.finish()


def wiped_disk_with_its_old_id(**given: Any) -> None:
    """A slave in sync loses its disk but for the file with its id, while the master is there: it gets everything again;
    and while it has not, nobody makes it master."""
    stage = Stage(2, **given)
    stage.send(20)
    (slave,), master = stage.slaves, stage.master
    for one in stage.controllers():
        stage.ha.network.block(master.name, one)  # it can't tell that the slave is in sync no longer
    stage.ha.crash(slave)
    stage.ha.wipe(slave, (IDENTITY,))
    stage.run(0.5)  # the controllers know that it is gone: it is not elected in the moment of its death
    stage.ha.crash(master)
    stage.heal()
    stage.ha.restart(slave)
    stage.run(20)
    stage.ha.restart(master)
    stage.send(10)
    stage.finish()


def wiped_disk_that_is_filled_again(**given: Any) -> None:
    """A wiped slave, in sync as far as the controllers know, dies while it is filled again, and so does the master: it
    is not elected with a part of the log."""
    stage = Stage(2, window_bytes=2_000, log_file_bytes=8 << 10, **given)
    stage.send(60, *stage.producers)
    (slave,), master = stage.slaves, stage.master
    for one in stage.controllers():
        stage.ha.network.block(master.name, one)
    stage.ha.crash(slave)
    stage.ha.wipe(slave, (IDENTITY,))
    stage.ha.restart(slave)
    stage.until(lambda: 0 < slave.end < master.end // 2, "it has a part of the log")
    stage.ha.crash(slave)
    stage.run(0.5)
    stage.ha.crash(master)
    stage.heal()
    stage.ha.restart(slave)
    stage.run(20)
    stage.ha.restart(master)
    stage.send(10)
    stage.finish()


def copied_disk(**given: Any) -> None:
    """Somebody starts a broker on a copy of another's disk: it serves nobody, and the set goes on."""
    stage = Stage(**given)
    stage.send(10)
    for original in (stage.master, stage.slaves[0]):
        copy = stage.ha.copy(original)
        stage.run(15)
        if original is not stage.master:
            stage.cut([original.name], [stage.master.name])  # only the copy could say what it has
            stage.run(3)
        stage.send(10)
        stage.heal()
        if copy.machine is not None:
            copy.crash("it was a mistake")
    stage.finish()


def expand_whose_answer_is_lost(**given: Any) -> None:
    """B1, #5663: a slave comes in, the master does not hear that the controllers agreed, and loses the slave again: it
    acknowledges nothing alone, for the controllers may elect the slave."""
    stage = Stage(2, **given)
    stage.send(10)
    master, (slave,) = stage.master, stage.slaves
    stage.cut([slave.name], [master.name])
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    stage.send(10)
    for one in stage.controllers():
        stage.ha.network.block(one, master.name)
    for pair in both_ways([slave.name], [master.name]):
        stage.ha.network.heal(*pair)
    stage.until(lambda: slave.id in stage.ha.agreed.members, "the controllers agree that it is in sync")
    stage.shut_replication(master)
    stage.run(2)
    stage.ha.crash(master)
    stage.heal()
    stage.until(lambda: stage.ha.master is slave, "the slave is master")
    stage.ha.restart(master)
    stage.send(10)
    stage.finish()


def shrink_without_the_controllers(**given: Any) -> None:
    """B2: a master that reaches no controller loses its slaves: it acknowledges nothing: one of them may be elected."""
    stage = Stage(**given)
    stage.send(10)
    master = stage.master
    stage.cut([master.name], stage.controllers() + [one.name for one in stage.slaves])
    for end in list(stage.ha.network.ends.values()):
        if end.owner is master.driver and end.other.owner in [one.driver for one in stage.slaves]:
            stage.ha.network.reset(end, "cut", 0, 0)
    stage.until(lambda: stage.ha.master not in (None, master), "another master")
    stage.run(3)
    stage.heal()
    stage.send(10)
    stage.finish()


def joiner_dies_with_its_proposal(**given: Any) -> None:
    """The master's proposal of a slave is lost with the active controller, and so is the slave, for good."""
    stage = Stage(2, **given)
    stage.send(10)
    master, (slave,) = stage.master, stage.slaves
    stage.cut([slave.name], [master.name])
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    stage.send(10)
    active = stage.active()
    active.driver.stall(True)
    stage.heal()
    stage.run(1)  # it has come back, and was proposed to one who does not hear it
    stage.ha.crash(active)
    stage.ha.crash(slave)
    stage.until(lambda: any(one.active for one in stage.ha.controllers), "another controller")
    stage.send(10)
    stage.ha.restart(slave)
    stage.ha.restart(active)
    stage.finish()


def offsets_of_groups_after_a_loss(**given: Any) -> None:
    """#4771: with acknowledgements by the master alone, readers see what dies with it; their offsets do not stay ahead
    of the queues that are left, and they go on."""
    stage = Stage(all_ack=False, not_caught_up_ms=15_000, **given)
    stage.send(10)
    reader = stage.readers[0]
    reader.begin()
    old = stage.master
    stage.shut_replication(old)
    stage.run(10)  # slaves are in sync still, and copy offsets meanwhile
    reader.stop()
    stage.ha.crash(old)
    stage.until(lambda: stage.ha.master not in (old, None), "another master")
    answers: list[tuple[int, Command | None]] = []
    for queue_id in range(QUEUES):
        header = QueryConsumerOffsetRequest(reader.name, TOPIC, queue_id)
        stage.operator.ask(
            stage.master.address, RequestCode.QUERY_CONSUMER_OFFSET, header,
            lambda reply, queue_id=queue_id: answers.append((queue_id, reply and reply.keep())),  # type: ignore[misc]
        )  # fmt: skip
    stage.until(lambda: len(answers) == QUEUES, "the offsets")
    for queue_id, reply in answers:
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            offset, end = int(reply.ext["offset"]), stage.master.queue_end(TOPIC, queue_id)
            if offset > end:
                raise Violation("C11", f"{reader.name} has committed {offset} of {queue_id}, which ends at {end}")
    stage.heal()
    stage.ha.restart(old)
    stage.send(10)
    stage.finish()


def active_controller_without_its_group(**given: Any) -> None:
    """B25: the active controller is cut off from the others when a master asks it for a change: no answer says that it
    was made."""
    stage = Stage(**given)
    stage.send(10)
    active, master = stage.active(), stage.master
    stage.cut([active.name], [one for one in stage.controllers() if one != active.name])
    for end in list(stage.ha.network.ends.values()):
        if end.address.endswith(f":{HA_PORT}") and end.owner is master.driver:
            stage.ha.network.reset(end, "cut", 0, 0)  # its slaves are gone for a moment: it proposes to be alone
    stage.run(8)
    stage.heal()
    stage.send(10)
    stage.finish()


def old_master_that_does_not_know(**given: Any) -> None:
    """A master hears no controller, and they hear it; they elect another one, and it goes on proposing."""
    stage = Stage(**given)
    stage.send(10)
    old, (second, third) = stage.master, stage.slaves
    stage.cut([third.name], [one for one in stage.others(third.name) if one != old.name])
    for one in stage.controllers():
        stage.ha.network.block(one, old.name)
    stage.operator.elect(second.id)
    stage.until(lambda: stage.ha.master is second, "the second is master")
    stage.send(10, stage.producers[1])
    stage.run(20)
    stage.heal()
    stage.send(10)
    stage.finish()


def one_slave_on_two_connections(**given: Any) -> None:
    """B17: what one slave has does not count twice when it comes back while its old connection is half-open."""
    stage = Stage(**given)
    stage.send(10)
    master, (near, far) = stage.master, stage.slaves
    for pair in both_ways([master.name], [far.name]):
        stage.ha.network.block(*pair)
    stage.run(1)  # what is sent now waits for the far one
    for end in list(stage.ha.network.ends.values()):
        if end.owner is near.driver and end.other.owner is master.driver and end.other.address.endswith(f":{HA_PORT}"):
            stage.ha.network.reset(end, "vanished", 0, 10 * US_PER_S)
    stage.run(2)
    stage.heal()
    stage.send(10)
    stage.finish()


def power_of_all_lost_after_an_acknowledgement(**given: Any) -> None:
    """What was acknowledged is on the disks of all in sync: the power of all fails, and the master stays away."""
    stage = Stage(**given)
    for one in stage.ha.replicas:
        one.driver.sync_us = (50_000, 200_000)
    for _ in range(4):
        stage.send(4, *stage.producers)
        old = stage.master
        for one in stage.ha.replicas:
            stage.ha.cut_power(one)
        stage.run(0.2)
        for one in stage.ha.replicas:
            if one is not old:
                stage.ha.restart(one)
        stage.until(lambda old=old: stage.ha.master not in (old, None), "another master")  # type: ignore[misc]
        stage.ha.restart(old)
        stage.until(lambda: len(stage.ha.agreed.members) == 3, "all are in sync")
    stage.finish()


SCENARIOS: list[Callable[..., None]] = [
    controller_and_master_killed_together,
    isolated_master_with_clients,
    confirm_offset_of_an_unrecognised_master,
    killed_with_an_unconfirmed_tail,
    power_lost_after_a_cut,
    elected_again_with_a_live_stream,
    old_master_at_the_name_server,
    slow_shrink,
    metadata_lost_on_a_switch,
    stale_channel_closes,
    controller_switch_then_the_master_dies,
    new_controller_without_heartbeats,
    wiped_disk_with_its_old_id,
    wiped_disk_that_is_filled_again,
    copied_disk,
    expand_whose_answer_is_lost,
    shrink_without_the_controllers,
    offsets_of_groups_after_a_loss,
    active_controller_without_its_group,
    old_master_that_does_not_know,
    one_slave_on_two_connections,
    power_of_all_lost_after_an_acknowledgement,
    joiner_dies_with_its_proposal,
]
