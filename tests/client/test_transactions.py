"""The transactional producer: on a scripted server, then on our own broker."""

import asyncio
from collections.abc import Iterator

import pytest

from perseid.broker.config import BrokerConfig
from perseid.client import (
    ClientError,
    InvalidMessage,
    Message,
    PullConsumer,
    ReceivedMessage,
    SendFailed,
    SendResult,
    Session,
    Sql,
    TransactionProducer,
    TransactionState,
    transactions,
)
from perseid.client.blocking import BlockingPullConsumer, BlockingTransactionProducer
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import properties as props
from perseid.wire import record
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.headers.send import CheckTransactionStateRequest, EndTransactionRequest, SendMessageResponse

from .fake import BROKER, Answer, FakeServer, hang_up, refuse, run

SAID_AT_ONCE = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}
"""Not asked about, however slow the machine is."""
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def words(server: FakeServer) -> list[EndTransactionRequest]:
    return [c.header(EndTransactionRequest) for c in server.seen if c.code == RequestCode.END_TRANSACTION]


def taken(server: FakeServer, count: int = 9) -> None:
    """The server takes words."""
    server.script[RequestCode.END_TRANSACTION].extend([lambda command: Answer()] * count)


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"nobody asked about {message!r}")


def question(group: str = "g", body: bytes = b"half", offset: int = 7) -> tuple[CheckTransactionStateRequest, bytes]:
    properties = props.encode({"UNIQ_KEY": "ID", "PGROUP": group, "TRAN_MSG": "true"})
    header = CheckTransactionStateRequest(
        topic="t", tran_state_table_offset=offset, commit_log_offset=4711, msg_id="ID", transaction_id="ID",
        broker_name=BROKER,
    )  # fmt: skip
    return header, bytes(record.encode(record.Message(topic="t", body=body, properties=properties)))


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_half_is_sent_and_decided(state: TransactionState) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            taken(server)
            halves: list[SendResult] = []

            def local(half: SendResult) -> TransactionState:
                halves.append(half)
                assert not words(server), "the local transaction comes first"
                return state

            async with TransactionProducer(server.address, "g", never) as producer:
                done = await producer.send_in_transaction(Message("t", b"half", tag="a"), local)
            assert (done.state, done.told, [done.half]) == (state, True, halves)
            [header] = server.headers
            sent = props.decode(header.properties.encode())
            assert (sent["TRAN_MSG"], sent["PGROUP"], sent["TAGS"], header.sys_flag) == ("true", "g", "a", 4)
            [word] = words(server)
            assert (word.producer_group, word.commit_or_rollback, word.msg_id) == ("g", int(state), done.half.msg_id)
            assert word.tran_state_table_offset == done.half.queue_offset and not word.from_transaction_check
            assert word.commit_log_offset == int(done.half.offset_msg_id[-16:], 16) and word.topic == "t"

    run(test())


