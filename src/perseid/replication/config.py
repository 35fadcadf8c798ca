"""What a replicated broker can be told. Names and defaults are the original's; the last group is ours."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Of the HA stream and of synchronous replication. Times are milliseconds, sizes bytes."""

    ha_listen_port: int = option(
        0,
        "The port on which a broker serves its slaves. 0: the port after `listenPort`. Not opened in a DLedger group.",
        section="Replication between master and slaves",
        low=0,
        high=65_535,
    )
    ha_master_address: str = option(
        "",
        "For a slave: `host:port` of the master's HA port. Empty: the name servers tell it.",
    )
    ha_send_heartbeat_interval: int = option(
        5_000,
        "How often master and slave send each other something when there is nothing to copy.",
        unit="ms",
        low=1,
        live=True,
    )
    ha_housekeeping_interval: int = option(
        20_000,
        "A peer that is silent for so long is disconnected; a slave then connects again. Keep it several times the "
        "peer's `haSendHeartbeatInterval`.",
        unit="ms",
        low=1,
        live=True,
    )
    ha_transfer_batch_size: int = option(
        32_768,
        "The most of the log in one packet to a slave.",
        unit="bytes",
        low=1,
        live=True,
    )
    ha_max_gap_not_in_sync: int = option(
        256 << 20,
        "A slave that is less behind than this counts as in sync, in what commands show and for `minInSyncReplicas`.",
        unit="bytes",
        low=0,
        live=True,
    )
    ha_flow_control_enable: bool = option(
        False,
        "What a master sends to each slave is limited to `maxHaTransferByteInSecond`.",
        live=True,
    )
    max_ha_transfer_byte_in_second: int = option(
        100 << 20,
        "The limit of `haFlowControlEnable`, for each slave. Too low a value leaves slaves behind for ever.",
        unit="bytes a second",
        low=1,
        live=True,
    )
    slave_timeout: int = option(
        3_000,
        "For a `SYNC_MASTER`, and under a controller: how long a send waits for other nodes. After that it is answered "
        "with FLUSH_SLAVE_TIMEOUT: the message is stored here, and perhaps nowhere else.",
        unit="ms",
        low=1,
        live=True,
    )
    in_sync_replicas: int = option(
        1,
        "How many nodes, the master among them, must have a message before it is acknowledged. 1: no slave is waited "
        "for. Used by a `SYNC_MASTER` and under a controller.",
        unit="nodes",
        low=1,
        high=65,
        live=True,
    )
    ha_copy_whole_log: bool = option(
        False,
        "A master gives an empty slave its whole log. With `false` it begins with the last file, as RocketMQ does, and "
        "the slave has no older messages.",
        ours=True,
    )
    ha_report_durable_only: bool = option(
        False,
        "A slave reports only what it has on disk (fsync), so that an acknowledgement of a `SYNC_MASTER` survives a "
        "power cut of both. It makes synchronous sends slower.",
        ours=True,
    )
    ha_window_bytes: int = option(
        8 << 20,
        "How much may be on its way to one slave without being reported. It is never less than the longest message. "
        "Raise it on fast networks with long delays.",
        unit="bytes",
        low=1,
        ours=True,
    )

    check_peer_addresses: bool = option(
        True,
        "A replica is taken for one only when it connects from the address that the controllers know, and notices of "
        "controllers only from theirs. `false`: from anywhere, for networks that translate addresses.",
        section="Replication under a controller",
        ours=True,
    )
    all_ack_in_sync_state_set: bool = option(
        False,
        "A message is acknowledged when all replicas have it that are in sync, so that no election loses it. With "
        "`false` `inSyncReplicas` decides.",
        live=True,
    )
    enable_auto_in_sync_replicas: bool = option(
        False,
        "With `enableSlaveActingMaster`: while fewer slaves are in sync than `inSyncReplicas` asks for, a send waits "
        "for those that are, and for `minInSyncReplicas` at least. No effect otherwise.",
    )
    min_in_sync_replicas: int = option(
        1,
        "With fewer nodes in sync, the master among them, sends are refused. Used with `enableAutoInSyncReplicas`, and "
        "under a controller when `inSyncReplicas` is above 1 or `allAckInSyncStateSet` is set. Keep it at most "
        "`inSyncReplicas`.",
        unit="nodes",
        low=1,
        high=65,
        live=True,
    )
    ha_max_time_slave_not_catchup: int = option(
        15_000,
        "A replica that has not caught up with the master for so long leaves the in-sync set: it is no longer waited "
        "for, and can't be elected.",
        unit="ms",
        low=1,
        live=True,
    )
    async_learner: bool = option(
        False,
        "This replica gets the log and never joins the in-sync set: it can't be elected, and nothing waits for it. For "
        "a copy in another region.",
    )
    sync_from_last_file: bool = option(
        False,
        "When this replica is empty, it begins with the last file of the master's log instead of its whole log.",
    )
