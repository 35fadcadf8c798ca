"""Our controllers: under Java brokers, in one group with Java controllers, and asked by the stock tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
from controllers import APPLY_ID, ELECT, HEARTBEAT, MILLIS, Controllers, brokers

from perseid.wire.codes import ResponseCode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(600, 3_600), func_only=True)]

GROUPS = {
    "java_java_perseid": ("java", "java", "perseid"),
    "java_perseid_perseid": ("java", "perseid", "perseid"),
}
COUNT = rig.many(2_000, 20_000)
KILLS = rig.many(2, 20)
"""Of a master, and of an active controller."""
EVENTS = 1_100
AWAIT_SECONDS = rig.many(180, 1_800)


@pytest.fixture(params=GROUPS.values(), ids=GROUPS.keys())
def mixed(request: pytest.FixtureRequest, workshop: Path, name: str) -> Iterator[Controllers]:
    made = Controllers(workshop / f"ctl-{name}", request.param)
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture
def ours(workshop: Path, name: str) -> Iterator[Controllers]:
    made = Controllers(workshop / f"ctl-{name}", ("perseid",) * 3)
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture
def client(perseid_cluster: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    made = rig.Client(java_agent, perseid_cluster)
    yield made
    made.close()


def stored(cluster: rig.Cluster, master: str, topic: str) -> int:
    """How many messages the topic has at the master: those that were sent again count twice."""
    return sum(int(rig.call(master, 30, {"topic": topic, "queueId": queue}).ext["offset"]) for queue in range(4))


def test_java_brokers_lose_nothing_under_our_controllers(
    ours: Controllers, perseid_cluster: rig.Cluster, client: rig.Client, workshop: Path, name: str
) -> None:
    both = brokers(perseid_cluster, ours, workshop / f"set-{name}", ("java", "java"))
    at = {broker.address: broker for broker in both}
    set_name = both[0].folder.parent.name
    try:
        for broker in both:
            broker.start()
        rig.until("both are in sync", lambda: ours.info(set_name)[2] == [1, 2], 90)
        master = rig.until("a master", lambda: at.get(ours.info(set_name)[0] or ""), 60)
        assert "success" in client.mqadmin("updateTopic", "-b", master.address, "-t", name, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(perseid_cluster.namesrv, 105, {"topic": name}).code == 0)
        there = f'"{name}":'.encode()
        rig.until("both know the topic", lambda: all(there in rig.call(b.address, 21).body for b in both), 100)
        client("flood.start", name=name, topic=name, count=COUNT, pollMs=1_000)
        epochs = [ours.info(set_name)[1]]
        for number in range(KILLS):
            acked = (2 * number + 1) * COUNT // (2 * KILLS + 1)
            client("flood.await", name=name, acked=acked, timeoutMs=AWAIT_SECONDS * 1000, wait=AWAIT_SECONDS + 30)
            master = rig.until("a master", lambda: at.get(ours.info(set_name)[0] or ""), 60)
            master.kill()
            rig.until("another master", lambda gone=master: ours.info(set_name)[0] not in (None, gone.address), 60)
            epochs.append(ours.info(set_name)[1])
            acked = (2 * number + 2) * COUNT // (2 * KILLS + 1)
            client("flood.await", name=name, acked=acked, timeoutMs=AWAIT_SECONDS * 1000, wait=AWAIT_SECONDS + 30)
            active = rig.until("an active controller", ours.active, 60)
            active.kill()
            rig.until("another active controller", ours.active, 60)
            master.start()
            active.start()
            rig.until("both are in sync again", lambda: ours.info(set_name)[2] == [1, 2], 120)
        assert epochs == sorted(set(epochs)), "each election has an epoch of its own"
        done = client("flood.end", name=name, timeoutMs=2 * AWAIT_SECONDS * 1000, wait=2 * AWAIT_SECONDS + 30)
        assert len(done["acked"]) == COUNT, f"{len(done['acked'])} acknowledged, {done['retries']} retries"
        last = ours.info(set_name)[0] or ""
        got = client.consume(name, f"g_{name}", stored(perseid_cluster, last, name), rig.many(90, 300))
        missing = set(done["acked"]) - {m["body"].partition(" ")[0] for m in got}
        assert not missing, f"{len(missing)} acknowledged messages are missing"
    finally:
        for broker in both:
            if broker.running:
                broker.kill()


def test_java_and_our_controllers_are_one_group_with_leadership_on_each(mixed: Controllers) -> None:
    names: list[str] = []
    for wanted in range(len(mixed.members)):
        mixed.lead(wanted)

        def told(code: int, wanted: int = wanted, **ext: object) -> bool:
            """Have the wanted one do something; on a busy machine another one may lead meanwhile."""
            header = {"clusterName": "c", "brokerName": names[-1], **ext}
            answer = rig.call(mixed.members[wanted].address, code, header)
            if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                mixed.lead(wanted)
            return answer.code in (0, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)

        for _ in range(EVENTS // len(mixed.members) + 1):
            names.append(f"set-{len(names)}")
            code = f"10.1.1.1:{len(names)};{MILLIS}"
            rig.until("an id", lambda code=code: told(APPLY_ID, appliedBrokerId=1, registerCheckCode=code), 60)

        def elected() -> bool:
            beat = told(HEARTBEAT, brokerAddr="10.1.1.1:1", brokerId=1)
            return beat and told(ELECT, brokerId=1, invokeTime=MILLIS)

        rig.until("a master", elected, 60)
    assert len(names) > 1_000
    seen = rig.until("all sets", lambda: len(found := mixed.sets(names)) == len(names) and found, 30)
    for wanted in range(len(mixed.members)):
        mixed.lead(wanted)
        rig.until(f"the same state on c{wanted}", lambda: mixed.sets(names) == seen, 30)
    for member in mixed.members:
        member.kill()
        rig.until("an active controller without it", mixed.active, 90)
        mixed.register(f"without-{member.folder.name}", 1, "10.1.1.2:1")
        member.start()
        # a Java leader that took a snapshot (B26) can't tell a member what it lacks of the entries before it
        mixed.lead(mixed.members.index(member))
    late = [f"without-{member.folder.name}" for member in mixed.members]
    rig.until("the last three", lambda: len(mixed.sets(late)) == 3, 30)


def test_the_stock_tools_ask_our_controllers(
    ours: Controllers, perseid_cluster: rig.Cluster, client: rig.Client, workshop: Path, name: str
) -> None:
    active = rig.until("an active controller", ours.active, 60)
    both = brokers(perseid_cluster, ours, workshop / f"set-{name}", ("java", "java"))
    set_name = both[0].folder.parent.name
    try:
        for broker in both:
            broker.start()
        rig.until("both are in sync", lambda: ours.info(set_name)[2] == [1, 2], 90)
        at = ours.members[0].address
        metadata = client.mqadmin("getControllerMetaData", "-a", at)
        assert f"#ControllerGroup\t{ours.group}" in metadata and active.address in metadata, metadata
        assert all(member.address in metadata for member in ours.members)
        sets = client.mqadmin("getSyncStateSet", "-a", at, "-b", set_name)
        assert "#SyncStateSetNums\t2" in sets.replace(" ", ""), sets
        config = client.mqadmin("getControllerConfig", "-a", at)
        assert "scanInactiveMasterInterval" in config and "enableElectUncleanMaster" in config, config
        changed = client.mqadmin("updateControllerConfig", "-a", at, "-k", "scanInactiveMasterInterval", "-v", "4321")
        assert "success" in changed, changed
        assert "4321" in client.mqadmin("getControllerConfig", "-a", at)
        assert "scanInactiveMasterInterval=4321" in (ours.members[0].folder / "controller.properties").read_text()
        master, epoch, _ = ours.info(set_name)
        slave = next(broker for broker in both if broker.address != master)
        ids = {one["brokerAddress"]: one["brokerId"]
               for one in ours.sets([set_name])[set_name]["inSyncReplicas"]}  # fmt: skip
        printed = client.mqadmin(
            "electMaster", "-a", at, "-b", str(ids[slave.address]), "-bn", set_name, "-c", "InteropCluster"
        )
        assert "ClusterName" in printed or slave.address in printed, printed
        assert ours.info(set_name)[:2] == (slave.address, epoch + 1)
        for broker in both:
            broker.kill()
        rig.until("nobody is master", lambda: ours.info(set_name)[0] is None, 60)
        client.mqadmin("cleanBrokerMetadata", "-a", at, "-b", "1;2", "-bn", set_name, "-c", "InteropCluster")
        assert json.dumps(ours.sets([set_name])) == "{}"
    finally:
        for broker in both:
            if broker.running:
                broker.kill()
