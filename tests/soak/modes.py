"""The clusters that are soaked, one for each way of replication. In each, what is acknowledged survives each fault that
is drawn for it (`faults`): processes that die lose no page that the kernel has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .nodes import Cluster

QUICK = {
    "brokerHeartbeatInterval": 300, "controllerHeartBeatTimeoutMills": 2000, "syncControllerMetadataPeriod": 1000,
    "syncBrokerMetadataPeriod": 500, "checkSyncStateSetPeriod": 500, "haMaxTimeSlaveNotCatchup": 2000,
    "haHousekeepingInterval": 3000, "haSendHeartbeatInterval": 300, "slaveTimeout": 1000,
    "sendHeartbeatTimeoutMillis": 500, "registerNameServerPeriod": 10000,
}  # fmt: skip
ALL = ("kill", "pause", "cut", "cut one way", "clock", "slow disk", "full disk", "restart")
SPACES = ("client", "a", "b", "c")


@dataclass(frozen=True, slots=True)
class Mode:
    """How a cluster is set up, which nodes faults meet, and which faults those are."""

    name: str
    build: Callable[[Cluster], None]
    victims: tuple[str, ...]
    faults: tuple[str, ...] = ALL


def _namesrv(cluster: Cluster) -> None:
    home = cluster.home / "namesrv" / "disk"
    cluster.add(
        "namesrv", "namesrv", "client",
        {"listenPort": 9876, "kvConfigPath": home / "kv.json", "configStorePath": home / "ns.properties"},
    )  # fmt: skip


def _broker(cluster: Cluster, name: str, space: str, **settings: object) -> None:
    common = {
        "brokerName": "set", "brokerIP1": cluster.star.address[space], "listenPort": 10911,
        "namesrvAddr": cluster.namesrv, "storePathRootDir": cluster.home / name / "disk" / "store",
        "cleanFileForciblyEnable": "false",  # a full disk takes no messages; it would take old ones away
    }  # fmt: skip
    cluster.add(name, "broker", space, {**common, **settings})


def _alone(cluster: Cluster) -> None:
    _namesrv(cluster)
    _broker(cluster, "broker", "a", flushDiskType="SYNC_FLUSH")


def _classic(cluster: Cluster) -> None:
    _namesrv(cluster)
    quick = {"haHousekeepingInterval": 3000, "haSendHeartbeatInterval": 500, "slaveTimeout": 1000}
    _broker(cluster, "master", "a", brokerRole="SYNC_MASTER", inSyncReplicas=2, flushDiskType="SYNC_FLUSH", **quick)
    _broker(cluster, "slave", "b", brokerRole="SLAVE", brokerId=1, flushDiskType="SYNC_FLUSH", **quick)


def _controller(cluster: Cluster) -> None:
    _namesrv(cluster)
    ports = dict(zip("abc", (9878, 9868, 9858), strict=True))
    peers = ";".join(f"n{n}-{cluster.star.address[space]}:{ports[space]}" for n, space in enumerate(ports))
    addresses = ";".join(f"{cluster.star.address[space]}:{port}" for space, port in ports.items())
    for space in ports:
        home = cluster.home / f"controller-{space}" / "disk"
        cluster.add(
            f"controller-{space}", "controller", space,
            {
                "controllerDLegerGroup": "g", "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{'abc'.index(space)}",
                "controllerStorePath": home / "store", "mappedFileSize": 1 << 20,
                "configStorePath": home / "controller.properties",
            },
        )  # fmt: skip
    for space in ports:
        _broker(
            cluster, f"broker-{space}", space, enableControllerMode="true", controllerAddr=addresses,
            allAckInSyncStateSet="true", flushDiskType="SYNC_FLUSH", **QUICK,
        )  # fmt: skip


def _dledger(cluster: Cluster) -> None:
    _namesrv(cluster)
    peers = ";".join(f"n{n}-{cluster.star.address[space]}:40911" for n, space in enumerate("abc"))
    for space in "abc":
        _broker(
            cluster, f"broker-{space}", space, enableDLegerCommitLog="true", dLegerGroup="set", dLegerPeers=peers,
            dLegerSelfId=f"n{'abc'.index(space)}", registerNameServerPeriod=10000,
        )  # fmt: skip


MODES = {
    mode.name: mode
    for mode in (
        Mode("alone", _alone, ("broker",)),
        Mode("classic", _classic, ("master", "slave")),
        Mode(
            "controller", _controller, tuple(f"{kind}-{space}" for kind in ("broker", "controller") for space in "abc")
        ),
        Mode("dledger", _dledger, tuple(f"broker-{space}" for space in "abc")),
    )
}
