"""A controller and very many broker sets: `python bench/crowd.py --help`.

Three controllers run as processes. One load generator, this process, is all brokers: each has a connection of its own
to the active controller, and sends its heartbeats there. Measured are the CPU of the active controller while it does
nothing but hear them; and, when the masters of some sets die together (their connections close), the time until each of
their sets has another master, and until a notice of it has come in at its brokers' address.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from perseid.testing.ports import free_port
from perseid.wire.command import Command, decode, encode_request

ALTER, ELECT, METADATA, SETS, NOTICE, APPLY_ID, HEARTBEAT = 1001, 1002, 1005, 1006, 1008, 1013, 904
CLUSTER, REPLICAS = "c", 3
START_S, WAIT_S = 30.0, 60.0
AT_ONCE = 100
TICKS = os.sysconf("SC_CLK_TCK")


class Wire:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opaque = 0

    @classmethod
    async def dial(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> Command:
        self.tell(code, ext, body, oneway=False)
        command = await asyncio.wait_for(read(self.reader), WAIT_S)
        assert command is not None, "the controller closed the connection"
        return command

    def tell(self, code: int, ext: Mapping[str, object], body: bytes = b"", *, oneway: bool = True) -> None:
        self.opaque += 1
        fields = {key: str(value) for key, value in ext.items()}
        self.writer.write(encode_request(code, self.opaque, fields, body, oneway=oneway))


async def read(reader: asyncio.StreamReader) -> Command | None:
    """The next command; None at the end."""
    try:
        head = await reader.readexactly(4)
        return decode(head + await reader.readexactly(struct.unpack(">I", head)[0])).keep()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Crowd:
    """All brokers."""

    def __init__(self, sets: int) -> None:
        self.names = [f"set-{number}" for number in range(sets)]
        self.wires: dict[tuple[str, int], Wire] = {}
        self.frames: dict[tuple[str, int], bytes] = {}
        self.address = ""
        self.notices = self.beats = 0
        self.last_notice = 0.0
        self.came = asyncio.Event()

    async def listen(self) -> None:
        server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # at the end of all
            while (command := await read(reader)) is not None:
                if command.code == NOTICE:
                    self.notices += 1
                    self.last_notice = time.monotonic()
                    self.came.set()
        writer.close()

    def beat(self, key: tuple[str, int], wire: Wire) -> None:
        """One heartbeat. They are all the same, so that this process keeps up."""
        frame = self.frames.get(key)
        if frame is None:
            fields = {
                "clusterName": CLUSTER, "brokerAddr": self.address, "brokerName": key[0], "brokerId": str(key[1]),
                "epoch": "1", "maxOffset": "1000", "confirmOffset": "1000", "heartbeatTimeoutMills": "60000",
                "electionPriority": str(2**31 - 1),
            }  # fmt: skip
            frame = self.frames[key] = encode_request(HEARTBEAT, 0, fields, b"", oneway=True)
        wire.writer.write(frame)

    async def register(self, port: int, name: str) -> None:
        """Three brokers of a set: ids, heartbeats, the first master, all in sync."""
        first = await Wire.dial(port)
        for number in range(1, REPLICAS + 1):
            wire = first if number == 1 else await Wire.dial(port)
            self.wires[name, number] = wire
            ext = {"clusterName": CLUSTER, "brokerName": name, "appliedBrokerId": number}
            answer = await first.ask(APPLY_ID, {**ext, "registerCheckCode": f"{self.address};{number}"})
            assert answer.code == 0, answer.remark
            self.beat((name, number), wire)
            await wire.writer.drain()
        answer = await first.ask(ELECT, {"clusterName": CLUSTER, "brokerName": name, "brokerId": 1})
        assert answer.code == 0, answer.remark
        wanted = json.dumps({"syncStateSet": list(range(1, REPLICAS + 1)), "syncStateSetEpoch": 1}).encode()
        for _ in range(50):  # the heartbeats of the others travel on connections of their own
            answer = await first.ask(ALTER, {"brokerName": name, "masterBrokerId": 1, "masterEpoch": 1}, wanted)
            if answer.code == 0:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(answer.remark)

    async def register_all(self, port: int) -> None:
        for at in range(0, len(self.names), AT_ONCE):
            await asyncio.gather(*(self.register(port, name) for name in self.names[at : at + AT_ONCE]))

    async def beat_on(self) -> None:
        """A heartbeat of each broker each second, spread over it."""
        while True:
            begin, keys = time.monotonic(), list(self.wires.items())
            step = max(1, len(keys) // 100)
            for at in range(0, len(keys), step):
                await asyncio.sleep(max(0.0, begin + at / len(keys) - time.monotonic()))
                for key, wire in keys[at : at + step]:
                    if key in self.wires:
                        self.beat(key, wire)
                        self.beats += 1
            await asyncio.sleep(max(0.01, begin + 1 - time.monotonic()))


def controllers(folder: Path) -> tuple[list[subprocess.Popen[bytes]], list[int]]:
    """Three processes, and their ports."""
    ports = [free_port() for _ in range(3)]
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
    running = []
    for i in range(3):
        own = folder / f"c{i}"
        own.mkdir()
        conf = own / "controller.conf"
        conf.write_text(
            f"controllerDLegerGroup=crowd\ncontrollerDLegerPeers={peers}\ncontrollerDLegerSelfId=n{i}\n"
            f"controllerStorePath={own}/store\nconfigStorePath={own}/controller.properties\nmappedFileSize=16777216\n"
        )
        with open(own / "out.log", "wb") as log:
            command = [sys.executable, "-m", "perseid.cli.main", "controller", "-c", str(conf)]
            running.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
    return running, ports


async def active(ports: list[int]) -> int:
    """The number of the active one, when there is one."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        for number, port in enumerate(ports):
            try:
                wire = await Wire.dial(port)
                answer = await wire.ask(METADATA, {})
                wire.writer.close()
            except ConnectionError:
                continue
            if answer.ext.get("isLeader") == "true":
                return number
        await asyncio.sleep(0.1)
    raise SystemExit(f"no controller became active within {START_S} s")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def deaths(crowd: Crowd, port: int, count: int) -> tuple[float, float, int]:
    """Close the connections of so many masters at once: seconds until all their sets have another master, seconds until
    the last notice, and how many notices came."""
    probe = await Wire.dial(port)
    struck = crowd.names[:count]
    body, crowd.notices = json.dumps(struck).encode(), 0
    begin = time.monotonic()
    for name in struck:
        crowd.wires.pop((name, 1)).writer.transport.abort()
    while True:
        answer = await probe.ask(SETS, {}, body)
        now = time.monotonic()
        table = json.loads(answer.body)["replicasInfoTable"]
        if all(info.get("masterBrokerId") in (2, 3) for info in table.values()):
            break
        if now > begin + WAIT_S:
            raise SystemExit(f"not all of {count} sets had a master within {WAIT_S} s")
        await asyncio.sleep(0.01)
    elected = now - begin
    async with asyncio.timeout(WAIT_S):
        while crowd.notices < count * (REPLICAS - 1):
            crowd.came.clear()
            await crowd.came.wait()
    return elected, crowd.last_notice - begin, crowd.notices


