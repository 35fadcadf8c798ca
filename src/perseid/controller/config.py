"""What a controller can be told. Names are the original's keys in snake_case, defaults are the original's; what its
Raft member can be told besides is `raft.config`."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import Foreign, Refusal, option
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, METRICS, NETTY, NO_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Of one controller. Times are milliseconds, sizes bytes."""

    controller_dleger_group: str = option(
        "",
        "The name of the group of controllers, the same on all of them. Needed.",
        section="Group",
        key="controllerDLegerGroup",
        important=True,
    )
    controller_dleger_peers: str = option(
        "",
        "All controllers as `n0-host:port;n1-host:port;…`, this one too; the same text on all of them. Brokers and "
        "tools use the same ports. Needed.",
        key="controllerDLegerPeers",
        important=True,
    )
    controller_dleger_self_id: str = option(
        "",
        "Which of the peers this controller is; it listens on that one's port. Needed.",
        key="controllerDLegerSelfId",
        important=True,
    )
    controller_type: str = option(
        "DLedger",
        "How controllers agree. `DLedger` is the only kind; `jRaft` stops the start.",
        important=True,
    )

    controller_store_path: str = option(
        "",
        "The folder of the group's log and of the controller's state.",
        section="Process",
        important=True,
        computed="`DLedgerController` in the user's home",
    )
    mapped_file_size: int = option(
        1 << 30,
        "The size of a file of the group's log. It must stay as it is on a folder in use.",
        unit="bytes",
        low=256,
    )
    config_store_path: str = option(
        "",
        "The file to which settings are written that are changed at run time.",
        important=True,
        computed="`controller/controller.properties` in the user's home",
    )
    config_black_list: str = option(
        "configBlackList;configStorePath",
        "Settings that can't be changed at run time, with `;` between them. Such a request is refused (code 16).",
    )
    bind_address: str = option(
        "0.0.0.0",
        "The address on which the controller listens. `127.0.0.1` keeps other machines out.",
    )
    server_channel_max_idle_time_seconds: int = option(
        120,
        "A connection on which nothing is read or written for so long is closed.",
        unit="s",
        low=1,
    )

    scan_not_active_broker_interval: int = option(
        5_000,
        "No effect: a broker that has been silent for too long is found as soon as it has. In RocketMQ: how often they "
        "are looked for.",
        section="Elections",
        unit="ms",
        low=1,
        live=True,
        told="no effect: a broker that has been silent for too long is found when it has",
    )
    scan_inactive_master_interval: int = option(
        5_000,
        "How often sets without a living master are looked for, besides the moment at which a master falls silent.",
        unit="ms",
        low=1,
        live=True,
    )
    elect_master_max_retry_count: int = option(
        3,
        "No effect: an election that elects nobody is held again as soon as a broker could be elected.",
        unit="attempts",
        low=1,
        live=True,
        told="no effect: one that elects nobody is made again when somebody could be elected",
    )
    enable_elect_unclean_master: bool = option(
        False,
        "When no broker of the in-sync set is alive, another one may be elected: the set can be written again sooner, "
        "and messages that only the others have are lost.",
        important=True,
        live=True,
    )
    is_process_read_event: bool = option(
        False,
        "Reads are answered only after a majority has confirmed that this controller still leads, so an old leader "
        "never answers. It costs one entry of the log for each read.",
        live=True,
    )
    notify_broker_role_changed: bool = option(
        True,
        "Brokers are told of a new master at once. With `false` they notice when they ask next "
        "(`syncBrokerMetadataPeriod`).",
        live=True,
    )


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
