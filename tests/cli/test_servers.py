"""The servers as processes: the ready line, a clean end, refusals, a second start."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.output import Output

from perseid.cli.main import main
from perseid.client import Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.testing.ports import free_port

DEADLINE = 60.0
SMALL = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"


class Process:
    """One `perseid` process."""

    def __init__(self, *args: str, home: Path) -> None:
        code = "from perseid.cli.main import main; main()"
        env = {**os.environ, "HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdout=subprocess.PIPE,
            stderr=(home / "stderr").open("wb"),
            text=True,
            env=env,
        )
        self.stderr = home / "stderr"
        self._output = Output(self.process, self.stderr)

    def line(self) -> str:
        """The next line of its output."""
        return self._output.line(DEADLINE)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal: exit code, and what it still printed."""
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, rest


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    running: list[Process] = []

    def starter(*args: str) -> Process:
        running.append(Process(*args, home=tmp_path))
        return running[-1]

    yield starter
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_once_that_it_is_ready_and_ends_cleanly(start, tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    up = start("up", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0")
    words = up.line().split(" ")
    assert words[0] == "ready" and words[3] == f"data={data}"
    for word in words[1:3]:
        host, _, port = word.partition("=")[2].rpartition(":")
        socket.create_connection((host, int(port)), DEADLINE).close()
    assert [word.partition("=")[0] for word in words[1:]] == ["namesrv", "broker", "data"]
    assert up.end(number) == (0, "")
    assert not (data / "store" / "abort").exists()


def test_up_in_json_and_again_on_the_same_data(start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        up = start("up", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0", "--json")
        said = json.loads(up.line())
        assert said.keys() == {"event", "namesrv", "broker", "data"}
        assert (said["event"], said["data"]) == ("ready", str(data))
        assert up.end() == (0, "")


def test_a_second_broker_on_the_same_folder_is_refused(start, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    first = start("up", "--data", data, "--namesrv-port", "0", "--broker-port", "0")
    first.line()
    second = start("up", "--data", data, "--namesrv-port", "0", "--broker-port", "0")
    out, _ = second.process.communicate(timeout=DEADLINE)
    assert second.process.returncode == 1 and out == ""
    assert "Traceback" not in second.stderr.read_text()
    assert first.end() == (0, "")


def test_a_name_server_and_a_broker_apart(start, tmp_path: Path) -> None:
    ns_port, port = free_port(), free_port((0, -2))
    (tmp_path / "ns.conf").write_text(f"listenPort={ns_port}\nbindAddress=127.0.0.1\n")
    (tmp_path / "b.conf").write_text(
        f"brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort={port}\nbindAddress=127.0.0.1\n{SMALL}"
    )
    namesrv = start("namesrv", "-c", str(tmp_path / "ns.conf"))
    assert namesrv.line() == f"The Name Server boot success. serializeType=JSON, address 127.0.0.1:{ns_port}"
    broker = start("broker", "-c", str(tmp_path / "b.conf"), "-n", f"127.0.0.1:{ns_port}")
    assert broker.line() == (
        f"The broker[b, 127.0.0.1:{port}] boot success. serializeType=JSON and name server is 127.0.0.1:{ns_port}"
    )
    assert broker.end() == (0, "")
    assert namesrv.end() == (0, "")
    assert (tmp_path / "store" / "config" / "topics.json").exists()


def test_controllers_apart_and_inside_a_name_server(start, tmp_path: Path) -> None:
    ns_port, first, second = free_port(), free_port(), free_port()
    peers = f"n0-127.0.0.1:{first};n1-127.0.0.1:{second}"
    common = f"controllerDLegerGroup=g\ncontrollerDLegerPeers={peers}\nmappedFileSize=1048576\n"
    (tmp_path / "ns.conf").write_text(
        f"{common}controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path}/c0\nlistenPort={ns_port}\n"
        "enableControllerInNamesrv=true\nbindAddress=127.0.0.1\n"
    )
    (tmp_path / "c.conf").write_text(f"{common}controllerDLegerSelfId=n1\ncontrollerStorePath={tmp_path}/c1\n")
    both = start("namesrv", "-c", str(tmp_path / "ns.conf"))
    assert both.line() == f"The Name Server boot success. serializeType=JSON, address 127.0.0.1:{ns_port}"
    assert f"controller n0 of g listens at 127.0.0.1:{first}" in (tmp_path / "stderr").read_text()
    alone = start("controller", "-c", str(tmp_path / "c.conf"))
    assert alone.line() == f"controller n1 of g listens at 127.0.0.1:{second}"
    for port in (ns_port, first, second):
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()
    assert alone.end() == (0, "")
    assert both.end() == (0, "")
    assert (tmp_path / "c0" / "dledger-n0" / "currterm").exists()


def test_shards_are_one_command_and_one_that_dies_comes_back(start, tmp_path: Path) -> None:
    namesrv_port, port = free_port(), free_port((0, -2, 10, 8))
    (tmp_path / "namesrv.conf").write_text(f"listenPort={namesrv_port}\n")
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"{SMALL}brokerName=a\nbrokerIP1=127.0.0.1\nlistenPort={port}\nnamesrvAddr=127.0.0.1:{namesrv_port}\n"
        f"storePathRootDir={tmp_path}/store\n"
    )
    start("namesrv", "-c", str(tmp_path / "namesrv.conf")).line()
    server = start("broker", "-c", str(conf), "--shards", "2")
    assert {server.line().partition("[")[2].partition(",")[0] for _ in range(2)} == {"a-0", "a-1"}
    with BlockingAdmin(f"127.0.0.1:{namesrv_port}") as admin:
        assert len(admin.create_topic("T", 2).brokers) == 2, "who says `boot success` is registered"
    with BlockingProducer(f"127.0.0.1:{namesrv_port}") as producer:
        stored = {producer.send(Message("T", b"%d" % n)).queue.broker_name for n in range(8)}
    assert stored == {"a-0", "a-1"}
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert "boot success" in server.line()
    assert server.end() == (0, "")
    fewer = start("broker", "-c", str(conf), "--shards", "1")
    assert fewer.process.wait(DEADLINE) != 0
    assert "--shards 2 at least" in fewer.stderr.read_text()


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    """Run the command in this process: exit code, output, errors."""
    monkeypatch.setattr(sys, "argv", ["perseid", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_what_cannot_be_had_is_one_line_and_an_exit_code(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_text("enableControllerMode=true\n")
    code, out, err = call(monkeypatch, capsys, "broker", "-c", str(path))
    assert (code, out) == (1, "")
    assert err == (f"perseid: {path}:1: enableControllerMode=true needs controllerAddr=host:port;host:port\n")


def test_a_port_in_use_is_one_line(monkeypatch, capsys, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = call(monkeypatch, capsys, "up", "--data", str(tmp_path), "--namesrv-port", str(port))
    assert (code, out) == (1, "")
    assert err.startswith(f"perseid: can't listen on 127.0.0.1:{port}: ") and err.count("\n") == 1


def test_the_settings_are_printed(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_text("brokerName=x\n")
    code, everything, _ = call(monkeypatch, capsys, "broker", "-p", "-c", str(path))
    assert code == 0 and "brokerName=x\n" in everything and "longPollingEnable=true\n" in everything
    code, important, _ = call(monkeypatch, capsys, "broker", "-m", "-c", str(path), "-n", "n:1")
    assert code == 0 and "brokerName=x\n" in important and "namesrvAddr=n:1\n" in important
    assert "longPollingEnable" not in important
    path.write_text("controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\ncontrollerDLegerSelfId=n0\n")
    code, out, _ = call(monkeypatch, capsys, "controller", "-p", "-c", str(path))
    assert code == 0 and "controllerDLegerPeers=n0-h:1\n" in out and "heartBeatTimeIntervalMs=2000\n" in out
    code, out, _ = call(monkeypatch, capsys, "namesrv", "-p")
    assert code == 0 and "listenPort=9876\n" in out
