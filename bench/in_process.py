"""The broker without sockets: `python bench/in_process.py` gives reads to `Broker.handle` and times it.

CPU time of the calling thread, the first decile of many short runs: so quiet that a change of a tenth of a microsecond
shows, even on a busy machine. `--profile` prints cProfile's table (which slows small functions down). `--signed`: the
broker has users and policies, and each request is signed by one that is not Super.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from servers import HERE, cache_folder

sys.path.insert(0, str(HERE.parent / "src"))

from perseid.base.machine import Frames, Opened, Reads, Start, Tick, Write
from perseid.broker.access.config import Access
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.disk.real import RealDisk
from perseid.security.credentials import Credentials
from perseid.security.policies import Acl
from perseid.store.config import StoreConfig
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

CONN, CONNS = 1, 16
RUNS = 100
RUN_MESSAGES = 256
EXT = (
    '"a":"bench_producer","b":"bench","c":"TBW102","d":"8","e":"{queue}","f":"0","g":"{now}","h":"0",'
    '"i":"UNIQ_KEY\\u00017F0000010000ABCDEF01{number:012X}\\u0002WAIT\\u0001true\\u0002TAGS\\u0001Tag{tag}\\u0002",'
    '"j":"0","k":"false","m":"false","n":"broker-a"'
)
PULL_EXT = (
    '"bname":"broker-a","commitOffset":"0","consumerGroup":"bench_consumer","expressionType":"{kind}",'
    '"maxMsgNums":"32","queueId":"{queue}","queueOffset":"{offset}","subVersion":"0","subscription":"{wanted}",'
    '"suspendTimeoutMillis":"20000","sysFlag":"4","topic":"bench"'
)
POP_EXT = (
    '"bornTime":"{now}","consumerGroup":"bench_consumer","exp":"*","expType":"TAG","initMode":"0","invisibleTime":"60000",'
    '"maxMsgNums":"32","order":"false","pollTime":"15000","queueId":"{queue}","topic":"bench"'
)
ACK_EXT = (
    '"bname":"broker-a","consumerGroup":"bench_consumer",'
    '"extraInfo":"{start} {now} 60000 {revive} 0 broker-a {queue} {offset}",'
    '"offset":"{offset}","queueId":"{queue}","topic":"bench"'
)


RETRIED = (
    "RETRY_TOPIC\\u0001bench\\u0002ORIGIN_MESSAGE_ID\\u00017F00000100002A9F0000000000000001\\u0002REAL_QID\\u00010\\u0002"
    "MSG_REGION\\u0001DefaultRegion\\u0002TRACE_ON\\u0001true\\u0002CLUSTER\\u0001DefaultCluster\\u0002"
    "DELAY\\u00013\\u0002"
)
KINDS = {
    "without more": ("a\\u0001b\\u0002", "bench"),
    "with a delay level": ("DELAY\\u00011\\u0002", "bench"),
    "with a priority": ("_SYS_MSG_PRIORITY_\\u00013\\u0002", "bench"),
    "to a retry topic": (RETRIED, "%RETRY%bench_consumer"),
    "for a time": ("TIMER_DELAY_SEC\\u000130\\u0002", "bench"),
}
"""Properties that are put before the others, and the topic."""


def frame(code: int, ext: str, opaque: int, body: bytes) -> bytes:
    head = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":513}'
    ).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


class Bench:
    """A broker on a folder, and reads for it."""

    def __init__(self, folder: Path, size: int, *, signed: bool = False) -> None:
        self.now = int(time.time() * 1000)
        store = StoreConfig(commit_log_file_bytes=256 << 20)
        config = BrokerConfig(broker_name="broker-a", enable_property_filter=True)
        self._user = Credentials("bench", "bench-secret") if signed else None
        access = Access(authenticates=True, authorizes=True, key=bytes(32)) if signed else None
        self.broker = Broker(config, store, RealDisk(str(folder)), Random(1), access=access)
        if signed:
            self._permit()
        self.body = b"x" * size
        self.number = 0
        self.broker.handle(Start(), self.now)
        for i in range(CONNS):
            self.broker.handle(Opened(CONN + i, f"127.0.0.1:{40_000 + i}", "127.0.0.1:10911", "main", ""), self.now)

    def _permit(self) -> None:
        """The user may send to the topic, and its group may read it."""
        parts = self.broker.parts
        parts.users.create("bench", "bench-secret", None, None)
        entries = [
            PolicyEntryInfo("Topic:bench", ["Pub", "Sub"], None, "Allow"),
            PolicyEntryInfo("Group:bench_consumer", ["Sub"], None, "Allow"),
        ]
        parts.acls.put("bench", Acl.of(AclInfo("User:bench", [PolicyInfo(None, entries)])))

    def _frame(self, code: int, ext: str, opaque: int, body: bytes) -> bytes:
        if self._user is not None:
            ext = json.dumps(self._user.sign(json.loads(f"{{{ext}}}"), body), separators=(",", ":"))[1:-1]
        return frame(code, ext, opaque, body)

    def sends(self, reads: int, messages: int, more: str = "", topic: str = "bench") -> list[bytes]:
        """`reads` reads of `messages` sends each, with `more` properties in the form of JSON."""
        made = []
        for _ in range(reads):
            pieces = []
            for _ in range(messages):
                self.number += 1
                queue, tag = self.number % 8, "AB"[self.number // 8 % 2]
                ext = EXT.format(queue=queue, now=self.now, number=self.number, tag=tag)
                if more:
                    ext = ext.replace('"i":"', f'"i":"{more}').replace('"b":"bench"', f'"b":"{topic}"')
                if topic != "bench":  # one queue
                    ext = ext.replace(f'"e":"{queue}"', '"e":"0"')
                pieces.append(self._frame(310, ext, 100_000_000 + self.number, self.body))
            made.append(b"".join(pieces))
        return made

    def pulls(self, reads: int, expression: str = "") -> list[bytes]:
        """Pulls of 32 each: of all, or of the half that an SQL92 expression wants."""
        kind, wanted, step = ("SQL92", expression, 64) if expression else ("TAG", "*", 32)
        made = []
        for i in range(reads):
            ext = PULL_EXT.format(kind=kind, wanted=wanted, queue=i % 8, offset=i // 8 % 10 * step)
            made.append(self._frame(11, ext, 100_000_000 + i, b""))
        return made

    def pop(self, queue: int) -> tuple[float, bytes]:
        """Seconds of CPU that a pop of 32 took, and a read of the acknowledgements that follow it."""
        ext = POP_EXT.format(now=self.now, queue=queue)
        pop = Frames(CONN, self._frame(200050, ext, 1, b""))
        began = time.thread_time()
        effects = self.broker.handle(pop, self.now)
        took = time.thread_time() - began
        (write,) = [effect for effect in effects if isinstance(effect, Write)]
        pieces = write.data if isinstance(write.data, list) else [write.data]
        data = b"".join(pieces)
        found = json.loads(data[8 : 8 + struct.unpack_from(">I", data, 4)[0]])["extFields"]
        _, _, start = found["startOffsetInfo"].split(" ")
        offsets = found["msgOffsetInfo"].split(" ")[2].split(",")
        acks = [
            ACK_EXT.format(start=start, now=found["popTime"], revive=found["reviveQid"], queue=queue, offset=offset)
            for offset in offsets
        ]
        assert len(acks) == 32, f"{len(acks)} messages"
        return took, b"".join(self._frame(200051, ext, 2 + i, b"") for i, ext in enumerate(acks))

    def run(self, reads: list[bytes], *, answered: bool = True) -> float:
        """Seconds of CPU that the reads took; all are `answered` at once."""
        handle, now = self.broker.handle, self.now
        events = [Frames(CONN, data) for data in reads]
        effects = []
        began = time.thread_time()
        for event in events:
            effects += handle(event, now)
        took = time.thread_time() - began
        writes = sum(isinstance(effect, Write) for effect in effects)
        assert not answered or writes == len(reads), f"{writes} writes for {len(reads)} reads"
        return took

    def run_turns(self, reads: list[bytes]) -> float:
        """Seconds of CPU that the reads took, `CONNS` of different connections at a time."""
        handle, now = self.broker.handle, self.now
        turns = [
            Reads([Frames(CONN + i, data) for i, data in enumerate(reads[at : at + CONNS])])
            for at in range(0, len(reads), CONNS)
        ]
        began = time.thread_time()
        for turn in turns:
            effects = handle(turn, now)
        took = time.thread_time() - began
        assert len(effects) == CONNS, f"{len(effects)} writes for {CONNS} reads"
        return took

    def warm_up(self) -> None:
        """Make topic and group, which the first requests do; some messages to pull."""
        for read in self.sends(100, 64) + self.pulls(8):
            self.broker.handle(Frames(CONN, read), self.now)


def measure(bench: Bench, title: str, messages: int, *, together: bool = False, expression: str = "") -> None:
    """Print the first decile of many short runs: what disturbs from outside is above it."""
    reads = max(1, RUN_MESSAGES // messages)
    times = []
    for _ in range(RUNS):
        work = bench.pulls(reads, expression) if messages == 32 else bench.sends(reads, messages)
        times.append(bench.run_turns(work) if together else bench.run(work))
    per = sorted(times)[RUNS // 10] / reads
    print(f"{title:48} {per * 1e6:8.2f} µs a read {per / messages * 1e6:8.2f} µs a message")


def measure_kinds(bench: Bench) -> None:
    """Print the first decile of ticks that deliver what was delayed, and of reads of 64 sends of each kind."""
    delayed = KINDS["with a delay level"][0]
    times = []
    for _ in range(RUNS // 5):
        bench.run(bench.sends(2, 64, delayed), answered=False)
        bench.now += 1_000
        began = time.thread_time()
        bench.broker.handle(Tick(), bench.now)
        times.append(time.thread_time() - began)
    print(f"{'deliveries of delayed messages, 128 a tick':48} {sorted(times)[2] / 128 * 1e6:8.2f} µs a message")
    for title, (more, topic) in KINDS.items():
        times = []
        for round_of in range(RUNS // 5 + 1):
            took = bench.run(bench.sends(4, 64, more, topic), answered=False)
            times += [took] if round_of else []  # the first one makes topics and queues
        print(f"sends {title:42} {sorted(times)[len(times) // 10] / 256 * 1e6:8.2f} µs a message")


def measure_pops(bench: Bench) -> None:
    """Print the first decile of pops of 32, and of the reads that acknowledge them one by one."""
    pops, acks = [], []
    for _ in range(RUNS // 10):
        for read in bench.sends(4, 64):
            bench.broker.handle(Frames(CONN, read), bench.now)
        for queue in range(8):
            took, read = bench.pop(queue)
            pops.append(took)
            acks.append(bench.run([read]))
            bench.now += 1
    for title, times in (("a pop of 32", pops), ("its acknowledgements, 32 in a read", acks)):
        per = sorted(times)[len(times) // 10]
        print(f"{title:48} {per * 1e6:8.2f} µs a read {per / 32 * 1e6:8.2f} µs a message")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--profile", action="store_true", help="cProfile of reads of 64 sends")
    parser.add_argument("--signed", action="store_true", help="by a user who may, of a broker that asks")
    parser.add_argument("--kinds", action="store_true", help="sends of several kinds, and deliveries")
    args = parser.parse_args()
    cache_folder().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"core-{os.getpid()}-", dir=cache_folder()))
    try:
        bench = Bench(folder, args.size, signed=args.signed)
        bench.warm_up()
        if args.kinds:
            measure_kinds(bench)
            return 0
        if args.profile:
            work = bench.sends(300, 64)
            profile = cProfile.Profile()
            profile.runcall(bench.run, work)
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
            return 0
        measure(bench, "sends, 64 in a read", 64)
        measure(bench, "sends, 8 in a read", 8)
        measure(bench, "sends, 1 in a read", 1)
        measure(bench, f"sends, 1 in a read, {CONNS} reads", 1, together=True)
        measure(bench, "a pull of 32", 32)
        for expression in ("TAGS = 'TagB'", "TAGS CONTAINS 'gB'", "UNIQ_KEY IS NOT NULL AND TAGS NOT CONTAINS 'gA'"):
            measure(bench, f"{expression}", 32, expression=expression)
        measure_pops(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
