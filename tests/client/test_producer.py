"""Sends: what goes over the wire, what is tried again, what is refused."""

import asyncio
from collections.abc import Callable

import pytest

from perseid.client import (
    InvalidMessage,
    Message,
    MessageQueue,
    NotStarted,
    Producer,
    ProducerOptions,
    SendFailed,
    SendStatus,
    ServerRefused,
    routes,
)
from perseid.client.errors import BadAnswer, NoRoute
from perseid.client.producer import RETRY_CODES
from perseid.wire import compression, properties
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageResponse

from .fake import BROKER, Answer, FakeServer, hang_up, refuse, run, silence

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def test_a_message_arrives_with_all_that_was_given() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, Producer(server.address, "g") as producer:
            message = Message("t", b"body", tag="a", keys="k", properties={"p": "v"}, flag=7)
            result = await producer.send(message, queue=MessageQueue("t", BROKER, 2))
            assert (result.status, result.queue.queue_id, result.queue_offset) == (SendStatus.SEND_OK, 2, 0)
            header = server.headers[0]
            values = properties.decode(header.properties)
            assert (header.producer_group, header.topic, header.flag, header.default_topic) == ("g", "t", 7, "TBW102")
            assert values == {"UNIQ_KEY": result.msg_id, "WAIT": "true", "TAGS": "a", "KEYS": "k", "p": "v"}
            assert server.bodies("t", 2) == [b"body"]

    run(test())


def test_sends_take_the_queues_in_turn() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, Producer(server.address) as producer:
            queues = [(await producer.send(Message("t", b"x"))).queue.queue_id for _ in range(8)]
            assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(test())


def test_a_key_always_goes_to_the_same_queue_and_a_selector_chooses() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, Producer(server.address) as producer:
            by_key = {(await producer.send(Message("t", b"x"), key="TagA")).queue.queue_id for _ in range(3)}
            assert by_key == {2598919 % 4}
            chosen = await producer.send(Message("t", b"x"), selector=lambda queues: queues[-1])
            assert chosen.queue.queue_id == 3

    run(test())


def test_bodies_from_4_kib_on_are_compressed_with_zlib() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address) as producer:
            await producer.send(Message("t", b"z" * 4095))
            await producer.send(Message("t", b"z" * 4096))
            small, large = server.queues["t", 0].records
            assert (len(small.body), small.sys_flag) == (4095, 0)
            assert large.sys_flag == 0x301
            assert compression.decompress(large.body, large.sys_flag) == b"z" * 4096

    run(test())


@pytest.mark.parametrize("code", sorted(RETRY_CODES - {ResponseCode.GO_AWAY}))
def test_the_retry_codes_are_tried_again_twice(code: int) -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            server.script[SEND] += [refuse(code), refuse(code)]
            result = await producer.send(Message("t", b"x"))
            assert server.count(SEND) == 3
            sent = [properties.decode(h.properties)["UNIQ_KEY"] for h in server.headers]
            assert sent == [result.msg_id], "each attempt carries the same id"

    run(test())


def test_after_three_attempts_the_error_tells_the_story() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            server.script[SEND] += [refuse(ResponseCode.SYSTEM_BUSY, "flow control")] * 3
            with pytest.raises(SendFailed, match=r"3 attempt.*fake-a, fake-a, fake-a.*flow control") as caught:
                await producer.send(Message("t", b"x"))
            assert isinstance(caught.value.__cause__, ServerRefused)
            assert caught.value.attempts == 3

    run(test())


def test_other_codes_are_raised_at_once() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            server.script[SEND] += [refuse(ResponseCode.MESSAGE_ILLEGAL)]
            with pytest.raises(ServerRefused, match=r"MESSAGE_ILLEGAL \(13\)"):
                await producer.send(Message("t", b"x"))
            assert server.count(SEND) == 1

    run(test())


def test_a_lost_connection_is_tried_again_but_a_chosen_queue_is_not() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            server.script[SEND] += [hang_up, hang_up]
            assert (await producer.send(Message("t", b"x"))).queue_offset == 0
            server.script[SEND] += [hang_up]
            with pytest.raises(SendFailed, match="1 attempt"):
                await producer.send(Message("t", b"x"), queue=MessageQueue("t", BROKER, 0))

    run(test())


