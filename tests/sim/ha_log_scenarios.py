"""What users of the original suffered from, played (see `ha_scenarios`): of the log, of what readers see of it, and of
what slaves and groups of consumers have when a master is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.sim.models.ha.broker import HA_PORT
from perseid.sim.models.ha.clients import Producer
from perseid.sim.models.ha.queues import QUEUES, TOPIC
from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest

from .ha_stage import Stage

HEAD_BYTES = 60
"""Of what is written at once these come one by one: all of a frame but the log's bytes."""


def reader_of_what_is_not_flushed(**given: Any) -> None:
    """#8239: a master alone in sync, whose disk is slow, has messages that are not flushed when its power fails: nobody
    has read them."""
    stage = Stage(2, **given)
    stage.send(10, *stage.producers)
    for reader in stage.readers:
        reader.pause_ms = 10
        reader.begin()
    master, (slave,) = stage.master, stage.slaves
    stage.ha.crash(slave)
    stage.until(lambda: stage.ha.agreed.members == {master.id}, "the master is alone in sync")
    for _ in range(8):
        master.driver.sync_us = (300_000, 400_000)
        stage.send(5)
        stage.run(0.2)
        stage.ha.cut_power(master)
        stage.run(0.2)
        stage.ha.restart(master)
        stage.until(lambda: stage.ha.master is master, "it is master again")
    stage.ha.restart(slave)
    stage.finish()


def stale_tail_behind_a_cut(**given: Any) -> None:
    """#10666: a slave has cut its log and follows; nothing new came, it dies, and its next life reads its log again:
    nothing of what was cut is there, though it fits, record by record."""
    stage = Stage(log_file_bytes=64 << 10, **given)
    for one in stage.producers:
        one.sizes, one.delayed_share = (100,), 0.0
    stage.send(10)
    old = stage.master
    stage.cut([old.name], [one.name for one in stage.slaves])
    stage.run(1)
    stage.ha.crash(old)
    stage.until(lambda: stage.ha.master not in (old, None), "another master")
    for client in stage.clients:
        client.stop()
    stage.heal()
    stage.ha.restart(old)
    stage.until(lambda: len(stage.ha.agreed.members) == 3, "it has cut its log, and is in sync")
    stage.shut_replication(stage.master)
    late = Producer(stage.ha, stage.producers[0].name, 20)
    late.sizes, late.delayed_share = (100,), 0.0
    late._number = stage.producers[0]._number + 1_000
    stage.clients.append(late)
    late.begin()
    stage.run(1)
    stage.ha.crash(old)
    stage.ha.restart(old)
    stage.run(1)
    stage.heal()
    stage.finish()


def comes_back_under_steady_load(**given: Any) -> None:
    """A slave with a slow disk comes back while many send: something is always on its way to it, and it is in sync
    again all the same."""
    stage = Stage(2, **{"window_bytes": 8 << 20, **given})  # a window of 2 kB a sync is less than is sent
    crowd = [Producer(stage.ha, f"crowd{number}", 15) for number in range(6)]
    stage.clients += crowd
    stage.send(10, *crowd)
    (slave,) = stage.slaves
    stage.ha.crash(slave)
    stage.until(lambda: slave.id not in stage.ha.agreed.members, "the slave is out of sync")
    slave.driver.sync_us = (50_000, 150_000)
    stage.ha.restart(slave)
    stage.until(lambda: slave.id in stage.ha.agreed.members, "the slave is back in sync", 20, "C13")
    stage.finish()


def frames_in_single_bytes(**given: Any) -> None:
    """B15, B16, #6307, #5651: whatever master and slaves say to one another comes byte by byte, from the first on."""
    stage = Stage(**given)
    stage.send(10)
    network = stage.ha.network
    write = network.write

    def in_bytes(end: End, data: bytes) -> None:
        if f":{HA_PORT}" in end.address + end.other.address:
            for at in range(min(len(data), HEAD_BYTES)):
                write(end, data[at : at + 1])
            data = data[HEAD_BYTES:]
        write(end, data)

    network.write = in_bytes  # type: ignore[method-assign]
    stage.reset_replication(stage.master)
    stage.run(2)
    stage.until(lambda: len(stage.ha.agreed.members) == 3, "all are in sync", 20, "C13")
    stage.send(20)
    stage.ha.crash(old := stage.master)
    stage.until(lambda: stage.ha.master not in (old, None), "another master", 40, "C13")
    stage.ha.restart(old)
    stage.until(lambda: len(stage.ha.agreed.members) == 3, "all are in sync", 20, "C13")
    network.write = write  # type: ignore[method-assign]
    stage.finish()


