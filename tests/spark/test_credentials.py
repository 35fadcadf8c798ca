"""The source's own sockets sign what they ask, as all clients do."""

import pytest
from tests.client.fake import BROKER, FakeServer, in_a_thread

from perseid.client import MessageQueue
from perseid.client.subscription import ALL, Subscription
from perseid.spark.pulls import Pulls
from perseid.wire.codes import RequestCode


def test_pulls_are_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = MessageQueue("t", BROKER, 0)
    with in_a_thread(FakeServer({"t": 1})) as server:
        for number in range(3):
            server.store("t", 0, b"%d" % number)
        for signs in (False, True):
            if signs:
                monkeypatch.setenv("PERSEID_ACCESS_KEY", "me")
                monkeypatch.setenv("PERSEID_SECRET_KEY", "key")
            with Pulls(server.address, "g", queue, Subscription.parse("t", ALL, 0)) as pulls:
                assert list(pulls.read(0, 3))
            pull = server.seen[-1]
            assert pull.code == RequestCode.PULL_MESSAGE
            assert (pull.ext.get("AccessKey") == "me" and bool(pull.ext["Signature"])) is signs
