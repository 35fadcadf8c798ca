"""Which process listens on a port."""

import os
import socket
import sys
from pathlib import Path

import pytest

from perseid.net.holder import MAX_COMMAND, holder

LISTENING, CONNECTED = "0A", "01"


def process(proc: Path, pid: int, command: list[str], inode: int) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fd" / "7").symlink_to(f"socket:[{inode}]")
    (proc / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in command))


def table(proc: Path, *rows: tuple[int, str, int]) -> None:
    (proc / "net").mkdir(exist_ok=True)
    lines = [f" 0: 0100007F:{port:04X} 00000000:0000 {state} 0 0 0 0 0 {inode} 1" for port, state, inode in rows]
    (proc / "net" / "tcp").write_text("\n".join(["  sl  local_address …", *lines]) + "\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_a_port_of_this_process_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert holder(taken.getsockname()[1]).startswith(f"process {os.getpid()} (")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["/v/bin/python", "/v/bin/perseid", "up", "--data", "my data"], "process 42 (perseid up --data 'my data')"),
        (["python", "-c", "from perseid.cli.main import main; main()", "broker"], "process 42 (perseid broker)"),
        (["java", "-server", "BrokerStartup"], "process 42 (java -server BrokerStartup)"),
        (["x" * 500], f"process 42 ({'x' * MAX_COMMAND}…)"),
    ],
)
def test_a_command_is_told_as_it_was_given(command: list[str], told: str, tmp_path: Path) -> None:
    table(tmp_path, (9876, CONNECTED, 6), (9876, LISTENING, 7), (9877, LISTENING, 8))
    process(tmp_path, 41, ["client"], 6)
    process(tmp_path, 42, command, 7)
    process(tmp_path, 43, ["neighbour"], 8)
    assert holder(9876, tmp_path) == told


def test_what_the_system_does_not_say_is_another_process(tmp_path: Path) -> None:
    assert holder(9876, tmp_path / "none") == "another process"
    table(tmp_path, (9876, LISTENING, 7))
    (tmp_path / "42").mkdir()  # its open files are not ours to read
    assert holder(9876, tmp_path) == "another process"
