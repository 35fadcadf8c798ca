"""Loading a controller's configuration: the original's files, and one clear line for what can't be had."""

from pathlib import Path

import pytest

from perseid.app import controller, namesrv
from perseid.base.errors import ConfigError

PEERS = "n0-127.0.0.1:9877;n1-127.0.0.1:9868;n2-127.0.0.1:9876"
ENOUGH = f"controllerDLegerGroup=group1\ncontrollerDLegerPeers={PEERS}\ncontrollerDLegerSelfId=n1\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "controller.conf"
    path.write_text(text)
    return path


def test_a_file_of_the_original(tmp_path: Path) -> None:
    text = ENOUGH + f"controllerStorePath={tmp_path}/store\nmappedFileSize=1048576\nenableElectUncleanMaster=true\n"
    loaded = controller.load(write(tmp_path, text))
    assert loaded.own.enable_elect_unclean_master and loaded.own.scan_inactive_master_interval == 5_000
    assert (loaded.raft.group, loaded.raft.self_id, loaded.raft.peers) == ("group1", "n1", PEERS)
    assert loaded.raft.mapped_file_size_for_entry_data == 1_048_576
    assert "enableElectUncleanMaster=true\n" in loaded.to_text(important=True)
    assert "heartBeatTimeIntervalMs=2000\n" in loaded.to_text(important=False)
    node, driver = controller.build(loaded)
    assert node.raft.member.self_id == "n1" and driver.machine is node


def test_where_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = controller.load(write(tmp_path, ENOUGH)).own
    assert own.controller_store_path == str(tmp_path / "DLedgerController")
    assert own.config_store_path == str(tmp_path / "controller" / "controller.properties")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENOUGH + "controllerType=jRaft\n", ["controller.conf:4", "controllerType=jRaft", "JRaft's log"]),
        (ENOUGH.replace("=n1", "=n7"), ["n7", "not among the peers"]),
        (ENOUGH.replace("n0-127", "127"), ["no `id-host:port`"]),
        ("controllerDLegerGroup=g\n", ["controllerDLegerPeers, controllerDLegerSelfId", "missing"]),
        (ENOUGH + "scanInactiveMasterInterval=soon\n", ["controller.conf:4", "a whole number"]),
    ],
)
def test_what_can_not_be_had(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        controller.load(write(tmp_path, text))
    assert all(word in str(error.value) for word in words), error.value


def test_beside_a_name_server_only_when_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, ENOUGH)
    assert namesrv.load_controller(path, namesrv.load(path)) is None
    path = write(tmp_path, ENOUGH + "enableControllerInNamesrv=true\nlistenPort=0\n")
    loaded = namesrv.load(path)
    beside = namesrv.load_controller(path, loaded)
    assert beside is not None and beside.raft.self_id == "n1"
    path = write(tmp_path, "enableControllerInNamesrv=true\n")
    with pytest.raises(ConfigError, match="controllerDLegerGroup"):
        namesrv.load_controller(path, namesrv.load(path))
