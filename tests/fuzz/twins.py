"""Two brokers on simulated disks, one with the core and one with the handlers alone: what they do is compared.

FUZZ_CORE names the folder of a compiled core to load in place of the installed one: `run.py` builds it with bounds
checks.
"""

import os
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

from perseid import core
from perseid.base.machine import Close, Closed, Feed, Flush, Frames, Note, Opened, SaveState, Start, Stop, Write
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.testing.cores import core_from
from perseid.wire.frame import split

CONN = 1
SMALL = StoreConfig(commit_log_file_bytes=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
MAX_LOG_BYTES = 4 << 20
NOW = 1_700_000_000_000
DISK_IN_USE = re.compile(rb'"commitLogDi[^"]*":"[^"]*"')
"""In the answer to code 28: how soon the index is written is not the same."""


def checked_core() -> core.Core:
    """The core with bounds checks where `run.py` built one, else the installed one, compiled or not."""
    path = os.environ.get("FUZZ_CORE")
    return core.installed if path is None else core_from(Path(path), ".so")


class Twins:
    """The two brokers, in the same state as long as nothing is wrong."""

    def __init__(self) -> None:
        self.now = NOW
        self._hidden: list[Any] = []
        sys.unraisablehook = self._hidden.append  # an index out of bounds in a function that can't raise
        core.compiled = checked_core()
        self.with_core, self.alone = self._broker(), self._broker()
        self.alone.plain_sends = None

    def _broker(self) -> Broker:
        broker = Broker(BrokerConfig(broker_name="b"), SMALL, SimDisk(Random(1)), Random(1))
        self._play(broker, Start())
        self._play(broker, self._opened())
        return broker

    def _opened(self) -> Opened:
        return Opened(CONN, "10.0.0.1:5000", "10.0.0.9:10911", "main")

    def _play(self, broker: Broker, first: object) -> list[bytes | str]:
        """What a broker does about an event, in an order that does not matter."""
        done: list[bytes | str] = []
        events = [first]
        while events:
            effects = broker.handle(events.pop(0), self.now)
            while effects:
                effect = effects.pop(0)
                if isinstance(effect, Write):
                    data = effect.data
                    whole = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
                    done += [DISK_IN_USE.sub(b"", bytes(one)[4:]) for one in split(whole)]
                elif isinstance(effect, Flush | SaveState):
                    effects[:0] = effect.then
                elif isinstance(effect, Feed):
                    events.append(effect.event)
                elif isinstance(effect, Close):
                    events += [Closed(CONN, effect.reason), self._opened()]
                elif isinstance(effect, Note):
                    done.append(effect.text.partition("\n")[0])
                else:
                    assert not isinstance(effect, Stop), f"the broker ended: {effect.reason}"
        return sorted(done, key=repr)

    def compare(self, data: bytes) -> bool:
        """Give both the same read. False when it is time for new twins."""
        self.now += 1
        begin = self.with_core.store.end
        did, wanted = (self._play(broker, Frames(CONN, data)) for broker in (self.with_core, self.alone))
        assert did == wanted, f"the core's broker did {did}, the other {wanted}"
        logs = [bytes(broker.store.log.segments.view(begin, 1 << 20)) for broker in (self.with_core, self.alone)]
        assert logs[0] == logs[1] and self.with_core.store.end == self.alone.store.end, "the logs differ"
        assert not self._hidden, f"an error in a function that can't raise: {self._hidden[0].exc_value!r}"
        self.with_core.validate()
        return self.alone.store.end < MAX_LOG_BYTES
