"""A log in another place than `storePathRootDir`/commitlog (`storePathCommitLog`), and careless operators."""

import signal
from pathlib import Path

import pytest
from tests.combinations import at_each_change

from perseid.testing.ports import free_port
from perseid.wire.codes import RequestCode

from .rig import Peer, Process, config_file, send_header

COUNT = 20
SIZE = 100_000
"""Of each message: twenty of them fill two files of the log."""


def configured(home: Path, *settings: str, name: str = "broker.conf") -> tuple[Path, str]:
    port = free_port((0, -2, 1))
    return config_file(home, [f"listenPort={port}", *settings], name), f"127.0.0.1:{port}"


def end_of_queue(at: str) -> str:
    with Peer(at) as peer:
        return peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}).ext["offset"]


def send(at: str, count: int) -> None:
    with Peer(at) as peer:
        for _ in range(count):
            answer = peer.call(RequestCode.SEND_MESSAGE_V2, send_header("TBW102"), bytes(SIZE))
            assert answer.code == 0, answer.remark


@pytest.mark.parametrize("flush", at_each_change(("ASYNC_FLUSH", "SYNC_FLUSH"), "ASYNC_FLUSH"))
def test_it_is_there_after_a_kill(tmp_path: Path, flush: str) -> None:
    log = tmp_path / "disk2" / "log"
    path, at = configured(tmp_path, f"storePathCommitLog={log}", f"flushDiskType={flush}")
    for lives in (1, 2):
        with Process("broker", "-c", str(path), home=tmp_path) as broker:
            assert "boot success" in broker.line()
            assert end_of_queue(at) == str(COUNT * (lives - 1))
            send(at, COUNT)
            broker.end(signal.SIGKILL if lives == 1 else signal.SIGTERM)
    assert len(list(log.iterdir())) == 4 and not (tmp_path / "store" / "commitlog").exists()
    assert all(file.name.isdecimal() for file in log.iterdir()), "Java takes any file there for one of the log"


def test_two_brokers_that_name_one_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    path, _ = configured(tmp_path, f"storePathCommitLog={log}")
    other = tmp_path / "other"
    other.mkdir()
    second, _ = configured(other, f"storePathCommitLog={log}")
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        with Process("broker", "-c", str(second), home=other) as thief:
            assert f"{log}: another store uses the folder" in thief.refused()
        assert broker.end() == 0


def test_a_log_in_the_usual_place_is_not_left_out_of_sight(tmp_path: Path) -> None:
    path, at = configured(tmp_path)
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        send(at, 1)
        assert broker.end() == 0
    moved, at = configured(tmp_path, f"storePathCommitLog={tmp_path / 'new'}")
    with Process("broker", "-c", str(moved), home=tmp_path) as broker:
        said = broker.refused()
    assert f"{tmp_path / 'store' / 'commitlog'} holds files of a log, which would be out of sight" in said
    (tmp_path / "store" / "commitlog").rename(tmp_path / "moved")
    with Process("broker", "-c", str(moved), home=tmp_path) as broker:
        broker.refused()  # the log that is known to be durable is not there
    there, at = configured(tmp_path, f"storePathCommitLog={tmp_path / 'moved'}")
    with Process("broker", "-c", str(there), home=tmp_path) as broker:
        assert "boot success" in broker.line()
        assert end_of_queue(at) == "1"
        assert broker.end() == 0


PLACES = "store", ".", "store/consumequeue/log", "one,two", "a file"


@pytest.mark.parametrize("place", at_each_change(PLACES, "store", "a file"))
def test_a_place_that_can_not_be(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    path, _ = configured(tmp_path, f"storePathCommitLog={','.join(str(tmp_path / one) for one in place.split(','))}")
    with Process("broker", "-c", str(path), home=tmp_path) as broker:
        said = broker.refused()
    assert "storePathCommitLog=" in said or f"{tmp_path / 'a file'}: can't be used as a folder" in said
