"""What stock Java producers see when a master dies: they ask the name server for their route every 30 s.

Several run in one JVM, started so far apart that their questions are spread over the 30 s: one kill shows the outage of
each of them.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO

from servers import HERE, JAVA_OPTIONS, BenchError, java_jars
from sets import NO_MASTER_TIMEOUT_S, SYNC_TIMEOUT_S, TOPIC, BrokerSet

PRODUCERS = 6
ROUTE_POLL_S = 30.0
"""pollNameServerInterval of a stock client."""
SEND_PAUSE_MS = 20
FIRST_TIMEOUT_S = 180.0
END_TIMEOUT_S = 10.0


class StockProducers:
    """A JVM with PRODUCERS stock producers. A context: it ends with it."""

    def __init__(self, namesrv_address: str, topic: str = TOPIC) -> None:
        self._arguments = [namesrv_address, topic, str(PRODUCERS), str(ROUTE_POLL_S / PRODUCERS), str(SEND_PAUSE_MS)]
        self._seen = threading.Condition()
        self._last: dict[int, tuple[float, int]] = {}
        """Of each producer, its last acknowledgement: when, and by which port's broker."""
        self._gap: dict[int, tuple[float, float]] = {}
        """Of each producer, the longest time between two acknowledgements since `watch`: when it began, and its end."""

    def __enter__(self) -> StockProducers:
        command = ["java", "-Xmx256m", *JAVA_OPTIONS, "-cp", f"{java_jars()}/*", str(HERE / "StockProducers.java")]
        self._errors = tempfile.TemporaryFile()
        self._child = subprocess.Popen(
            [*command, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._child.stdout
        self._reader = threading.Thread(target=self._read, args=(self._child.stdout,))
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin
        self._child.stdin.close()
        try:
            self._child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join()
        self._errors.close()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            if (parts := line.split()) and all(part.isdigit() for part in parts) and len(parts) == 3:
                self.acknowledged(int(parts[0]), int(parts[1]) / 1e9, int(parts[2]))

    def acknowledged(self, producer: int, at_s: float, port: int) -> None:
        """A producer's message was, by that port's broker."""
        with self._seen:
            if (last := self._last.get(producer)) is not None:
                began, ended = self._gap.get(producer, (0.0, 0.0))
                if at_s - last[0] > ended - began:
                    self._gap[producer] = (last[0], at_s)
            self._last[producer] = at_s, port
            self._seen.notify_all()

    def watch(self) -> None:
        """Forget the outages so far."""
        with self._seen:
            self._gap.clear()

    def await_all(self, since_s: float, timeout_s: float, but: int = 0) -> None:
        """Return when each producer had a message acknowledged after that moment (monotonic), by another broker than
        that of the port `but`: an answer of a dead one may still be on its way."""

        def goes_on(producer: int) -> bool:
            at_s, port = self._last.get(producer, (0.0, but))
            return at_s > since_s and port != but

        def done() -> bool:
            return all(map(goes_on, range(PRODUCERS)))

        with self._seen:
            if not self._seen.wait_for(done, timeout_s):
                self._errors.seek(0)
                said = self._errors.read()[-2000:].decode(errors="replace")
                late = [n for n in range(PRODUCERS) if not goes_on(n)]
                raise BenchError(
                    f"stock producers {late} had no message acknowledged within {timeout_s:.0f} s:\n{said}"
                )

    def outages(self) -> Mapping[int, float]:
        """The longest time without an acknowledgement of each producer since `watch`, in seconds."""
        with self._seen:
            return {producer: ended - began for producer, (began, ended) in self._gap.items()}


def stock_outages(one: BrokerSet, stock: StockProducers) -> list[dict[str, float]]:
    """Kill the master: what each of the stock producers saw. The broker is started again when all of them go on."""
    one.settle()
    victim = one.leader
    stock.await_all(time.monotonic(), FIRST_TIMEOUT_S + ROUTE_POLL_S)
    stock.watch()
    began = time.monotonic()
    one.kill_node(victim)
    stock.await_all(began, NO_MASTER_TIMEOUT_S, but=one.node_ports[victim])
    found = [{"outage_s": seconds} for seconds in stock.outages().values()]
    one.start_node(victim)
    one.until(victim, "come back in sync", lambda: one.in_sync(victim), SYNC_TIMEOUT_S)
    return found
