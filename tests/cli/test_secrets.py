"""Planted secrets: a broker with users lives a whole life, and nothing that was written or said has one in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.badinput.rig import Process
from tests.cli.test_servers import SMALL

from perseid.client import ClientError, Credentials, Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.testing.ports import free_port
from perseid.wire.users import PolicyEntryInfo, PolicyInfo

ROOT, NODES, ALICE, LATER = "planted-root-1f", "planted-nodes-2e", "planted-alice-3d", "planted-later-4c"
SECRETS = (ROOT, NODES, ALICE, LATER)
COMMAND = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
DEADLINE = 60


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of what was given, in which the secrets may stand, and that of what is made of it."""
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    (given / "key").write_text("5a" * 32)
    (given / "key").chmod(0o600)
    return given, made


def conf(given: Path, made: Path, port: int) -> Path:
    path = given / "broker.conf"
    path.write_text(
        f"brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort={port}\nbindAddress=127.0.0.1\n"
        f"storePathRootDir={made / 'store'}\n"
        f"authenticationEnabled=true\nauthorizationEnabled=true\nauthSecretKeyFile={given / 'key'}\n"
        f"initAuthenticationUser={json.dumps({'username': 'root', 'password': ROOT})}\n"
        f"innerClientAuthenticationCredentials={json.dumps({'accessKey': 'nodes', 'secretKey': NODES})}\n{SMALL}"
    )
    return path


def use(names: str, broker: str) -> None:
    """What users and operators do, and what is refused of it."""
    root, alice = Credentials("root", ROOT), Credentials("alice", ALICE)
    with BlockingAdmin(names, credentials=root) as admin:
        admin.create_user("alice", ALICE, broker)
        admin.update_user("alice", broker, password=LATER)
        admin.update_user("alice", broker, password=ALICE)
        admin.create_acl("alice", [PolicyInfo(None, [PolicyEntryInfo("Topic:t", ["Pub"], None, "Allow")])], broker)
        with pytest.raises(ClientError):
            admin.create_user("alice", ALICE, broker)
        told = repr((admin.users(broker), admin.user("alice", broker), admin.acls(broker)))
        assert not [secret for secret in SECRETS if secret in told]
    for key in (alice, Credentials("alice", "wrong"), Credentials(ALICE[::-1], "wrong")):
        with BlockingProducer(names, credentials=key) as producer:
            try:
                producer.send(Message("t", b"a message in the clear"))
            except ClientError as error:
                assert not [secret for secret in SECRETS if secret in str(error)]


def test_nothing_that_a_broker_writes_or_says_has_a_secret_in_it(places: tuple[Path, Path]) -> None:
    given, made = places
    names_port, port = free_port(), free_port((0, -2, 1))
    (given / "names.conf").write_text(f"listenPort={names_port}\nbindAddress=127.0.0.1\n")
    path = conf(given, made, port)
    shown = subprocess.run([*COMMAND, "broker", "-c", path, "-p"], capture_output=True, timeout=DEADLINE, check=True)
    assert b"authenticationEnabled=true" in shown.stdout
    (made / "shown").write_bytes(shown.stdout + shown.stderr)
    for number, wrong in enumerate((f'initAuthenticationUser={{"username":"{ROOT}"', "authSecretKeyFile=/none/such")):
        bad = given / f"wrong{number}.conf"
        bad.write_text(path.read_text() + wrong + "\n")
        said = subprocess.run([*COMMAND, "broker", "-c", bad], capture_output=True, timeout=DEADLINE, check=False)
        assert said.returncode == 1 and wrong.partition("=")[0].encode() in said.stderr
        (made / f"wrong{number}").write_bytes(said.stdout + said.stderr)
    with Process("namesrv", "-c", str(given / "names.conf"), home=made) as namesrv:
        namesrv.line()
        (made / "b").mkdir()
        for _ in range(2):  # it starts on what it stored, too
            with Process("broker", "-c", str(path), "-n", f"127.0.0.1:{names_port}", home=made / "b") as broker:
                broker.line()
                if not (made / "used").exists():
                    use(f"127.0.0.1:{names_port}", f"127.0.0.1:{port}")
                    (made / "used").touch()
                assert broker.end() == 0
        namesrv.end()
    files = [file for file in made.rglob("*") if file.is_file()]
    assert [file for file in files if file.name == "users.json"]
    (audit,) = (file.read_bytes() for file in files if file.name == "audit.log")
    assert b"AUTH_CREATE_USER" in audit and b"check signature failed" in audit and b"Signature" not in audit
    found = [(file, secret) for file in files for secret in SECRETS if secret.encode() in file.read_bytes()]
    assert not found, found
    assert [file for file in files if b"a message in the clear" in file.read_bytes()], "it looks where things are"
