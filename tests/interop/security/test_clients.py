"""Stock clients and ours that sign with keys: what their user's policies allow is done, all else refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import rig
import secured
from secured import SUPER, Policy

from perseid.client import (
    Admin,
    Credentials,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
    SendFailed,
    ServerRefused,
)
from perseid.client.session import Session

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security")]
COUNT, NO_PERMISSION = 6, 16

Make = Callable[..., Any]


def _keys(user: Credentials) -> list[str]:
    return [user.access_key, user.secret_key]


def _app(cluster: rig.Cluster, name: str, topic: str) -> Credentials:
    """A user that sends to a topic and reads it in the group of its own name; retries come through the group."""
    user = Credentials(name, f"{name}-secret")
    assert secured.create_user(cluster.broker, user).code == 0
    policies = (
        Policy([f"Topic:{topic}"], ["Pub", "Sub", "Get"], ips=["127.0.0.1"]),
        Policy([f"Group:{name}"], ["Sub"]),
    )
    assert secured.permit(cluster.broker, user, *policies).code == 0
    return user


@pytest.fixture
def topic(secured_cluster: rig.Cluster, java_agent: rig.Agent, name: str) -> str:
    """Made by Java's admin client, which signs as a Super user."""
    client, topic = rig.Client(java_agent, secured_cluster), f"t_{name}"
    with pytest.raises(rig.AgentError) as refused:
        client("admin", call="createTopic", args=["TBW102", topic, 2, {}])
    assert refused.value.code == NO_PERMISSION
    client("admin", call="createTopic", args=["TBW102", topic, 2, {}], keys=_keys(SUPER))
    rig.until(f"route of {topic}", lambda: rig.call(secured_cluster.namesrv, 105, {"topic": topic}).code == 0)
    return topic


def _messages(topic: str, count: int = COUNT) -> list[dict[str, str]]:
    return [{"topic": topic, "body": f"m{number}"} for number in range(count)]


def _sends_and_consumes(client: rig.Client, user: Credentials, topic: str, failures: int) -> None:
    """With `failures`, each message goes back to the broker once, and comes again from the retry topic."""
    keys = _keys(user)
    handle = client("push.start", topic=topic, group=user.access_key, failures=failures, keys=keys)
    results = client("send", messages=_messages(topic), keys=keys)
    assert [result["status"] for result in results] == ["SEND_OK"] * COUNT, results
    got = client.collect(handle, COUNT * (1 + failures))
    assert {m["body"] for m in got if m["reconsumeTimes"] == failures} == {f"m{n}" for n in range(COUNT)}
    client.close()


@pytest.mark.parametrize(("agent", "failures"), [("java_agent", 1), ("binary_agent", 0), ("go_agent", 0)])
def test_a_user_sends_and_consumes(
    request: pytest.FixtureRequest, secured_cluster: rig.Cluster, topic: str, name: str, agent: str, failures: int
) -> None:
    """Go's client finds its retry topic only 20 s later, so it is spared that."""
    client = rig.Client(request.getfixturevalue(agent), secured_cluster)
    _sends_and_consumes(client, _app(secured_cluster, name, topic), topic, failures)


@pytest.mark.parametrize("agent", ["java_agent", "go_agent"])
def test_others_send_nothing(
    request: pytest.FixtureRequest, secured_cluster: rig.Cluster, topic: str, name: str, agent: str
) -> None:
    """Go's client says why; Java's tells the code alone."""
    client, user = rig.Client(request.getfixturevalue(agent), secured_cluster), _app(secured_cluster, name, topic)
    other = f"{topic}_other"
    client_of_super = rig.Client(request.getfixturevalue("java_agent"), secured_cluster)
    client_of_super("admin", call="createTopic", args=["TBW102", other, 1, {}], keys=_keys(SUPER))
    rig.until("route", lambda: rig.call(secured_cluster.namesrv, 105, {"topic": other}).code == 0)
    refused: Sequence[tuple[list[str] | None, str, str]] = (
        (None, topic, "username cannot be null."),
        (["nobody", "x"], topic, "User:nobody is not found."),
        ([user.access_key, "x"], topic, "check signature failed."),
        (_keys(user), other, f"User:{name} has no permission to access Topic:{other} from 127.0.0.1"),
    )
    for keys, to, words in refused:
        signed = {"keys": keys} if keys else {}
        with pytest.raises(rig.AgentError) as e:
            results = client("send", messages=_messages(to, 1), **signed)
            raise rig.AgentError("send", results[0]["error"])
        assert words in e.value.message if agent == "go_agent" else e.value.code == NO_PERMISSION, words
    assert client("send", messages=_messages(topic, 1), keys=_keys(user))[0]["status"] == "SEND_OK"


def test_our_clients(secured_cluster: rig.Cluster, topic: str, name: str) -> None:
    user, namesrv = _app(secured_cluster, name, topic), secured_cluster.namesrv
    got: list[ReceivedMessage] = []
    enough = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise RetryLater("as the test says", delay_level=1)
        got.append(message)
        if len(got) == COUNT:
            enough.set()

    def session(credentials: Credentials | None = user) -> Session:
        return Session(namesrv, credentials=credentials)

    async def test() -> None:
        async with (
            Producer(session=session()) as producer,
            PushConsumer(namesrv, name, {topic: "*"}, handle, from_where="first", session=session()),
        ):
            for number in range(COUNT):
                await producer.send(Message(topic, b"m%d" % number))
            await enough.wait()
        async with PullConsumer(namesrv, name, from_where="first", session=session()) as reader:
            queues = await reader.queues(topic)
            assert sum([await reader.max_offset(queue) for queue in queues]) == COUNT
        async with Admin(session=session(SUPER)) as admin:
            assert (await admin.broker_config(secured_cluster.broker))["authorizationEnabled"] == "true"
        for credentials, words in ((None, "username cannot be null."), (Credentials(name, "x"), "signature failed.")):
            async with Producer(session=session(credentials)) as other:
                with pytest.raises((ServerRefused, SendFailed)) as e:
                    await other.send(Message(topic, b"x"))
                refused = e.value if isinstance(e.value, ServerRefused) else e.value.__cause__
                assert isinstance(refused, ServerRefused)
                assert refused.code == NO_PERMISSION
                assert words in refused.remark

    rig.run(test())
