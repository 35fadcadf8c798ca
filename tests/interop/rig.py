"""Real RocketMQ parts and ours as processes, and the stock clients that talk to them.

What they need of a machine, and how a JVM starts, is in `parts`.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parts import LOG_TAIL_BYTES, RigError, jvm

from perseid.testing.ports import free_port
from times import measured

T = TypeVar("T")
HERE = Path(__file__).resolve().parent
SRC = HERE.parents[1] / "src"
PATIENCE = 4
"""A deadline says that something never comes, not how quick it is: each is so many times what a quiet machine needs."""
START_SECONDS = 90.0
COLLECT_SECONDS = 75.0
"""A stock consumer that is given queues may wait for a rebalance (20 s) and for a pull that is held (15 to 30 s)."""
STOP_SECONDS = 120.0
ANSWER_SECONDS = 150.0
DEADLINE_S = 400

MAINS = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
    "dledger": "interop.DLedgerNode",
    "controller": "org.apache.rocketmq.controller.ControllerStartup",
}
QUICK_CLIENT = ["-Drocketmq.client.rebalance.waitInterval=2000"]
"""A Java client looks every 20 s which queues are its own; a test needn't wait that long."""
SMALL_STORE = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
REFUSALS = {"rejectTransactionMessage": "true", "waitTimeMillsInSendQueue": 10_000}
"""A thread of a Java broker spins from its first transaction on: only one that is a test's own takes any. One that has
no time for a send for 200 ms refuses it, and nobody hears that of one-way sends."""
QUIET = {"timerFlushIntervalMs": 60_000, "transactionMetricFlushInterval": 300}
"""A Java broker writes its wheel of timers, 37 MB, each second to the disk: a fifth of a core, for nothing here. And a
thread of it spins after the start until the other interval is over, by default for ten seconds: 10 CPU-s a broker."""


SOAK = bool(os.environ.get("PERSEID_SOAK"))
"""`make soak`: the counts that the issues name, instead of short forms."""


def many(short: T, long: T) -> T:
    """A count, or what else depends on the length of the run."""
    return long if SOAK else short


def run(test: Coroutine[Any, Any, T]) -> T:
    """The result of a test of asynchronous clients, which has `DEADLINE_S`."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await test

    return asyncio.run(bounded())


def until(what: str, condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of `condition`, asked again and again; AssertionError when time is over, with what it
    raised last: who is just starting may answer anything."""
    end = time.monotonic() + PATIENCE * seconds
    pause = threading.Event()
    last: Any = None
    with measured("wait", what):
        while time.monotonic() < end:
            try:
                last = condition()
                if last:
                    return last
            except RigError:
                raise
            except Exception as e:
                last = e
            pause.wait(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE * seconds} s; last: {last!r}")


# ---- processes ----


