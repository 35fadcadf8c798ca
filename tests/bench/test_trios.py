"""Groups of brokers on DLedger in `make bench`: their configuration, and who is taken for their leader."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import members
from members import distinct_ports
from servers import CORE, JAVA, TUNED, UNSYNCED, BenchError, perseid_command
from trios import Trio, master_in, timing_of


def trio(tmp_path: Path, **conf: object) -> Trio:
    return Trio(CORE, perseid_command, {}, tmp_path, conf)


def test_ports_are_not_near_each_other() -> None:
    drawn = iter([100, 102, 98, 101, 200, 199, 300])

    def draw(span: Sequence[int]) -> int:
        return next(drawn)

    assert distinct_ports([(0, -2, 1), (0, -2, 1), (0,)], draw) == [100, 200, 199]
    assert list(drawn) == [300]


def test_the_members_of_a_group_differ_in_what_is_their_own_only(tmp_path: Path) -> None:
    group = trio(tmp_path, flushDiskType="ASYNC_FLUSH", syncBeforeAnswer="false")
    confs = [group.node_conf(number) for number in group.members]
    own = {"listenPort", "dLegerSelfId", "storePathRootDir", "storePathCommitLog"}
    assert [{k: v for k, v in conf.items() if k not in own} for conf in confs].count(
        {k: v for k, v in confs[0].items() if k not in own}
    ) == 3
    assert all(len({str(conf[key]) for conf in confs}) == 3 for key in own)
    first = confs[0]
    assert first["enableDLegerCommitLog"] == "true" and first["syncBeforeAnswer"] == "false"
    assert first["dLegerGroup"] == first["brokerName"]
    assert [peer.partition("-")[0] for peer in str(first["dLegerPeers"]).split(";")] == ["n0", "n1", "n2"]
    assert not {"brokerId", "brokerRole"} & first.keys()
    assert len({*group.node_ports, *group.peer_ports, group.namesrv_port}) == 7


def test_what_is_asked_of_perseid_is_not_asked_of_java() -> None:
    assert timing_of(JAVA) == {}
    assert timing_of(CORE) == {"syncBeforeAnswer": "true"} and timing_of(UNSYNCED) == {"syncBeforeAnswer": "false"}
    assert timing_of(TUNED).keys() > timing_of(CORE).keys()


@pytest.mark.parametrize(
    ("addresses", "port"),
    [
        (b'{0:"127.0.0.1:11000",2:"127.0.0.1:12000"}', 11000),
        (b'{"2":"127.0.0.1:12000", "0":"127.0.0.1:11000"}', 11000),
        (b'{1:"127.0.0.1:11000"}', None),
        (b"{}", None),
    ],
)
def test_the_master_in_the_table_of_a_name_server_of_either_kind(addresses: bytes, port: int | None) -> None:
    body = b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":%s,"brokerName":"broker-a"}},"clusterAddrTable":{}}'
    assert master_in(body % addresses) == port
    assert master_in(b'{"brokerAddrTable":{}}') is None


class Scripted(Trio):
    """Whose leader is the next of a script at each look; three looks are as long as one has to stay."""

    script: Iterator[int | None]

    def _leads(self) -> int | None:
        return next(self.script)

    def _log(self, role: str) -> str:
        return ""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += members.Members.steady_s / 3


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(members, "time", Clock())
    return Scripted(CORE, perseid_command, {}, tmp_path, {})


def test_a_leader_counts_when_it_has_stayed(scripted: Scripted) -> None:
    scripted.script = iter([None, 0, None, 1, 1, 2, 2, 2, 0, 0])
    scripted.settle()
    assert scripted.leader == 2 and scripted.ports == [scripted.node_ports[2]]
    assert next(scripted.script) == 0, "it was believed too early or too late"


def test_a_group_that_stays_without_a_leader_ends_the_run(scripted: Scripted) -> None:
    scripted.script = (number % 2 for number in range(1000))
    with pytest.raises(BenchError, match="no leader"):
        scripted.settle()
