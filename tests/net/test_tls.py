"""TLS on the driver's listeners and dials, over real sockets, beside what bad peers do to it."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from perseid.base.machine import Close, Closed, Connect, ConnectFailed, Frames, Opened, Write
from perseid.net.connection import Connection
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.security.certificates import client_context, server_context
from perseid.security.tls import ClientSide, Mode, ServerSide
from pki import files

from .world import DEADLINE, FRAME, MemoryDisk, Node, Running, echo, ended

OPENSSL = shutil.which("openssl")


def taking(mode: Mode = Mode.PERMISSIVE, ask: str = "none", name: str = "server") -> ServerSide:
    context = server_context(files().own(name), trust=files().ca, ask=ask) if ask != "none" else None
    context = context or server_context(files().own(name))
    return ServerSide(mode, lambda: context)


def dialling(own: str = "") -> ClientSide:
    context = client_context(trust=files().ca, own=files().own(own) if own else None)
    return ClientSide(lambda: context)


class Secured(Running):
    """A driver that takes TLS."""

    def __init__(
        self,
        node: Node,
        side: ServerSide | None = None,
        limits: Limits | None = None,
        dials: Mapping[str, ClientSide] | None = None,
    ) -> None:
        super().__init__(node)
        self.driver = Driver(node, MemoryDisk(), {"main": Listener(tls=side or taking())}, limits=limits, dials=dials)
        self._changed = asyncio.Event()
        gone, shake_soon = self.driver.gone, self.driver.shake_soon
        self.driver.gone = lambda *args: (gone(*args), self._changed.set())
        self.driver.shake_soon = lambda one: (shake_soon(one), self._changed.set())[0]

    async def until(self, ready: Callable[[], bool]) -> None:
        """Of handshakes and connections of the driver, which the node does not hear of."""
        async with asyncio.timeout(DEADLINE):
            while not ready():
                self._changed.clear()
                await self._changed.wait()

    async def dial_tls(self, own: str = "", version: ssl.TLSVersion | None = None) -> Any:
        context = client_context(trust=files().ca, own=files().own(own) if own else None)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        port = self.driver.ports["main"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        self.writers.append(writer)
        return reader, writer


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = FRAME) -> None:
    writer.write(data)
    assert await asyncio.wait_for(reader.readexactly(len(data)), DEADLINE) == data


def lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_frames_over_tls_and_without_it_on_one_port(run: Any, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Secured(node) as it:
            await echoed(*await it.dial())
            await echoed(*await it.dial_tls(version=version), 40 * FRAME)
            assert [opened.certificate for opened in node.of(Opened)] == ["", ""]

    run(main())


def test_the_node_hears_of_a_connection_when_its_handshake_is_over(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Secured(node, taking(ask="require")) as it:
            _, writer = await it.dial()
            writer.write(b"\x16\x03\x01")
            await echoed(*await it.dial_tls("client"))
            (opened,) = node.of(Opened)
            assert opened.certificate == "CN=orders" and opened.listener == "main"
            assert len(it.driver.connections) == 2 and it.driver.handshakes == 1

    run(main())


def test_a_large_answer_and_many_small_ones(run: Any) -> None:
    async def main() -> None:
        large = bytes(3_000_000)
        node = Node(Frames=lambda event: [Write(event.conn, [large, b"end"]), Write(event.conn, b"!")])
        async with Secured(node) as it:
            reader, writer = await it.dial_tls()
            for _ in range(3):
                writer.write(FRAME)
                assert await asyncio.wait_for(reader.readexactly(3_000_004), DEADLINE) == large + b"end!"

    run(main())


def test_what_was_written_before_a_close_arrives(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=lambda event: [Write(event.conn, b"bye" * 50_000), Close(event.conn, "enough")])
        async with Secured(node) as it:
            reader, writer = await it.dial_tls()
            writer.write(FRAME)
            assert await ended(reader) == b"bye" * 50_000
            await node.until(lambda: bool(node.of(Closed)))

    run(main())


def test_nodes_dial_each_other(run: Any) -> None:
    async def main() -> None:
        other = Node(Frames=echo)
        async with Secured(other, taking(Mode.ENFORCING, "require")) as it:
            address = f"127.0.0.1:{it.driver.ports['main']}"
            node = Node(Start=lambda _: [Connect(address, "asks")], Opened=lambda event: [Write(event.conn, FRAME)])
            async with Secured(node, dials={"asks": dialling("client")}):
                await node.until(lambda: bool(node.of(Frames)))
                (opened,) = node.of(Opened)
                assert (opened.certificate, opened.dialled, opened.listener) == ("CN=server", address, "asks")
                assert other.of(Opened)[0].certificate == "CN=orders"
            await other.until(lambda: bool(other.of(Closed)))

    run(main())


def failed_dial(run: Any, side: ServerSide, dials: Mapping[str, ClientSide], limits: Limits | None = None) -> str:
    """Why a dial came to nothing."""
    why: list[str] = []

    async def main() -> None:
        async with Secured(Node(Frames=echo), side) as it:
            address = f"127.0.0.1:{it.driver.ports['main']}"
            node = Node(Start=lambda _: [Connect(address, "asks")])
            async with Secured(node, dials=dials, limits=limits):
                await node.until(lambda: bool(node.of(ConnectFailed)))
                assert not node.of(Opened) and not node.of(Closed)
                why.append(node.of(ConnectFailed)[0].reason)

    run(main())
    return why[0]


def test_a_dial_to_an_expired_certificate(run: Any) -> None:
    assert "is refused: certificate has expired" in failed_dial(run, taking(name="expired"), {"asks": dialling()})


def test_a_dial_to_a_certificate_of_another_host(run: Any) -> None:
    why = failed_dial(run, taking(name="other_host"), {"asks": dialling()})
    assert "is refused: IP address mismatch, certificate is not valid for '127.0.0.1'" in why


def test_a_dial_to_a_certificate_of_another_ca(run: Any) -> None:
    why = failed_dial(run, taking(name="other_server"), {"asks": dialling()})
    assert "is refused: unable to get local issuer certificate" in why


def test_a_dial_with_tls_to_a_port_that_takes_none(run: Any) -> None:
    why = failed_dial(run, taking(Mode.DISABLED), {"asks": dialling()})
    assert "ended the connection within the handshake; does it take TLS (tls.server.mode)?" in why


def test_a_server_that_never_answers_the_handshake(run: Any) -> None:
    async def main() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        node = Node(Start=lambda _: [Connect(address, "asks")])
        async with Secured(node, dials={"asks": dialling()}, limits=Limits(handshake_ms=100, sweep_ms=20)):
            await node.until(lambda: bool(node.of(ConnectFailed)))
            assert node.of(ConnectFailed)[0].reason == "TLS: no end of the handshake after 100 ms"
        silent.close()

    run(main())


Bad = Callable[[Secured], Any]


async def sends(it: Secured, data: bytes) -> bytes:
    reader, writer = await it.dial()
    writer.write(data)
    return await ended(reader)


def turned_away(
    run: Any, caplog: pytest.LogCaptureFixture, side: ServerSide, bad: Bad, limits: Limits | None = None
) -> str:
    """The log of a listener that ends a connection; the node hears nothing of it, and others are served."""

    async def main() -> None:
        node = Node(Frames=echo)
        async with Secured(node, side, limits) as it:
            own = "client" if side.mode is not Mode.DISABLED else ""
            good = await (it.dial_tls(own) if own else it.dial())
            await echoed(*good)
            await bad(it)
            await echoed(*good)
            await it.until(lambda: len(it.driver.connections) == 1)
            assert len(node.of(Opened)) == 1 and it.driver.handshakes == 0

    with caplog.at_level(logging.INFO):
        run(main())
    return lines(caplog)


def test_plain_bytes_to_an_enforcing_port(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = turned_away(run, caplog, taking(Mode.ENFORCING), lambda it: sends(it, FRAME))
    assert "bytes without TLS, which is required here (tls.server.mode=enforcing); it was closed" in told


def test_tls_to_a_disabled_port(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(it: Secured) -> None:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await it.dial_tls()

    told = turned_away(run, caplog, taking(Mode.DISABLED), bad)
    assert "TLS, which is not taken here (tls.server.mode=disabled); it was closed" in told


def test_a_client_certificate_of_another_ca(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(it: Secured) -> None:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            reader, _ = await it.dial_tls("stranger")
            await reader.readexactly(1)

    told = turned_away(run, caplog, taking(ask="require"), bad)
    assert "TLS: the client's certificate is refused: unable to get local issuer certificate; it was closed" in told


def test_a_client_certificate_that_is_expired(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(it: Secured) -> None:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            reader, _ = await it.dial_tls("expired_client")
            await reader.readexactly(1)

    told = turned_away(run, caplog, taking(ask="require"), bad)
    assert "TLS: the client's certificate is refused: certificate has expired; it was closed" in told


@pytest.mark.skipif(OPENSSL is None, reason="openssl, the command, is not here")
def test_renegotiation_is_refused_and_nobody_else_notices(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TLS 1.3 has none, and Python's clients can't ask for it."""

    async def main() -> None:
        node = Node(Frames=echo)
        async with Secured(node) as it:
            good = await it.dial_tls()
            await echoed(*good)
            asks = await asyncio.create_subprocess_exec(
                str(OPENSSL), "s_client", "-tls1_2", "-connect", f"127.0.0.1:{it.driver.ports['main']}",
                stdin=PIPE, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip
            assert asks.stdin is not None
            await node.until(lambda: len(node.of(Opened)) == 2)
            asks.stdin.write(b"R\n")
            _, told = await asyncio.wait_for(asks.communicate(), DEADLINE)
            assert b"RENEGOTIATING" in told and b"no renegotiation" in told, told
            await echoed(*good)
            await it.until(lambda: len(it.driver.connections) == 1)
            assert len(node.of(Closed)) == 1

    with caplog.at_level(logging.INFO):
        run(main())
    assert "TLS: the peer wants new keys; renegotiation is not allowed; it was closed" in lines(caplog)


def test_half_a_handshake_and_then_nothing(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(handshake_ms=1_000, sweep_ms=20)
    told = turned_away(run, caplog, taking(), lambda it: sends(it, b"\x16\x03\x01\x02\x00\x01"), limits)
    assert "TLS: no end of the handshake after 1000 ms" in told


def test_half_a_handshake_and_then_the_end(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(it: Secured) -> None:
        _, writer = await it.dial()
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        await writer.drain()
        writer.close()

    assert "TLS: the handshake was cut" in turned_away(run, caplog, taking(), bad)


def test_what_begins_like_tls_and_is_none(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = turned_away(run, caplog, taking(), lambda it: sends(it, b"\x16" * 500))
    assert "connection 2: TLS: " in told


def test_more_handshakes_than_may_be_under_way(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(it: Secured) -> None:
        writers = []
        for number in (1, 2):
            _, writer = await it.dial()
            writer.write(b"\x16\x03\x01")
            writers.append(writer)
            await it.until(lambda: it.driver.handshakes == number)  # noqa: B023
        assert await sends(it, b"\x16\x03\x01") == b""
        assert it.driver.handshakes == 2
        for writer in writers:
            writer.close()

    told = turned_away(run, caplog, taking(), bad, Limits(handshakes=2))
    assert "TLS: 2 handshakes are under way already; it was closed" in told


def test_many_handshakes_at_once_are_all_done(run: Any) -> None:
    async def main() -> None:
        node = Node(Frames=echo)
        async with Secured(node, limits=Limits(handshakes_us=0)) as it:
            pairs = await asyncio.gather(*(it.dial_tls() for _ in range(40)))
            for pair in pairs:
                await echoed(*pair)
            assert len(node.of(Opened)) == 40 and it.driver.handshakes == 0

    run(main())


def test_handshakes_leave_each_turn_to_others_when_their_time_is_up(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, shaken, all_shaken = 0, [], asyncio.Event()
    shake, end_of_turn = Connection.shake, Driver._end_of_turn

    def seen(connection: Connection) -> None:
        shaken.append(turns)
        shake(connection)
        if len(shaken) == 20:
            all_shaken.set()

    def ended_turn(driver: Driver) -> None:
        nonlocal turns
        turns += 1
        end_of_turn(driver)

    monkeypatch.setattr(Connection, "shake", seen)
    monkeypatch.setattr(Driver, "_end_of_turn", ended_turn)

    async def main(handshakes_us: int) -> None:
        async with Secured(Node(Frames=echo), limits=Limits(handshakes_us=handshakes_us)) as it:
            peers = [await it.dial() for _ in range(20)]
            for _, writer in peers:
                writer.write(b"\x16\x03\x01\x02\x00\x01")
            await asyncio.wait_for(all_shaken.wait(), DEADLINE)

    run(main(0))
    assert len(set(shaken)) == len(shaken) == 20
    shaken.clear()
    all_shaken = asyncio.Event()
    run(main(10_000_000))
    assert len(set(shaken)) < len(shaken) == 20, "they came together"


def test_a_peer_that_leaves_while_its_handshake_waits(run: Any) -> None:
    async def main() -> None:
        async with Secured(Node(Frames=echo), limits=Limits(handshakes_us=0)) as it:
            for _ in range(5):
                _, writer = await it.dial()
                writer.write(b"\x16\x03\x01\x02\x00\x01")
                await writer.drain()
                writer.transport.abort()
            await echoed(*await it.dial_tls())
            await it.until(lambda: not it.driver.handshakes)

    run(main())
