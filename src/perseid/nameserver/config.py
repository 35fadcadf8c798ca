"""What a name server can be told. Names are the original's keys in snake_case, defaults are the original's."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import Foreign, Ignored, Refusal, option
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, NETTY


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Ports, files and switches of one name server. Times are milliseconds unless a name says otherwise."""

    listen_port: int = option(9876, low=0, high=65535, important=True)
    bind_address: str = "0.0.0.0"
    server_channel_max_idle_time_seconds: int = option(120, low=1)

    rocketmq_home: str = option("", important=True)
    kv_config_path: str = option("", important=True)
    """Empty: `namesrv/kvConfig.json` in the user's home, as the composition root knows it."""
    config_store_path: str = option("", important=True)
    """Where a changed configuration is written. Empty: the file that was read, or `namesrv.properties` in
    the user's home."""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    order_message_enable: bool = option(False, important=True, live=True)
    return_order_topic_config_to_broker: bool = option(True, live=True)
    need_wait_for_service: bool = option(False, live=True)
    wait_seconds_for_service: int = option(45, low=0, live=True)
    enable_all_topic_list: bool = option(True, live=True)
    enable_topic_list: bool = option(True, live=True)

    scan_not_active_broker_interval: int = option(5_000, low=100, live=True)
    delete_topic_with_broker_registration: bool = option(False, live=True)
    support_acting_master: bool = option(False, live=True)
    notify_min_broker_id_changed: bool = option(False, live=True)
    enable_controller_in_namesrv: bool = option(False, important=True)
    """A controller in the same process, at its own port; its settings stand in the same file."""


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
