"""Network namespaces for tests, and processes in them: real sockets, and wires that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
SMALL = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
DEADLINE = 60


def ip(*args: str) -> None:
    """Run the `ip` command."""
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=20)


def make(*names: str, undo: ExitStack) -> None:
    """Make namespaces, and delete them at the end; the test is skipped where that can't be."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the `ip` command")
    for name in names:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, timeout=20, check=False)
        if made.returncode:
            pytest.skip(f"no right to make network namespaces: {made.stderr.decode().strip()}")
        undo.callback(ip, "netns", "del", name)


class Star:
    """Namespaces around a router, each with a wire to it: what one sends to another can be lost, each way by itself."""

    def __init__(self, names: Sequence[str], undo: ExitStack) -> None:
        self.names = {name: f"ps{os.getpid()}-{name}" for name in names}
        self.address = {name: f"10.77.{number}.1" for number, name in enumerate(names, 10)}
        self.hub = f"ps{os.getpid()}-hub"
        make(self.hub, *self.names.values(), undo=undo)
        self._lost: set[tuple[str, str]] = set()
        try:
            for number, name in enumerate(names, 10):
                space, wire = self.names[name], f"w{number}"
                ip("link", "add", wire, "netns", self.hub, "type", "veth", "peer", "name", "wire", "netns", space)
                ip("-n", self.hub, "addr", "add", f"10.77.{number}.254/24", "dev", wire)
                ip("-n", space, "addr", "add", f"10.77.{number}.1/24", "dev", "wire")
                for where, device in ((self.hub, wire), (space, "wire"), (space, "lo")):
                    ip("-n", where, "link", "set", device, "up")
                ip("-n", space, "route", "add", "default", "via", f"10.77.{number}.254")
            ip("netns", "exec", self.hub, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self.lose(names[0], names[1])
            self.heal()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no wires between network namespaces here: {error.stderr.decode().strip()}")

    def lose(self, sender: str, receiver: str) -> None:
        """From now on nothing that `sender` sends reaches `receiver`; nobody is told."""
        pair = (self.address[sender], self.address[receiver])
        ip("-n", self.hub, "rule", "add", "from", pair[0], "to", pair[1], "blackhole")
        self._lost.add(pair)

    def heal(self) -> None:
        """Everything arrives again."""
        for sender, receiver in self._lost:
            ip("-n", self.hub, "rule", "del", "from", sender, "to", receiver, "blackhole")
        self._lost.clear()


class Processes:
    """What a test started, in its namespaces; ended with it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.running: list[subprocess.Popen[str]] = []

    def start(self, space: str, *command: str, stdin: int | None = None) -> subprocess.Popen[str]:
        log = (self.home / f"stderr-{len(self.running)}").open("wb")
        paths = [path for path in sys.path if path]
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, *command], stdin=stdin, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, "HOME": str(self.home), "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        self.running.append(process)
        return process

    def server(self, space: str, kind: str, name: str, **settings: object) -> subprocess.Popen[str]:
        """Start a `perseid` server, and wait for its first line."""
        conf = self.home / f"{name}.conf"
        conf.write_text(SMALL * (kind == "broker") + "".join(f"{key}={value}\n" for key, value in settings.items()))
        process = self.start(space, *PERSEID, kind, "-c", str(conf))
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "boot success" in line or "listens at" in line, (line, self.logs())
        return process

    def logs(self) -> list[str]:
        """What all have written, for a failing test."""
        return [path.read_text(errors="replace")[-3000:] for path in sorted(self.home.glob("stderr-*"))]

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE)


@contextmanager
def processes_in(home: Path) -> Iterator[Processes]:
    """Processes that end with the block."""
    started = Processes(home)
    try:
        yield started
    finally:
        started.end()
