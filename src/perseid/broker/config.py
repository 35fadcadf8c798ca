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

    broker_cluster_name: str = option(
        "DefaultCluster",
        "The cluster that the broker belongs to; administration commands select brokers by it. Don't change it on a "
        "folder in use: system topics, such as that of unacknowledged pops, are named after it.",
        section="Name, addresses, role",
        important=True,
    )
    broker_name: str = option(
        "perseid",
        "The name of the broker set. A master and its slaves have the same name; two masters need different ones.",
        important=True,
        computed="the machine's host name",
    )
    broker_id: int = option(
        0,
        "0 for a master; above 0, and different for each, for slaves. A master's is taken as 0 whatever is written, a "
        "slave with 0 does not start. Not used with `enableControllerMode` and `enableDLegerCommitLog`: there the id "
        "is assigned.",
        low=-1,
        important=True,
    )
    broker_ip1: str = option(
        "127.0.0.1",
        "The address that the broker registers with name servers: clients and other brokers connect to it. Set it "
        "where a machine has several addresses or stands behind NAT; with a wrong one clients can't connect although "
        "the broker runs.",
        key="brokerIP1",
        important=True,
        computed="an address of the machine",
    )
    broker_ip2: str = option(
        "",
        "The address that slaves connect to, for a network of their own. Empty: `brokerIP1`.",
        key="brokerIP2",
    )
    listen_port: int = option(
        10911,
        "The port for clients. The broker also listens on the port two below it (RocketMQ's VIP channel), and for "
        "slaves on `haListenPort`.",
        low=3,
        high=65_534,
        important=True,
    )
    namesrv_addr: str = option(
        "",
        "The name servers to register with and to ask, `host:port;host:port`. `-n` on the command line wins; without "
        "both the variable `NAMESRV_ADDR` counts. With no name server the broker runs, and clients can't find it.",
        form=ADDRESSES,
        important=True,
        live=True,
    )
    broker_role: str = option(
        "ASYNC_MASTER",
        "`ASYNC_MASTER` acknowledges without waiting for slaves. `SYNC_MASTER` waits for `inSyncReplicas` nodes, at "
        "most `slaveTimeout`. `SLAVE` copies the log of the master with the same `brokerName`. Not used with "
        "`enableControllerMode` and `enableDLegerCommitLog`.",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        important=True,
    )
    broker_permission: int = option(
        6,
        "What clients may do: 4 for reading plus 2 for writing. Set it to 4 before maintenance: producers move to "
        "other brokers, and consumers read what is left.",
        low=0,
        high=7,
        live=True,
    )

    default_topic_queue_nums: int = option(
        8,
        "The most queues that a topic gets which the first send creates (a producer may ask for fewer). Topics that "
        "are created by a command have the number that the command says.",
        section="Topics and groups",
        unit="queues",
    )
    auto_create_topic_enable: bool = option(
        True,
        "The first send to a topic creates it. Set it to `false` in production: then a misspelt topic is refused (code "
        "17) instead of created.",
        live=True,
    )
    auto_create_subscription_group: bool = option(
        True,
        "A consumer group is created when it first comes. With `false` an unknown group is refused (code 26) until "
        "`perseid admin create-group` creates it.",
        live=True,
    )
    cluster_topic_enable: bool = option(
        True,
        "Whether the system topic with the cluster's name (16 queues) may be read and written.",
    )
    broker_topic_enable: bool = option(
        True,
        "Whether the system topic with the broker's name (one queue) may be read and written.",
    )
    trace_topic_enable: bool = option(
        False,
        "The broker has the topic `msgTraceTopicName`, so that clients with message tracing can store traces here. One "
        "broker of a cluster is enough.",
    )
    msg_trace_topic_name: str = option(
        TRACE_TOPIC,
        "The name of the topic for message traces. Clients use the same name by default.",
    )
    enable_mixed_message_type: bool = option(
        False,
        "Topics may be created with `message.type=MIXED`, which takes messages of all kinds. With `false` such a topic "
        "is refused (code 29).",
        live=True,
    )

    region_id: str = option(
        "DefaultRegion",
        "A name for this broker's place, which senders are told and which each message carries (`MSG_REGION`). Message "
        "traces show it.",
        section="Sends",
    )
    trace_on: bool = option(
        True,
        "Clients with message tracing are told whether this broker's messages are to be traced. `false` switches "
        "traces off without touching the clients.",
        live=True,
    )
    sync_flush_timeout: int = option(
        5_000,
        "With `flushDiskType=SYNC_FLUSH`: how long a send waits for the disk. After that it is answered with "
        "FLUSH_DISK_TIMEOUT: the message is stored, but a power cut may take it. For a `SYNC_MASTER` the lower one of "
        "this and `slaveTimeout` counts.",
        unit="ms",
        low=1,
        live=True,
    )
    start_accept_send_request_time_stamp: int = option(
        0,
        "Sends before this time are refused (code 1). 0: sends are taken at once.",
        unit="ms since 1970",
        low=0,
        live=True,
    )
    wait_time_mills_in_send_queue: int = option(
        200,
        "No effect: a send waits in no queue of threads. In RocketMQ, sends that waited longer are refused.",
        unit="ms",
        low=0,
        live=True,
        told="no effect: a send waits in no queue of threads that it could be too late in",
    )
    forward_sends_to_master: bool = option(
        False,
        "With `enableControllerMode`: a slave passes sends on to its master instead of refusing them, so that "
        "producers with an old route lose no time after an election.",
        ours=True,
    )
    store_reply_message_enable: bool = option(
        True,
        "Answers of request and reply are stored in the cluster's reply topic, besides being pushed to the requester.",
        live=True,
    )

    slave_read_enable: bool = option(
        False,
        "A master sends consumers that are far behind (more than `accessMessageInMemoryMaxRatio` of the memory) to a "
        "slave, and a slave answers pulls. Set it on both.",
        section="Pulls and queries",
        live=True,
    )
    long_polling_enable: bool = option(
        True,
        "A pull that finds no message waits for one as long as the client asks (at most 10 minutes). With `false` it "
        "waits for `shortPollingTimeMills`, which costs more requests.",
        live=True,
    )
    enable_property_filter: bool = option(
        False,
        "Consumers may filter with SQL92 expressions over message properties. With `false` such a subscription is "
        "refused.",
        live=True,
    )
    enable_lmq_stats: bool = option(
        False,
        "Reads of light message queues are counted for each queue. With `false` all of them share one row of the "
        "statistics, which saves memory when there are many.",
    )
    short_polling_time_mills: int = option(
        1000,
        "How long a pull without a message waits when `longPollingEnable` is `false`.",
        unit="ms",
        low=1,
        live=True,
    )
    lite_pull_message_enable: bool = option(
        True,
        "Pulls of lite pull consumers (code 361) are answered. With `false` they are refused (code 16).",
        live=True,
    )
    default_query_max_num: int = option(
        32,
        "The most messages that a query by unique key finds. `maxMsgsNumBatch` limits it further.",
        unit="messages",
        low=1,
        high=JAVA_INT,
        live=True,
    )

    cold_data_flow_control_enable: bool = option(
        False,
        "Pulls of messages that are no longer in memory are counted, and refused (code 2) above the limits below, so "
        "that consumers which are far behind don't take the whole disk from the others.",
        section="Flow control of cold reads",
        live=True,
    )
    cg_cold_read_threshold: int = option(
        3 << 20,
        "What one consumer group may read from the disk, if it has no limit of its own (codes 2001 to 2003). Needs "
        "`coldDataFlowControlEnable`.",
        unit="bytes in 5 s",
        low=0,
        live=True,
    )
    global_cold_read_threshold: int = option(
        100 << 20,
        "What all groups together may read from the disk. Needs `coldDataFlowControlEnable`.",
        unit="bytes in 5 s",
        low=0,
        live=True,
    )

    reject_transaction_message: bool = option(
        False,
        "Transactional sends are refused (code 16).",
        section="Transactions",
        live=True,
    )
    transaction_time_out: int = option(
        6_000,
        "How old a half message must be before the producer is asked about it. A message may say otherwise "
        "(`CHECK_IMMUNITY_TIME_IN_SECONDS`). Keep it above the usual duration of a transaction, or producers are asked "
        "about transactions that still run.",
        unit="ms",
        low=0,
        live=True,
    )
    transaction_check_interval: int = option(
        30_000,
        "How long the broker waits between two questions about the same half message.",
        unit="ms",
        low=1,
        live=True,
    )
    transaction_check_max: int = option(
        15,
        "After so many questions without a decision a half message is set aside in the topic "
        "`TRANS_CHECK_MAX_TIME_TOPIC`, where code 323 resumes it; so is one that is older than `fileReservedTime`.",
        unit="questions",
        low=0,
        live=True,
    )

    enable_retry_topic_v2: bool = option(
        False,
        "Messages that were popped and not acknowledged go to `%RETRY%group+topic` instead of `%RETRY%group_topic`, a "
        "name that can't be confused with another group's. Change it together with "
        "`retrieveMessageFromPopRetryTopicV1`, so that what is in the old topic is still popped.",
        section="Pop consumption",
    )
    retrieve_message_from_pop_retry_topic_v1: bool = option(
        True,
        "With `enableRetryTopicV2`: every second pop looks at the retry topic with the old name. Set it to `false` "
        "when the old topic is empty.",
    )
    pop_from_retry_probability: int = option(
        20,
        "The share of pops that look at the retry topic first. The others look at it last.",
        unit="%",
        low=0,
        high=100,
    )
    pop_from_retry_probability_for_priority: int = option(
        0,
        "The same for pops of a topic with `message.type=PRIORITY`.",
        unit="%",
        low=0,
        high=100,
    )
    priority_order_asc: bool = option(
        True,
        "For topics with `message.type=PRIORITY`: the queue with the highest number is popped first. With `false`, the "
        "lowest.",
    )
    use_separate_retry_queue: bool = option(
        False,
        "A pop retry topic gets as many queues as its topic, and a message comes again from the queue with its own "
        "number. With `false` the retry topic has one queue.",
    )
    pop_response_return_actual_retry_topic: bool = option(
        False,
        "A message from a retry topic is handed out with that topic's name. With `false` it has the name of its own "
        "topic, as consumers expect.",
    )
    init_pop_offset_by_check_msg_in_mem: bool = option(
        True,
        "A group that pops a queue for the first time, from the latest message, begins at the first one while the "
        "whole queue is in memory: a group on a new topic misses nothing. With `false` it begins at the last message.",
    )
    default_message_request_mode: str = option(
        "PULL",
        "How push consumers that let the broker rebalance (`clientRebalance=false`) read a topic for which nothing was "
        "set with `setConsumeMode`.",
        choices=("PULL", "POP"),
    )
    default_pop_share_queue_num: int = option(
        -1,
        "In mode POP each member also pops the queues of so many other members, so that a slow one holds nothing up. 0 "
        "or less: each member pops all queues.",
        unit="members",
    )
    server_load_balancer_enable: bool = option(
        True,
        "The broker divides a topic's queues among the members of a group that let it rebalance. With `false` each "
        "member is told of all queues.",
    )

    lite_event_check_interval: int = option(
        10_000,
        "How often clients are looked for that don't fetch the messages they were told of; others of their group are "
        "told then.",
        section="Lite topics",
        unit="ms",
        low=1,
    )
    lite_ttl_check_interval: int = option(
        120_000,
        "How often lite topics are looked for that are older than their parent topic's `lite.topic.expiration`.",
        unit="ms",
        low=1,
    )
    min_lite_ttl: int = option(
        900_000,
        "No lite topic is removed before its last message is so old, and none before the broker has run for so long.",
        unit="ms",
        low=0,
        key="minLiteTTl",
    )
    lite_subscription_check_interval: int = option(
        120_000,
        "How often clients are looked for whose subscriptions have lapsed (`liteSubscriptionCheckTimeoutMills`).",
        unit="ms",
        low=1,
    )
    lite_subscription_check_timeout_mills: int = option(
        180_000,
        "A client that has not repeated its subscriptions to lite topics for so long is forgotten. Clients repeat them "
        "every 30 s.",
        unit="ms",
        low=1,
    )
    max_lite_subscription_count: int = option(
        100_000,
        "The most lite topics that all clients together may subscribe to on this broker. Beyond it subscriptions are "
        "refused.",
        unit="subscriptions",
        low=0,
    )
    max_client_event_count: int = option(
        100,
        "How many lite topics with new messages are remembered for one client. A group's attribute may say otherwise.",
        unit="lite topics",
        low=1,
    )
    lite_event_full_dispatch_delay_time: int = option(
        10_000,
        "When more lite topics have messages than are remembered for a client, all of its topics are looked at again "
        "after so long.",
        unit="ms",
        low=0,
    )
    lite_event_full_dispatch_delay_time_for_wildcard_group: int = option(
        10_000,
        "The same for a group that reads all lite topics of a parent.",
        unit="ms",
        low=0,
    )

    timer_wheel_enable: bool = option(
        True,
        "Messages may be sent for any time (`TIMER_DELIVER_MS` and so on). With `false` such a send is refused (code "
        "1); delay levels work without it.",
        section="Delayed messages and timers",
    )
    timer_max_delay_sec: int = option(
        259_200,
        "The furthest that a message's time may be ahead. Beyond it a send is refused (code 13).",
        unit="s",
        low=0,
        high=JAVA_INT,
        live=True,
    )
    timer_congest_num_each_slot: int = option(
        JAVA_INT,
        "When more messages than this are due in the same slot (`timerPrecisionMs`), further ones are refused at "
        "random; from twice as many on, all.",
        unit="messages",
        low=1,
        high=JAVA_INT,
        live=True,
    )
    recall_message_enable: bool = option(
        False,
        "Producers may recall a message before its time has come. With `false` a recall is refused (code 16).",
        live=True,
    )
    allow_recall_when_broker_not_writeable: bool = option(
        True,
        "Recalls are taken even while `brokerPermission` forbids writing.",
        live=True,
    )

    notify_consumer_ids_changed_enable: bool = option(
        True,
        "The members of a group are told at once when one joins or leaves. With `false` they notice at their next "
        "rebalance (20 s with Java's client), and queues are idle until then.",
        section="Clients and their offsets",
        live=True,
    )
    use_server_side_reset_offset: bool = option(
        True,
        "The broker carries out a reset of offsets itself, also while the group is offline. With `false` it passes the "
        "reset to the group's clients.",
        live=True,
    )
    subscription_expired_timeout: int = option(
        600_000,
        "How long a subscription is remembered that is known from pulls alone, without a heartbeat.",
        unit="ms",
        low=1,
        live=True,
    )
    channel_expired_timeout: int = option(
        120_000,
        "A producer or consumer without a heartbeat for so long is forgotten, and its connection is closed. Clients "
        "send one every 30 s.",
        unit="ms",
        low=1,
        live=True,
    )
    consumer_offset_update_version_step: int = option(
        500,
        "After so many commits the table of offsets has a new version, which slaves and other brokers compare.",
        unit="commits",
        low=1,
        live=True,
    )
    delay_offset_update_version_step: int = option(
        200,
        "The same for the positions of delay levels.",
        unit="deliveries",
        low=1,
        live=True,
    )

    register_name_server_period: int = option(
        30_000,
        "How often the broker registers with its name servers. Values outside 10000 to 60000 are taken as the nearer "
        "one of them. Changes of topics are told at once.",
        section="Periods",
        unit="ms",
        low=1,
        live=True,
    )
    register_broker_timeout_mills: int = option(
        24_000,
        "How long the broker waits for a name server's answer to a registration. Then it tries again.",
        unit="ms",
        low=1,
        live=True,
    )
    force_register: bool = option(
        True,
        "No effect: the broker registers each time. In RocketMQ `false` lets it ask first whether the name server "
        "knows its topics already.",
    )
    compressed_register: bool = option(
        False,
        "The list of topics is compressed when the broker registers. It helps with thousands of topics, and needs name "
        "servers that take it (RocketMQ 3.0.11 and later).",
    )
    flush_consumer_offset_interval: int = option(
        5_000,
        "How often consumers' offsets are saved. After a crash, consumers get again what they committed since.",
        unit="ms",
        low=1,
        live=True,
    )
    flush_delay_offset_interval: int = option(
        10_000,
        "How often the positions of delay levels are saved. After a crash, what was delivered since is delivered "
        "again.",
        unit="ms",
        low=1,
        live=True,
    )

    enable_slave_acting_master: bool = option(
        False,
        "While the master is away, the slave with the lowest id stands in: it serves pulls, delay levels, timers and "
        "transactions, but takes no sends and no pops. Set it on all brokers of the set, and `supportActingMaster` on "
        "name servers.",
        section="Slaves that act for an absent master (without a controller)",
    )
    total_replicas: int = option(
        1,
        "How many brokers the set has. Above 1, a master that starts first takes over from the others how far groups "
        "are, and registers afterwards.",
        unit="brokers",
        low=1,
    )
    skip_pre_online: bool = option(
        False,
        "A master registers at once, without taking over from the others what happened while it was away. Groups may "
        "go back to old offsets.",
    )
    broker_not_active_timeout_millis: int = option(
        10_000,
        "After so long without a sign, name servers take this broker for gone. Only told with "
        "`enableSlaveActingMaster`.",
        unit="ms",
        low=1,
    )
    sync_broker_member_group_period: int = option(
        1_000,
        "How often name servers are asked which brokers of the set are there: how soon a slave stands in.",
        unit="ms",
        low=1,
    )
    enable_remote_escape: bool = option(
        False,
        "The slave that stands in sends due delayed messages, timers and half messages to another master of the "
        "cluster. With `false` they wait until their own master is back.",
    )
    compatible_with_old_name_srv: bool = option(
        True,
        "Signs of life and the set's members are told and asked by requests that name servers of RocketMQ 4 know too. "
        "`false` needs version 5 or Perseid on all of them.",
    )

    enable_controller_mode: bool = option(
        False,
        "A controller elects the master of this broker's set, and the broker may become either. Needs "
        "`controllerAddr`; `brokerRole` and `brokerId` are not used then. Not together with `enableSlaveActingMaster` "
        "or `enableDLegerCommitLog`.",
        section="Under a controller",
    )
    controller_addr: str = option(
        "",
        "The addresses of all controllers, `host:port;host:port`. Needed with `enableControllerMode`.",
        form=ADDRESSES,
        live=True,
    )
    broker_election_priority: int = option(
        2_147_483_647,
        "Among replicas that are equally far, the one with the lowest number is elected. Give a preferred machine a "
        "lower number than the others.",
        live=True,
    )
    controller_heart_beat_timeout_mills: int = option(
        10_000,
        "After so long without a heartbeat, the controllers take this broker for dead and elect another master. A "
        "lower value fails over sooner, and also when the machine only pauses. Keep it several times "
        "`brokerHeartbeatInterval`.",
        unit="ms",
        low=1,
    )
    broker_heartbeat_interval: int = option(
        1_000,
        "How often the broker sends a heartbeat to the controllers, or to name servers with `enableSlaveActingMaster`.",
        unit="ms",
        low=1,
    )
    sync_controller_metadata_period: int = option(
        10_000,
        "How often the broker asks which controller leads.",
        unit="ms",
        low=1,
    )
    sync_broker_metadata_period: int = option(
        5_000,
        "How often the broker asks the leading controller which master and which replicas its set has.",
        unit="ms",
        low=1,
    )
    check_sync_state_set_period: int = option(
        5_000,
        "No effect: the master looks at the in-sync set whenever a replica catches up or falls behind.",
        unit="ms",
        low=1,
    )
    send_heartbeat_timeout_millis: int = option(
        1_000,
        "How long one heartbeat may take until it counts as failed.",
        unit="ms",
        low=1,
    )

    enable_dleger_commit_log: bool = option(
        False,
        "The log is that of a Raft group, which elects its leader by itself and acknowledges what a majority has. "
        "Needs `dLegerGroup`, `dLegerPeers` and `dLegerSelfId`. A folder with a plain log can join: its log is read "
        "on.",
        section="In a DLedger group",
        key="enableDLegerCommitLog",
    )
    dleger_group: str = option(
        "",
        "The name of the group, the same on all members; usually that of the broker set.",
        key="dLegerGroup",
    )
    dleger_peers: str = option(
        "",
        "All members, this one too, as `n0-host:port;n1-host:port;…`; the same text on all of them. The ports are for "
        "the members alone.",
        key="dLegerPeers",
    )
    dleger_self_id: str = option(
        "",
        "Which of `dLegerPeers` this broker is: a letter and a number, like `n0`. A follower's id in the route is that "
        "number and one.",
        key="dLegerSelfId",
    )
    preferred_leader_id: str = option(
        "",
        "The members that should lead, with `;` between them. A leader that is not among them hands over to one that "
        "has nearly all entries.",
        key="preferredLeaderId",
    )

    @property
    def address(self) -> str:
        """`host:port` under which clients reach this broker, as it stands in the route."""
        return f"{self.broker_ip1}:{self.listen_port}"
