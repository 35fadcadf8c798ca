"""CHECK_CLIENT_CONFIG (46): will this broker understand a subscription? Source: broker.md §9."""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.errors import RequestRefused
from perseid.broker.consume import filter as subscription_filter
from perseid.broker.consume.filter import Work
from perseid.broker.consume.sql92 import SqlError
from perseid.broker.kernel.asks import SUB, a_group, a_topic, in_body
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.wire.bodies import CheckClientRequestBody
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode

A_SUBSCRIPTION = in_body(
    CheckClientRequestBody,
    lambda body: (
        a_group(body.group, SUB),
        *((a_topic(body.subscription_data.topic, SUB),) if body.subscription_data is not None else ()),
    ),
)
"""Asked for by code 46."""


@dataclass(slots=True, kw_only=True)
class SubscriptionChecks:
    """Questions of consumers that start."""

    settings: Settings
    work: Work

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (Route(Code.CHECK_CLIENT_CONFIG, None, self.check_client_config, asks=A_SUBSCRIPTION),)

    def check_client_config(self, request: Request) -> Reply:
        """Will this broker understand the subscription? Asked once, when a consumer starts."""
        subscription = CheckClientRequestBody.from_json(request.body).subscription_data
        if subscription is None:
            return Reply()
        kind, sql = subscription.expression_type, self.settings.current.enable_property_filter
        if not subscription_filter.is_tag_type(kind):  # tags are taken as they are
            try:
                subscription_filter.of(kind, subscription.sub_string, self.work, sql=sql)
            except SqlError as error:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return Reply()
