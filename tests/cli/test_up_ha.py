"""`perseid up --ha`: a cluster whose master is killed goes on, and loses nothing; with the real commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.output import Output

from perseid.app import ha
from perseid.base.errors import ConfigError
from perseid.client import read_credentials

pytestmark = pytest.mark.timeout(600)
DEADLINE = 240.0
PERSEID = [sys.executable, "-c", "from perseid.cli.main import main; main()"]


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], Output]]:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [
                *PERSEID, "up", "--ha", "--replicas", "2", "--json", "--data", str(tmp_path / "data"),
                "--namesrv-port", "0", "--broker-port", "0", "--controller-port", "0", *getattr(request, "param", ()),
            ],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    output = Output(process, log)
    try:
        yield process, json.loads(output.line(DEADLINE)), output
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE)


def perseid(*args: str) -> tuple[int, str, str]:
    """Run a command to its end."""
    done = subprocess.run([*PERSEID, *args], capture_output=True, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_master_that_is_killed_is_gone_around(
    cluster: tuple[subprocess.Popen[str], dict[str, Any], Output], tmp_path: Path
) -> None:
    process, told, output = cluster
    assert told["event"] == "ready" and len(told["set"]["replicas"]) == 2
    assert [m["role"] for m in told["members"]] == [*["namesrv"] * 2, *["controller"] * 3, *["broker"] * 2]
    name_servers = [m for m in told["members"] if m["role"] == "namesrv"]
    assert told["namesrv"] == ";".join(m["address"] for m in name_servers)
    at = ("--controllers", told["controllers"], "--namesrv", told["namesrv"], "--json")
    (before,) = json.loads(perseid("admin", "sync-state-set", *at)[1])
    assert before["master_address"] == told["master"]
    ledger = tmp_path / "ledger"
    run = subprocess.Popen(
        [*PERSEID, "verify", "run", "--seconds", "0", "--ledger", str(ledger), "-n", told["namesrv"], "--json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def grows(by: int) -> None:
        pause, wanted = threading.Event(), count() + by
        for _ in range(int(DEADLINE / 0.1)):
            if count() >= wanted:
                return
            pause.wait(0.1)
        raise AssertionError(f"{count()} of {wanted} lines; {output.log.read_text()}")

    def count() -> int:
        return ledger.read_bytes().count(b"\n") if ledger.exists() else 0

    grows(50)
    os.kill(name_servers[0]["pid"], signal.SIGKILL)
    ended = {"event": "ended", "name": name_servers[0]["name"], "code": -signal.SIGKILL}
    assert json.loads(output.line(DEADLINE)) == ended
    grows(50)
    (victim,) = (m for m in told["members"] if m["address"] == told["master"])
    os.kill(victim["pid"], signal.SIGKILL)
    assert json.loads(output.line(DEADLINE)) == {"event": "ended", "name": victim["name"], "code": -signal.SIGKILL}
    grows(200)
    run.send_signal(signal.SIGINT)
    found = json.loads(run.communicate(timeout=DEADLINE)[0])
    assert found["kept"] and found["acknowledged"] > 200, found
    (switch,) = [one for one in found["outages"] if one["newMaster"] != one["oldMaster"]]
    assert switch["oldMaster"] == told["master"] and switch["newEpoch"] == before["master_epoch"] + 1
    assert abs(sum(part["ms"] for part in switch["parts"]) - switch["lengthMs"]) < 0.1
    assert next(part for part in switch["parts"] if part["name"] == "election")["seen"]
    (after,) = json.loads(perseid("admin", "sync-state-set", *at)[1])
    assert (after["master_address"], after["master_epoch"]) == (switch["newMaster"], before["master_epoch"] + 1)
    code, _, why = perseid("admin", "elect-master", "-b", "broker-a", "--to", str(before["master_id"]), *at[:2])
    assert code == 1 and "2012" in why, "who is dead can't be elected"
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0, output.log.read_text()
    for member in told["members"]:
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(member["address"].rpartition(":")[2])), 1)


def test_a_plan_has_a_file_for_each_process(tmp_path: Path) -> None:
    planned = ha.plan(tmp_path, replicas=2)
    assert planned.controllers == "127.0.0.1:9878;127.0.0.1:9868;127.0.0.1:9858"
    assert [m.address for m in planned.brokers] == ["127.0.0.1:10911", "127.0.0.1:10921"]
    assert planned.namesrv == "127.0.0.1:9876;127.0.0.1:9886"
    with pytest.raises(ConfigError, match="65536"):
        ha.plan(tmp_path, namesrv_port=65_526)
    text = planned.brokers[1].write(tmp_path).read_text()
    assert f"namesrvAddr={planned.namesrv}\n" in text
    for line in ("enableControllerMode=true", "allAckInSyncStateSet=true", "listenPort=10921"):
        assert f"{line}\n" in text
    with pytest.raises(ConfigError, match="2 or 3"):
        ha.plan(tmp_path, replicas=4)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [["--secure"]], indirect=True)
def test_a_secured_cluster_goes_on_when_its_master_is_killed(
    cluster: tuple[subprocess.Popen[str], dict[str, Any], Output],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TLS on each link, the slave's too, and requests that are signed."""
    _, told, output = cluster
    at = ("--namesrv", told["namesrv"])
    assert perseid("send", "kept", "a stranger's", *at)[0] == 1
    for what in ("ca", "cert", "key", "credentials"):
        monkeypatch.setenv(f"PERSEID_{what.upper()}", told["security"][what])
    assert perseid("send", "kept", "before", *at)[0] == 0
    code, shown, why = perseid("admin", "users", "list", "--json", *at)
    assert code == 0 and {"admin", "nodes"} <= {row["user"] for row in json.loads(shown)}, (shown, why)
    (victim,) = (m for m in told["members"] if m["address"] == told["master"])
    os.kill(victim["pid"], signal.SIGKILL)
    output.line(DEADLINE)
    for _ in range(60):
        sent = perseid("send", "kept", "after", *at)
        if sent[0] == 0:
            break
    code, shown, why = perseid("consume", "kept", *at)
    assert {"before", "after"} <= set(shown.split()), (sent, shown, why)
    secrets = [
        read_credentials(tmp_path / "data" / "security" / f"{name}.credentials").secret_key
        for name in ("admin", "nodes")
    ]
    written = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.parent.name != "security"]
    found = [path for path in written for secret in secrets if secret.encode() in path.read_bytes()]
    assert {path.parent.name for path in found} == {"conf"}, "where brokers are told, and nowhere else"
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert not [secret for secret in secrets if secret in output.log.read_text() + json.dumps(told)]
