"""Settings that few operators change, and that no promise hangs on: swarms draw some of them.

Each is drawn for itself, so that a new one changes nothing for the others, and is a part of its seed like a client:
shrinking leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from perseid.sim.scheduler import Scheduler

SHARE = 0.25
"""Of the swarms: so many have another value than all other seeds."""

Table = Mapping[str, Sequence[Any]]

STORE: Table = {
    "checkpoint_interval_ms": (50, 10_000),
    "flush_interval_commit_log": (20, 900),
    "delete_file_batch_max": (1, 2),
    "delete_commit_log_files_interval": (0, 2_000),
    "timer_flush_interval_ms": (50,),
    "max_offset_map_size": (1, 200),
    "max_transfer_bytes_on_message_in_memory": (1, 500),
    "max_transfer_count_on_message_in_memory": (1, 2),
    "max_transfer_bytes_on_message_in_disk": (1, 500),
    "max_transfer_count_on_message_in_disk": (1, 2),
}
BROKER: Table = {
    "flush_consumer_offset_interval": (100, 60_000),
    "flush_delay_offset_interval": (100, 60_000),
    "delay_offset_update_version_step": (1, 2),
    "pop_from_retry_probability": (0, 100),
    "enable_retry_topic_v2": (True,),
    "use_separate_retry_queue": (True,),
    "pop_response_return_actual_retry_topic": (True,),
    "lite_event_check_interval": (300,),
    "lite_subscription_check_interval": (1_000,),
    "lite_event_full_dispatch_delay_time": (0, 500),
    "max_client_event_count": (1, 2),
    "timer_congest_num_each_slot": (1, 3),
    "long_polling_enable": (False,),
    "register_name_server_period": (3_000, 10_000),
    "force_register": (False,),
    "compressed_register": (True,),
}
RAFT: Table = {
    "max_pending_requests_num": (2, 20),
    "max_push_time_out_ms": (100, 5_000),
    "max_leadership_transfer_wait_index": (0, 5),
}
V2 = "enable_retry_topic_v2"
V2_FROM = (1, 2, 4)
"""It is set for one of these lives: what was to come again by then still does, from where it was put."""


def rare_settings(scheduler: Scheduler, table: Table) -> dict[str, Any]:
    """The settings of a table that the nodes of a seed have."""
    found: dict[str, Any] = {}
    for name, values in table.items() if scheduler.chosen.selection.has_rarities else ():
        random = Random(f"{scheduler.seed}/told {name}")
        if random.random() < SHARE and scheduler.chosen.has(name):
            found[name] = random.choice(values)
    return found


def rare_broker_settings(scheduler: Scheduler, life: int) -> dict[str, Any]:
    """The rare settings of the brokers of one set, from the start of a life of their first one on."""
    found = rare_settings(scheduler, BROKER)
    if life < Random(f"{scheduler.seed}/told {V2} from").choice(V2_FROM):
        found.pop(V2, None)
    return found
