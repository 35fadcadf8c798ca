"""What a name server can be told. Names are the original's keys in snake_case, defaults are the original's."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import Foreign, Ignored, Refusal, option
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, NETTY


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Ports, files and switches of one name server. Times are milliseconds unless a name says otherwise."""

    listen_port: int = option(
        9876,
        "The port for brokers, clients and tools. 0: a free one, which the first line says.",
        section="Process",
        low=0,
        high=65535,
        important=True,
    )
    bind_address: str = option(
        "0.0.0.0",
        "The address on which the name server listens. `127.0.0.1` keeps other machines out.",
    )
    server_channel_max_idle_time_seconds: int = option(
        120,
        "A connection on which nothing is read or written for so long is closed. Brokers register every 30 s by "
        "default; keep it well above that, since a broker whose connection closes is forgotten.",
        unit="s",
        low=1,
    )
    rocketmq_home: str = option(
        "",
        "Shown to tools that ask for the configuration, and not used otherwise.",
        important=True,
        computed="the variable `ROCKETMQ_HOME`",
    )
    kv_config_path: str = option(
        "",
        "The file with the key-value configuration (order topics, for example).",
        important=True,
        computed="`namesrv/kvConfig.json` in the user's home",
    )
    config_store_path: str = option(
        "",
        "The file to which settings are written that are changed at run time.",
        important=True,
        computed="the file that was read (`-c`); without one, `namesrv/namesrv.properties` in the user's home",
    )
    config_black_list: str = option(
        "configBlackList;configStorePath;kvConfigPath",
        "Settings that can't be changed at run time, with `;` between them. Such a request is refused (code 16).",
    )

    order_message_enable: bool = option(
        False,
        "Routes of a topic carry its order configuration from the key-value table, so that producers keep to its "
        "queues.",
        section="Answers",
        important=True,
        live=True,
    )
    return_order_topic_config_to_broker: bool = option(
        True,
        "A broker that registers is told which topics are order topics.",
        live=True,
    )
    need_wait_for_service: bool = option(
        False,
        "For `waitSecondsForService` after the start, routes are refused instead of given from what few brokers have "
        "registered.",
        live=True,
    )
    wait_seconds_for_service: int = option(
        45,
        "How long `needWaitForService` lasts. Two periods of registration (30 s) are enough.",
        unit="s",
        low=0,
        live=True,
    )
    enable_all_topic_list: bool = option(
        True,
        "The list of all topics is given (code 206). Switch it off where clusters are shared and names are private; "
        "`perseid topic list` and dashboards need it.",
        live=True,
    )
    enable_topic_list: bool = option(
        True,
        "Lists of a cluster's topics and of unit topics are given (codes 224, 311 to 313).",
        live=True,
    )

    scan_not_active_broker_interval: int = option(
        5_000,
        "How often brokers are looked for that have been silent for too long: 120 s, or what they said when they "
        "registered.",
        section="Brokers",
        unit="ms",
        low=100,
        live=True,
    )
    delete_topic_with_broker_registration: bool = option(
        False,
        "A topic that a broker no longer names when it registers all its topics is removed from the broker's route at "
        "once.",
        live=True,
    )
    support_acting_master: bool = option(
        False,
        "While a set's master is away, its slave with the lowest id is given out in its place, for reading. Goes with "
        "the brokers' `enableSlaveActingMaster`.",
        live=True,
    )
    notify_min_broker_id_changed: bool = option(
        False,
        "The brokers of a set are told at once when the lowest id among them changes. Goes with "
        "`enableSlaveActingMaster`; otherwise they notice when they ask next.",
        live=True,
    )
    enable_controller_in_namesrv: bool = option(
        False,
        "A controller runs in the same process, at its own port. Its settings are in the same file.",
        important=True,
    )


REFUSED = (
    Refusal("clusterTest", ("false",), "routes of another environment would be given out; Perseid has no such mode"),
)

FOREIGN = Foreign(
    refused=REFUSED,
    ignored=(
        Ignored("productEnvName", ("center",), "there is no other environment to ask (clusterTest)"),
        *AUTH_CLASSES,
    ),
    meaningless=NETTY
    | AUTH_CACHES
    | {
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "unRegisterBrokerQueueCapacity",
    },
)
"""What is done with the original's other keys."""