class Process:
    """A server process with its folder, its properties file and its log."""

    def __init__(self, role: str, impl: str, folder: Path, properties: Mapping[str, object]) -> None:
        self.role, self.impl, self.folder = role, impl, folder
        self.properties = dict(properties)
        self.port = int(str(properties["listenPort"]))
        self.log = folder / "out.log"
        self.ahead: tuple[Path, ...] = ()
        """Of a Java part: jars whose classes take the place of the usual ones."""
        self.options: tuple[str, ...] = ()
        """Of a Java part: more options of its JVM."""
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def configured(self) -> Path:
        """Its properties file, written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / f"{self.role}.conf"
        quiet = QUIET if (self.impl, self.role) == ("java", "broker") else {}  # also where it takes over from ours
        conf.write_text("".join(f"{k}={v}\n" for k, v in {**quiet, **self.properties}.items()))
        return conf

    def start(self) -> Process:
        """Start it and wait until its port answers."""
        with measured("start of a process", f"{self.impl} {self.role}"):
            return self._start()

    def _start(self) -> Process:
        assert not self.running, f"{self.folder.name} runs"
        conf = self.configured()
        if self.impl == "java":
            java = jvm(self.folder, "-Xms128m", *self.options, ahead=self.ahead)
            command = [*java, MAINS[self.role], "-c", str(conf)]
        else:
            command = [sys.executable, "-m", "perseid.cli.main", self.role, "-c", str(conf)]
        paths = [str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "ROCKETMQ_HOME": str(self.folder), "PYTHONPATH": os.pathsep.join(paths)}
        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until(f"{self.folder.name} listens on {self.address}", self._answers, START_SECONDS)
        except BaseException:
            self.kill()
            raise
        return self

    def _answers(self) -> bool:
        if not self.running:
            raise RigError(f"{self.folder.name} ({self.impl} {self.role}) ended by itself:\n{self.tail()}")
        socket.create_connection(("127.0.0.1", self.port), 0.5).close()
        return True

    def tail(self) -> str:
        """The end of what it printed, without Java's talk about its own logging."""
        if not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if "|-INFO in" not in line)[-LOG_TAIL_BYTES:]

    def signal(self, sig: signal.Signals) -> None:
        """A signal that ends nothing."""
        if self._child is not None:
            self._child.send_signal(sig)

    def stop(self) -> int:
        """End it with SIGTERM; the exit code. RigError when it had to be killed."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def _end(self, sig: signal.Signals) -> int:
        if self._child is None:
            return 0
        child, self._child = self._child, None
        if child.poll() is None:
            child.send_signal(sig)
        try:
            with measured("end of a process", f"{sig.name} {self.impl} {self.role}"):
                return child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(STOP_SECONDS)
            raise RigError(f"{self.folder.name} ran on after {sig.name}:\n{self.tail()}") from None


def namesrv(impl: str, folder: Path, **properties: object) -> Process:
    base = {
        "listenPort": free_port(),
        "kvConfigPath": folder / "kvConfig.json",
        "configStorePath": folder / "namesrv.properties",
    }
    return Process("namesrv", impl, folder, {**base, **properties})


def broker(impl: str, folder: Path, namesrv_address: str, **properties: object) -> Process:
    store = properties.pop("store", folder / "store")
    base = {
        "brokerClusterName": "InteropCluster",
        "brokerName": folder.name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": free_port((0, -2, 1)),
        "namesrvAddr": namesrv_address,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "registerNameServerPeriod": 10_000,
        "storePathRootDir": store,
        "storePathCommitLog": f"{store}/commitlog",
        **SMALL_STORE,
        **(REFUSALS if impl == "java" else {}),
    }
    return Process("broker", impl, folder, {**base, **properties})


# ---- the least remoting client: probes, and what no stock client can be made to send ----


@dataclass
class Answer:
    code: int
    remark: str | None
    ext: dict[str, str]
    body: bytes


def call(
    address: str,
    code: int,
    ext: Mapping[str, object] | None = None,
    body: bytes = b"",
    timeout: float = 10.0,
    version: int = 513,
) -> Answer:
    """One request over a connection of its own, JSON header."""
    host, port = address.rsplit(":", 1)
    head = json.dumps(
        {
            "code": code,
            "language": "PYTHON",
            "version": version,
            "opaque": 1,
            "flag": 0,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": {k: str(v) for k, v in (ext or {}).items()},
        }
    ).encode()
    with socket.create_connection((host, int(port)), timeout) as sock, sock.makefile("rb") as stream:
        sock.sendall(struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body)
        while True:
            prefix = stream.read(4)
            if len(prefix) < 4:
                raise ConnectionError(f"{address} closed the connection on request {code}")
            frame = stream.read(struct.unpack(">I", prefix)[0])
            size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
            answer = json.loads(frame[4 : 4 + size])
            if answer["opaque"] == 1 and answer["flag"] & 1:
                ext_fields = answer.get("extFields") or {}
                return Answer(answer["code"], answer.get("remark"), ext_fields, frame[4 + size :])


# ---- clusters ----


@dataclass
class Cluster:
    """A name server and a broker: addresses first, the processes behind them for who needs more."""

    name: str
    namesrv: str
    broker: str
    broker_name: str
    store: Path
    namesrv_process: Process
    broker_process: Process
    cluster_name: str = "InteropCluster"

    def stop(self) -> None:
        try:
            self.broker_process.stop()
        finally:
            self.namesrv_process.stop()


def await_registered(namesrv_address: str, broker_name: str) -> None:
    """Wait until the name server knows the broker."""

    def known() -> bool:
        return f'"{broker_name}"'.encode() in call(namesrv_address, 106).body

    until(f"{broker_name} registers at {namesrv_address}", known, START_SECONDS)


def cluster(name: str, namesrv_impl: str, broker_impl: str, folder: Path) -> Cluster:
    ns = namesrv(namesrv_impl, folder / f"{name}-namesrv").start()
    try:
        b = broker(broker_impl, folder / name, ns.address)
        b.start()
        await_registered(ns.address, name)
        until("run-time info", lambda: call(b.address, 28).code == 0, START_SECONDS)
    except BaseException:
        ns.kill()
        raise
    return Cluster(name, ns.address, b.address, name, folder / name / "store", ns, b)


# ---- agents: the stock clients ----


class AgentError(Exception):
    """The stock client raised: `type` is the exception's class, `code` the response code behind it."""

    def __init__(self, op: str, error: dict[str, Any]) -> None:
        self.type: str = error["type"]
        self.code: int = error["code"]
        self.message: str = error["message"]
        super().__init__(f"{op}: {self.type} {self.code}: {self.message}")


