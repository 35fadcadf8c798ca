"""An operator changes settings of a running broker, and starts it again."""

from pathlib import Path

from perseid.testing.ports import free_port
from perseid.wire.codes import RequestCode

from .rig import Peer, Process, config_file


def shown(at: str) -> dict[str, str]:
    with Peer(at) as peer:
        text = bytes(peer.call(RequestCode.GET_BROKER_CONFIG).body).decode()
    return dict(line.split("=", 1) for line in text.splitlines())


def changed(at: str, text: str) -> tuple[int, str]:
    with Peer(at) as peer:
        answer = peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
        return answer.code, answer.remark or ""


def test_what_was_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    """With the remarks of the file, and in one that a link names."""
    port = free_port((0, -2, 1))
    real = config_file(tmp_path, [f"listenPort={port}", "# the night shift's", "fileReservedTime = 48"], "real.conf")
    path, at = tmp_path / "broker.conf", f"127.0.0.1:{port}"
    path.symlink_to(real)
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        assert changed(at, "fileReservedTime=12\ndiskMaxUsedSpaceRatio=60") == (0, "")
        code, why = changed(at, "fileReservedTime=11\nlistenPort=1234")
        assert code == 1 and "listenPort: needs a restart" in why
        assert broker.end() == 0
    text = real.read_text()
    assert path.is_symlink() and "# the night shift's\nfileReservedTime=12\n" in text
    assert text.endswith("diskMaxUsedSpaceRatio=60\n") and not list(tmp_path.glob("*.tmp"))
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        now = shown(at)
        assert (now["fileReservedTime"], now["diskMaxUsedSpaceRatio"]) == ("12", "60")
        assert changed(at, "\n".join(f"{key}={value}" for key, value in now.items()))[0] == 0, "all as it is"
        assert broker.end() == 0


def test_a_file_that_can_not_be_replaced(tmp_path: Path) -> None:
    """As one that is mounted by itself into a container: the operator is told, and the broker goes on."""
    port = free_port((0, -2, 1))
    path, at = config_file(tmp_path, [f"listenPort={port}"]), f"127.0.0.1:{port}"
    (tmp_path / "broker.conf.tmp").mkdir()  # what is written first can't be
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        before = path.read_text()
        code, why = changed(at, "fileReservedTime=12")
        assert code == 1 and why.startswith("in effect until a restart, and not kept: ")
        assert path.read_text() == before and shown(at)["fileReservedTime"] == "12"
        assert broker.end() == 0
