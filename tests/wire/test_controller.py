"""The controller's bodies and headers beside what the original wrote (controller-vectors.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.wire import controller
from perseid.wire.bodies import BrokerMemberGroup
from perseid.wire.body import Body
from perseid.wire.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    ReplicasInfo,
    SyncStateSet,
)
from perseid.wire.headers import controller as headers
from perseid.wire.headers.base import Header, from_ext, to_ext
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "controller-vectors.json").read_text())


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("body.syncStateSet", SyncStateSet),
        ("body.syncStateSet.empty", SyncStateSet),
        ("body.brokerReplicasInfo", BrokerReplicasInfo),
        ("body.epochEntryCache", EpochEntryCache),
        ("body.electMaster.noGroup", ElectMasterResponseBody),
    ],
)
def test_bodies_are_javas_text_both_ways(key: str, kind: type[Body]) -> None:
    text = VECTORS[key]
    assert kind.from_json(text).to_json().decode() == text


def test_the_answer_of_an_election_is_read_with_javas_keys_and_written_with_keys_that_all_can_read() -> None:
    body = ElectMasterResponseBody.from_json(VECTORS["body.electMaster"])
    addresses = {1: "127.0.0.1:10911", 2: "127.0.0.1:10921"}
    assert body == ElectMasterResponseBody(BrokerMemberGroup("DefaultCluster", "broker-a", addresses), [1])
    assert json.loads(body.to_json())["brokerMemberGroup"]["brokerAddrs"] == {"1": addresses[1], "2": addresses[2]}
    assert ElectMasterResponseBody.from_json(body.to_json()) == body


def test_a_set_without_a_master_says_so_by_leaving_it_out() -> None:
    info = BrokerReplicasInfo({"b": ReplicasInfo()})
    assert "master_broker_id" not in info.to_json().decode() and BrokerReplicasInfo.from_json(info.to_json()) == info


def test_an_open_epoch_ends_at_javas_greatest_number() -> None:
    cache = EpochEntryCache.from_json(VECTORS["body.epochEntryCache"])
    assert cache.epoch_list[-1].end_offset == controller.OPEN_END


def _ext(text: str) -> dict[str, str]:
    """What Java's `toString` of a map says."""
    pairs = [part.partition("=") for part in text.strip("{}").split(", ") if part]
    return {name: value.replace("<now ms>", "1700000000000") for name, _, value in pairs}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("request.1001.0", headers.AlterSyncStateSetRequest),
        ("request.1002.1", headers.ElectMasterRequest),
        ("request.1002.2", headers.ElectMasterRequest),
        ("request.1002.3", headers.ElectMasterRequest),
        ("request.1003.4", headers.RegisterBrokerToControllerRequest),
        ("request.1004.5", headers.GetReplicaInfoRequest),
        ("request.1012.6", headers.GetNextBrokerIdRequest),
        ("request.1013.7", headers.ApplyBrokerIdRequest),
        ("request.1011.8", headers.CleanBrokerDataRequest),
        ("request.1008.9", headers.NotifyBrokerRoleChangedRequest),
        ("request.904", BrokerHeartbeatRequest),
        ("response.1005", headers.GetMetaDataResponse),
        ("response.1002", headers.ElectMasterResponse),
        ("response.1002.null", headers.ElectMasterResponse),
    ],
)
def test_headers_have_javas_fields_both_ways(key: str, kind: type[Header]) -> None:
    ext = _ext(VECTORS[key + ".extFields"])
    assert to_ext(from_ext(kind, ext)) == ext
