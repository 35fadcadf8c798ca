"""Static topics are refused with a word, by source and sink. Without Spark."""

import pytest
from tests.badinput.rig import Peer
from tests.badinput.test_static_topics import GOOD, tell

from perseid.base.errors import ConfigError
from perseid.spark import options as source_options
from perseid.spark import sink_options
from perseid.spark.bounds import Bounds
from perseid.spark.sender import Sender
from perseid.spark.sink_options import SinkError
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode


def test_logical_queues_are_refused() -> None:
    with EmbeddedBroker() as broker:
        with Peer(broker.address) as peer:
            assert tell(peer, GOOD).code == 0
        with Peer(broker.namesrv) as names:  # a change is told in the turn of the request
            while names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "S"}).code:
                pass
        where = {"nameserver": broker.namesrv}
        with (
            Bounds(source_options.parse({**where, "subscribe": "S"}, streaming=False)) as bounds,
            pytest.raises(ConfigError, match="S is a static topic"),
        ):
            bounds.queues()
        with (
            Sender(sink_options.parse({**where, "topic": "S"})) as sender,
            pytest.raises(SinkError, match="S is a static topic"),
        ):
            sender.ends("S")
