"""Events in the original's bytes, what they do, and snapshots."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.controller import events
from perseid.controller.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    Event,
    UnreadableEvent,
    UpdateBrokerAddress,
    decode,
    encode,
)
from perseid.controller.state import Replica, Tables
from perseid.wire.dledger import Entry

VECTORS: dict[str, str] = json.loads((Path(__file__).parent / "vectors.json").read_text())["events"]
SAMPLES: dict[str, Event] = {
    "alterSyncStateSet": AlterSyncStateSet("broker-a", [1, 2]),
    "applyBrokerId": ApplyBrokerId("DefaultCluster", "broker-a", "127.0.0.1:10911", "127.0.0.1:10911;1700000000000", 1),
    "electMaster.new": ElectMaster("broker-a", True, 1),
    "electMaster.none": ElectMaster("broker-a", False),
    "cleanBrokerData.ids": CleanBrokerData("broker-a", [1, 2]),
    "cleanBrokerData.all": CleanBrokerData("broker-a"),
    "updateBrokerAddress": UpdateBrokerAddress("DefaultCluster", "broker-a", "127.0.0.1:10921", 1),
}


@pytest.mark.parametrize("key", SAMPLES)
def test_events_are_the_originals_bytes_both_ways(key: str) -> None:
    wanted = bytes.fromhex(VECTORS[f"event.{key}.hex"])
    assert encode(SAMPLES[key]) == wanted
    assert decode(wanted) == SAMPLES[key]


def test_an_event_without_its_type_is_read_as_the_original_reads_it() -> None:
    assert decode(b'\x00\x03{"brokerName":"broker-a","newMasterBrokerId":1,"newMasterElected":true}') == ElectMaster(
        "broker-a", True, 1
    )


def test_an_empty_entry_says_nothing() -> None:
    assert decode(b"") is None


@pytest.mark.parametrize(
    "body",
    [b"\x00", b"\x00\x01", b"\x00\x04{}", b"\x00\x07{}", b"\x00\x01{}", b"\x00\x01[1]", b"\x00\x01{", b"\x7b\x22x",
     b'\x00\x03{"brokerName":"b","newMasterElected":true,"newMasterBrokerId":"x"}'],
)  # fmt: skip
def test_an_entry_that_holds_no_event_is_passed_over_and_counted(body: bytes) -> None:
    with pytest.raises(UnreadableEvent):
        decode(body)
    tables, told = Tables(), []
    tables.on_skipped = lambda index, why: told.append((index, why))
    tables.apply(Entry(7, 1, 0, body))
    assert tables.skipped == 1 and told[0][0] == 7 and not tables.replicas


@given(st.binary(max_size=60))
def test_no_entry_breaks_the_state_machine(body: bytes) -> None:
    tables = Tables()
    for kind in (b"\x00\x01", b"\x00\x02", b"\x00\x03", b"\x00\x05", b"\x00\x06", b""):
        tables.apply(Entry(0, 0, 0, kind + body))


# ---- what events do ----


def applied(*happened: Event) -> Tables:
    tables = Tables()
    for index, event in enumerate(happened):
        tables.apply(Entry(index, 0, 0, encode(event)))
    return tables


def applies(*numbers: int) -> list[Event]:
    return [ApplyBrokerId("c", "b", f"h:{number}", f"h:{number};7", number) for number in numbers]


def state_of(tables: Tables) -> tuple[int | None, int, set[int], int]:
    state = tables.in_sync["b"]
    return state.master, state.master_epoch, set(state.members), state.epoch


def test_ids_are_taken_once() -> None:
    tables = applied(*applies(1, 2, 2))
    assert tables.replicas["b"].brokers == {1: Replica("h:1", "h:1;7"), 2: Replica("h:2", "h:2;7")}
    assert tables.replicas["b"].next_id == 3
    assert state_of(tables) == (None, 0, set(), 0)
    tables.take(ApplyBrokerId("c", "b", "other:1", "other:1;9", 2))
    assert tables.address("b", 2) == "h:2", "an id stays with whom it was given to"


def test_each_election_raises_the_epoch_also_one_that_elects_nobody() -> None:
    tables = applied(*applies(1, 2), ElectMaster("b", True, 1), AlterSyncStateSet("b", [1, 2]))
    assert state_of(tables) == (1, 1, {1, 2}, 2)
    tables.take(ElectMaster("b", False))
    assert state_of(tables) == (None, 2, {1, 2}, 2)
    tables.take(ElectMaster("b", True, 2))
    assert state_of(tables) == (2, 3, {2}, 3)


def test_an_address_changes_and_the_code_stays() -> None:
    tables = applied(*applies(1), UpdateBrokerAddress("c", "b", "new:1", 1), UpdateBrokerAddress("c", "b", "new:9", 9))
    assert tables.replicas["b"].brokers == {1: Replica("new:1", "h:1;7")}


@pytest.mark.parametrize(
    "event",
    [AlterSyncStateSet("b", [1]), ElectMaster("b", True, 1), CleanBrokerData("b", [1]), CleanBrokerData("b"),
     UpdateBrokerAddress("c", "b", "h:1", 1)],
)  # fmt: skip
def test_events_about_a_set_that_is_not_known_do_nothing(event: Event) -> None:
    tables = applied(event)
    assert not tables.replicas and not tables.in_sync and not tables.skipped


def test_forgetting_is_the_originals_half_rows_included() -> None:
    """What is in one table only counts as unknown, and the next id given makes both anew."""
    tables = applied(*applies(1, 2), ElectMaster("b", True, 1), CleanBrokerData("b", [1]))
    assert "b" in tables.replicas and "b" not in tables.in_sync and not tables.known("b")
    tables.take(applies(3)[0])
    assert tables.known("b") and set(tables.replicas["b"].brokers) == {3}
    tables.take(CleanBrokerData("b", []))
    assert not tables.replicas and not tables.in_sync


def test_forgetting_some_keeps_the_others() -> None:
    tables = applied(*applies(1, 2, 3), ElectMaster("b", True, 1), AlterSyncStateSet("b", [1, 2]))
    tables.take(CleanBrokerData("b", [2, 3]))
    assert set(tables.replicas["b"].brokers) == {1} and state_of(tables) == (1, 1, {1}, 2)


NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(1, 4)
EVENTS = st.one_of(
    st.builds(AlterSyncStateSet, NAMES, st.lists(IDS, max_size=3)),
    st.builds(ApplyBrokerId, st.just("c"), NAMES, st.just("h:1"), st.just("h:1;1"), IDS),
    st.builds(ElectMaster, NAMES, st.booleans(), IDS),
    st.builds(CleanBrokerData, NAMES, st.none() | st.lists(IDS, max_size=2)),
    st.builds(UpdateBrokerAddress, st.just("c"), NAMES, st.just("h:2"), IDS),
)


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_a_snapshot_and_what_came_after_it_make_the_same_state(happened: list[Event], cut: int) -> None:
    whole = applied(*happened)
    again = Tables()
    again.restore(applied(*happened[:cut]).snapshot())
    for event in happened[cut:]:
        again.apply(Entry(0, 0, 0, encode(event)))
    assert (again.replicas, again.in_sync) == (whole.replicas, whole.in_sync)


@given(st.lists(EVENTS, max_size=30))
def test_epochs_only_rise(happened: list[Event]) -> None:
    tables, before = Tables(), (0, 0)
    for event in happened:
        tables.take(event)
        state = tables.in_sync.get("a")
        now: tuple[int, int] = (state.master_epoch, state.epoch) if state is not None else (0, 0)
        assert state is None or (isinstance(event, CleanBrokerData | ApplyBrokerId) or now >= before)
        before = now


def test_each_kind_has_its_number() -> None:
    assert {number: kind.__name__ for number, kind in events.KINDS.items()} == {
        1: "AlterSyncStateSet", 2: "ApplyBrokerId", 3: "ElectMaster", 5: "CleanBrokerData", 6: "UpdateBrokerAddress",
    }  # fmt: skip


def test_snapshot_of_nothing() -> None:
    tables: Any = Tables()
    tables.restore(Tables().snapshot())
    assert tables.replicas == {} and tables.in_sync == {}