def test_unknown_says_nothing_and_what_fails_is_raised() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, TransactionProducer(server.address, "g", never) as producer:

            async def unknown(half: SendResult) -> TransactionState:
                return UNKNOWN

            assert not (await producer.send_in_transaction(Message("t", b"a"), unknown)).told
            with pytest.raises(ZeroDivisionError):
                await producer.send_in_transaction(Message("t", b"b"), lambda half: 1 // 0)  # type: ignore[arg-type, return-value]
            with pytest.raises(ClientError, match="return a TransactionState"):
                await producer.send_in_transaction(Message("t", b"c"), lambda half: True)  # type: ignore[arg-type, return-value]
            assert len(server.headers) == 3 and not words(server)

    run(test())


def test_halves_of_one_key_go_to_the_queue_of_a_send_with_this_key() -> None:
    async def test() -> None:
        async with FakeServer({"t": 16}) as server, TransactionProducer(server.address, "g", never) as producer:
            taken(server)
            queues = {(await producer.send(Message("t", b"a"), key="anna")).queue}
            for _ in range(3):
                queues.add((await producer.begin(Message("t", b"a"), key="anna")).queue)
                done = await producer.send_in_transaction(Message("t", b"a"), lambda half: COMMIT, key="anna")
                queues.add(done.half.queue)
            assert len(queues) == 1

    run(test())


def test_a_half_that_is_stored_less_safely_is_rolled_back() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, TransactionProducer(server.address, "g", never) as producer:
            taken(server)
            server.script[RequestCode.SEND_MESSAGE_V2].append(
                lambda command: Answer(ResponseCode.FLUSH_DISK_TIMEOUT, SendMessageResponse("0" * 32, 0, 5))
            )
            done = await producer.send_in_transaction(Message("t", b"a"), lambda half: COMMIT)
            assert (done.state, [w.commit_or_rollback for w in words(server)]) == (ROLLBACK, [12])

    run(test())


@pytest.mark.parametrize("failure", [hang_up, refuse(ResponseCode.SYSTEM_ERROR)])
def test_a_word_that_is_not_acknowledged_is_no_error(failure: object) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, TransactionProducer(server.address, "g", never) as producer:
            server.script[RequestCode.END_TRANSACTION].append(failure)  # type: ignore[arg-type]
            done = await producer.send_in_transaction(Message("t", b"a"), lambda half: COMMIT)
            assert (done.state, done.told) == (COMMIT, False)

    run(test())


def test_a_half_that_is_not_stored_runs_nothing() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            server.script[RequestCode.SEND_MESSAGE_V2].extend([refuse(ResponseCode.SYSTEM_ERROR)] * 3)
            async with TransactionProducer(server.address, "g", never) as producer:
                with pytest.raises(SendFailed):
                    await producer.send_in_transaction(Message("t", b"a"), never)  # type: ignore[arg-type]

    run(test())


@pytest.mark.parametrize(
    "message",
    [Message("t", b"x", delay_level=1), Message("t", b"x", properties={"PGROUP": "other"}),
     Message("t", b"x", properties={"TRAN_MSG": "false"}), Message("t", b"")],
)  # fmt: skip
def test_messages_that_no_transaction_can_have(message: Message) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, TransactionProducer(server.address, "g", never) as producer:
            with pytest.raises(InvalidMessage):
                await producer.begin(message)

    run(test())


# ---- questions ----


@pytest.mark.parametrize("is_async", [True, False])
def test_questions_are_answered(is_async: bool) -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            asked: list[ReceivedMessage] = []
            loop = asyncio.get_running_loop()
            states = {b"yes": COMMIT, b"no": ROLLBACK, b"who knows": UNKNOWN}

            def check(message: ReceivedMessage) -> TransactionState:
                asked.append(message)
                loop.call_soon_threadsafe(server.changed)
                return states[message.body]

            async def later(message: ReceivedMessage) -> TransactionState:
                return check(message)

            given = later if is_async else check
            async with TransactionProducer(server.address, "g", given, topics=["t"]):
                assert [p.group_name for p in server.heartbeats[0].producer_data_set] == ["g"], "known before it sends"
                for number, body in enumerate([*states, b"it fails"]):
                    server.ask_clients(RequestCode.CHECK_TRANSACTION_STATE, *question(body=body, offset=number))
                server.ask_clients(RequestCode.CHECK_TRANSACTION_STATE, *question(group="another"))
                await server.until(lambda: len(words(server)) == 2 and len(asked) == 4)
            told = sorted((w.tran_state_table_offset, w.commit_or_rollback) for w in words(server))
            assert told == [(0, 8), (1, 12)]
            word = words(server)[0]
            assert word.from_transaction_check and (word.commit_log_offset, word.msg_id) == (4711, "ID")
            assert {(m.topic, m.msg_id, m.queue.broker_name) for m in asked} == {("t", "ID", BROKER)}

    run(test())


def test_too_many_questions_are_left_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_CHECKS_WAITING", 2)

    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            gate = asyncio.Event()

            async def check(message: ReceivedMessage) -> TransactionState:
                await gate.wait()
                return COMMIT

            async with TransactionProducer(server.address, "g", check, topics=["t"]) as producer:
                message = ReceivedMessage(record.decode(question()[1]), BROKER)
                waiting = [asyncio.ensure_future(producer.answer(message)) for _ in range(2)]
                while producer.waiting < 2:
                    await asyncio.wait(waiting, timeout=0)
                assert await producer.answer(message) is UNKNOWN
                gate.set()
                assert await asyncio.gather(*waiting) == [COMMIT, COMMIT]

    run(test())


def test_one_producer_of_a_group_a_session() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            session = Session(server.address)
            first = TransactionProducer("", "g", never, session=session)
            second = TransactionProducer("", "g", never, session=session)
            async with first:
                with pytest.raises(ClientError, match="already"):
                    await second.start()
            async with second:
                assert session.checkers == {"g": second}
            assert not session.checkers
            with pytest.raises(ClientError, match="name of its group"):
                TransactionProducer("", "", never)

    run(test())


def test_a_broker_that_was_away_is_greeted_again() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server, TransactionProducer(server.address, "g", never) as producer:
            await producer.begin(Message("t", b"one"))
            await server.until(lambda: server.heartbeats)
            known = len(server.heartbeats)
            server.script[RequestCode.SEND_MESSAGE_V2].append(hang_up)
            await producer.begin(Message("t", b"two"))
            await server.until(lambda: len(server.heartbeats) > known)

    run(test())


# ---- on our broker ----


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Asks soon, and filters."""
    config = BrokerConfig(
        broker_name="tx", transaction_time_out=200, transaction_check_interval=200, enable_property_filter=True
    )
    with EmbeddedBroker(broker=config) as running:
        yield running


def test_what_is_committed_is_delivered_and_nothing_else(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        broker_asks: dict[bytes, TransactionState] = {b"asked": COMMIT, b"asked and dropped": ROLLBACK}
        asked: list[bytes] = []

        async def check(message: ReceivedMessage) -> TransactionState:
            asked.append(message.body)
            return broker_asks[message.body]

        said = {b"said": COMMIT, b"dropped": ROLLBACK, b"asked": UNKNOWN, b"asked and dropped": UNKNOWN}
        async with TransactionProducer(broker.namesrv, "g", check) as producer:
            for body, state in said.items():
                message = Message("tx", body, properties={"price": "5"} | ({} if state is UNKNOWN else SAID_AT_ONCE))
                done = await producer.send_in_transaction(message, lambda half, state=state: state)
                assert done.told == (state is not UNKNOWN)
            async with PullConsumer(broker.namesrv, "c", from_where="first", expression=Sql("price > 4")) as consumer:
                consumer.assign(await consumer.queues("tx"))
                got: list[bytes] = []
                while len(got) < 2 or len(asked) < 2:
                    got += [m.body for m in await consumer.poll()]
                got += [m.body for m in await consumer.poll(timeout_ms=500)]
        assert sorted(got) == [b"asked", b"said"] and set(asked) == broker_asks.keys()

    run(test())


def test_another_process_answers_for_one_that_is_gone(broker: EmbeddedBroker) -> None:
    async def test() -> None:
        async with TransactionProducer(broker.namesrv, "relay", never) as first:
            await first.begin(Message("relay", b"half"))
        asked = asyncio.Event()

        async def check(message: ReceivedMessage) -> TransactionState:
            asked.set()
            return COMMIT

        async with (
            TransactionProducer(broker.namesrv, "relay", check, topics=["relay"]),
            PullConsumer(broker.namesrv, "c", from_where="first") as consumer,
        ):
            consumer.assign(await consumer.queues("relay"))
            while not (got := await consumer.poll()):
                pass
            assert asked.is_set() and [m.body for m in got] == [b"half"]

    run(test())


def test_the_blocking_producer(broker: EmbeddedBroker) -> None:
    from threading import current_thread

    threads = []

    def local(half: SendResult) -> TransactionState:
        threads.append(current_thread())
        return COMMIT

    with BlockingTransactionProducer(broker.namesrv, "blocking", lambda message: ROLLBACK) as producer:
        assert producer.send_in_transaction(Message("blocking", b"yes", properties=SAID_AT_ONCE), local).told
        dropped = producer.begin(Message("blocking", b"no", properties=SAID_AT_ONCE))
        assert producer.end(dropped, ROLLBACK).told and threads == [current_thread()]
        assert producer.send(Message("blocking", b"plain")).status == 0
    with BlockingPullConsumer(broker.namesrv, "c", from_where="first") as consumer:
        consumer.assign(consumer.queues("blocking"))
        got: set[bytes] = set()
        while len(got) < 2:
            got |= {m.body for m in consumer.poll()}
    assert got == {b"yes", b"plain"}
