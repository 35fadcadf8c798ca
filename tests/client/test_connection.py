"""One connection: matching, deadlines, loss, requests of the server."""

import asyncio

import pytest

from perseid.client.connection import Connection, Connections
from perseid.client.errors import ClientError, ConnectFailed, ConnectionLost, RequestTimeout, ServerRefused
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.clients import NotifyConsumerIdsChangedRequest

from .fake import Answer, FakeServer, hang_up, run, serve_late, silence

LIST = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


def ignore(connection: Connection, command: Command) -> None:
    raise AssertionError("the server asks nothing in this test")


def test_answers_find_their_requests_in_any_order() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            gate = asyncio.Event()
            server.script[LIST] += [serve_late(gate)]
            server.script[LIST] += [lambda command: Answer(body=b"second")]
            connections = Connections(ignore)
            first = asyncio.ensure_future(connections.ask(server.address, LIST))
            await server.until(lambda: server.count(LIST) == 1)
            second = await connections.ask(server.address, LIST)
            assert bytes(second.body) == b"second"
            assert not first.done()
            gate.set()
            assert bytes((await first).body) == b'{"topicList":[]}'
            assert server.connections == 1
            await connections.close()

    run(test())


def test_many_requests_share_one_connection_and_one_write() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            connections = Connections(ignore)
            answers = await asyncio.gather(*(connections.ask(server.address, LIST) for _ in range(500)))
            assert len(answers) == 500
            assert server.connections == 1
            await connections.close()

    run(test())


def test_no_answer_in_time_is_said_with_address_and_time() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST].append(silence)
            connections = Connections(ignore)
            await connections.get(server.address)
            with pytest.raises(RequestTimeout, match=rf"{server.address} did not answer within 30 ms"):
                await connections.ask(server.address, LIST, timeout_ms=30)
            assert (await connections.ask(server.address, LIST)).code == 0
            await connections.close()

    run(test())


def test_each_deadline_holds_whatever_the_order() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST] += [silence] * 3
            connections = Connections(ignore)
            await connections.get(server.address)
            order: list[int] = []

            async def ask(timeout_ms: int) -> None:
                with pytest.raises(RequestTimeout):
                    await connections.ask(server.address, LIST, timeout_ms=timeout_ms)
                order.append(timeout_ms)

            await asyncio.gather(ask(90), ask(20), ask(50))
            assert order == [20, 50, 90]
            await connections.close()

    run(test())


def test_a_lost_connection_fails_what_waits_and_the_next_call_dials_again() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST] += [silence, hang_up]
            connections = Connections(ignore)
            results = await asyncio.gather(
                *(connections.ask(server.address, LIST) for _ in range(2)), return_exceptions=True
            )
            assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
            assert (await connections.ask(server.address, LIST)).code == 0
            assert server.connections == 2
            await connections.close()

    run(test())


def test_nobody_there() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            address = server.address
        connections = Connections(ignore)
        with pytest.raises(ConnectFailed, match="check that it runs"):
            await connections.ask(address, LIST)
        with pytest.raises(ConnectFailed, match="host:port"):
            await connections.ask("nonsense", LIST)

    run(test())


def test_an_error_code_is_raised_with_its_name_and_remark() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST].append(lambda command: Answer(ResponseCode.NO_PERMISSION, remark="not you"))
            connections = Connections(ignore)
            with pytest.raises(ServerRefused, match=r"NO_PERMISSION \(16\): not you"):
                await connections.ask(server.address, LIST)
            await connections.close()

    run(test())


def test_go_away_is_answered_with_a_new_connection() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST].append(lambda command: Answer(ResponseCode.GO_AWAY, remark="please go away"))
            connections = Connections(ignore)
            assert (await connections.ask(server.address, LIST)).code == 0
            assert server.connections == 2
            await server.until(lambda: len(server.peers) == 1)
            await connections.close()

    run(test())


def test_bytes_that_break_the_protocol_end_the_connection_only() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST].append(silence)
            connections = Connections(ignore)
            waiting = asyncio.ensure_future(connections.ask(server.address, LIST))
            await server.until(lambda: server.count(LIST) == 1)
            transport = server.peers[0].transport
            assert transport is not None
            transport.write(b"\xff\xff\xff\xff12345678")
            with pytest.raises(ConnectionLost, match="break the protocol"):
                await waiting
            assert (await connections.ask(server.address, LIST)).code == 0
            await connections.close()

    run(test())


def test_answers_cut_at_any_byte_are_put_together() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            server.script[LIST].append(silence)
            connections = Connections(ignore)
            connection = await connections.get(server.address)
            waiting = asyncio.ensure_future(connection.call(LIST))
            await server.until(lambda: server.count(LIST) == 1)
            from perseid.wire.command import encode_response

            frames = encode_response(server.seen[0].opaque, body=b"abc") + encode_response(99, body=b"nobody's")
            for at in range(len(frames)):
                connection.data_received(frames[at : at + 1])
            assert bytes((await waiting).body) == b"abc"
            await connections.close()

    run(test())


def test_requests_of_the_server_are_served_and_answered_unless_one_way() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            heard: list[str] = []

            def serve(connection: Connection, command: Command) -> None:
                heard.append(command.header(NotifyConsumerIdsChangedRequest).consumer_group)
                connection.reply(command, body=b"done")

            connections = Connections(serve)
            await connections.ask(server.address, LIST)
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            server.ask_clients(code, NotifyConsumerIdsChangedRequest(consumer_group="one-way"))
            server.ask_clients(code, NotifyConsumerIdsChangedRequest(consumer_group="asked"), oneway=False)
            await server.until(lambda: server.answers)
            assert heard == ["one-way", "asked"]
            assert [bytes(answer.body) for answer in server.answers] == [b"done"]
            await connections.close()

    run(test())


def test_after_close_calls_fail_at_once() -> None:
    async def test() -> None:
        async with FakeServer() as server:
            connections = Connections(ignore)
            connection = await connections.get(server.address)
            await connections.close()
            with pytest.raises(ClientError):
                await connection.call(LIST)

    run(test())
