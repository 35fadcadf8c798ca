"""The servers of the benchmark as processes: the Java ones out of Maven's jars, and Perseid's.

Both get the same `broker.conf`. A `Server` is a name server and a broker in a folder of its own, on free
ports of loopback. It dies with this process however that ends (PR_SET_PDEATHSIG), and can be stopped
(SIGSTOP) while the other one is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from perseid.app.shards import PORT_STEP
from perseid.security.credentials import Credentials
from perseid.testing.ports import free_port

HERE = Path(__file__).resolve().parent
ROCKETMQ_VERSION = "5.5.0"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 40.0
CALL_TIMEOUT_S = 10.0
STORED_TIMEOUT_S = 300.0
TOPIC_QUEUES = 8
OPEN_FILES = 65_536
SEND = 310
TRY_AGAIN_S = 0.005

BROKER_CONF = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerIP1": "127.0.0.1",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": TOPIC_QUEUES,
    # The original refuses sends that waited 200 ms, as those of a full pipeline do: here nobody refuses.
    "waitTimeMillsInSendQueue": 60000,
    "osPageCacheBusyTimeOutMills": 60000,
}

_OPENED = ["lang", "util", "util.concurrent", "util.concurrent.atomic", "math", "text", "net", "io", "nio"]
JAVA_OPTIONS = [
    "-XX:+UseG1GC",
    "-XX:MaxDirectMemorySize=1g",
    "-XX:-OmitStackTraceInFastThrow",
    *(o for p in _OPENED for o in ("--add-opens", f"java.base/java.{p}=ALL-UNNAMED")),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
]

JAVA, CORE, PLAIN, SHARDS = "Java", "Perseid", "no core", "2 shards"
"""The servers. `no core` is Perseid as it is without a C compiler, `2 shards` is `perseid broker --shards 2`."""
UNSYNCED, TUNED = "not synced", "tuned"
"""Groups of Perseid brokers that answer from memory, as Java's do; and such whose leader is missed sooner."""
SERVERS = (JAVA, CORE, PLAIN, SHARDS, UNSYNCED, TUNED)
SHARD_COUNT = 2

Command = Callable[[str, Path, Path], list[str]]
"""(role, configuration file, home folder) -> argv."""


class BenchError(Exception):
    """The benchmark can't go on; the text says why."""


def cache_folder() -> Path:
    """Where the jars, the compiled load generator and the brokers' data live ($PERSEID_CACHE)."""
    return Path(os.environ.get("PERSEID_CACHE") or Path.home() / ".cache" / "perseid")


def java_jars() -> Path:
    """The folder with the jars of the Java broker; fetched by Maven once."""
    folder = cache_folder() / f"bench-rocketmq-{ROCKETMQ_VERSION}"
    complete = folder / ".complete"
    if not complete.exists():
        print(f"fetching RocketMQ {ROCKETMQ_VERSION} with Maven into {folder}", file=sys.stderr)
        pom = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Drocketmq={ROCKETMQ_VERSION}"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        subprocess.run(pom + goal, check=True, stdout=sys.stderr)
        complete.touch()
    return folder


def compile_load(program: Path) -> None:
    """Compile the load generator; with TLS and signatures where OpenSSL's headers are."""
    cc, flags = os.environ.get("CC", "cc"), ["-O2", "-Wall", "-Wextra", "-Werror"]
    look = [cc, "-E", "-include", "openssl/ssl.h", "-x", "c", os.devnull, "-o", os.devnull]
    secure = not subprocess.run(look, capture_output=True).returncode
    flags += ["-DWITH_OPENSSL"] if secure else []
    libraries = ["-lssl", "-lcrypto"] if secure else []
    subprocess.run(
        [cc, *flags, "-o", str(program), *map(str, sorted(HERE.glob("load*.c"))), *libraries, "-lm"], check=True
    )


def load_program() -> Path:
    """The load generator, compiled when there is none of this source."""
    source = b"".join(path.read_bytes() for path in sorted(HERE.glob("load*.[ch]")))
    program = cache_folder() / f"bench-load-{hashlib.sha256(source).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")
        compile_load(fresh)
        fresh.rename(program)
    return program


