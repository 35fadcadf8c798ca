"""What a broker has done: totals and rates, as code 28 and the admin tools show them (broker.md §11).

Counting is an addition per batch. Rates come from samples of the totals, one each `SAMPLE_PERIOD_MS`. A rate
of the whole broker is there once there are enough samples for its window, so that there are fewer than three
just after a start, as in the original.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from perseid.base.machine import Millis

K = TypeVar("K", bound=Hashable)

SAMPLE_PERIOD_MS = 10_000
WINDOWS_S = (10, 60, 600)
MINUTE_S = 60
DAY_MS = 86_400_000

MAX_METERS = 100_000
"""Topics, or pairs of group and topic, that have a rate of their own; others count in the totals only."""

_PUT_TIME_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_PUT_TIME_NAMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


class Meter:
    """A total that only grows, and the samples of it that its rates are made of."""

    __slots__ = ("_samples", "total")

    def __init__(self, longest_window_s: int = WINDOWS_S[-1]) -> None:
        self.total = 0
        self._samples: deque[tuple[Millis, int]] = deque(maxlen=longest_window_s * 1000 // SAMPLE_PERIOD_MS + 1)

    def sample(self, now: Millis) -> None:
        self._samples.append((now, self.total))

    def rate(self, window_s: int) -> float | None:
        """Per second, over the last `window_s`; None as long as there are not enough samples."""
        steps = window_s * 1000 // SAMPLE_PERIOD_MS
        if len(self._samples) <= steps:
            return None
        (begin, before), (end, after) = self._samples[-1 - steps], self._samples[-1]
        return (after - before) * 1000 / (end - begin) if end > begin else 0.0

    def recent(self) -> float:
        """Per second, over all the samples that are kept."""
        if len(self._samples) < 2:
            return 0.0
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) * 1000 / (end - begin) if end > begin else 0.0

    @property
    def idle(self) -> bool:
        """Nothing happened over the whole of the longest window."""
        full = len(self._samples) == self._samples.maxlen
        return full and self._samples[0][1] == self.total

    def text(self) -> str:
        """The rates over `WINDOWS_S` as code 28 writes them: up to three numbers with spaces between."""
        rates = (self.rate(window_s) for window_s in WINDOWS_S)
        return " ".join("" if rate is None else str(rate) for rate in rates)


class BrokerStats:
    """The counters of one broker, since its start.

    `is_system` says which topics don't count in the totals of messages; midnight is that of UTC, moved by
    `utc_offset_ms`.
    """

    def __init__(
        self, now: Millis, is_system: Callable[[str], bool] = lambda topic: False, utc_offset_ms: int = 0
    ) -> None:
        self.started = now
        self.put_failed_times = 0
        self.put_bytes = 0
        self.put_time_max_ms = 0
        self.put_messages = Meter()
        self.get_found = Meter()
        self.get_missed = Meter()
        self.get_all = Meter()
        self.transferred = Meter()
        self.put_total = 0
        self.get_total = 0
        self.put_total_mornings = (0, 0)
        """Messages put until yesterday's and until today's midnight, without those of system topics."""
        self.get_total_mornings = (0, 0)
        self._is_system = is_system
        self._topic_puts: dict[str, Meter] = {}
        self._group_gets: dict[tuple[str, str], Meter] = {}
        self._put_times = [0] * len(_PUT_TIME_NAMES)
        self._utc_offset_ms = utc_offset_ms
        self._next_sample = now
        self._next_morning = self._morning_after(now)

    # ---- counting: once a batch ----

    def put(self, topic: str, messages: int, size: int) -> None:
        """`messages` of `size` bytes altogether were stored under `topic`."""
        self.put_messages.total += messages
        self.put_bytes += size
        meter = self._topic_puts.get(topic)
        if meter is None:
            meter = self._new_meter(self._topic_puts, topic)
        meter.total += messages
        if not self._is_system(topic):
            self.put_total += messages

    def put_failed(self) -> None:
        """The store refused a message, or a batch."""
        self.put_failed_times += 1

    def put_took(self, elapsed_ms: int, sends: int = 1) -> None:
        """`sends` were answered `elapsed_ms` after they came."""
        bucket = 0
        while bucket < len(_PUT_TIME_BOUNDS_MS) and elapsed_ms >= _PUT_TIME_BOUNDS_MS[bucket]:
            bucket += 1
        self._put_times[bucket] += sends
        self.put_time_max_ms = max(self.put_time_max_ms, elapsed_ms)

    def got(self, group: str, topic: str, messages: int) -> None:
        """A pull of `group` was answered with `messages`."""
        self.get_found.total += 1
        self.get_all.total += 1
        self.transferred.total += messages
        meter = self._group_gets.get((group, topic))
        if meter is None:
            meter = self._new_meter(self._group_gets, (group, topic))
        meter.total += messages
        if not self._is_system(topic):
            self.get_total += messages

    def missed(self) -> None:
        """A pull was answered without messages."""
        self.get_missed.total += 1
        self.get_all.total += 1

    # ---- time ----

    def next_deadline(self) -> Millis:
        return min(self._next_sample, self._next_morning)

    def tick(self, now: Millis) -> None:
        """Take the samples that are due, and the day's totals at midnight."""
        if now >= self._next_sample:
            for meter in (self.put_messages, self.get_found, self.get_missed, self.get_all, self.transferred):
                meter.sample(now)
            _sample_all(self._topic_puts, now)
            _sample_all(self._group_gets, now)
            self._next_sample = now + SAMPLE_PERIOD_MS
        if now >= self._next_morning:
            self.put_total_mornings = (self.put_total_mornings[1], self.put_total)
            self.get_total_mornings = (self.get_total_mornings[1], self.get_total)
            self._next_morning = self._morning_after(now)

    def _morning_after(self, now: Millis) -> Millis:
        local = now + self._utc_offset_ms
        return now + DAY_MS - local % DAY_MS

    # ---- reading ----

    def topic_put_tps(self, topic: str) -> float:
        """Messages a second put to `topic`, over the last minute."""
        meter = self._topic_puts.get(topic)
        return meter.recent() if meter else 0.0

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that `group` pulled of `topic`, over the last minute."""
        meter = self._group_gets.get((group, topic))
        return meter.recent() if meter else 0.0

    def forget_topic(self, topic: str) -> None:
        self._topic_puts.pop(topic, None)
        for key in [key for key in self._group_gets if key[1] == topic]:
            del self._group_gets[key]

    def forget_group(self, group: str) -> None:
        for key in [key for key in self._group_gets if key[0] == group]:
            del self._group_gets[key]

    def put_latency_ms(self, share: float) -> float:
        """The time within which this share of the sends was answered (interpolated within a bucket)."""
        total, passed = sum(self._put_times), 0
        wanted = int(total * share)
        bounds = (*_PUT_TIME_BOUNDS_MS, max(self.put_time_max_ms, _PUT_TIME_BOUNDS_MS[-1]))
        for bucket, count in enumerate(self._put_times):
            if count and wanted <= passed + count:
                low = bounds[bucket - 1] if bucket else 0
                return low + (bounds[bucket] - low) * (wanted - passed) / count
            passed += count
        return 0.0

    def put_distribution(self) -> str:
        """How many sends took how long, as code 28 writes it."""
        return "".join(f"{name}:{n} " for name, n in zip(_PUT_TIME_NAMES, self._put_times, strict=True))

    def runtime_text(self, now: Millis) -> str:
        """How long the broker runs, as code 28 writes it."""
        seconds = (now - self.started) // 1000
        days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"

    @staticmethod
    def _new_meter(meters: dict[K, Meter], key: K) -> Meter:
        meter = Meter(MINUTE_S)
        if len(meters) < MAX_METERS:
            meters[key] = meter
        return meter


def _sample_all(meters: dict[K, Meter], now: Millis) -> None:
    for key, meter in list(meters.items()):
        meter.sample(now)
        if meter.idle:
            del meters[key]