def test_a_lost_send_may_be_stored_even_if_no_master_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(routes, "MIN_REFRESH_INTERVAL_MS", 0)
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            await producer.send(Message("t", b"x"))

            def dies(command: Command) -> Answer:
                server.broker_id = 1
                return hang_up(command)

            server.script[SEND] += [dies]
            with pytest.raises(SendFailed) as failed:
                await producer.send(Message("t", b"x"))
            assert failed.value.outcome_unknown
            with pytest.raises(NoRoute):
                await producer.send(Message("t", b"x"))

    run(test())


def test_the_time_is_for_all_attempts_together() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address) as producer:
            server.script[SEND] += [silence, silence, silence]
            with pytest.raises(SendFailed, match="within 80 ms"):
                await producer.send(Message("t", b"x"), timeout_ms=80)

    run(test())


@pytest.mark.parametrize("status", list(SendStatus)[1:])
def test_stored_but_less_safely_is_a_result_and_no_error(status: SendStatus) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address) as producer:
            header = SendMessageResponse(msg_id="00", queue_id=0, queue_offset=5)
            server.script[SEND].append(lambda command: Answer(status, header))
            assert (await producer.send(Message("t", b"x"))).status is status
        async with (
            FakeServer({"t": 1}) as server,
            Producer(server.address, options=ProducerOptions(retry_when_not_stored_ok=True)) as producer,
        ):
            server.script[SEND].append(lambda command: Answer(status, header))
            assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK

    run(test())


def test_a_batch_is_one_request_and_gives_one_result_a_message() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            messages = [Message("t", b"b%d" % i, tag="a", keys=[f"k{i}"]) for i in range(5)]
            results = await producer.send_batch(messages, key="k")
            assert server.count(BATCH) == 1
            assert [r.queue_offset for r in results] == [0, 1, 2, 3, 4]
            assert len({r.offset_msg_id for r in results}) == len({r.msg_id for r in results}) == 5
            stored = server.queues["t", results[0].queue.queue_id].records
            assert [bytes(m.body) for m in stored] == [m.body for m in messages]
            assert [properties.decode(m.properties)["KEYS"] for m in stored] == ["k0", "k1", "k2", "k3", "k4"]

    run(test())


def test_batches_that_no_broker_takes_are_refused_before_they_are_sent() -> None:
    async def test() -> None:
        options = ProducerOptions(max_body_bytes=100)
        async with FakeServer({"t": 2}) as server, Producer(server.address, options=options) as producer:
            for messages, says in (
                ([], "empty batch"),
                ([Message("t", b"x"), Message("u", b"x")], "one batch a topic"),
                ([Message("t", b"x", delay_level=1)], "can't be batched"),
                ([Message("t", b"x" * 60), Message("t", b"x" * 60)], "send fewer"),
            ):
                with pytest.raises(InvalidMessage, match=says):
                    await producer.send_batch(messages)
            with pytest.raises(InvalidMessage, match="32767"):
                await producer.send(Message("t", b"x", properties={"p": "v" * 33000}))
            assert server.count(BATCH) == server.count(SEND) == 0

    run(test())


def test_one_way_asks_for_no_answer() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address) as producer:
            await producer.send_oneway(Message("t", b"x"))
            await server.until(lambda: server.bodies("t"))
            assert next(c for c in server.seen if c.code == SEND).is_oneway

    run(test())


def test_a_topic_that_nobody_made_is_made_by_the_first_send() -> None:
    async def test() -> None:
        options = ProducerOptions(default_queues=2)
        async with FakeServer({"TBW102": 8}) as server, Producer(server.address, options=options) as producer:
            result = await producer.send(Message("new", b"x"))
            assert result.queue.topic == "new"
            assert server.headers[0].default_topic_queue_nums == 2
            assert len(await producer.queues("new")) == 2

    run(test())


