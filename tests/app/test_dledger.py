"""A member of a Raft group as a process: whom it answers where requests have to be signed."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from perseid.app import access, dledger, process
from perseid.app.tls import ProcessTls
from perseid.client.dledger import DLedgerClient
from perseid.client.errors import ClientError
from perseid.security.credentials import Credentials
from perseid.security.members import members_of
from perseid.security.tls_settings import DEFAULT
from perseid.testing.ports import free_port

NODES = Credentials("nodes", "planted-secret")
STRANGERS = [None, Credentials("nodes", "a guess"), Credentials("mallory", "x")]
DEADLINE_S = 30


def test_a_group_with_users_answers_its_own_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    peers = f"n0-127.0.0.1:{free_port()}"
    inner = json.dumps({"accessKey": NODES.access_key, "secretKey": NODES.secret_key})
    conf = tmp_path / "member.conf"
    conf.write_text(
        f"group=g\nselfId=n0\npeers={peers}\nstoreBaseDir={tmp_path}\nmappedFileSizeForEntryData=1048576\n"
        f"authenticationEnabled=true\ninnerClientAuthenticationCredentials={inner}\n"
    )
    own, raft = dledger.load(conf)
    members = members_of(access.load_members(process.read_settings(conf)))

    async def refused(by: Credentials | None) -> bool:
        async with DLedgerClient(peers, group="g", credentials=by) as log:
            (told,) = (await log.status()).values()
            with pytest.raises(ClientError):
                await log.append(b"of a stranger", timeout_ms=300)
            return told.role == "unreachable" and told.term is None

    async def main() -> None:
        running = dledger.driver(own, raft, ProcessTls(DEFAULT), members)
        await running.start()
        try:
            async with asyncio.timeout(DEADLINE_S), DLedgerClient(peers, group="g", credentials=NODES) as log:
                first = await log.append(b"of a member")
                assert [await refused(by) for by in STRANGERS] == [True] * len(STRANGERS)
                second = await log.append(b"of a member, again")
                assert second.index == first.index + 1 and await log.get(first.index) == b"of a member"
        finally:
            assert await running.stop() == ""

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert "is refused, and its connection closed: username cannot be null." in caplog.text
    assert "unknown settings" not in caplog.text and NODES.secret_key not in caplog.text