def epochs_of_a_few_bytes(**given: Any) -> None:
    """B10, #6505: a master dies with a tail that nobody else has; epochs of a message or none follow, an empty slave
    gets all of them at once, becomes master, and the first one finds its common point with it."""
    stage = Stage(batch_bytes=32_768, **given)
    stage.send(3)
    first = stage.master
    stage.cut([first.name], [one.name for one in stage.slaves])
    stage.run(1)
    stage.ha.crash(first)
    stage.until(lambda: stage.ha.master not in (first, None), "another master")
    stage.heal()
    second = stage.master
    (last,) = [one for one in stage.slaves if one is not first]
    stage.ha.crash(last)
    for _ in range(2):
        stage.until(lambda: stage.ha.agreed.members == {second.id}, "the master is alone in sync")
        stage.send(1)
        epoch = second.epoch
        stage.ha.crash(second)
        stage.ha.restart(second)
        stage.until(lambda epoch=epoch: stage.ha.agreed.master_epoch > epoch, "an election")  # type: ignore[misc]
        stage.until(lambda: stage.ha.master is second, "it is master again")
    stage.ha.wipe(last, ())
    stage.ha.restart(last)
    stage.until(lambda: len(stage.ha.agreed.members) == 2, "the empty one is in sync")
    stage.send(1)
    stage.ha.crash(second)
    stage.until(lambda: stage.ha.master is last, "it is master")
    stage.send(1)
    for one in stage.ha.replicas:
        stage.ha.restart(one)
    stage.until(lambda: len(stage.ha.agreed.members) == 3, "all find their common point", 20, "C13")
    stage.finish()


def elected_again_with_messages_under_way(**given: Any) -> None:
    """#6344: the same master is elected again while nobody else has what it wrote last: the queue offsets of that stay
    taken, and what comes next stands behind it; and its next life does not lead the same epoch."""
    stage = Stage(**given)
    for reader in stage.readers:
        reader.begin()
    stage.send(20, *stage.producers)
    master = stage.master
    slaves = stage.slaves
    stage.cut([master.name], stage.controllers())
    for one in slaves:
        stage.ha.crash(one)  # they are waited for: the master can't say that they are gone
    epoch = stage.ha.agreed.master_epoch
    stage.until(lambda: stage.ha.agreed.master is None, "there is no master")
    stage.heal()
    stage.until(lambda: stage.ha.master is master and stage.ha.agreed.master_epoch > epoch + 1, "it is master again")
    stage.send(20)
    stage.ha.cut_power(master)
    stage.ha.restart(master)  # before anybody notices that it was gone
    stage.until(lambda: stage.ha.master is master, "it is master once more")
    for one in slaves:
        stage.ha.restart(one)
    stage.until(lambda: len(stage.ha.agreed.members) == 3, "all are in sync")
    stage.send(20)
    stage.ha.crash(master)
    stage.until(lambda: stage.ha.master not in (master, None), "another master")
    stage.send(10)
    stage.ha.restart(master)
    stage.finish()