class Agent:
    """A process that runs stock clients on command: a line of JSON in, a line of JSON out."""

    def __init__(self, command: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "agent.log"
        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout
        for line in self._child.stdout:
            answer = json.loads(line)
            with self._lock:
                box = self._answers.pop(answer["id"], None)
            if box:
                box.put(answer)

    def __call__(self, op: str, *, wait: float = ANSWER_SECONDS, **args: Any) -> Any:
        """What the operation answers; AgentError when the client raised, RigError when it didn't answer."""
        assert self._child.stdin
        box: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._next += 1
            self._answers[self._next] = box
            line = json.dumps({"id": self._next, "op": op, **args}) + "\n"
            self._child.stdin.write(line.encode())
            self._child.stdin.flush()
        try:
            with measured("operation of a client", op):
                answer = box.get(timeout=wait)
        except queue.Empty:
            raise RigError(f"no answer to {op} within {wait} s; log: {self.log}") from None
        if "error" in answer:
            raise AgentError(op, answer["error"])
        return answer.get("ok")

    def stop(self, seconds: float = 10.0) -> None:
        assert self._child.stdin
        try:
            self._child.stdin.close()
            self._child.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            self._child.kill()
            self._child.wait(10)


def java_agent(folder: Path, *options: str) -> Agent:
    """The stock Java clients in a JVM with these options besides the usual ones."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "tools.yml").touch()
    return Agent([*jvm(folder, *QUICK_CLIENT, *options), "interop.Agent"], folder)


@dataclass
class Client:
    """An agent's operations on one cluster; what a test starts is stopped with the test."""

    agent: Agent
    cluster: Cluster
    opened: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, op: str, **args: Any) -> Any:
        answer = self.agent(op, **{"namesrv": self.cluster.namesrv, **args})
        if op.endswith(".start") and isinstance(answer, str):
            self.opened.append((op.removesuffix(".start") + ".stop", answer))
        return answer

    def send(self, topic: str, bodies: Sequence[str], **more: Any) -> list[dict[str, Any]]:
        """Send plain messages one by one; all must be stored."""
        results = self("send", messages=[{"topic": topic, "body": b, **more} for b in bodies])
        for result in results:
            assert result.get("status") == "SEND_OK", result
        return list(results)

    def collect(self, handle: str, count: int, seconds: float = COLLECT_SECONDS) -> list[dict[str, Any]]:
        """What a push consumer has been given, once there are `count` messages."""
        seconds *= PATIENCE
        got = self("push.await", handle=handle, count=count, timeoutMs=int(seconds * 1000), wait=seconds + 30)
        bodies = [m["body"] for m in got]
        assert len(got) >= count, f"{len(got)} of {count} messages within {seconds} s: {bodies}"
        return list(got)

    def consume(self, topic: str, group: str, count: int, seconds: float = 30.0, **more: Any) -> list[dict[str, Any]]:
        """Start a push consumer, wait for `count` messages, stop it; all that it was given."""
        handle = self("push.start", topic=topic, group=group, **more)
        self.collect(handle, count, seconds)
        return list(self("push.stop", handle=handle))

    def admin(self, method: str, *args: Any) -> Any:
        """A method of the stock admin client."""
        return self("admin", call=method, args=list(args))

    def mqadmin(self, *args: str) -> str:
        """What `mqadmin` prints."""
        return str(self("mqadmin", args=[*args, "-n", self.cluster.namesrv]))

    def close(self) -> None:
        for op, handle in reversed(self.opened):
            self.agent(op, handle=handle)
        self.opened.clear()
