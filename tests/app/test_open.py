"""What a server says at its start that whoever reaches it may use: one line, and none where nobody else does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perseid.app import access, broker, controller, namesrv, process
from perseid.app import tls as tls_app
from pki import files

KEYS = (
    "authenticationEnabled=true\n"
    'innerClientAuthenticationCredentials={"accessKey":"nodes","secretKey":"s"}\n'
    'initAuthenticationUser={"username":"root","password":"s"}\n'
)
MUTUAL = "tls.server.authClient=true\ntls.server.need.client.auth=require\ntls.client.authServer=true\n" + "".join(
    f"tls.{key}={files().path(name)}\n"
    for key, name in {
        "server.certPath": "server.pem", "server.keyPath": "server.key", "server.trustCertPath": "ca.pem",
        "client.certPath": "client.pem", "client.keyPath": "client.key", "client.trustCertPath": "ca.pem",
    }.items()
)  # fmt: skip
ALONE = MUTUAL + "tls.server.mode=enforcing\n"
OPEN = "may read, write and administer", "may say which brokers there are"
HA = ("may copy all messages",)


def start(role: str, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a start but for the sockets."""

    async def served(*_: object) -> int:
        return 0

    monkeypatch.setattr(process, "serve", served)
    monkeypatch.setenv("HOME", str(folder))
    path = folder / "server.conf"
    (folder / "key").write_text("5a" * 32)
    (folder / "key").chmod(0o600)
    if role == "broker":
        path.write_text(f"{text}storePathRootDir={folder}/store\nauthSecretKeyFile={folder}/key\nbrokerIP1=127.0.0.1\n")
        asyncio.run(broker.serve(broker.load(path)))
    elif role == "controller":
        peers = "controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:9877\ncontrollerDLegerSelfId=n0\n"
        path.write_text(text + peers)
        asyncio.run(controller.serve(controller.load(path)))
    else:
        path.write_text(text)
        settings = process.read_settings(path)
        tls, members = tls_app.load(settings), access.load_members(settings)
        asyncio.run(namesrv.serve(path, namesrv.load(path), None, tls, members))


@pytest.mark.parametrize("role", ["namesrv", "broker", "controller"])
@pytest.mark.parametrize(
    ("text", "open_to_all"),
    [
        ("", True),
        ("bindAddress=0.0.0.0\n", True),
        ("bindAddress=127.0.0.1\n", False),
        (KEYS, False),
        (ALONE, False),
        (ALONE + "haTls=true\n", False),
        (MUTUAL, True),
        (ALONE.replace("=require", "=optional"), True),
    ],
    ids=["usual", "all", "loopback", "users", "certificates", "and of slaves", "or in the clear", "or without one"],
)
def test_an_open_server_says_so_in_one_line(
    role: str, text: str, open_to_all: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    start(role, tmp_path, text, monkeypatch)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    found = [line for line in said if any(words in line for words in OPEN)]
    assert len(found) == open_to_all, said
    for line in found:
        assert "authenticationEnabled=true" in line and "bindAddress=127.0.0.1" in line
    copies = [line for line in said if any(words in line for words in HA)]
    assert len(copies) == (role == "broker" and text in (KEYS, ALONE)), said
    assert len(said) == len(found) + len(copies), said
