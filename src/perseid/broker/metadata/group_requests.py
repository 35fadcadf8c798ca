"""Consumer groups: create and change (200, 225), delete (207), read (201, 352), forbid (353), their topics (343)
and subscriptions (345). Source: store.md §9, remoting.md §15 and §16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.asks import DELETE, GET, UPDATE, a_group, each, in_body, of_cluster, of_group, of_topic
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.lite_attributes import bound_to
from perseid.broker.metadata.topic_requests import page_bounds
from perseid.wire import bodies, fastjson
from perseid.wire.bodies import SubscriptionData
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers import topics as headers

if TYPE_CHECKING:
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.metadata.groups import SubscriptionGroupTable


class Offsets(Protocol):
    """The offsets of groups."""

    path: str

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has offsets."""

    def forget_group(self, group: str) -> None:
        """The group is deleted."""


class Subscriptions(Protocol):
    """The subscriptions of connected groups."""

    def subscription(self, group: str, topic: str, *, compensated: bool = True) -> SubscriptionData | None:
        """Of a topic."""


A_GROUP = in_body(bodies.SubscriptionGroupConfig, lambda body: (a_group(body.group_name, UPDATE),))
GROUPS = in_body(
    bodies.SubscriptionGroupList,
    lambda body: (a_group(wanted.group_name, UPDATE) for wanted in body.group_config_list),
)
"""Asked for by codes 200 and 225."""


@dataclass(slots=True, kw_only=True)
class GroupRequests:
    """Requests about consumer groups."""

    turn: Turn
    settings: Settings
    groups: SubscriptionGroupTable
    offsets: Offsets
    consumers: Subscriptions
    stats: Counts
    saves: Saves

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                None,
                self.update_and_create_group,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=A_GROUP,
            ),
            Route(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                None,
                self.update_and_create_group_list,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=GROUPS,
            ),
            Route(
                Code.DELETE_SUBSCRIPTIONGROUP,
                headers.DeleteSubscriptionGroupRequest,
                self.delete_group,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=of_group(DELETE, of="group_name"),
            ),
            Route(
                Code.GET_SUBSCRIPTIONGROUP_CONFIG,
                headers.GetSubscriptionGroupConfigRequest,
                self.get_group_config,
                asks=of_group(GET, of="group"),
            ),
            Route(
                Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                headers.GetAllSubscriptionGroupConfigRequest,
                self.get_all_groups,
                asks=of_cluster(GET),
            ),
            Route(
                Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                headers.UpdateAndGetGroupForbiddenRequest,
                self.update_and_get_forbidden,
                asks=each(of_group(UPDATE, of="group"), of_topic(UPDATE)),
            ),
            Route(
                Code.QUERY_TOPICS_BY_CONSUMER,
                headers.QueryTopicsByConsumerRequest,
                self.query_topics_by_consumer,
                asks=of_group(GET, of="group"),
            ),
            Route(
                Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
                headers.QuerySubscriptionByConsumerRequest,
                self.query_subscription_by_consumer,
                asks=each(of_group(GET, of="group"), of_topic(GET)),
            ),
        )

    def update_and_create_group(self, request: Request) -> Reply:
        """Create a group or change it."""
        self.groups.update(bodies.SubscriptionGroupConfig.from_json(request.body), self.turn.now)
        return Reply()

    def update_and_create_group_list(self, request: Request) -> Reply:
        """The same for several groups: one that can't be is refused, and those before it are done."""
        for wanted in bodies.SubscriptionGroupList.from_json(request.body).group_config_list:
            self.groups.update(wanted, self.turn.now)
        return Reply()

    def delete_group(self, request: Request) -> Reply:
        """Forget a group and, if asked to, its offsets. Unknown groups succeed too."""
        header: headers.DeleteSubscriptionGroupRequest = request.header
        if header.clean_offset or bound_to(self.groups.get(header.group_name)):
            self.offsets.forget_group(header.group_name)
            self.saves.hurry(self.offsets.path)
        self.groups.delete(header.group_name, self.turn.now)
        self.stats.forget_group(header.group_name)
        return Reply()

    def get_group_config(self, request: Request) -> Reply:
        """One group's row; created with defaults where groups are created on first use, as in the original."""
        header: headers.GetSubscriptionGroupConfigRequest = request.header
        row = self.groups.find(header.group, self.settings.current, self.turn.now)
        if row is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Reply(body=row.to_json())

    def get_all_groups(self, request: Request) -> Reply:
        """All groups; a part of them for a peer that asks for pages."""
        header: headers.GetAllSubscriptionGroupConfigRequest = request.header
        table = self.groups
        rows, forbidden = table.rows, table.forbidden
        if not (header.group_seq is None and header.data_version is None and header.max_group_num is None):
            start, count = page_bounds(header.group_seq, header.max_group_num, header.data_version, table.version)
            rows = table.page(start, count)
            forbidden = {group: topics for group, topics in forbidden.items() if group in rows}
        wrapper = bodies.SubscriptionGroupWrapper(
            data_version=table.version, forbidden_table=forbidden, subscription_group_table=rows
        )
        return Reply(
            header=headers.GetAllSubscriptionGroupConfigResponse(total_group_num=len(table)), body=wrapper.to_json()
        )

    def update_and_get_forbidden(self, request: Request) -> Reply:
        """Forbid or allow a group to read a topic, if the request says which; what holds now."""
        header: headers.UpdateAndGetGroupForbiddenRequest = request.header
        if header.readable is not None:
            self.groups.set_may_read(header.group, header.topic, header.readable, self.turn.now)
        readable = self.groups.may_read(header.group, header.topic)
        return Reply(
            body=fastjson.dumps({"group": header.group, "readable": readable, "topic": header.topic}), remark=""
        )

    def query_topics_by_consumer(self, request: Request) -> Reply:
        """The topics that a group committed offsets of."""
        header: headers.QueryTopicsByConsumerRequest = request.header
        topics = sorted(self.offsets.topics_of(header.group))
        return Reply(body=bodies.TopicList(topic_list=topics, broker_addr=self.settings.current.address).to_json())

    def query_subscription_by_consumer(self, request: Request) -> Reply:
        """What a group subscribes to in a topic; without a subscription when that is not known."""
        header: headers.QuerySubscriptionByConsumerRequest = request.header
        known = self.consumers.subscription(header.group, header.topic or "")
        body = {"group": header.group, "subscriptionData": known, "topic": header.topic}
        return Reply(body=fastjson.dumps(body))
