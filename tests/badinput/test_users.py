"""Files of users that are torn, or of another key than a broker has: it does not start, and says why in a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from perseid.broker.access.tables import ACLS_PATH, USERS_PATH
from perseid.client import Credentials
from perseid.client.blocking import BlockingAdmin
from perseid.testing.ports import free_port
from perseid.wire.users import PolicyEntryInfo, PolicyInfo

from .rig import Process, config_file

ROOT = Credentials("root", "root-secret")


def settings(folder: Path, key: str) -> Path:
    """Of a broker with users."""
    path = folder / "key"
    path.write_text(key * 64)
    path.chmod(0o600)
    return config_file(folder, [
        f"listenPort={free_port((0, -2, 1))}", "authenticationEnabled=true", "authorizationEnabled=true",
        f"authSecretKeyFile={path}", 'initAuthenticationUser={"username":"root","password":"root-secret"}',
    ])  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker with two users and a policy, which has ended."""
    home = tmp_path_factory.mktemp("users")
    path = settings(home, "5")
    with Process("broker", "-c", str(path), home=home) as broker:
        broker.line()
        at = next(line for line in path.read_text().splitlines() if line.startswith("listenPort="))
        address = f"127.0.0.1:{at.partition('=')[2]}"
        with BlockingAdmin(address, credentials=ROOT) as admin:
            admin.create_user("alice", "alice-secret", address)
            admin.create_acl("alice", [PolicyInfo(None, [PolicyEntryInfo("Topic:t", ["Pub"], None, "Allow")])], address)
        assert broker.end() == 0
    return home


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped / "store", tmp_path / "store")
    return tmp_path


def refused(folder: Path, key: str = "5") -> str:
    """What a broker says that does not start; it leaves the files as they are."""
    files = [folder / "store" / path for path in (USERS_PATH, ACLS_PATH)]
    before = [file.read_bytes() for file in files]
    with Process("broker", "-c", str(settings(folder, key)), home=folder) as broker:
        said = broker.refused()
    assert [file.read_bytes() for file in files] == before
    assert "root-secret" not in said and "alice-secret" not in said
    return said


def half(text: bytes) -> bytes:
    return text[: len(text) // 2]


TEARS: dict[str, Callable[[bytes], bytes]] = {
    "half of it": half,
    "zeros at its end": lambda text: half(text) + bytes(len(text) - len(half(text))),
    "zeros alone": lambda text: bytes(len(text)),
    "nothing": lambda text: b"",
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_users_file_that_is_torn(folder: Path, tear: str) -> None:
    path = folder / "store" / USERS_PATH
    path.write_bytes(TEARS[tear](path.read_bytes()))
    assert f"{USERS_PATH} can't be taken up: " in (said := refused(folder)) and "repair it, or remove it" in said


def test_a_file_of_policies_that_is_torn(folder: Path) -> None:
    path = folder / "store" / ACLS_PATH
    path.write_bytes(half(path.read_bytes()))
    assert f"{ACLS_PATH} can't be taken up: " in (said := refused(folder)) and "repair it, or remove it" in said


def test_a_users_file_that_was_written_with_another_key(folder: Path) -> None:
    said = refused(folder, "6")
    assert f"{USERS_PATH}: the secret of user " in said
    assert "can't be decrypted: it was stored with another key than that of authSecretKeyFile" in said


def test_secrets_that_changed_places_in_the_users_file(folder: Path) -> None:
    """Each is bound to its user's name: nobody gets another one's by editing the file."""
    path = folder / "store" / USERS_PATH
    rows = json.loads(path.read_text())
    rows[0]["sealed"], rows[1]["sealed"] = rows[1]["sealed"], rows[0]["sealed"]
    path.write_text(json.dumps(rows))
    assert f"{USERS_PATH}: the secret of user alice can't be decrypted" in (said := refused(folder))
    assert "or the file was changed" in said


def test_it_starts_when_the_file_is_whole_and_the_key_the_right_one(folder: Path) -> None:
    path = settings(folder, "5")
    with Process("broker", "-c", str(path), home=folder) as broker:
        broker.line()
        assert broker.end() == 0