async def measure(sets: int, seconds: float, masters: int, folder: Path) -> dict[str, object]:
    """All of it."""
    running, ports = controllers(folder)
    try:
        number = await active(ports)
        crowd = Crowd(sets)
        await crowd.listen()
        begin = time.monotonic()
        beating = asyncio.create_task(crowd.beat_on())
        await crowd.register_all(ports[number])
        registered = time.monotonic() - begin
        await asyncio.sleep(2)
        before, begin, beats = cpu_s(running[number].pid), time.monotonic(), crowd.beats
        await asyncio.sleep(seconds)
        took, beats = time.monotonic() - begin, crowd.beats - beats
        cores = (cpu_s(running[number].pid) - before) / took
        elected, noticed, notices = await deaths(crowd, ports[number], masters)
        assert not beating.done(), beating
        return {
            "sets": sets, "brokers": len(crowd.wires) + masters, "registration_s": round(registered, 2),
            "heartbeats_per_s": round(beats / took), "cores": round(cores, 3),
            "masters_that_died": masters, "elected_s": round(elected, 3), "last_notice_s": round(noticed, 3),
            "notices": notices,
        }  # fmt: skip
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.wait()


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--masters", type=int, default=200)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="crowd-"))
    try:
        found = asyncio.run(measure(options.sets, options.seconds, options.masters, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