def slave_is_read_when_the_master_is_down(**given: Any) -> None:
    """#9879, #4840: no master, and no controller to elect one: readers get from a slave what was acknowledged."""
    stage = Stage(**given)
    stage.send(20)
    stage.run(12)  # slaves copy tables now and then
    master, slave = stage.master, stage.slaves[0]
    for one in (*stage.ha.controllers, master):
        stage.ha.crash(one)
    wanted = {place for place in stage.ha.history.places if place[1] == 0}
    answers: list[Command | None] = []
    for queue_id, _ in sorted(wanted):
        header = PullMessageRequest(
            consumer_group="g", topic=TOPIC, queue_id=queue_id, queue_offset=0, max_msg_nums=16, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        stage.operator.ask(
            slave.address, RequestCode.PULL_MESSAGE, header, lambda reply: answers.append(reply and reply.keep())
        )
    stage.until(lambda: len(answers) == len(wanted), "answers")
    for reply in answers:
        if reply is None or reply.code != ResponseCode.SUCCESS:
            raise Violation("slaves are read", f"{slave.name} answers {reply}")
    for one in (*stage.ha.controllers, master):
        stage.ha.restart(one)
    stage.send(10)
    stage.finish()


def groups_go_on_after_a_switch(**given: Any) -> None:
    """#1440, #3503: what a group of consumers committed some time before its master died, the next master knows."""
    stage = Stage(**given)
    stage.send(30)
    group, answers = stage.readers[0].name, list[Command | None]()
    stage.readers[0].begin()
    stage.run(2)  # its group is known from its first request on
    stage.readers[0].stop()
    ends = {queue_id: stage.master.queue_end(TOPIC, queue_id) for queue_id in range(QUEUES)}
    for queue_id, end in ends.items():
        header = UpdateConsumerOffsetRequest(group, TOPIC, queue_id, end)
        stage.operator.ask(stage.master.address, RequestCode.UPDATE_CONSUMER_OFFSET, header, answers.append)
    stage.run(12)
    if any(reply is None or reply.code != ResponseCode.SUCCESS for reply in answers):
        raise Violation("the scenario goes on", f"commits are answered {answers}")
    old = stage.master
    stage.ha.crash(old)
    stage.until(lambda: stage.ha.master not in (old, None), "another master")
    said: dict[int, int] = {}

    def told(queue_id: int, reply: Command | None) -> None:
        said[queue_id] = int(reply.ext["offset"]) if reply is not None and reply.code == ResponseCode.SUCCESS else -1

    for queue_id in ends:
        header_of = QueryConsumerOffsetRequest(group, TOPIC, queue_id)
        stage.operator.ask(
            stage.master.address, RequestCode.QUERY_CONSUMER_OFFSET, header_of,
            lambda reply, queue_id=queue_id: told(queue_id, reply),  # type: ignore[misc]
        )  # fmt: skip
    stage.until(lambda: len(said) == QUEUES, "the offsets")
    if said != ends:
        raise Violation("groups go on", f"committed were {ends}, the new master says {said}")
    stage.ha.restart(old)
    stage.finish()


def restarted_beside_a_deposed_controller(**given: Any) -> None:
    """C12: a slave comes back and reaches no controller but one that was deposed, and does not know it yet; that one
    names the last master, who does not know it either: the slave loses nothing that was acknowledged since."""
    stage = Stage(3, **given)
    stage.send(10, *stage.producers)
    active, old, (second, third) = stage.active(), stage.master, stage.slaves
    rest = [one.name for one in stage.ha.controllers if one is not active]
    active.driver.stall(True)
    old.driver.stall(True)
    stage.until(lambda: stage.ha.master not in (old, None), "another master")
    new, follower = stage.master, second if stage.ha.master is third else third
    stage.until(lambda: follower.id in stage.ha.agreed.members, "both are in sync")
    stage.send(10)
    stage.ha.crash(follower)
    stage.cut([follower.name, active.name, old.name], [*rest, new.name])
    stage.ha.restart(follower)
    stage.run(0.05)
    for one in (active, old):
        one.driver.stall(False)
    stage.run(10)
    stage.heal()
    stage.send(10)
    stage.finish()


SCENARIOS: list[Callable[..., None]] = [
    reader_of_what_is_not_flushed,
    stale_tail_behind_a_cut,
    comes_back_under_steady_load,
    frames_in_single_bytes,
    epochs_of_a_few_bytes,
    elected_again_with_messages_under_way,
    slave_is_read_when_the_master_is_down,
    groups_go_on_after_a_switch,
    restarted_beside_a_deposed_controller,
]
