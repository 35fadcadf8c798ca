"""Clusters that tests share, and that cost nothing while no test has them."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rig

REST_S, BREATH_S = 45.0, 3.0
"""A name server drops a broker that it has not heard of for 120 s. A broker registers each ten seconds; when it runs
again, at once."""


class Shared:
    """One of each kind, started by `make` when first asked for.

    A Java broker without work takes a tenth of a core: its threads look for some each millisecond. So it stands
    (SIGSTOP) while no test has its cluster, but for a breath from time to time, in which it says that it is there.
    """

    def __init__(self, make: Callable[[str], rig.Cluster]) -> None:
        self._make = make
        self._running: dict[str, rig.Cluster] = {}
        self._failed: dict[str, BaseException] = {}
        self._lent: Counter[str] = Counter()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper of shared clusters", daemon=True)
        self._keeper.start()

    @contextmanager
    def lent(self, kind: str) -> Iterator[rig.Cluster]:
        """The cluster of this kind, which runs meanwhile."""
        cluster = self._get(kind)
        with self._lock:
            self._lent[kind] += 1
            _signal(cluster, signal.SIGCONT)
        try:
            yield cluster
        finally:
            with self._lock:
                self._lent[kind] -= 1
                if not self._lent[kind]:
                    _signal(cluster, signal.SIGSTOP)

    def end(self) -> dict[str, int]:
        """Kill Java's parts, stop ours; the exit codes of ours."""
        self._ended.set()
        self._keeper.join()
        ends = {}
        for cluster in self._running.values():
            for process in (cluster.broker_process, cluster.namesrv_process):
                if process.impl == "java":  # takes a quarter of a minute to stop, and nobody reads what it leaves
                    process.kill()
                elif process.running:
                    ends[process.folder.name] = process.stop()
        return ends

    def _get(self, kind: str) -> rig.Cluster:
        if kind in self._failed:
            raise rig.RigError(f"cluster {kind} didn't start") from self._failed[kind]
        if kind not in self._running:
            try:
                made = self._make(kind)
            except (rig.RigError, AssertionError) as e:
                self._failed[kind] = e
                raise
            with self._lock:
                self._running[kind] = made
        return self._running[kind]

    def _keep(self) -> None:
        while not self._ended.wait(REST_S):
            self._signal_idle(signal.SIGCONT)
            self._ended.wait(BREATH_S)
            self._signal_idle(signal.SIGSTOP)

    def _signal_idle(self, sig: signal.Signals) -> None:
        with self._lock:
            for kind, cluster in self._running.items():
                if not self._lent[kind]:
                    _signal(cluster, sig)


def _signal(cluster: rig.Cluster, sig: signal.Signals) -> None:
    """To its broker, where that is Java's: ours, and name servers, wait without looking."""
    if cluster.broker_process.impl == "java":
        cluster.broker_process.signal(sig)