def raise_open_files() -> int:
    """How many files this process and its children may have open, after raising that as far as it may."""
    for most in (OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
        with contextlib.suppress(ValueError, OSError):  # only root may go beyond the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def data_folder() -> Path:
    """A new folder for one run; those that killed runs left behind are removed."""
    root = cache_folder() / "bench-data"
    root.mkdir(parents=True, exist_ok=True)
    for old in root.iterdir():
        if not Path(f"/proc/{old.name}").exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = root / str(os.getpid())
    folder.mkdir(exist_ok=True)
    return folder


def java_command(heap: Mapping[str, str]) -> Command:
    main = {
        "namesrv": "namesrv.NamesrvStartup",
        "broker": "broker.BrokerStartup",
        "controller": "controller.ControllerStartup",
    }
    jars = java_jars()

    def command(role: str, conf: Path, home: Path) -> list[str]:
        memory = [f"-Xms{heap[role]}", f"-Xmx{heap[role]}"]
        homes = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        run = ["-cp", f"{jars}/*", f"org.apache.rocketmq.{main[role]}", "-c", str(conf)]
        return ["java", *memory, *JAVA_OPTIONS, *homes, *run]

    return command


def perseid_command(role: str, conf: Path, home: Path) -> list[str]:
    script = Path(sys.executable).with_name("perseid")
    module = [sys.executable, "-c", "from perseid.cli.main import main; main()"]
    return [*([str(script)] if script.exists() else module), role, "-c", str(conf)]


def sharded_command(role: str, conf: Path, home: Path) -> list[str]:
    more = ["--shards", str(SHARD_COUNT)] if role == "broker" else []
    return perseid_command(role, conf, home) + more


def parts_of(name: str, heap: Mapping[str, str]) -> tuple[Command, dict[str, str]]:
    """How one of SERVERS is started: its command, and what it finds in its environment."""
    commands: dict[str, Command] = {SHARDS: sharded_command}
    command = java_command(heap) if name == JAVA else commands.get(name, perseid_command)
    return command, {"PERSEID_CORE": "off"} if name == PLAIN else {}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def frame_of(code: int, ext: Mapping[str, object], body: bytes = b"", *, opaque: int = 1, flag: int = 0) -> bytes:
    """A request, as a client sends it: JSON header."""
    fields = {k: str(v) for k, v in ext.items()}
    command = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 513}
    head = json.dumps(command).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


