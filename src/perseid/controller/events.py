"""What is written to the group's log: events, in the original's bytes (controller.md §5).

An entry is the number of its kind in two bytes, big-endian, and a JSON object with sorted members; an empty entry says
nothing. Members of both kinds, Java's and ours, apply the same entries, so nothing else may ever be written.
"""

from __future__ import annotations

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.wire.body import Body
from perseid.wire.headers.base import Long

KIND_BYTES = 2


class AlterSyncStateSet(Body):
    """Others are in sync. `newSyncStateSet`: ids, ascending."""

    broker_name: str
    new_sync_state_set: list[Long]
    event_type: str = "ALTER_SYNC_STATE_SET_EVENT"


class ApplyBrokerId(Body):
    """A broker has got its id."""

    cluster_name: str
    broker_name: str
    broker_address: str
    register_check_code: str
    new_broker_id: Long
    event_type: str = "APPLY_BROKER_ID_EVENT"


class ElectMaster(Body):
    """There is a new master, who alone is in sync; or (`newMasterElected` false) none."""

    broker_name: str
    new_master_elected: bool
    new_master_broker_id: Long | None = None
    event_type: str = "ELECT_MASTER_EVENT"


class CleanBrokerData(Body):
    """Brokers are forgotten; with no ids the whole set."""

    broker_name: str
    broker_id_set_to_clean: list[Long] | None = None
    event_type: str = "CLEAN_BROKER_DATA_EVENT"


class UpdateBrokerAddress(Body):
    """A broker has moved."""

    cluster_name: str
    broker_name: str
    broker_address: str
    broker_id: Long
    event_type: str = "UPDATE_BROKER_ADDRESS"


Event = AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress

KINDS: dict[int, type[Event]] = {
    1: AlterSyncStateSet,
    2: ApplyBrokerId,
    3: ElectMaster,
    5: CleanBrokerData,
    6: UpdateBrokerAddress,
}
"""4 is a READ_EVENT, which the original declares and never writes."""
_NUMBERS = {kind: number for number, kind in KINDS.items()}


class UnreadableEvent(Exception):
    """An entry that holds no event; says why."""


def encode(event: Event) -> bytes:
    """The body of the event's entry."""
    return _NUMBERS[type(event)].to_bytes(KIND_BYTES, "big") + event.to_json()


def decode(body: Buffer) -> Event | None:
    """The event of an entry; None of an empty one. UnreadableEvent when there is none in it."""
    if not len(body):
        return None
    number = int.from_bytes(body[:KIND_BYTES], "big")
    kind = KINDS.get(number)
    if kind is None or len(body) <= KIND_BYTES:
        raise UnreadableEvent(f"no event has the number {number}")
    try:
        return kind.from_json(bytes(body[KIND_BYTES:]))
    except (RequestRefused, msgspec.MsgspecError) as error:
        raise UnreadableEvent(str(error)) from None
