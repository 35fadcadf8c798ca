"""What a controller can be told. Names are the original's keys in snake_case, defaults are the original's; what its
Raft member can be told besides is `raft.config`."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import Foreign, Refusal, option
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, METRICS, NETTY, NO_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Of one controller. Times are milliseconds, sizes bytes."""

    controller_dleger_group: str = option("", key="controllerDLegerGroup", important=True)
    controller_dleger_peers: str = option("", key="controllerDLegerPeers", important=True)
    """`id-host:port;…`: all controllers; brokers and tools speak to them there too."""
    controller_dleger_self_id: str = option("", key="controllerDLegerSelfId", important=True)
    controller_type: str = option("DLedger", important=True)
    controller_store_path: str = option("", important=True)
    """Empty: `DLedgerController` in the user's home."""
    mapped_file_size: int = option(1 << 30, low=256)
    """Of the files of the group's log."""
    config_store_path: str = option("", important=True)
    """Where a changed configuration is written. Empty: `controller/controller.properties` in the user's home."""
    config_black_list: str = "configBlackList;configStorePath"
    bind_address: str = "0.0.0.0"
    server_channel_max_idle_time_seconds: int = option(120, low=1)

    scan_not_active_broker_interval: int = option(
        5_000, low=1, live=True, told="no effect: a broker that has been silent for too long is found when it has"
    )
    """No effect: a broker that has been silent for too long is found when it has."""
    scan_inactive_master_interval: int = option(5_000, low=1, live=True)
    """So often sets without a master that is alive are looked for."""
    elect_master_max_retry_count: int = option(
        3, low=1, live=True, told="no effect: one that elects nobody is made again when somebody could be elected"
    )
    """No effect: an election that elects nobody is made again when somebody could be elected."""
    enable_elect_unclean_master: bool = option(False, important=True, live=True)
    """When nobody in sync is alive, somebody else may be elected: what only those in sync have is lost."""
    is_process_read_event: bool = option(False, live=True)
    """Reads are answered when an entry that was appended for them is committed: never by a controller that was deposed
    and does not know it."""
    notify_broker_role_changed: bool = option(True, live=True)


ALIASES = {"processReadEvent": "isProcessReadEvent"}
"""The original reads the one in files, and shows the other."""

REFUSED = (
    Refusal(
        "controllerType",
        ("dledger",),
        "the group would keep JRaft's log; Perseid's controllers form a group by DLedger, alone or with the original's",
    ),
)

FOREIGN = Foreign(
    refused=REFUSED,
    ignored=(NO_METRICS, *AUTH_CLASSES),
    meaningless=NETTY
    | AUTH_CACHES
    | METRICS
    | {
        "controllerRequestThreadPoolQueueCapacity",
        "controllerThreadPoolNums",
        "jRaftControllerRPCAddr",
        "jRaftElectionTimeoutMs",
        "jRaftGroupId",
        "jRaftInitConf",
        "jRaftScanWaitTimeoutMs",
        "jRaftServerId",
        "jRaftSnapshotIntervalSecs",
        "listenPort",
        "rocketmqHome",
    },
)
"""What is done with the original's other keys. A controller listens where `controllerDLegerPeers` says."""
