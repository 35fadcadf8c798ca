"""`perseid verify run` on a DLedger group: a master is killed, and the outage has its parts; with the real commands."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perseid.client import Admin, ClientError
from perseid.testing.ports import free_port

T = TypeVar("T")
TOPIC = "watched"
pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 240.0
PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}  # fmt: skip


class Servers:
    """Processes that end with the test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, name: str, **settings: object) -> None:
        conf, log = self.home / f"{name}.conf", self.home / f"{name}.log"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with log.open("wb") as out:
            self.running[name] = subprocess.Popen([*PERSEID, kind, "-c", str(conf)], stdout=out, stderr=out)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.home.glob("*.log")))

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_S)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(DEADLINE_S / 0.1)):
            if condition():
                return
            pause.wait(0.1)
        raise AssertionError(f"{what}: not within {DEADLINE_S} s\n{self.logs()}")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[tuple[Servers, str, dict[str, str]]]:
    """A group of three, its name server's address, and each broker's address by name."""
    with ExitStack() as undo:
        servers = Servers(tmp_path)
        undo.callback(servers.end)
        ports = [free_port((0, -2, 1)) for _ in range(3)]
        peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(3))
        namesrv = f"127.0.0.1:{free_port()}"
        servers.start(
            "namesrv", "namesrv", listenPort=namesrv.partition(":")[2], kvConfigPath=tmp_path / "kv.json",
            configStorePath=tmp_path / "ns.properties",
        )  # fmt: skip
        for number, port in enumerate(ports):
            servers.start(
                "broker", f"n{number}", brokerName="group", brokerIP1="127.0.0.1", listenPort=port, namesrvAddr=namesrv,
                storePathRootDir=tmp_path / f"n{number}", enableDLegerCommitLog="true", dLegerGroup="group",
                dLegerPeers=peers, dLegerSelfId=f"n{number}", **SMALL,
            )  # fmt: skip
        yield servers, namesrv, {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports)}


def ask(namesrv: str, what: Callable[[Admin], Coroutine[Any, Any, T]]) -> T | None:
    """What the cluster answers; None while it does not."""

    async def asked() -> T:
        async with Admin(namesrv) as admin:
            return await what(admin)

    try:
        return asyncio.run(asked())
    except ClientError:
        return None


def addresses(namesrv: str) -> dict[int, str]:
    """The group's brokers by id, as the name server has them."""
    info = ask(namesrv, lambda admin: admin.cluster_info())
    return info.brokers.get("group", {}) if info is not None else {}


def test_a_killed_leader_is_seen_in_its_parts(group: tuple[Servers, str, dict[str, str]], tmp_path: Path) -> None:
    servers, namesrv, brokers = group
    servers.until("all are registered", lambda: len(addresses(namesrv)) == 3 and 0 in addresses(namesrv))
    master = addresses(namesrv)[0]
    servers.until("a topic", lambda: ask(namesrv, lambda admin: admin.create_topic(TOPIC, 4)) is not None)
    knows = lambda at: ask(namesrv, lambda admin: admin.topic_config(TOPIC, at)) is not None  # noqa: E731
    servers.until("all know the topic", lambda: all(knows(address) for address in brokers.values()))
    ledger = tmp_path / "ledger"
    run = subprocess.Popen(
        [*PERSEID, "verify", "run", TOPIC, "--seconds", "0", "--ledger", str(ledger), "-n", namesrv, "--json"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    servers.running["verify"] = run

    def lines() -> int:
        return ledger.read_bytes().count(b"\n") if ledger.exists() else 0

    servers.until("acknowledgements", lambda: lines() > 100)
    (leader,) = [name for name, address in brokers.items() if address == master]
    servers.running[leader].send_signal(signal.SIGKILL)
    before = lines()
    servers.until("acknowledgements of another one", lambda: lines() > before + 100)
    run.send_signal(signal.SIGINT)
    told = json.loads(run.communicate(timeout=DEADLINE_S)[0])
    assert told["kept"] and told["acknowledged"] == lines() - 1, told
    (switch,) = [one for one in told["outages"] if one["newMaster"] != one["oldMaster"]]
    assert switch["oldMaster"] == master and switch["newMaster"] in set(brokers.values()) - {master}
    assert switch["newEpoch"] > switch["oldEpoch"] >= 0, "terms of the group"
    parts = {part["name"]: part for part in switch["parts"]}
    assert list(parts) == ["detection", "election", "role change", "route", "first acknowledgement"]
    assert parts["detection"]["seen"] and "is in term" in parts["detection"]["what"]
    assert parts["election"]["seen"] and f"leads term {switch['newEpoch']}" in parts["election"]["what"]
    for name, what in (("role change", "MASTER"), ("route", switch["newMaster"])):  # or not seen
        assert not parts[name]["seen"] or what in parts[name]["what"], parts[name]
    assert abs(sum(part["ms"] for part in switch["parts"]) - switch["lengthMs"]) < 0.1
