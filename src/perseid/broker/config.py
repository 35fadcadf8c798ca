"""What a broker can be told. Names are the original's keys in snake_case, defaults are the original's.

`perseid.base.config` reads RocketMQ's own `.conf` files into these dataclasses; a field whose key does not
follow from its name carries it in its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import JAVA_INT, option
from perseid.wire.names import TRACE_TOPIC

_PORT = r"(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_ADDRESS = rf"\s*[^\s;,]+:{_PORT}\s*"
ADDRESSES = (rf"\s*|(?:;|{_ADDRESS}(?:;|$))*", "host:port;host:port")
"""Of what an option may hold, and its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Identity, ports, limits and switches of one broker. Times are milliseconds, sizes bytes."""

    broker_cluster_name: str = option("DefaultCluster", important=True)
    broker_name: str = option("perseid", important=True)
    broker_id: int = option(0, low=-1, important=True)
    broker_ip1: str = option("127.0.0.1", key="brokerIP1", important=True)
    broker_ip2: str = option("", key="brokerIP2")
    listen_port: int = option(10911, low=3, high=65_534, important=True)
    namesrv_addr: str = option("", form=ADDRESSES, important=True, live=True)
    broker_role: str = option("ASYNC_MASTER", choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"), important=True)
    broker_permission: int = option(6, low=0, high=7, live=True)

    # topics and groups
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = option(True, live=True)
    auto_create_subscription_group: bool = option(True, live=True)
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = TRACE_TOPIC
    enable_mixed_message_type: bool = option(False, live=True)

    # sends
    region_id: str = "DefaultRegion"
    trace_on: bool = option(True, live=True)
    sync_flush_timeout: int = option(5_000, low=1, live=True)
    start_accept_send_request_time_stamp: int = option(0, low=0, live=True)

    wait_time_mills_in_send_queue: int = option(
        200, low=0, live=True, told="no effect: a send waits in no queue of threads that it could be too late in"
    )

    forward_sends_to_master: bool = False
    """Under a controller: a slave hands sends on to its master instead of refusing them."""

    store_reply_message_enable: bool = option(True, live=True)

    # pulls
    slave_read_enable: bool = option(False, live=True)
    """A master sends readers that are far behind to a slave, and a slave answers them."""
    long_polling_enable: bool = option(True, live=True)
    enable_property_filter: bool = option(False, live=True)
    enable_lmq_stats: bool = False
    """Count what light queues are read for each of them, not for all together."""
    short_polling_time_mills: int = option(1000, low=1, live=True)
    lite_pull_message_enable: bool = option(True, live=True)
    default_query_max_num: int = option(32, low=1, high=JAVA_INT, live=True)

    # reads from the disk, in bytes each 5 s
    cold_data_flow_control_enable: bool = option(False, live=True)
    cg_cold_read_threshold: int = option(3 << 20, low=0, live=True)
    """Of one group, that has no limit of its own."""
    global_cold_read_threshold: int = option(100 << 20, low=0, live=True)

    # transactions
    reject_transaction_message: bool = option(False, live=True)
    transaction_time_out: int = option(6_000, low=0, live=True)
    """Milliseconds before a producer is asked what became of its transaction."""
    transaction_check_interval: int = option(30_000, low=1, live=True)
    transaction_check_max: int = option(15, low=0, live=True)

    # pop
    enable_retry_topic_v2: bool = False
    """Messages that were popped and not acknowledged go to `%RETRY%group+topic` instead of `%RETRY%group_topic`."""
    retrieve_message_from_pop_retry_topic_v1: bool = True
    """With the former: the latter is popped too."""
    pop_from_retry_probability: int = option(20, low=0, high=100)
    """So many of 100 pops look at the retry topic first."""
    pop_from_retry_probability_for_priority: int = option(0, low=0, high=100)
    """The same for pops of a topic by priority."""
    priority_order_asc: bool = True
    """The higher a queue's number, the sooner it is popped; else the lower."""
    use_separate_retry_queue: bool = False
    """A retry topic has as many queues as its topic, and a message comes again from the queue of its own number."""
    pop_response_return_actual_retry_topic: bool = False
    """A message of a retry topic is handed out under that topic's name, not under its own."""
    init_pop_offset_by_check_msg_in_mem: bool = True
    default_message_request_mode: str = option("PULL", choices=("PULL", "POP"))
    default_pop_share_queue_num: int = -1
    server_load_balancer_enable: bool = True
    """A queue is one member's; otherwise each member is told of all queues."""

    # lite topics
    lite_event_check_interval: int = option(10_000, low=1)
    lite_ttl_check_interval: int = option(120_000, low=1)
    min_lite_ttl: int = option(900_000, low=0, key="minLiteTTl")
    """No lite topic is removed sooner, and none before the broker runs for so long."""
    lite_subscription_check_interval: int = option(120_000, low=1)
    lite_subscription_check_timeout_mills: int = option(180_000, low=1)
    """A client that did not say for so long what it reads is forgotten."""
    max_lite_subscription_count: int = option(100_000, low=0)
    max_client_event_count: int = option(100, low=1)
    lite_event_full_dispatch_delay_time: int = option(10_000, low=0)
    lite_event_full_dispatch_delay_time_for_wildcard_group: int = option(10_000, low=0)

    # messages for a time
    timer_wheel_enable: bool = True
    timer_max_delay_sec: int = option(259_200, low=0, high=JAVA_INT, live=True)
    timer_congest_num_each_slot: int = option(JAVA_INT, low=1, high=JAVA_INT, live=True)
    """From so many messages for the same slot on, more and more are refused; from twice as many on, all."""
    recall_message_enable: bool = option(False, live=True)
    allow_recall_when_broker_not_writeable: bool = option(True, live=True)

    # consumers
    notify_consumer_ids_changed_enable: bool = option(True, live=True)
    use_server_side_reset_offset: bool = option(True, live=True)
    subscription_expired_timeout: int = option(600_000, low=1, live=True)
    channel_expired_timeout: int = option(120_000, low=1, live=True)
    consumer_offset_update_version_step: int = option(500, low=1, live=True)
    delay_offset_update_version_step: int = option(200, low=1, live=True)

    # timers
    register_name_server_period: int = option(30_000, low=1, live=True)
    register_broker_timeout_mills: int = option(24_000, low=1, live=True)
    force_register: bool = True
    compressed_register: bool = False
    flush_consumer_offset_interval: int = option(5_000, low=1, live=True)
    flush_delay_offset_interval: int = option(10_000, low=1, live=True)

    # slaves that act for a master that is away, without a controller
    enable_slave_acting_master: bool = False
    total_replicas: int = option(1, low=1)
    """Of the set; above 1 a master takes over from the others how far groups are before it shows itself."""
    skip_pre_online: bool = False
    """It does not."""
    broker_not_active_timeout_millis: int = option(10_000, low=1)
    """Name servers forget a broker after so long a silence."""
    sync_broker_member_group_period: int = option(1_000, low=1)
    enable_remote_escape: bool = False
    """Who acts sends what is due to other masters."""
    compatible_with_old_name_srv: bool = True
    """Life signs and members by requests that name servers of 4.x know."""

    # a controller elects who is master
    enable_controller_mode: bool = False
    """brokerRole and brokerId mean nothing then."""
    controller_addr: str = option("", form=ADDRESSES, live=True)
    """`host:port;host:port` of all controllers."""
    broker_election_priority: int = option(2_147_483_647, live=True)
    """The lower, the sooner elected among equals."""
    controller_heart_beat_timeout_mills: int = option(10_000, low=1)
    """A controller takes us for dead after so long a silence."""
    broker_heartbeat_interval: int = option(1_000, low=1)
    sync_controller_metadata_period: int = option(10_000, low=1)
    sync_broker_metadata_period: int = option(5_000, low=1)
    check_sync_state_set_period: int = option(5_000, low=1)
    send_heartbeat_timeout_millis: int = option(1_000, low=1)

    # a Raft group (DLedger)
    enable_dleger_commit_log: bool = option(False, key="enableDLegerCommitLog")
    """The log is that of a group, which elects who is master; brokerRole and brokerId mean nothing then."""
    dleger_group: str = option("", key="dLegerGroup")
    dleger_peers: str = option("", key="dLegerPeers")
    dleger_self_id: str = option("", key="dLegerSelfId")
    preferred_leader_id: str = option("", key="preferredLeaderId")

    @property
    def address(self) -> str:
        """`host:port` under which clients reach this broker, as it stands in the route."""
        return f"{self.broker_ip1}:{self.listen_port}"
