"""`perseid admin users` and `perseid admin acl` on a broker that asks for keys."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rig
from secured import SUPER

from perseid.client import Credentials

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security")]

DEADLINE_SECONDS = 60


def _file(folder: Path, who: Credentials) -> Path:
    file = folder / who.access_key
    file.write_text(f"accessKey: {who.access_key}\nsecretKey: {who.secret_key}\n")
    file.chmod(0o600)
    return file


def _command(
    cluster: rig.Cluster, who: Path | None, *words: str, given: str = ""
) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PERSEID_CREDENTIALS": str(who or ""), "NAMESRV_ADDR": cluster.namesrv}
    done = subprocess.run(
        [sys.executable, "-m", "perseid.cli.main", *words],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert not any(secret in done.stdout + done.stderr for secret in (SUPER.secret_key, "first-secret", "second-"))
    return done


def _read(cluster: rig.Cluster, who: Path, *words: str) -> Any:
    done = _command(cluster, who, "admin", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_user_from_its_creation_to_its_end(secured_cluster: rig.Cluster, name: str, tmp_path: Path) -> None:
    root = _file(tmp_path, SUPER)
    first, second = (_file(folder, Credentials(name, f"{folder.name}-secret")) for folder in _folders(tmp_path))

    def done(*words: str, given: str = "") -> str:
        found = _command(secured_cluster, root, "admin", *words, given=given)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def may(who: Path | None) -> str:
        return _command(secured_cluster, who, "admin", "users", "list", "-b", secured_cluster.broker).stderr

    done("users", "create", name, "--password-file", "-", given="first-secret\n")
    again = _command(secured_cluster, root, "admin", "users", "create", name, "--password-file", "-", given="x")
    assert again.returncode == 1 and "perseid admin users update NAME" in again.stderr
    (row,) = _read(secured_cluster, root, "users", "get", name)
    assert (row["type"], row["status"]) == ("Normal", "enable")
    assert row["brokers"] == [secured_cluster.broker]
    assert "no matched policies" in may(first) and "who you are" in may(None)
    assert "the key is not that user's" in may(second)
    done("acl", "create", name, "-r", "Cluster:*", "-a", "Get,List", "-i", "127.0.0.0/8")
    assert may(first) == ""
    done("acl", "update", name, "-r", "Cluster:*", "-a", "All", "--deny")
    assert "the decision is deny" in may(first)
    (acl,) = _read(secured_cluster, root, "acl", "list", "--user", name)
    assert acl["policies"] == [
        {"policy": "Custom", "resource": "Cluster:*", "actions": ["All"], "decision": "Deny", "sourceIps": []}
    ]
    done("acl", "delete", name, "-r", "Cluster:*", "--yes")
    nothing = _command(secured_cluster, root, "admin", "acl", "get", name)
    assert nothing.returncode == 1 and "has no policies" in nothing.stderr
    done("users", "update", name, "--super", "--password-file", "-", given="second-secret\n")
    assert may(second) == ""
    done("users", "update", name, "--disable")
    assert f"User:{name} is disabled" in may(second)
    done("users", "delete", name, "--yes")
    gone = _command(secured_cluster, root, "admin", "users", "delete", name, "--yes")
    assert gone.returncode == 1 and f"there is no user called {name}" in gone.stderr


def test_accounts_of_acl_1_become_users(secured_cluster: rig.Cluster, name: str, tmp_path: Path) -> None:
    root, file = _file(tmp_path, SUPER), tmp_path / "plain_acl.yml"
    account = f"- accessKey: {name}\n  secretKey: first-secret\n  defaultTopicPerm: SUB\n  topicPerms: [t=PUB]\n"
    file.write_text(f"accounts:\n{account}")
    for what in ("created", "was there"):
        done = _command(secured_cluster, root, "admin", "acl", "import", str(file), "--apply")
        assert (done.returncode, done.stdout) == (0, f"{secured_cluster.broker}: {name} {what}\n"), done.stderr
    for resource, action, may in (("t", "Pub", True), ("t", "Sub", False), ("u", "Sub", True), ("u", "Pub", False)):
        words = ["acl", "explain", name, "-r", f"Topic:{resource}", "-a", action]
        done = _command(secured_cluster, root, "admin", *words)
        assert done.returncode == (0 if may else 1), done.stdout + done.stderr
    assert _command(secured_cluster, root, "admin", "users", "delete", name, "--yes").returncode == 0


def _folders(folder: Path) -> list[Path]:
    made = [folder / "first", folder / "second"]
    for one in made:
        one.mkdir()
    return made
