"""Connections that drip, that do nothing, that never take their answers: others are served as before."""

import os
import resource
import select
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from perseid.client.blocking import BlockingAdmin, BlockingPullConsumer
from perseid.net.limits import Limits
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.headers.pull import PullMessageRequest

from .rig import DEADLINE, Acknowledged, Peer, Up, address, send_header

IDLE_CONNECTIONS = 10_000
SPARE_FILES = 600
FEW_FILES = 200
MAX_BYTES_PER_CONNECTION = 16 << 10
DRIPS = 3_000
"""A minute of drips: a server that doesn't mind them fails the test."""


def drip_until_closed(peer: Peer, data: bytes) -> int:
    """One byte after the other, each when the last one was left without an answer; how many it took."""
    answered = select.poll()  # select() knows no descriptor above 1,023
    answered.register(peer.socket, select.POLLIN)
    for sent, byte in enumerate(data):
        if answered.poll(20):
            assert peer.ended()
            return sent
        try:
            peer.socket.send(bytes([byte]))
        except ConnectionError:
            return sent
    raise AssertionError("the server took all of it")


def test_slow_loris_connections_end_and_nobody_else_notices() -> None:
    kept = Acknowledged("T")
    request = encode_request(RequestCode.SEND_MESSAGE_V2, 1, send_header("T"), bytes(DRIPS))
    with EmbeddedBroker(limits=Limits(partial_frame_ms=300, sweep_ms=20)) as broker, ExitStack() as open_peers:
        kept.send(broker.namesrv)
        peers = [open_peers.enter_context(Peer(broker.address)) for _ in range(50)]
        for peer in peers:
            peer.send(request[:9])
        kept.send(broker.namesrv)  # while fifty connections hold half a frame
        for peer in peers[1:]:
            assert peer.ended()
        with Peer(broker.address) as slow:
            assert drip_until_closed(slow, request) < len(request)
        kept.check(broker.namesrv)


def test_a_peer_that_never_takes_its_answers_is_cut_off(tmp_path: Path) -> None:
    kept = Acknowledged("T")
    pull = PullMessageRequest(
        consumer_group="g", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    limits = Limits(pause_reading_above=1 << 16, write_buffer=1 << 20)
    with EmbeddedBroker(tmp_path, limits=limits) as broker, Peer(broker.address, receive_bytes=4096) as deaf:
        kept.send(broker.namesrv, size=100_000)
        asks = encode_request(RequestCode.PULL_MESSAGE, 1, pull) * 100
        deaf.socket.sendall(asks)  # each answer has 200 kB
        kept.send(broker.namesrv)
        assert deaf.drain() < 100 * 200_000  # up to the cut: not all of it
        kept.check(broker.namesrv)


@contextmanager
def more_files() -> Iterator[int]:
    """As many open files for this process as can be had, up to what the test needs; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted and os.geteuid() == 0:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except OSError:
            pass  # a container may forbid it to root as well
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, soft), hard))
    try:
        yield files
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_many(at: str, count: int) -> list[socket.socket]:
    """So many connections, all of them established."""
    opened: list[socket.socket] = []
    with selectors.DefaultSelector() as waiting:
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address(at))
            opened.append(sock)
            waiting.register(sock, selectors.EVENT_WRITE)
        while waiting.get_map():
            ready = waiting.select(DEADLINE)
            assert ready, f"{len(waiting.get_map())} connections were not established"
            for key, _ in ready:
                sock = key.fileobj  # type: ignore[assignment]
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                waiting.unregister(sock)
    return opened


def test_ten_thousand_idle_connections_while_messages_flow(tmp_path: Path) -> None:
    kept = Acknowledged("T")
    with more_files() as files, Up(tmp_path, files) as up:
        kept.send(up.namesrv)
        count = min(IDLE_CONNECTIONS, files - SPARE_FILES)
        before = up.resident_bytes()
        idle = open_many(up.broker, count)
        try:
            kept.send(up.namesrv, 200)
            assert kept.read(up.namesrv) == kept.bodies
            assert up.resident_bytes() - before < count * MAX_BYTES_PER_CONNECTION
            assert not readable(idle), "the server ended idle connections before their time"
            asked = idle[:: max(1, count // 100)]
            for number, sock in enumerate(asked):  # each of them is served as soon as it wants to be
                sock.setblocking(True)
                sock.settimeout(DEADLINE)
                sock.sendall(encode_request(RequestCode.GET_BROKER_CONFIG, number))
                assert sock.recv(1)
        finally:
            for sock in idle:
                sock.close()
        kept.check(up.namesrv)
        assert up.end() == 0


def test_a_crowd_that_would_take_every_descriptor(tmp_path: Path) -> None:
    """Who is connected goes on being served, files can be made, and who waited is served when others have gone."""
    kept = Acknowledged("T")
    with Up(tmp_path, FEW_FILES) as up:
        kept.send(up.namesrv)
        with Peer(up.broker) as friend, Peer(up.namesrv) as asker:
            route = GetRouteInfoByTopicRequest("T")
            assert asker.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == 0
            assert friend.send_message("T", b"x").code == 0
            kept.bodies.append(b"x")
            crowds = [open_many(at, FEW_FILES) for at in (up.broker, up.namesrv)]
            try:
                for number in range(FEW_FILES // 10):  # each makes a file of a queue, and its folders
                    assert friend.send_message(f"New{number}", b"new").code == 0
                    assert asker.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == 0
                late = [Peer(up.broker), Peer(up.namesrv)]
            finally:
                for sock in crowds[0] + crowds[1]:
                    sock.close()
            assert late[0].call(RequestCode.GET_BROKER_CONFIG).code == 0
            assert late[1].call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == 0
            for peer in late:
                peer.socket.close()
        kept.check(up.namesrv)
        log = up.log.read_text()
        for at in (up.broker, up.namesrv):
            port = at.rpartition(":")[2]
            paused = [line for line in log.splitlines() if f":{port}: no more connections are accepted" in line]
            assert len(paused) == 1 and "file descriptors are in use" in paused[0], log
        assert up.end() == 0, log


@pytest.mark.slow
def test_more_files_than_there_are_descriptors(tmp_path: Path) -> None:
    """Queues take them all: what needs another is refused, the broker lives, and what it acknowledged is there."""
    acknowledged: dict[int, bytes] = {}
    with Up(tmp_path, FEW_FILES) as up, BlockingAdmin(up.namesrv) as admin:
        admin.create_topic("Wide", 2 * FEW_FILES)
        with Peer(up.broker) as peer:
            refused = 0
            for queue in range(2 * FEW_FILES):
                answer = peer.send_message("Wide", b"%d" % queue, queue_id=queue)
                if answer.code == 0:
                    acknowledged[queue] = b"%d" % queue
                else:
                    refused += 1
                    assert answer.remark
            assert refused and len(acknowledged) > FEW_FILES // 2
        assert up.end() == 0, up.log.read_text()
    with Up(tmp_path, 10 * FEW_FILES) as up, BlockingPullConsumer(up.namesrv, "check") as consumer:
        for queue in consumer.queues("Wide"):
            found = [m.body for part in consumer.read(queue, 0, consumer.max_offset(queue)) for m in part]
            assert found == ([acknowledged[queue.queue_id]] if queue.queue_id in acknowledged else [])


def readable(socks: list[socket.socket]) -> int:
    """How many have something to read, or an end."""
    with selectors.DefaultSelector() as now:
        for sock in socks:
            now.register(sock, selectors.EVENT_READ)
        return len(now.select(0))
