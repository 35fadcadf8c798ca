"""Members of both kinds in one Raft group: each leads in turn, is killed and comes back, and the logs are the same.

Appends are numbered; after each kill, and at the end, nothing that was acknowledged is missing.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import ways
from parts import newer_dledger

from perseid.testing.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(1200, 3600), func_only=True)]

NEWER = "newer"
"""Java's DLedger 0.3.3.4."""
GROUPS = {
    "java_java_perseid": ("java", "java", "perseid"),
    "java_perseid_perseid": ("java", "perseid", "perseid"),
    "perseid_perseid_perseid": ("perseid", "perseid", "perseid"),
    "java_newer_perseid": ("java", NEWER, "perseid"),
}
METADATA, APPEND, GET, TRANSFER = 50000, 50001, 50002, 51005
SUCCESS = 200
DATA_BYTES, INDEX_BYTES = 1 << 20, 32 * 100_000
COUNT = rig.many(5_000, 50_000)
"""Appends of one test."""


class Member:
    """One member as a process."""

    def __init__(self, group: Group, number: int, impl: str) -> None:
        self.group, self.name, self.impl = group, f"n{number}", impl
        self.port = group.ports[number]
        peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(group.ports))
        self.folder = group.folder / self.name
        self.process = rig.Process(
            "dledger",
            "java" if impl == NEWER else impl,
            self.folder,
            {
                "listenPort": self.port, "group": "g", "selfId": self.name, "peers": peers,
                "storeBaseDir": self.folder / "store", "mappedFileSizeForEntryData": DATA_BYTES,
                "mappedFileSizeForEntryIndex": INDEX_BYTES, "heartBeatTimeIntervalMs": 300,
                "minVoteIntervalMs": 100, "maxVoteIntervalMs": 400,
            },
        )  # fmt: skip
        if impl == NEWER:
            self.process.ahead = (newer_dledger(),)

    def call(self, code: int, **body: Any) -> dict[str, Any]:
        message = {"code": SUCCESS, "group": "g", "remoteId": self.name, **body}
        answer = rig.call(self.process.address, code, {}, json.dumps(message).encode(), timeout=5)
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def entries(self) -> list[tuple[int, int, int, bytes]]:
        """(index, term, pos, body) of all that stands in the data files."""
        files = sorted((self.folder / "store" / f"dledger-{self.name}" / "data").iterdir())
        data = b"".join(file.read_bytes() for file in files)
        found, at = [], 0
        while at + 48 <= len(data):
            magic, size, index, term, pos, _, _, _, body = struct.unpack_from(">iiqqqiiii", data, at)
            if magic == 1 and size == body + 48 and index == len(found):
                found.append((index, term, pos, data[at + 48 : at + size]))
            elif magic != -1 or size <= 0:
                break
            at += size
        return found


class Group:
    """Three members."""

    def __init__(self, folder: Path, kinds: tuple[str, ...]) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in kinds]
        self.members = [Member(self, number, impl) for number, impl in enumerate(kinds)]
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0

    def start(self) -> None:
        for member in self.members:
            member.process.start()

    def kill(self) -> None:
        for member in self.members:
            if member.process.running:
                member.process.kill()

    def leader(self) -> Member | None:
        """Who says of itself that it leads."""
        for member in self.members:
            if member.process.running:
                try:
                    if member.call(METADATA).get("leaderId") == member.name:
                        return member
                except OSError:
                    continue
        return None

    def append(self, count: int, seconds: float = 60) -> None:
        """Append numbered bodies, trying again until each is acknowledged."""
        wanted = len(self.acknowledged) + count
        leader: Member | None = None

        def step() -> bool:
            nonlocal leader
            leader = leader or self.leader()
            while leader is not None and len(self.acknowledged) < wanted:
                self.sent += 1
                body = f"m{self.sent}".encode()
                try:
                    answer = leader.call(APPEND, body=base64.b64encode(body).decode())
                except OSError:
                    leader = None
                    break
                if answer["code"] != SUCCESS:
                    leader = None
                    break
                assert answer["index"] not in self.acknowledged
                self.acknowledged[answer["index"]] = body
            return len(self.acknowledged) >= wanted

        rig.until(f"{count} appends are acknowledged", step, seconds)

    def lead(self, wanted: Member) -> None:
        """Let a member lead: the leader is asked to hand over to it."""

        def leads() -> bool:
            leader = self.leader()
            if leader is None or leader is wanted:
                return leader is wanted
            term = leader.call(APPEND, body="bGVhZA==")["term"]
            leader.call(TRANSFER, term=term, transferId=leader.name, transfereeId=wanted.name)
            return self.leader() is wanted

        rig.until(f"{wanted.name} leads", leads, 60)

    def caught_up(self) -> bool:
        """Have all the same entries?"""
        logs = [member.entries() for member in self.members]
        return len(logs[0]) > max(self.acknowledged) and logs[0] == logs[1] == logs[2]


@pytest.fixture(params=ways.in_ci(GROUPS, "java_newer_perseid"))
def group(request: pytest.FixtureRequest, workshop: Path, name: str) -> Iterator[Group]:
    made = Group(workshop / f"group-{name}", request.param)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.mark.long
def test_each_member_leads_is_killed_and_comes_back(group: Group) -> None:
    rig.until("a leader", group.leader, 30)
    for member in group.members:
        group.lead(member)
        group.append(COUNT // 3, rig.many(90, 400))
        member.process.kill()
        group.append(20)
        member.process.start()
        group.append(20)
    rig.until("all logs are the same", group.caught_up, 30)
    entries = group.members[0].entries()
    for index, body in group.acknowledged.items():
        assert entries[index][3] == body, f"entry {index} was acknowledged as {body!r}"
    leader = rig.until("a leader", group.leader, 30)
    last = max(group.acknowledged)
    answer = leader.call(GET, beginIndex=last)
    assert base64.b64decode(answer["entries"][0]["body"]) == group.acknowledged[last]
