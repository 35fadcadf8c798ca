"""What a replicated broker can be told. Names and defaults are the original's; the last group is ours."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.config import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Of the HA stream and of synchronous replication. Times are milliseconds, sizes bytes."""

    ha_listen_port: int = option(0, low=0, high=65_535)
    """0: the port after listenPort."""
    ha_master_address: str = ""
    """`host:port` of the master's HA port, for a slave; empty: the name servers tell it."""
    ha_send_heartbeat_interval: int = option(5_000, low=1, live=True)
    ha_housekeeping_interval: int = option(20_000, low=1, live=True)
    """A peer that is silent for so long is gone."""
    ha_transfer_batch_size: int = option(32_768, low=1, live=True)
    """The longest body of a packet."""
    ha_max_gap_not_in_sync: int = option(256 << 20, low=0, live=True)
    """A slave that is less behind than this counts as in sync."""
    ha_flow_control_enable: bool = option(False, live=True)
    max_ha_transfer_byte_in_second: int = option(100 << 20, low=1, live=True)
    """To one slave, with haFlowControlEnable."""
    slave_timeout: int = option(3_000, low=1, live=True)
    """How long an answer waits for slaves at most (SYNC_MASTER)."""
    in_sync_replicas: int = option(1, low=1, high=65, live=True)
    """How many nodes, the master among them, must have a message before it is acknowledged (SYNC_MASTER)."""

    ha_copy_whole_log: bool = False
    """A master gives an empty slave all that it has, not only its last file."""
    ha_report_durable_only: bool = False
    """A slave reports only what it has synced to its disk."""
    ha_window_bytes: int = option(8 << 20, low=1)
    """So much may be on its way to one slave, neither reported nor lost; the longest record at least."""

    # under a controller
    check_peer_addresses: bool = True
    """A replica is taken for one when it connects from the address that the controllers know it by, and notices of
    controllers from theirs; `false`: from anywhere."""
    all_ack_in_sync_state_set: bool = option(False, live=True)
    """All replicas that are in sync must have a message before it is acknowledged; what a failover must keep."""
    enable_auto_in_sync_replicas: bool = False
    """With enableSlaveActingMaster: while fewer slaves are in sync, an acknowledgement waits for those that are, and
    for minInSyncReplicas at least. No effect otherwise."""
    min_in_sync_replicas: int = option(1, low=1, high=65, live=True)
    """With fewer in sync, the master among them, sends are refused."""
    ha_max_time_slave_not_catchup: int = option(15_000, low=1, live=True)
    """Who has not caught up with the master for so long is no longer in sync."""
    async_learner: bool = False
    """This replica is sent the log, and is never in sync."""
    sync_from_last_file: bool = False
    """This replica, when it is empty, begins with the last file of the log."""
