"""What brokers ask of consumers, and what they are answered."""

import pytest

from perseid.client import ConsumeMode, PushConsumer, ReceivedMessage, assigned_queue, assignment
from perseid.wire import bodies, fastjson, record
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.clients import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from perseid.wire.headers.offsets import GetConsumerStatusRequest, ResetOffsetRequest

from .fake import BROKER, FakeServer, run
from .test_consumer import Inbox, filled


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_queue, "ERROR_PAUSE_MS", 2)
    monkeypatch.setattr(assignment, "AGAIN_MS", 5)


def test_a_reset_begins_the_queue_anew() -> None:
    async def test() -> None:
        async with filled(10, 1) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await inbox.until(10)
                table = {bodies.MessageQueue("t", BROKER, 0): 4, bodies.MessageQueue("other", BROKER, 0): 1}
                header = ResetOffsetRequest(group="g", topic="t", timestamp=1)
                body = bodies.ResetOffsetBody(table).to_json()
                server.ask_clients(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
                await inbox.until(16)
            assert inbox.bodies[10:] == server.bodies("t")[4:]
            assert server.committed["g", "t", 0] == 10

    run(test())


def test_a_reset_waits_for_an_ordered_handler_that_runs() -> None:
    async def test() -> None:
        async with filled(4, 1) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED
            ):
                await server.until(lambda: inbox.started)
                header = ResetOffsetRequest(group="g", topic="t", timestamp=1)
                body = bodies.ResetOffsetBody({bodies.MessageQueue("t", BROKER, 0): 2}).to_json()
                server.ask_clients(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
                await server.until(lambda: server.count(RequestCode.LOCK_BATCH_MQ) >= 2)
                assert inbox.started == [b"000"]
                inbox.gate.set()
                await inbox.until(3)
            assert inbox.bodies == [b"000", b"002", b"003"], "nobody cancelled it, and nothing ran beside it"

    run(test())


def test_offsets_are_told() -> None:
    async def test() -> None:
        async with filled(3, 1) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first") as push:
                await server.until(lambda: push.metrics.succeeded == 3)
                header = GetConsumerStatusRequest(topic="t", group="g")
                server.ask_clients(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header, oneway=False)
                await server.until(lambda: server.answers)
                table = bodies.GetConsumerStatusBody.from_json(server.answers[0].body).message_queue_table
                assert table == {bodies.MessageQueue("t", BROKER, 0): push.offsets[push.queues[-1]]}

    run(test())


def test_running_info_has_the_shape_that_mqadmin_reads() -> None:
    async def test() -> None:
        async with filled(3, 1) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "a"}, inbox, mode=ConsumeMode.ORDERED) as push:
                await server.until(lambda: len(push.queues) == 2)
                for group in ("g", "stranger"):
                    header = GetConsumerRunningInfoRequest(consumer_group=group, client_id="c", jstack_enable=True)
                    server.ask_clients(RequestCode.GET_CONSUMER_RUNNING_INFO, header, oneway=False)
                await server.until(lambda: len(server.answers) == 2)
                info = fastjson.loads(bytes(server.answers[0].body))
                assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
                assert {row["topic"] for row in info["subscriptionSet"]} == {"t", "%RETRY%g"}
                queues = {fastjson.loads(key)["topic"]: row for key, row in info["mqTable"].items()}
                assert queues["t"]["locked"] is True
                assert "rebalance g" in info["jstack"]
                assert server.answers[1].code == ResponseCode.SYSTEM_ERROR
                assert "no consumer of group stranger" in (server.answers[1].remark or "")

    run(test())


def test_a_message_can_be_consumed_by_hand() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            got: list[ReceivedMessage] = []

            async def handle(message: ReceivedMessage) -> None:
                got.append(message)
                if message.body == b"bad":
                    raise ValueError("no good")

            async with PushConsumer(server.address, "g", {"t": "*"}, handle):
                for body in (b"good", b"bad"):
                    raw = bytes(record.encode(record.Message(topic="t", body=body)))
                    header = ConsumeMessageDirectlyRequest(consumer_group="g", broker_name=BROKER)
                    server.ask_clients(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, raw, oneway=False)
                await server.until(lambda: len(server.answers) == 2)
            answers = [bodies.ConsumeMessageDirectlyResult.from_json(a.body) for a in server.answers]
            assert sorted((a.consume_result or "", a.remark) for a in answers) == [
                ("CR_LATER", "ValueError('no good')"),
                ("CR_SUCCESS", None),
            ]
            assert {m.queue.broker_name for m in got} == {BROKER}

    run(test())


def test_a_request_that_clients_do_not_serve_is_answered_so() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with PushConsumer(server.address, "g", {"t": "*"}, Inbox(server)):
                header = GetConsumerStatusRequest(topic="t", group="g")
                server.ask_clients(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, oneway=False)
                await server.until(lambda: server.answers)
            assert server.answers[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(test())
