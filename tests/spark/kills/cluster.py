"""A broker set under three controllers, a process each, whose master can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from perseid.app import ha
from perseid.app.children import perseid
from perseid.client.blocking import BlockingAdmin, LoopThread
from perseid.client.controller import ControllerClient, ReplicaSet
from perseid.client.errors import ClientError

READY_S = 180
STOP_S = 60
POLL_S = 0.1


class Cluster:
    """The members of `perseid up --ha`, each of which is started by its own configuration file."""

    def __init__(self, folder: Path, replicas: int = 2) -> None:
        self.plan = ha.plan(folder, namesrv_port=0, broker_port=0, controller_port=0, replicas=replicas)
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._loop = LoopThread("kills: controllers")
        self._timers: list[threading.Timer] = []
        self._never = threading.Event()

    @property
    def namesrv(self) -> str:
        return self.plan.namesrv

    def __enter__(self) -> Self:
        conf = self._folder / "conf"
        for folder in (conf, self._folder / "log"):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            for member in self.plan.members:
                member.write(conf)
                self._start(member)
            self.await_in_sync()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._loop.stop()

    def create_topic(self, topic: str, queues: int) -> None:
        """Make a topic, on the master."""
        with BlockingAdmin(self.namesrv) as admin:
            admin.create_topic(topic, queues)

    def kill_master(self, back_after_s: float) -> str:
        """SIGKILL to the master, as soon as all replicas are in sync; it is started again after a while. Its name."""
        found = self.await_in_sync()
        (member,) = [member for member in self.plan.brokers if member.address == found.master_address]
        self._running[member.name].send_signal(signal.SIGKILL)
        self._running[member.name].wait()
        timer = threading.Timer(back_after_s, self._start, (member,))
        self._timers.append(timer)
        timer.start()
        return member.name

    def await_in_sync(self) -> ReplicaSet:
        """Wait until all replicas run and are in sync with a master that the name server knows."""
        for timer in self._timers:
            timer.join()
        self._timers.clear()
        last = "nobody was asked yet"
        for _ in range(int(READY_S / POLL_S)):
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}: {self._log(name)}"
            try:
                found = self._loop.run(self._set())
                last = str(found)
                if found is not None:
                    return found
            except ClientError as error:
                last = str(error)
            self._never.wait(POLL_S)
        raise AssertionError(f"the brokers were not in sync within {READY_S} s: {last}; logs: {self._folder / 'log'}")

    async def _set(self) -> ReplicaSet | None:
        async with ControllerClient(self.plan.controllers, timeout_ms=1000) as controllers:
            sets = await controllers.replica_sets([ha.BROKER_NAME])
        if not sets:
            return None
        found = sets[0]
        in_sync = [replica for replica in found.replicas if replica.in_sync and replica.alive]
        with_master = found.master_alive and found.master_address in {m.address for m in self.plan.brokers}
        return found if with_master and len(in_sync) == len(self.plan.brokers) else None

    def _start(self, member: ha.Member) -> None:
        command = perseid(member.role, "-c", str(self._folder / "conf" / f"{member.name}.conf"))
        with self._log(member.name).open("ab") as log:
            self._running[member.name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ
            )

    def _log(self, name: str) -> Path:
        return self._folder / "log" / f"{name}.log"
