"""Configuration files with errors: one line that names file, line and key, exit code 1, nothing was touched."""

from pathlib import Path

import pytest
from tests.combinations import Each, at_each_change

from .rig import Process, config_file

BROKER = {
    "a number that is none": Each(("listenPort=ten", "listenPort")),
    "a number out of range": Each(("mappedFileSizeCommitLog=-1", "mappedFileSizeCommitLog")),
    "a port out of range": Each(("listenPort=70000", "listenPort")),
    "a port without a second one below": Each(("listenPort=2", "listenPort")),
    "a boolean that is none": Each(("autoCreateTopicEnable=maybe", "autoCreateTopicEnable")),
    "a choice that is none": Each(("flushDiskType=SOMETIMES", "flushDiskType")),
    "a name server that is none": Each(("namesrvAddr=here", "namesrvAddr")),
    "what is not built yet": Each(("enableControllerMode=true", "enableControllerMode")),
    "an hour that is none": Each(("deleteWhen=25", "deleteWhen")),
    "delay levels that are none": Each(("messageDelayLevel=1s soon", "messageDelayLevel")),
}


@pytest.mark.parametrize(("line", "key"), at_each_change(BROKER, "a number that is none", "a choice that is none"))
def test_a_brokers_file(tmp_path: Path, line: str, key: str) -> None:
    path = config_file(tmp_path, [line])
    number = len(path.read_text().splitlines())
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        said = broker.refused()
    assert said.startswith(f"perseid: {path}:{number}: {key}=")
    assert not (tmp_path / "store").exists()


def test_a_name_servers_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("# the port\nlistenPort=ten\n")
    with Process("namesrv", "-c", str(path), home=tmp_path) as namesrv:
        assert namesrv.refused().startswith(f"perseid: {path}:2: listenPort=ten")


def test_toml_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('brokerName = "b"\nlistenPort = = 1\n')
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        said = broker.refused()
    assert said.startswith(f"perseid: {path}: ") and "line 2" in said


@pytest.mark.parametrize(
    "content", at_each_change({"missing": None, "not UTF-8": b"\xff\xfe\0", "a folder": "folder"}, "missing")
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "broker.conf"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert broker.refused().startswith(f"perseid: {path}: can't be read: ")
