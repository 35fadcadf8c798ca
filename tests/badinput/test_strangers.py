"""Strangers at the ports of three controllers, and of three brokers of a DLedger group, as processes: they speak as
members, with terms that nobody could have. Members have host names; the stranger's machine is another loopback one."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
from tests.combinations import at_each_change

from perseid.wire.dledger import (
    AppendEntryRequest,
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatRequest,
    LeadershipTransferRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    Push,
    PushEntryRequest,
    VoteRequest,
)

from .rig import SMALL, Peer, Process

HOST = "127.1"
"""127.0.0.1, as a name that the system's resolver has to look up."""
STRANGER, MEMBER = "127.0.0.9", "127.0.0.1"
LAST = (1 << 63) - 1
IDS = ("n0", "n1", "n2")
TRIES = 600


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((MEMBER, 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Three:
    """Three processes of a group named `g`."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack, more: str = "") -> None:
        ports = free_ports(3)
        self.kind, self.folder = kind, folder
        self.at = {name: f"{MEMBER}:{port}" for name, port in zip(IDS, ports, strict=True)}
        peers = ";".join(f"{name}-{HOST}:{port}" for name, port in zip(IDS, ports, strict=True))
        self.processes: dict[str, Process] = {}
        for name in IDS:
            home = folder / name
            home.mkdir()
            (home / "conf").write_text(self._conf(name, peers, home) + more)
            self.processes[name] = stack.enter_context(Process(kind, "-c", str(home / "conf"), home=home))
        for process in self.processes.values():
            process.line()

    def _conf(self, name: str, peers: str, home: Path) -> str:
        timing = "heartBeatTimeIntervalMs=300\n"
        if self.kind == "controller":
            return timing + (
                f"controllerDLegerGroup=g\ncontrollerDLegerPeers={peers}\ncontrollerDLegerSelfId={name}\n"
                f"controllerStorePath={home}/store\nconfigStorePath={home}/store/kept\nmappedFileSize=1048576\n"
            )
        small = "".join(f"{key}={value}\n" for key, value in SMALL.items())
        (port,) = free_ports(1)
        return timing + small + (
            f"brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort={port}\nhaListenPort=0\nstorePathRootDir={home}/store\n"
            f"enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers={peers}\ndLegerSelfId={name}\n"
        )  # fmt: skip

    def status(self, name: str) -> MetadataResponse:
        with Peer(self.at[name]) as peer:
            request = MetadataRequest(group="g", remote_id=name, wants_status=True)
            return MetadataResponse.from_json(peer.call(DLedgerRequest.METADATA, None, request.to_json()).body)

    def leader(self) -> str:
        """When all processes that run agree on one that runs."""
        running = [name for name, one in self.processes.items() if one.process.poll() is None]
        for _ in range(TRIES):
            found = {self.status(name).leader_id for name in running}
            if len(found) == 1 and found <= set(running):
                return str(found.pop())
            Event().wait(0.05)
        raise AssertionError(f"nobody leads: {self.logs()}")

    def terms(self) -> list[int]:
        """On their disks."""
        files = [self.folder / name / "store" / f"dledger-{name}" / "currterm" for name in IDS]
        return [int(one.read_text().split("currTerm=")[1].split()[0]) for one in files]

    def logs(self) -> str:
        return "\n".join(one.log.read_text() for one in self.processes.values())


@pytest.fixture(params=at_each_change(("controller", "broker"), "broker"))
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Three]:
    with ExitStack() as stack:
        yield Three(request.param, tmp_path, stack)


def words(speaker: str, target: str, term: int) -> list[tuple[DLedgerRequest, Message]]:
    base = {"group": "g", "remote_id": target, "local_id": speaker, "leader_id": speaker, "term": term}
    entry = Entry(index=LAST, term=term, pos=0, body=b"of a stranger")
    return [
        (DLedgerRequest.VOTE, VoteRequest(**base, ledger_end_index=LAST, ledger_end_term=term)),
        (DLedgerRequest.HEART_BEAT, HeartBeatRequest(**base)),
        (DLedgerRequest.PUSH, PushEntryRequest(**base, type=Push.APPEND, commit_index=LAST, entry=entry)),
        (DLedgerRequest.PUSH, PushEntryRequest(**base, type=Push.TRUNCATE, commit_index=LAST, entry=entry)),
        (
            DLedgerRequest.LEADERSHIP_TRANSFER,
            LeadershipTransferRequest(
                **base, transfer_id=speaker, transferee_id=target, take_leadership_ledger_index=LAST
            ),
        ),
    ]


def refusals(three: Three, source: str, terms: tuple[int, ...]) -> list[int]:
    codes = []
    for target in IDS:
        with Peer(three.at[target], source=source) as peer:
            for speaker in IDS:
                if speaker != target:
                    for term in terms:
                        for code, message in words(speaker, target, term):
                            codes.append(Message.from_json(peer.call(code, None, message.to_json()).body).code)
            append = AppendEntryRequest(group="g", remote_id=target, body=b"of a stranger")
            codes.append(Message.from_json(peer.call(DLedgerRequest.APPEND, None, append.to_json()).body).code)
    return codes


def test_three_processes_go_on_whatever_a_stranger_says(three: Three) -> None:
    """Also with terms that a member might have; and from a member's own machine with those that none might. Then the
    leader is killed, and the two others elect another one."""
    first = three.leader()
    before = max(three.terms())
    near = tuple(range(before, before + 3))
    assert set(refusals(three, STRANGER, (LAST, LAST - 1, 1 << 62, *near))) == {Code.UNKNOWN_MEMBER}
    assert set(refusals(three, MEMBER, (LAST, LAST - 1, 1 << 62))) == {Code.UNKNOWN_MEMBER}
    assert three.leader() == first and three.terms() == [before] * 3, "no election was needed"
    assert f"{STRANGER}" in three.logs() and "is refused" in three.logs()
    assert "checkPeerAddresses=false:" not in three.logs(), "nobody said that the port is open"
    three.processes[first].end(9)
    assert three.leader() != first and before < max(three.terms()) < before + 100


@pytest.mark.slow
def test_a_port_that_is_open_says_so_at_the_start(tmp_path: Path) -> None:
    with ExitStack() as stack:
        three = Three("controller", tmp_path, stack, "checkPeerAddresses=false\n")
        three.leader()
        assert all("checkPeerAddresses=false: whoever reaches this port" in one.log.read_text()
                   for one in three.processes.values())  # fmt: skip
        answers = refusals(three, STRANGER, (LAST,))
        assert set(answers) == {Code.UNKNOWN_MEMBER} and max(three.terms()) < 100, "the step is held all the same"