def test_brokers_learn_of_the_producer_and_of_its_end() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with Producer(server.address, "g") as producer:
                await producer.send(Message("t", b"x"))
                await server.until(lambda: server.heartbeats)
                assert [p.group_name for p in server.heartbeats[0].producer_data_set] == ["g"]
                assert server.heartbeats[0].client_id == producer.session.client_id
            assert server.count(RequestCode.UNREGISTER_CLIENT) == 1

    run(test())


def test_a_producer_outside_of_its_life_says_so() -> None:
    async def test() -> None:
        producer = Producer("127.0.0.1:1")
        with pytest.raises(NotStarted, match="async with Producer"):
            await producer.send(Message("t", b"x"))

    run(test())


def test_a_producer_can_be_started_again() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            producer = Producer(server.address)
            for number in range(2):
                async with producer:
                    assert (await producer.send(Message("t", b"x"))).queue_offset == number

    run(test())


def test_a_shared_session_uses_one_connection_and_lives_as_long_as_its_last_user() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, Producer(server.address, "g1") as first:
            async with Producer(session=first.session, group="g2") as second:
                await second.send(Message("t", b"x"))
            await first.send(Message("t", b"x"))
            assert server.connections == 1

    run(test())


def test_many_sends_at_once() -> None:
    async def test() -> None:
        async with FakeServer({"t": 4}) as server, Producer(server.address) as producer:
            await asyncio.gather(*(producer.send(Message("t", b"%d" % i)) for i in range(300)))
            assert sorted(server.bodies("t")) == sorted(b"%d" % i for i in range(300))

    run(test())


def test_an_answer_that_can_not_be_read_is_tried_again_as_a_lost_one() -> None:
    async def test() -> None:
        no_header: Callable[[Command], Answer] = lambda command: Answer(0)  # noqa: E731
        async with FakeServer({"t": 1}) as server, Producer(server.address) as producer:
            server.script[SEND] += [no_header]
            await producer.send(Message("t", b"x"))
            server.script[SEND] += [no_header] * 3
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message("t", b"y"))
            assert isinstance(caught.value.__cause__, BadAnswer) and caught.value.outcome_unknown
            await producer.send(Message("t", b"z"))
            assert server.bodies("t") == [b"x", b"z"]

    run(test())


FAILURES = {
    "busy": refuse(ResponseCode.SYSTEM_BUSY),
    "go away": refuse(ResponseCode.GO_AWAY),  # no attempt of the producer's: the connection is changed
    "hang up": hang_up,
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_send_that_left_at_once_is_tried_again_as_any_other(name: str) -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            await producer.send(Message("t", b"first"))  # from now on the route and the connection are there
            server.script[SEND] += [FAILURES[name]]
            result = await producer.send(Message("t", b"second"))
            assert (server.count(SEND), result.status) == (3, SendStatus.SEND_OK)
            counts = producer.metrics
            assert (counts.in_flight, counts.sent, counts.failed, counts.retried) == (0, 2, 0, int(name != "go away"))

    run(test())


def test_a_send_that_left_at_once_and_is_not_answered_fails_after_its_time() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            await producer.send(Message("t", b"first"))
            server.script[SEND] += [silence]
            with pytest.raises(SendFailed, match=r"1 attempt.*within 50 ms.*did not answer") as caught:
                await producer.send(Message("t", b"second"), timeout_ms=50)
            counts = producer.metrics
            assert caught.value.outcome_unknown and (counts.in_flight, counts.sent, counts.failed) == (0, 1, 1)

    run(test())


def test_a_send_that_left_at_once_can_be_cancelled() -> None:
    async def test() -> None:
        async with FakeServer({"t": 2}) as server, Producer(server.address) as producer:
            await producer.send(Message("t", b"first"))
            server.script[SEND] += [silence]
            task = asyncio.ensure_future(producer.send(Message("t", b"second")))
            await server.until(lambda: server.count(SEND) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            counts = producer.metrics
            assert (counts.in_flight, counts.sent, counts.failed) == (0, 1, 1)
            assert (await producer.send(Message("t", b"third"))).status == SendStatus.SEND_OK

    run(test())
