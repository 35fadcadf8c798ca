"""Push consumers: delivery, retries, order, assignment, offsets, stopping."""

import asyncio
import threading
from pathlib import Path

import pytest

from perseid.client import (
    ClientError,
    ConsumeMode,
    FlowLimits,
    MessageQueue,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    RetryLater,
    assigned_queue,
    assignment,
    consumer,
)
from perseid.wire import properties
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest
from perseid.wire.headers.pull import PullMessageRequest

from .fake import BROKER, Answer, FakeServer, hang_up, refuse, run

PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (assigned_queue, "ERROR_PAUSE_MS", 2),
        (assigned_queue, "LOCK_PAUSE_MS", 2),
        (assignment, "AGAIN_MS", 5),
        (assignment, "COMMIT_INTERVAL_MS", 5),
        (consumer, "RESUBMIT_MS", 5),
    ):
        monkeypatch.setattr(module, name, value)


class Inbox:
    """A handler that keeps what it gets, and can be told to fail."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.messages: list[ReceivedMessage] = []
        self.fail: dict[bytes, list[Exception | bool]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.started: list[bytes] = []

    async def __call__(self, message: ReceivedMessage) -> bool:
        self.started.append(message.body)
        self.server.changed()
        await self.gate.wait()
        failures = self.fail.get(message.body)
        if failures:
            failure = failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        self.messages.append(message)
        self.server.changed()
        return True

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until(self, count: int) -> None:
        await self.server.until(lambda: len(self.messages) >= count)


def filled(count: int, queues: int = 2, topic: str = "t") -> FakeServer:
    server = FakeServer({topic: queues})
    for number in range(count):
        values = {"UNIQ_KEY": f"U{number}", "TAGS": "ab"[number // queues % 2]}
        server.store(topic, number % queues, b"%03d" % number, values)
    return server


def test_every_message_is_handled_and_committed_at_the_end() -> None:
    async def test() -> None:
        async with filled(50) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first") as push:
                await inbox.until(50)
                assert sorted(inbox.bodies) == [b"%03d" % n for n in range(50)]
                await server.until(lambda: len(push.queues) == 3)
                assert [str(q) for q in push.queues] == ["%RETRY%g/fake-a/0", "t/fake-a/0", "t/fake-a/1"]
                server.store("t", 0, b"late")
                await inbox.until(51)
            assert {k[2]: v for k, v in server.committed.items() if k[1] == "t"} == {0: 26, 1: 25}
            assert server.members["g"] == set()

    run(test())


def test_heartbeats_tell_the_subscriptions() -> None:
    async def test() -> None:
        async with filled(0) as server, PushConsumer(server.address, "g", {"t": "a || b"}, Inbox(server)):
            data = server.heartbeats[0].consumer_data_set[0]
            assert (data.group_name, data.consume_type, data.message_model) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")
            assert [(s.topic, s.sub_string) for s in data.subscription_data_set] == [("t", "a || b"), ("%RETRY%g", "*")]

    run(test())


def test_tags_that_are_not_wanted_are_passed_over_and_committed() -> None:
    async def test() -> None:
        async with filled(20) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "a"}, inbox, from_where="first"):
                await inbox.until(10)
                await server.until(lambda: server.count(PULL) >= 5)
            assert {m.tag for m in inbox.messages} == {"a"}
            assert server.committed["g", "t", 0] == server.committed["g", "t", 1] == 10

    run(test())


@pytest.mark.parametrize("failure", [ValueError("broken"), RetryLater(delay_level=2), False])
def test_a_failed_message_is_given_back_and_the_offset_moves_on(failure: Exception | bool) -> None:
    async def test() -> None:
        async with filled(10, 1) as server:
            inbox = Inbox(server)
            inbox.fail[b"004"] = [failure]
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await server.until(lambda: server.sent_back and len(inbox.messages) == 9)
            back = server.sent_back[0]
            assert (back.group, back.origin_topic, back.max_reconsume_times) == ("g", "t", 16)
            assert back.delay_level == (2 if isinstance(failure, RetryLater) else 0)
            assert back.offset == 5000, "the place in the broker's log"
            assert server.committed["g", "t", 0] == 10

    run(test())


def test_when_giving_back_fails_the_message_is_sent_to_the_retry_topic() -> None:
    async def test() -> None:
        async with filled(3, 1) as server:
            server.script[BACK].append(refuse(ResponseCode.SYSTEM_ERROR))
            inbox = Inbox(server)
            inbox.fail[b"001"] = [False]
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", options=PushOptions(max_reconsume_times=5)
            ) as push:
                await server.until(lambda: server.headers and len(inbox.messages) >= 2)
                assert push.metrics.sent_back <= 1
            header = server.headers[0]
            values = properties.decode(header.properties)
            assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 1, 5)
            assert (values["RETRY_TOPIC"], values["DELAY"], values["UNIQ_KEY"]) == ("t", "3", "U1")

    run(test())


def test_when_nobody_takes_it_back_it_is_handled_again_here() -> None:
    async def test() -> None:
        async with filled(1, 1) as server:
            server.script[BACK].append(refuse(ResponseCode.SYSTEM_ERROR))
            server.script[SEND] += [refuse(ResponseCode.SYSTEM_ERROR)] * 3
            inbox = Inbox(server)
            inbox.fail[b"000"] = [False]
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await inbox.until(1)
                assert inbox.messages[0].reconsume_times == 1
            assert server.committed["g", "t", 0] == 1

    run(test())


def test_what_comes_back_by_the_retry_topic_has_its_own_topic() -> None:
    async def test() -> None:
        async with filled(0) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox):
                server.store("%RETRY%g", 0, b"again", {"RETRY_TOPIC": "t", "UNIQ_KEY": "U", "TAGS": "a"})
                await inbox.until(1)
            assert (inbox.messages[0].topic, inbox.messages[0].queue.topic) == ("t", "%RETRY%g")

    run(test())


def test_an_unfinished_message_holds_the_offset_back() -> None:
    async def test() -> None:
        async with filled(6, 1) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            options = PushOptions(concurrency=1)
            push = PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first", options=options)
            await push.start()
            await server.until(lambda: inbox.started)
            await push.stop(patience_ms=10)
            assert server.committed.get(("g", "t", 0), 0) == 0
            assert inbox.messages == []

    run(test())


def test_stopping_lets_running_handlers_finish_but_starts_no_new_ones() -> None:
    async def test() -> None:
        async with filled(6, 1) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            options = PushOptions(concurrency=2)
            push = PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first", options=options)
            await push.start()
            await server.until(lambda: len(inbox.started) == 2)
            stopping = asyncio.ensure_future(push.stop())
            await server.until(lambda: push.stopping)
            inbox.gate.set()
            await stopping
            assert inbox.bodies == [b"000", b"001"]
            assert server.committed["g", "t", 0] == 2

    run(test())


def test_pulling_pauses_while_too_much_waits() -> None:
    async def test() -> None:
        async with filled(200, 1) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            limits = FlowLimits(max_messages=40)
            options = PushOptions(limits=limits, concurrency=1)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", options=options
            ) as push:
                await server.until(lambda: push.metrics.flow_controlled)
                process_queue = next(h.process_queue for q, h in push.assignment.queues.items() if q.topic == "t")
                assert len(process_queue.messages) == 64, "two pulls of 32: the second one went over 40"
                inbox.gate.set()
                await inbox.until(200)

    run(test())


def test_handlers_run_at_the_same_time_up_to_the_limit() -> None:
    async def test() -> None:
        async with filled(20, 4) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            options = PushOptions(concurrency=3)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", options=options
            ) as push:
                await server.until(lambda: push.metrics.pulled == 20)
                assert len(inbox.started) == 3
                inbox.gate.set()
                await inbox.until(20)

    run(test())


def test_a_plain_function_runs_in_a_thread() -> None:
    async def test() -> None:
        async with filled(5) as server:
            loop, threads, done = asyncio.get_running_loop(), set(), []

            def handle(message: ReceivedMessage) -> None:
                threads.add(threading.current_thread())
                done.append(message.body)
                loop.call_soon_threadsafe(server.changed)

            async with PushConsumer(server.address, "g", {"t": "*"}, handle, from_where="first"):
                await server.until(lambda: len(done) == 5)
            assert threading.main_thread() not in threads

    run(test())


def test_a_handler_that_takes_too_long_counts_as_failed() -> None:
    async def test() -> None:
        async with filled(1, 1) as server:
            inbox = Inbox(server)
            inbox.gate.clear()
            options = PushOptions(consume_timeout_ms=20)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first", options=options):
                await server.until(lambda: server.sent_back)

    run(test())


# ---- ordered ----


def test_ordered_queues_are_locked_and_handled_one_after_the_other() -> None:
    async def test() -> None:
        async with filled(40) as server:
            inbox = Inbox(server)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED
            ) as push:
                await inbox.until(40)
                assert {k for k in server.locks if k[0] == "t"} == {("t", 0), ("t", 1)}
                assert set(server.locks.values()) == {push.session.client_id}
            for queue in (0, 1):
                assert [m.body for m in inbox.messages if m.queue.queue_id == queue] == server.bodies("t", queue)
            assert server.locks == {}
            assert server.committed["g", "t", 0] == 20

    run(test())


def test_an_ordered_message_that_fails_is_tried_in_its_place() -> None:
    async def test() -> None:
        async with filled(5, 1) as server:
            inbox = Inbox(server)
            inbox.fail[b"002"] = [False, RetryLater(after_ms=11), ValueError("third")]
            options = PushOptions(suspend_ms=10)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED, options=options
            ):
                await inbox.until(5)
            assert inbox.started == [b"000", b"001", b"002", b"002", b"002", b"002", b"003", b"004"]
            assert inbox.messages[2].reconsume_times == 3
            assert server.sent_back == []

    run(test())


def test_after_the_last_time_an_ordered_message_goes_to_the_retry_topic() -> None:
    async def test() -> None:
        async with filled(3, 1) as server:
            inbox = Inbox(server)
            inbox.fail[b"001"] = [False] * 3
            async with PushConsumer(
                server.address,
                "g",
                {"t": "*"},
                inbox,
                from_where="first", mode=ConsumeMode.ORDERED, options=PushOptions(suspend_ms=10, max_reconsume_times=2),
            ):
                await server.until(lambda: len(inbox.messages) == 2 and server.headers)
            assert inbox.bodies == [b"000", b"002"]
            header = server.headers[0]
            assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 2)

    run(test())


def test_a_queue_that_another_member_has_locked_is_waited_for() -> None:
    async def test() -> None:
        async with filled(4) as server:
            server.locks["t", 1] = "somebody-else"
            inbox = Inbox(server)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED
            ):
                await inbox.until(2)
                await server.until(lambda: server.count(RequestCode.LOCK_BATCH_MQ) >= 4)
                assert {m.queue.queue_id for m in inbox.messages} == {0}
                del server.locks["t", 1]
                await inbox.until(4)

    run(test())


def test_without_its_lock_a_queue_stands_still() -> None:
    async def test() -> None:
        async with filled(2, 1) as server:
            inbox = Inbox(server)
            async with PushConsumer(
                server.address, "g", {"t": "*"}, inbox, from_where="first", mode=ConsumeMode.ORDERED
            ) as push:
                await inbox.until(2)
                queue = next(h for q, h in push.assignment.queues.items() if q.topic == "t")
                queue.lock_until = 0.0
                server.store("t", 0, b"new")
                await server.until(lambda: queue.process_queue.messages)
                assert len(inbox.started) == 2
                await push.assignment.renew_locks()
                await inbox.until(3)

    run(test())


# ---- assignment ----


def test_two_members_share_the_queues_and_the_one_that_stays_gets_all_back() -> None:
    async def test() -> None:
        async with filled(40, 4) as server:
            inbox = Inbox(server)
            notice = NotifyConsumerIdsChangedRequest(consumer_group="g")

            def tell() -> None:
                server.ask_clients(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice)

            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first") as one:
                await inbox.until(40)
                await one.assignment.persist()
                async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first") as two:
                    tell()
                    await server.until(lambda: _mine(one) and len(_mine(one)) == len(_mine(two)) == 2)
                    assert sorted(_mine(one) + _mine(two)) == [0, 1, 2, 3]
                tell()
                await server.until(lambda: len(_mine(one)) == 4)
            assert len(inbox.messages) == 40, "what was committed does not come again"

    run(test())


def _mine(push: PushConsumer) -> list[int]:
    return [queue.queue_id for queue in push.queues if queue.topic == "t"]


def test_no_commit_overtakes_another() -> None:
    """A broker with several threads may take two that are on their way in either order."""

    async def test() -> None:
        async with filled(1, 1) as server:
            inbox, gate, served = Inbox(server), asyncio.Event(), asyncio.Event()

            async def late(command: Command) -> Answer:
                await gate.wait()
                served.set()
                return Answer(-1)

            server.script[COMMIT].append(late)
            push = PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first")
            await push.start()
            await inbox.until(1)
            await server.until(lambda: server.count(COMMIT))  # by itself, as the offset has moved
            server.store("t", 0, b"next")
            await inbox.until(2)
            stopping = asyncio.ensure_future(push.stop())
            for _ in range(5):  # so long that the last commit has arrived, if it waits for nothing
                await push.puller.pull(MessageQueue("t", BROKER, 0), 2, push.subscriptions["t"], hold_ms=0)
            gate.set()
            await stopping
            await served.wait()
            assert server.committed["g", "t", 0] == 2
            pulls = [command.header(PullMessageRequest) for command in server.seen if command.code == PULL]
            assert pulls and not any(pull.sys_flag & 1 for pull in pulls), "none commits on its way"

    run(test())


def test_a_broker_that_forgot_us_gets_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        from perseid.client import session

        monkeypatch.setattr(session, "MIN_HEARTBEAT_INTERVAL_MS", 0)
        async with filled(2, 1) as server:
            server.script[PULL].append(refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST))
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await inbox.until(2)
                assert len(server.heartbeats) >= 2

    run(test())


def test_a_broker_that_restarts_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with filled(4) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await inbox.until(4)
                await server.stop()
                await server.start()
                server.store("t", 1, b"after")
                await inbox.until(5)

    run(test())


def test_a_topic_that_appears_later_is_consumed() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first") as push:
                server.queues_of["t"] = 1
                server.store("t", 0, b"first")
                await push.session.routes.refresh_all()
                await inbox.until(1)

    run(test())


def test_an_offset_out_of_range_begins_where_the_broker_says() -> None:
    async def test() -> None:
        async with filled(5, 1) as server:
            server.queues["t", 0].first = 50
            server.committed["g", "t", 0] = 7
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox):
                await inbox.until(5)
            assert [m.queue_offset for m in inbox.messages] == [50, 51, 52, 53, 54]
            assert server.committed["g", "t", 0] == 55

    run(test())


@pytest.mark.parametrize(("where", "expected"), [("first", 0), ("last", 5), (1_700_000_000_003, 3)])
def test_where_a_new_group_begins(where: str | int, expected: int) -> None:
    async def test() -> None:
        async with filled(5, 1) as server:
            server.young = False
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where=where):
                await server.until(lambda: server.count(PULL) >= 2)
                server.store("t", 0, b"new")
                await inbox.until(6 - expected)
            assert [m.queue_offset for m in inbox.messages] == list(range(expected, 6))

    run(test())


def test_broadcasting_takes_all_queues_and_keeps_offsets_in_a_file(tmp_path: Path) -> None:
    async def test() -> None:
        async with filled(6, 2) as server:
            inboxes = [Inbox(server), Inbox(server)]
            inboxes[0].fail[b"003"] = [False]
            for number, inbox in enumerate(inboxes):
                options = PushOptions(offsets_folder=tmp_path / str(number))
                async with PushConsumer(
                    server.address,
                    "g",
                    {"t": "*"},
                    inbox,
                    from_where="first", mode=ConsumeMode.BROADCAST, options=options,
                ) as push:
                    await inbox.until(5 if number == 0 else 6)
                    await server.until(lambda p=push: sum(p.offsets.values()) == 6)
                    assert not any(q.topic.startswith("%RETRY%") for q in push.queues)
            assert server.sent_back == []
            assert server.committed == {}
            server.store("t", 0, b"more")
            again = Inbox(server)
            options = PushOptions(offsets_folder=tmp_path / "0")
            async with PushConsumer(
                server.address, "g", {"t": "*"}, again, mode=ConsumeMode.BROADCAST, options=options
            ):
                await again.until(1)
            assert again.bodies == [b"more"]

    run(test())


def test_trouble_while_pulling_is_waited_out() -> None:
    async def test() -> None:
        async with filled(4, 1) as server:
            server.script[PULL] += [refuse(ResponseCode.SYSTEM_BUSY), hang_up, refuse(ResponseCode.FLOW_CONTROL)]
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox, from_where="first"):
                await inbox.until(4)

    run(test())


def test_pause_and_resume() -> None:
    async def test() -> None:
        async with filled(0, 1) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"t": "*"}, inbox) as push:
                push.pause()
                push.resume()
                server.store("t", 0, b"x")
                await inbox.until(1)

    run(test())


def test_arguments_that_can_not_be_meant() -> None:
    for kwargs, says in (
        ({"group": "", "subscriptions": {"t": "*"}}, "name of its group"),
        ({"group": "g", "subscriptions": {}}, "subscribes to nothing"),
        ({"group": "g", "subscriptions": {"t": "*"}, "from_where": "middle"}, "'last', 'first', or a time"),
    ):
        with pytest.raises(ClientError, match=says):
            PushConsumer("h:1", handler=print, **kwargs)  # type: ignore[arg-type]


def test_queue_names_of_the_fake() -> None:
    assert BROKER == "fake-a"


def test_a_topic_that_comes_after_its_consumer_is_read_soon() -> None:
    """Within the deadline of `run`, which is shorter than the 30 s between two polls of all routes."""

    async def test() -> None:
        async with filled(0) as server:
            inbox = Inbox(server)
            async with PushConsumer(server.address, "g", {"later": "*"}, inbox, from_where="first"):
                server.queues_of["later"] = 2
                server.store("later", 1, b"first")
                await inbox.until(1)
                assert inbox.bodies == [b"first"]

    run(test())