def parts_of_frame(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a frame, without its first four bytes."""
    stop = 4 + (struct.unpack(">I", data[:4])[0] & 0xFFFFFF)
    return json.loads(data[4:stop]), data[stop:]


def send_header(topic: str, queue: int) -> dict[str, object]:
    """Of a send to a topic that need not exist."""
    header = {"a": "bench_producer", "b": topic, "c": "TBW102", "d": TOPIC_QUEUES, "e": queue, "f": 0}
    return header | {"g": int(time.time() * 1000), "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}


class Remote:
    """A connection for set-up and checks: one call at a time, JSON headers; signed where `by` is said."""

    def __init__(self, port: int, timeout_s: float = CALL_TIMEOUT_S, by: Credentials | None = None) -> None:
        self.by = by
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.stream = self.socket.makefile("rb")

    def call(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> dict[str, str]:
        """The ext fields of the answer; BenchError when its code is not 0."""
        return self.ask(code, ext, body)[0]

    def ask(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> tuple[dict[str, str], bytes]:
        """The ext fields and the body of the answer; BenchError when its code is not 0."""
        answer, found = self.exchange(code, ext, body)
        if answer["code"]:
            raise BenchError(f"request {code} was answered with {answer['code']}: {answer.get('remark')}")
        return dict(answer.get("extFields") or {}), found

    def exchange(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The header and the body of the answer, whatever its code."""
        if self.by is not None:
            ext = self.by.sign({name: str(value) for name, value in ext.items()}, body)
        self.socket.sendall(frame_of(code, ext, body))
        prefix = self.stream.read(4)
        if len(prefix) < 4:
            raise BenchError(f"the connection was closed while code {code} was asked")
        return parts_of_frame(self.stream.read(struct.unpack(">I", prefix)[0]))

    def send(self, topic: str, queue: int) -> None:
        """One message, whose topic need not exist; BenchError when it is not acknowledged."""
        self.call(SEND, send_header(topic, queue), b"first")

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


class Server:
    """One name server and one broker of one implementation, or a broker of several shards."""

    def __init__(
        self,
        name: str,
        command: Command,
        environment: Mapping[str, str],
        folder: Path,
        conf: Mapping[str, object],
        shards: int = 1,
    ) -> None:
        """`conf` is added to BROKER_CONF, `environment` to this process's own."""
        self.name, self.command, self.folder = name, command, folder
        self.conf, self.environment = conf, environment
        taken = [PORT_STEP * shard + near for shard in range(shards) for near in (0, -2, 1)]
        self.namesrv_port, first = free_port(), free_port(taken)
        self.ports = [first + PORT_STEP * shard for shard in range(shards)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start_s = 0.0
        """From the broker's spawn to its first accepted send."""
        self.warmed: set[tuple[str, ...]] = set()
        """Kinds of load that it has seen."""
        self.by: Credentials | None = None
        """Who sets it up, and looks at what it holds; None: nobody is asked who it is."""

    def start(self) -> None:
        """Return when the name server and the broker listen and a send is accepted."""
        home = self.folder
        self._spawn("namesrv", {"listenPort": self.namesrv_port}, home)
        self._until("namesrv", lambda: Remote(self.namesrv_port).close())
        paths = {"storePathRootDir": home / "store"}
        if len(self.ports) == 1:
            paths["storePathCommitLog"] = home / "store" / "commitlog"
        address = {"listenPort": self.ports[0], "namesrvAddr": self.namesrv_address}
        began = time.monotonic()
        self._spawn("broker", {**BROKER_CONF, **self.conf, **address, **paths}, home)
        self._until("broker", self.accepts)
        self.start_s = time.monotonic() - began

    def accepts(self) -> None:
        """BenchError or OSError as long as it takes no sends."""
        self.create_topics(["bench"])

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    def _spawn(self, role: str, conf: Mapping[str, object], home: Path, kind: str = "") -> None:
        """`kind`: of the program, when the role's name does not tell it."""
        home.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{role}.conf"
        file.write_text("".join(f"{k}={v}\n" for k, v in conf.items()))
        source = str(HERE.parent / "src")
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
        env = {**os.environ, **self.environment, "ROCKETMQ_HOME": str(home), "PYTHONPATH": path}
        with open(self.folder / f"{role}.log", "ab") as log:
            self.processes[role] = subprocess.Popen(
                self.command(kind or ("namesrv" if role == "namesrv" else "broker"), file, home),
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def _until(self, role: str, attempt: Callable[[], None]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return attempt()
            except (OSError, BenchError) as error:
                if self.processes[role].poll() is not None or time.monotonic() > deadline:
                    raise BenchError(f"the {self.name} {role} did not start ({error}):\n{self._log(role)}") from error
            time.sleep(TRY_AGAIN_S)

    def create_topics(self, topics: Sequence[str], queues: Sequence[int] = (0,)) -> None:
        """By sending to these queues of each, as producers do."""
        for remote in self._remotes():
            for topic, queue in product(topics, queues):
                remote.send(topic, queue)

    def _remotes(self, ports: Sequence[int] = ()) -> Iterator[Remote]:
        """A connection to each of the ports, in turn; none named, to each shard."""
        for port in ports or self.ports:
            remote = Remote(port, by=self.by)
            try:
                yield remote
            finally:
                remote.close()

    def stored(
        self, topics: Sequence[str], ports: Sequence[int] = (), queues: Sequence[int] = range(TOPIC_QUEUES)
    ) -> int:
        """How many messages these queues of these topics hold, by these ports' brokers."""
        asked = [{"topic": topic, "queueId": queue} for topic in topics for queue in queues]
        return sum(int(remote.call(30, ext)["offset"]) for remote in self._remotes(ports) for ext in asked)

    def await_stored(self, topics: Sequence[str], least: int, queues: Sequence[int] = range(TOPIC_QUEUES)) -> int:
        """How many messages the topics hold, as soon as it is `least` (Java's queues follow its log)."""
        deadline = time.monotonic() + STORED_TIMEOUT_S
        while (found := self.stored(topics, queues=queues)) < least:
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} acknowledged {least} messages of {topics[0]}… and holds {found}")
            time.sleep(0.1)
        return found

    def pids(self) -> list[int]:
        """The processes that are measured, a broker's own first: it and its descendants."""
        return self._descendants("broker")

    def _descendants(self, role: str) -> list[int]:
        if (code := self.processes[role].poll()) is not None:
            raise BenchError(f"the {self.name} {role} ended with code {code}:\n{self._log(role)}")
        found = [self.processes[role].pid]
        for pid in found:
            with contextlib.suppress(FileNotFoundError):  # a process, or a thread, that has just ended
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += [int(p) for p in (task / "children").read_text().split()]
        return found

    def _log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text(errors="replace")[-2000:]

    def signal(self, number: int) -> None:
        for role, process in self.processes.items():
            if process.poll() is None:
                for pid in self._descendants(role):
                    os.kill(pid, number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self) -> None:
        """End what was started, the last first; by force when asking does not help."""
        self.signal(signal.SIGCONT)
        for role in reversed(list(self.processes)):
            self._end(role)

    def _end(self, role: str) -> None:
        process = self.processes[role]
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its shards, if it has any, end with it
            process.wait()
