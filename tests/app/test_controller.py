"""Loading a controller's configuration: the original's files, and one clear line for what can't be had."""

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.app import access, broker, controller, namesrv, process
from perseid.base.errors import ConfigError
from perseid.base.machine import Frames, Opened, SaveState, Start, Write
from perseid.controller.node import LISTENER, Controller
from perseid.nameserver.node import NameServer
from perseid.security.members import members_of
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command, decode, encode_request

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


def saved(node: NameServer | Controller, code: int, body: bytes) -> bytes:
    """What a node writes to its configuration file after a request."""
    node.handle(Start(), 1_000)
    node.handle(Opened(1, "127.0.0.1:5", "127.0.0.1:9", LISTENER), 1_000)
    effects = node.handle(Frames(1, encode_request(code, 7, {}, body)), 1_000)
    (save,) = [one for one in effects if isinstance(one, SaveState) and one.path.endswith("controller.conf")]
    return save.data


def test_both_keep_what_the_other_one_has_in_their_file(tmp_path: Path) -> None:
    """A change of the name server's settings once would have dropped the controller's: it would not have come back."""
    text = ENOUGH + (
        f"enableControllerInNamesrv=true\nconfigStorePath={tmp_path}/controller.conf\nheartBeatTimeIntervalMs=700\n"
        f"controllerStorePath={tmp_path}/store\nkvConfigPath={tmp_path}/kv.json\n"
    )
    path = write(tmp_path, text)
    loaded = namesrv.load(path)
    beside = namesrv.load_controller(path, loaded)
    assert beside is not None
    (names, _), (member, _) = namesrv.build(loaded), controller.build(beside)
    namesrv.share_file(names, member, process.values(process.read_settings(path)))
    path.write_bytes(saved(names, RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"))
    again = namesrv.load_controller(path, loaded)
    assert again is not None
    one_black_list = replace(again.own, config_black_list=beside.own.config_black_list)  # a key of both
    assert one_black_list == beside.own and again.raft == beside.raft
    path.write_bytes(saved(member, RequestCode.UPDATE_CONTROLLER_CONFIG, b"scanInactiveMasterInterval=900"))
    assert namesrv.load(path).order_message_enable
    again = namesrv.load_controller(path, loaded)
    assert again is not None
    assert again.own.scan_inactive_master_interval == 900 and again.raft == beside.raft


def test_a_controllers_file_keeps_the_keys_of_its_group(tmp_path: Path) -> None:
    text = ENOUGH + f"configStorePath={tmp_path}/controller.conf\nheartBeatTimeIntervalMs=700\nstrange=1\n"
    path = write(tmp_path, text + f"controllerStorePath={tmp_path}/store\n")
    loaded = controller.load(path)
    node, _ = controller.build(loaded)
    path.write_bytes(saved(node, RequestCode.UPDATE_CONTROLLER_CONFIG, b"scanInactiveMasterInterval=900"))
    assert controller.load(path).raft == loaded.raft and b"strange=1\n" in path.read_bytes()


def test_a_toml_file_is_not_overwritten_with_properties(tmp_path: Path) -> None:
    path = tmp_path / "ns.toml"
    path.write_text("listenPort = 0\n")
    assert namesrv.load(path).config_store_path.endswith("namesrv.properties")


INNER = 'innerClientAuthenticationCredentials={"accessKey":"nodes","secretKey":"planted"}\n'
USERS = "authenticationEnabled=true\nauthorizationEnabled=true\n" + INNER


def test_the_users_of_a_name_server_and_of_its_controller_stand_in_one_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, ENOUGH + USERS + f"enableControllerInNamesrv=true\ncontrollerStorePath={tmp_path}/store\n")
    own = namesrv.load(path)
    beside = namesrv.load_controller(path, own)
    assert beside is not None and not [one for one in caplog.records if "authenti" in one.getMessage()]
    node, _ = controller.build(beside)
    answer = asked(node, LISTENER, RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert (answer.code, answer.remark) == (16, "username cannot be null.")
    text = beside.to_text(important=False)
    assert "planted" not in text and "authenticationEnabled=true\n" in text
    members = members_of(access.load_members(process.read_settings(path)))
    server, _ = namesrv.build(replace(own, kv_config_path=str(tmp_path / "kv.json")), members=members)
    assert asked(server, "main", RequestCode.GET_NAMESRV_CONFIG).code == 16


def asked(node: NameServer | Controller, listener: str, code: int) -> Command:
    """What somebody gets who does not sign."""
    node.handle(Start(), 1)
    node.handle(Opened(1, "10.0.0.1:5", "", listener), 2)
    (answer,) = [one for one in node.handle(Frames(1, encode_request(code, 7)), 3) if isinstance(one, Write)]
    assert isinstance(answer.data, bytes)
    return decode(answer.data).keep()


def test_users_without_what_nodes_sign_with_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, ENOUGH + "authenticationEnabled=true\n" + f"controllerStorePath={tmp_path}/store\n")
    with pytest.raises(ConfigError, match=r"authenticationEnabled=true needs innerClientAuthenticationCredentials"):
        controller.build(controller.load(path))
    group = "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:1\ndLegerSelfId=n0\n"
    with pytest.raises(
        ConfigError, match=r"controller.conf:5: authenticationEnabled=true and enableDLegerCommitLog=true"
    ):
        broker.load(write(tmp_path, group + "authenticationEnabled=true\n"))
    assert broker.load(write(tmp_path, group + "authenticationEnabled=true\n" + INNER)).access.authentication_enabled
