"""`perseid admin`'s commands for controllers: output, exit codes, and errors that say what to do next."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from perseid.cli import admin
from perseid.client.blocking import LoopThread
from perseid.client.controller import ControllerClient
from perseid.wire import controller

from .fake import BROKER
from .fake_controller import FakeController, Group, replica

app = typer.Typer()
admin.register(app)


@pytest.fixture
def group() -> Group:
    in_sync, others = [replica(1, "h:1"), replica(3, "h:3")], [replica(2, "h:2", alive=False)]
    return Group(sets={BROKER: controller.ReplicasInfo(1, "h:1", 4, 7, in_sync, others)})


@pytest.fixture
def server(group: Group) -> Iterator[FakeController]:
    fake = FakeController(group)
    thread = LoopThread("fake controller")
    thread.run(fake.start())
    yield fake
    thread.run(fake.stop())
    thread.stop()


def call(*args: str) -> Result:
    return CliRunner().invoke(app, ["admin", *args])


def test_sync_state_set(server: FakeController, group: Group) -> None:
    at = ("-a", server.address, "-n", server.address)
    shown = call("sync-state-set", *at)
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.stdout.splitlines() if BROKER in line]
    assert rows == [
        [BROKER, "1", "h:1", "master", "yes", "yes", "4", "7"],
        [BROKER, "2", "h:2", "slave", "no", "no", "4", "7"],
        [BROKER, "3", "h:3", "slave", "yes", "yes", "4", "7"],
    ]
    (told,) = json.loads(call("sync-state-set", "-b", BROKER, "--json", *at).stdout)
    assert (told["master_id"], told["master_epoch"], [r["id"] for r in told["replicas"]]) == (1, 4, [1, 2, 3])
    unknown = call("sync-state-set", "-b", "x", *at)
    assert unknown.exit_code == 1 and "enableControllerMode=true" in unknown.stderr
    assert "no cluster called c; known are: fake" in call("sync-state-set", "-c", "c", *at).stderr
    group.sets[BROKER].in_sync_replicas[0].alive = False
    headless = call("sync-state-set", *at)
    assert headless.exit_code == 1 and "no master is alive" in headless.stderr


def test_broker_epoch_marks_logs_that_differ(server: FakeController) -> None:
    server.epochs.epoch_list = [controller.Epoch(1, 0, 60), controller.Epoch(3, 60)]
    shown = call("broker-epoch", "-n", server.address)
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.stdout.splitlines() if BROKER in line]
    assert rows == [
        [BROKER, server.address, "master", "1", "0", "60", "yes"],
        [BROKER, server.address, "master", "3", "60", "100", "yes"],
    ]
    (told,) = json.loads(call("broker-epoch", "--json", "-n", server.address).stdout)
    assert told["epochs"] == [[1, 0], [3, 60]]
    assert f"known are: {BROKER}" in call("broker-epoch", "-b", "x", "-n", server.address).stderr


def test_elect_master(server: FakeController) -> None:
    at = ("-a", server.address, "-b", BROKER)
    assert call("elect-master", "--to", "3", *at).stdout == f"broker 3 at h:3 is master now of {BROKER}, epoch 5\n"
    assert "was master already" in call("elect-master", "--to", "3", *at).stdout
    assert json.loads(call("elect-master", "--to", "1", "--json", *at).stdout)["master_epoch"] == 6
    dead = call("elect-master", "--to", "2", *at)
    assert dead.exit_code == 1
    assert "CONTROLLER_ELECT_MASTER_FAILED (2012)" in dead.stderr and "perseid admin sync-state-set" in dead.stderr


def test_controller_metadata(server: FakeController, group: Group) -> None:
    group.peers.append("n1:127.0.0.1:1")
    shown = call("controller-metadata", "-a", server.address)
    assert shown.exit_code == 0, shown.output
    assert "active" in shown.stdout and "unreachable" in shown.stdout, "those that the first one knows are asked too"
    told = json.loads(call("controller-metadata", "-a", server.address, "--json").stdout)
    assert [(row["address"], row["active"]) for row in told] == [(server.address, True), ("127.0.0.1:1", False)]
    group.active = ""
    nobody = call("controller-metadata", "-a", server.address)
    assert nobody.exit_code == 1 and "no controller is active" in nobody.stderr


def test_settings_are_shown_and_changed(server: FakeController) -> None:
    at = ("-a", server.address)
    assert "enableElectUncleanMaster" in call("controller-config", *at).stdout
    told = json.loads(call("controller-config", "controllerType", "--json", *at).stdout)
    assert told == {server.address: {"controllerType": "DLedger"}}
    assert "no such setting: x" in call("controller-config", "x", *at).stderr
    changed = call("update-controller-config", "enableElectUncleanMaster=true", *at)
    assert changed.stdout == f"enableElectUncleanMaster=true at {server.address}\n"
    assert server.changed_config == [b"enableElectUncleanMaster=true\n"]
    refused = call("update-controller-config", "configStorePath=/x", *at)
    assert refused.exit_code == 1 and "set it in the controller's file" in refused.stderr
    assert call("update-controller-config", "novalue", *at).exit_code == 2


def test_replicas_are_forgotten_only_when_that_is_meant(server: FakeController, group: Group) -> None:
    at = ("-a", server.address, "-b", BROKER)
    asked = call("clean-broker-metadata", "--id", "2", *at)
    assert asked.exit_code == 2 and "--yes" in asked.stderr and not group.cleaned
    assert call("clean-broker-metadata", "--id", "2", "--yes", *at).stdout == f"forgotten: replica 2 of {BROKER}\n"
    alive = call("clean-broker-metadata", "--id", "1", "--yes", *at)
    assert alive.exit_code == 1 and "--living" in alive.stderr
    assert call("clean-broker-metadata", "--living", "--yes", *at).exit_code == 0
    assert [r.broker_controller_ids_to_clean for r in group.cleaned] == ["2", "1", None]


def test_no_controller_there_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ControllerClient.__init__.__kwdefaults__, "timeout_ms", 1)
    nobody = call("elect-master", "--to", "1", "-b", BROKER, "-a", "127.0.0.1:1")
    assert nobody.exit_code == 1 and "perseid controller -c FILE" in nobody.stderr
    assert "host:port" in call("elect-master", "--to", "1", "-b", BROKER, "-a", "here").stderr
