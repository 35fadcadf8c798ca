"""A whole cluster in virtual time, for tests of your application: no test really waits, and you decide when faults
happen.

    def test_a_failover(perseid_virtual_cluster):
        cluster = perseid_virtual_cluster                         # three brokers, three controllers

        async def main():
            async with Producer(cluster.namesrv) as producer:
                await producer.send(Message("orders", b"one"))
                cluster.kill("master")
                await asyncio.sleep(30)                           # at once: another broker is elected meanwhile
                await producer.send(Message("orders", b"two"))

        cluster.run(main())

The asyncio clients run unchanged: the same code as in production, given `cluster.namesrv`, on an event loop whose clock
is virtual (`perseid.testing.loop`). The nodes are the real ones, on simulated machines whose disks lose at a power cut
what was not synced. `seed` decides latencies and elections: the same seed gives the same run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from perseid.base.errors import PerseidError
from perseid.base.machine import Millis
from perseid.client.surroundings import MACHINE, OUTSIDE
from perseid.sim.driver import EPOCH_MS
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.testing.loop import LIMIT_S, VirtualLoop
from perseid.testing.machines import CLIENT_IP, Layout, LayoutOptions, Machines, pairs
from perseid.testing.transport import CLIENT

READY_MS = 120_000
"""Until a cluster that was just started has a master and all copies."""
STOP_MS = 30_000
SHOWN_LINES = 12
S, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
T = TypeVar("T")


class VirtualCluster:
    """Brokers, name servers and controllers in virtual time. It is ready to use as soon as it is made.

    `replicas=3`: a set of three brokers under three controllers, as `perseid up --ha` runs it. `slaves=1`: a master
    with a slave that never becomes master. Without either: one broker. `broker`, `store` and `replication` are the
    brokers' settings. Close it, or use it with `with`.

    Names of machines, for faults: `master` (the broker that is master now), `broker-1`, `namesrv-1`, `controller-1`, …;
    `slaves`, `brokers`, `controllers`, `name servers`, `all`; and `client` for the clients' machine.
    """

    def __init__(self, *, seed: int = 0, **layout: Unpack[LayoutOptions]) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler, lambda what: None)
        self.machines = Machines(Layout(**layout), self.scheduler, self.network)
        self.loop = VirtualLoop(self.scheduler, self.network, CLIENT_IP, self._make_folder)
        self._folder: Path | None = None
        OUTSIDE.set(self.loop.surroundings)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the clients' tasks that still run. The cluster can't be used any more."""
        if OUTSIDE.get() is self.loop.surroundings:
            OUTSIDE.set(MACHINE)
        self.loop.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def namesrv(self) -> str:
        """The name servers' addresses: the argument of clients."""
        return self.machines.namesrv

    # ---- time ----

    @property
    def now(self) -> Millis:
        """The virtual time, in milliseconds since 1970."""
        return EPOCH_MS + self.scheduler.now_us // US_PER_MS

    def run(self, coroutine: Coroutine[Any, Any, T], *, limit_s: float = LIMIT_S) -> T:
        """The result of a coroutine, such as `main()`, that uses asyncio and the asyncio clients.

        While it waits, virtual time passes. If it makes no progress for `limit_s` seconds of virtual time,
        `WaitedInVain` lists the waiting tasks. A longer timer, such as `asyncio.sleep(100_000)`, is awaited. Tasks that
        it leaves running continue in the next call.
        """
        return self.loop.run(coroutine, limit_s)

    def advance(
        self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass; running clients continue meanwhile. In a coroutine, use `await asyncio.sleep(seconds)`."""
        ms += int(seconds * S + minutes * MINUTE + hours * HOUR + days * DAY)
        self.loop.play(self._in(ms))

    def until(self, condition: Callable[[], bool], *, within_s: float = LIMIT_S) -> None:
        """Let time pass until the condition holds. `PerseidError` if it does not hold within that virtual time."""
        if not self.loop.play(self._in(int(within_s * S)), condition):
            raise PerseidError(f"{condition!r} did not come true within {within_s:g} s of virtual time")

    # ---- life and death ----

    @property
    def master(self) -> str:
        """The name of the machine that is master now, such as `broker-2`. Empty: there is none."""
        master = self.machines.master
        return "" if master is None else master.name

    @property
    def is_ready(self) -> bool:
        """Whether all name servers know a master, and all brokers have its messages."""
        return self.machines.is_ready

    def start(self) -> None:
        """Start all nodes that are down, and wait until the cluster is ready. PerseidError when it does not become
        so."""
        self.restart("all")
        if not self.loop.play(self._in(READY_MS), lambda: self.is_ready or self._broken):
            raise self._failed(f"the cluster was not ready within {READY_MS} ms ({self.machines.shown()})")
        if self._broken:
            raise self._failed(f"a node did not start ({self.machines.shown()})")

    def restart(self, name: str) -> None:
        """Start a machine's node on what its disk holds, killing it first if it runs; `all`: all that are down."""
        for node in self.machines.named(name):
            if node.machine is not None and name != "all":
                node.crash()
            if node.machine is None:
                node.start()

    def kill(self, name: str = "master") -> str:
        """Kill the process: its memory is lost, its disk is not. Returns the machine's name, for `restart`."""
        return self._down(name, lambda node: node.crash())

    def cut_power(self, name: str = "master") -> str:
        """Switch the machine off: data that was not synced to its disk may be lost, torn or garbage. Returns its
        name."""
        return self._down(name, lambda node: node.cut_power())

    def shut_down(self, name: str = "master") -> str:
        """End a node cleanly, as SIGTERM does: it is down a moment later. Returns the machine's name."""
        return self._down(name, lambda node: node.shut_down())

    def signal(self, number: int) -> None:
        """Run the application's handler of a signal, such as `signal.SIGTERM`, that `loop.add_signal_handler` has
        set."""
        self.loop.send_signal(number)

    # ---- faults that heal ----

    def partition(self, one: str, other: str) -> None:
        """Cut the network between two groups of machines, such as `master` and `controllers`, until `heal()`."""
        for source, target in pairs(self._names(one), self._names(other)):
            self.network.block(source, target)

    def slow(self, name: str, *, network_ms: int = 0, disk_ms: int = 0) -> None:
        """Delay everything that the machine sends and receives, and each sync of its disk, by these times."""
        for one in self._names(name):
            self.network.delays_us[one] = network_ms * US_PER_MS
        for node in self.machines.named(name) if disk_ms else ():
            node.sync_us = (disk_ms * US_PER_MS, disk_ms * US_PER_MS)

    def stall(self, name: str = "master") -> None:
        """Stop the process until `heal()`, as SIGSTOP does: its connections stay open, and it does not answer."""
        for node in self.machines.named(name):
            node.stall(True)

    def full_disk(self, name: str = "master", ratio: float = 1.0) -> None:
        """Fill the disk, or this part of it, until `heal()`."""
        for node in self.machines.named(name):
            node.disk.fill(ratio)

    def heal(self) -> None:
        """End all partitions, delays, stalls and full disks. Nodes that are down stay down (`restart`)."""
        self.network.delays_us.clear()
        for source, target in sorted(self.network.blocked):
            self.network.heal(source, target)
        for node in self.machines.all:
            node.heal()

    # ---- what happened ----

    def story(self, *words: str) -> list[str]:
        """The events of the run as lines. With `words`, only lines that have one of them."""
        return self.scheduler.trace.story(*words)

    def digest(self) -> str:
        """A hash of the whole run, 16 hex digits: equal for equal runs."""
        return self.scheduler.trace.digest()

    # ---- inside ----

    @property
    def _broken(self) -> bool:
        return any(node.machine is None for node in self.machines.all)

    def _in(self, ms: int) -> int:
        return self.scheduler.now_us + ms * US_PER_MS

    def _failed(self, what: str) -> PerseidError:
        return PerseidError("\n".join([f"{what}; the last of its story:", *self.story()[-SHOWN_LINES:]]))

    def _names(self, name: str) -> list[str]:
        return [CLIENT] if name == CLIENT else [node.name for node in self.machines.named(name)]

    def _down(self, name: str, do: Callable[[Any], object]) -> str:
        nodes = [node for node in self.machines.named(name) if node.machine is not None]
        if not nodes:
            raise PerseidError(f"{name} is down already")
        for node in nodes:
            do(node)
        return ", ".join(node.name for node in nodes)

    def _make_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="perseid-virtual-"))
        return self._folder
