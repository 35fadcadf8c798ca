"""Where a broker of ours says otherwise than Java's, on purpose: what, and why. docs/divergence.md has a row of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from questions import GROUP, OTHER, TOPIC
from secured import CLUSTER

from perseid.wire.codes import RequestCode as Code

Asks = list[tuple[str, list[str]]]


class Difference(NamedTuple):
    """What ours asks for where Java asks for less, by what the request is about; and why."""

    asks: Mapping[str, Asks]
    why: str


def _cluster(*actions: str) -> Mapping[str, Asks]:
    return {"": [(f"Cluster:{CLUSTER}", [*actions])]}


def _named(actions: list[str], *kinds: str, retried: bool = False) -> Mapping[str, Asks]:
    """Of topics and groups, in this order; `retried`: the topic may be a retry topic, which is its group."""
    names = {"Topic": f"Topic:{TOPIC}", "Group": f"Group:{GROUP}"}
    asks = {"": [(names[kind], actions) for kind in kinds]}
    return {**asks, "a retry topic": [(names["Group"], actions)]} if retried else asks


READS = "it tells of all topics, groups or settings, so it is a matter of the cluster"
CHANGES = "it changes the broker, so it is a matter of the cluster"
MAKES = "it makes or changes what the request for a single one makes or changes"
CONSUMES = "it reads or acknowledges messages, or prepares to"
TELLS = "it tells of this topic or group"

DIFFERENCES: Mapping[int, Difference] = {
    **{
        code: Difference(_cluster("Get"), READS)
        for code in (
            Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT,
            Code.GET_TIMER_METRICS, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE,
            Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.GET_BROKER_LITE_INFO,
        )
    },
    **{
        code: Difference(_cluster("Update"), CHANGES)
        for code in (
            Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC,
            Code.DELETE_EXPIRED_COMMITLOG, Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        )
    },
    Code.PULL_MESSAGE: Difference(
        {"another group's retry topic": [(f"Group:{OTHER}", ["Sub"]), (f"Group:{GROUP}", ["Sub"])]}, "they are its own",
    ),
    Code.VIEW_MESSAGE_BY_ID: Difference(
        {"no topic": _cluster("Get")[""]}, "a message by its place alone may be of any topic",
    ),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: Difference(_named(["Create"], "Topic"), MAKES),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: Difference(_named(["Create"], "Topic", retried=True), MAKES),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Difference(_named(["Update"], "Group"), MAKES),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Difference(_named(["Update"], "Group"), MAKES),
    Code.SET_MESSAGE_REQUEST_MODE: Difference(_named(["Update"], "Group", "Topic"), MAKES),
    Code.TRIGGER_LITE_DISPATCH: Difference(_named(["Update"], "Group"), MAKES),
    Code.CHECK_CLIENT_CONFIG: Difference(_named(["Sub"], "Group", "Topic"), CONSUMES),
    Code.LITE_PULL_MESSAGE: Difference(_named(["Sub"], "Topic", "Group", retried=True), CONSUMES),
    Code.QUERY_ASSIGNMENT: Difference(_named(["Sub"], "Group", "Topic"), CONSUMES),
    Code.POP_LITE_MESSAGE: Difference(_named(["Sub"], "Group", "Topic", retried=True), CONSUMES),
    Code.LITE_SUBSCRIPTION_CTL: Difference(_named(["Sub"], "Group", "Topic"), CONSUMES),
    Code.BATCH_ACK_MESSAGE: Difference(_named(["Sub"], "Group", "Topic"), CONSUMES),
    Code.GET_PARENT_TOPIC_INFO: Difference(_named(["Get"], "Topic", retried=True), TELLS),
    Code.GET_LITE_TOPIC_INFO: Difference(_named(["Get"], "Topic"), TELLS),
    Code.GET_LITE_CLIENT_INFO: Difference(_named(["Get"], "Group"), TELLS),
    Code.GET_LITE_GROUP_INFO: Difference(_named(["Get"], "Group"), TELLS),
}  # fmt: skip
