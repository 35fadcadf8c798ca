"""Our controllers: under Java brokers, in one group with Java controllers, and asked by the stock tools."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import ways
from broker_sets import BrokerSet, kill_masters
from controllers import Controllers, brokers

from perseid.client.blocking import BlockingAdmin

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(600, 3_600), func_only=True)]

GROUPS = {
    "java_java_perseid": ("java", "java", "perseid"),
    "java_perseid_perseid": ("java", "perseid", "perseid"),
}
PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
TOOL_SECONDS = 240
KILLS = rig.many(2, 20)
EVENTS = 1_100
"""The original makes a snapshot after 1,000, and has nothing in it (B26)."""


@pytest.fixture(params=ways.in_ci(GROUPS, "java_perseid_perseid"))
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


def test_java_brokers_lose_nothing_under_our_controllers(
    perseid_cluster: rig.Cluster, client: rig.Client, workshop: Path, name: str
) -> None:
    made = BrokerSet(perseid_cluster, workshop / f"set-{name}", ("perseid",) * 3, ("java", "java"))
    try:
        kill_masters(made.start(), client, name, KILLS)
    finally:
        made.kill()


@pytest.mark.long
def test_java_and_our_controllers_are_one_group_with_leadership_on_each(mixed: Controllers) -> None:
    names = mixed.decide(EVENTS)
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


# ---- our tools before the original's controllers and brokers ----


def perseid(*args: str, code: int = 0) -> Any:
    """What a command prints as JSON."""
    command = [*PERSEID, *args, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.long
def test_our_tools_ask_java_controllers_and_java_brokers(
    perseid_cluster: rig.Cluster, workshop: Path, name: str
) -> None:
    made = BrokerSet(perseid_cluster, workshop / f"set-{name}", ("java",), ("java", "java"))
    at, namesrv = ("-a", made.controllers.addresses), ("-n", perseid_cluster.namesrv)
    which = ("-b", made.name)
    try:
        made.start()
        (row,) = perseid("admin", "controller-metadata", *at)
        assert row["address"] == made.controllers.addresses and row["active"] and row["group"] == made.controllers.group
        (config,) = perseid("admin", "controller-config", "scanInactiveMasterInterval", *at).values()
        assert config == {"scanInactiveMasterInterval": "5000"}
        perseid("admin", "update-controller-config", "scanInactiveMasterInterval=4321", *at)
        (config,) = perseid("admin", "controller-config", "scanInactiveMasterInterval", *at).values()
        assert config == {"scanInactiveMasterInterval": "4321"}

        (before,) = perseid("admin", "sync-state-set", *which, *at, *namesrv)
        master, epoch, _ = made.controllers.info(made.name)
        assert (before["master_address"], before["master_epoch"]) == (master, epoch)
        assert [(one["in_sync"], one["alive"]) for one in before["replicas"]] == [(True, True)] * 2
        (wanted,) = (one["id"] for one in before["replicas"] if one["id"] != before["master_id"])
        ledger = workshop / f"ledger-{name}"
        killed = verify_through_a_kill(made, name, ledger)
        assert killed["kept"] and killed["acknowledged"] == len(ledger.read_text().splitlines()) - 1, killed
        (switch,) = [one for one in killed["outages"] if one["newMaster"] != one["oldMaster"]]
        assert (switch["oldMaster"], switch["oldEpoch"]) == (master, epoch) and switch["newEpoch"] > epoch
        parts = {part["name"]: part for part in switch["parts"]}
        assert parts["election"]["seen"] and f"broker {wanted}" in parts["election"]["what"], parts
        assert perseid("verify", "check", str(ledger), *namesrv)["kept"]
        (after,) = perseid("admin", "sync-state-set", *which, *at, *namesrv)
        assert (after["master_id"], after["master_epoch"]) == (wanted, switch["newEpoch"])

        elected = perseid("admin", "elect-master", *which, "--to", str(before["master_id"]), *at)
        assert elected["changed"] and elected["master_address"] == master
        made.await_in_sync()
        logs = rig.until("both tell their epochs", lambda: two(perseid("admin", "broker-epoch", *which, *namesrv)), 60)
        told = {log["address"]: log for log in logs}
        assert told[master]["broker_id"] == 0 and told[master]["epochs"][0] == [1, 0]
        assert len({log["max_offset"] for log in logs}) == 1 and len(told[master]["epochs"]) > 1

        for broker in made.all:
            broker.kill()
        rig.until("nobody is master", lambda: made.controllers.info(made.name)[0] is None, 60)
        perseid("admin", "clean-broker-metadata", *which, "--id", "1", "--id", "2", "--yes", *at)
        assert perseid("admin", "sync-state-set", *which, *at, *namesrv, code=1) == []
    finally:
        made.kill()


def two(found: list[Any]) -> list[Any] | None:
    return found if len(found) == 2 else None


def verify_through_a_kill(of: BrokerSet, topic: str, ledger: Path) -> Any:
    """What `perseid verify run` tells of a master that is killed, and comes back."""
    with BlockingAdmin(of.cluster.namesrv) as admin:
        admin.create_topic(topic, 4, brokers=[of.name])
    there = f'"{topic}":'.encode()
    rig.until("all know the topic", lambda: all(there in rig.call(b.address, 21).body for b in of.all), 100)
    run = subprocess.Popen(
        [
            *PERSEID, "verify", "run", topic, "--rate", "100", "--seconds", "0", "--settle", "60", "--json",
            "--ledger", str(ledger), "-n", of.cluster.namesrv,
        ],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        lines = lambda: ledger.read_bytes().count(b"\n") if ledger.exists() else 0  # noqa: E731
        rig.until("acknowledgements", lambda: lines() > 100, 60)
        master = of.await_master()
        master.kill()
        before = lines()
        of.await_master(gone=master)
        rig.until("acknowledgements of another one", lambda: lines() > before + 100, 60)
        master.start()
        of.await_in_sync()
        run.send_signal(signal.SIGINT)
        return json.loads(run.communicate(timeout=TOOL_SECONDS)[0])
    finally:
        if run.poll() is None:
            run.kill()
            run.wait(TOOL_SECONDS)
