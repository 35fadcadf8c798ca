"""`perseid up --secure`: stock clients connect with what it made and said, mqadmin too; nobody else does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import rig

from perseid.client import read_credentials

pytestmark = pytest.mark.interop

COMMAND = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
COUNT = 5


@dataclass
class Up:
    """What it says of itself."""

    namesrv: str
    broker: str
    security: dict[str, str]

    def client(self, agent: rig.Agent) -> rig.Client:
        folder = Path(self.security["ca"]).parents[1]
        names, broker = rig.namesrv("perseid", folder / "n"), rig.broker("perseid", folder / "b", self.namesrv)
        cluster = rig.Cluster("up", self.namesrv, self.broker, "broker-a", folder, names, broker, "DefaultCluster")
        return rig.Client(agent, cluster)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("up")
    words = ["up", "--secure", "--data", str(home / "data"), "--namesrv-port", "0", "--broker-port", "0", "--json"]
    with open(home / "stderr", "wb") as stderr:
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    yield Up(told["namesrv"], told["broker"], told["security"])
    process.terminate()
    assert process.wait(rig.START_SECONDS) == 0


def test_java_clients_with_what_it_made(up: Up, workshop: Path) -> None:
    folder = workshop / "agent-up-secured"
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "tools.yml").write_bytes(Path(up.security["credentials"]).read_bytes())
    agent = rig.java_agent(folder, "-Dtls.enable=true", f"-Dtls.config.file={up.security['java']}")
    user = read_credentials(up.security["credentials"])
    keys = [user.access_key, user.secret_key]
    client = up.client(agent)
    try:
        client("admin", call="createTopic", args=["TBW102", "java", 2, {}], keys=keys)
        messages = [{"topic": "java", "body": f"m{number}"} for number in range(COUNT)]
        sent = client("send", messages=messages, keys=keys)
        assert [one["status"] for one in sent] == ["SEND_OK"] * COUNT
        got = client.consume("java", "readers", COUNT, keys=keys)
        assert sorted(one["body"] for one in got) == [one["body"] for one in messages]
        with pytest.raises(rig.AgentError) as no:
            client("admin", call="createTopic", args=["TBW102", "stranger", 2, {}])
        assert no.value.code == 16
        shown = client.mqadmin("listUser", "-b", up.broker)
        assert "admin" in shown and "nodes" in shown, shown
        client.close()
    finally:
        agent.stop()


def test_java_clients_without_it(up: Up, workshop: Path) -> None:
    agent = rig.java_agent(workshop / "agent-up-plain")
    try:
        with pytest.raises(rig.AgentError):
            up.client(agent)("admin", call="createTopic", args=["TBW102", "stranger", 2, {}])
    finally:
        agent.stop()
