"""What a broker has done: totals and rates, as code 28 and the admin tools show them (broker.md §11).

Counting is an addition per batch. Rates come from samples of the totals, one each `SAMPLE_PERIOD_MS`. A rate
of the whole broker is there once there are enough samples for its window, so that there are fewer than three
just after a start, as in the original.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from perseid.base.machine import Millis
from perseid.store.lmq import LMQ_PREFIX, is_lmq

K = TypeVar("K", bound=Hashable)

SAMPLE_PERIOD_MS = 10_000
WINDOWS_S = (10, 60, 600)
DAY_MS = 86_400_000
LONG_TURN_MS = 20
"""A turn of the event loop that lasts as long is counted: clients notice."""

TEN_MINUTES_MS = 600_000
HOUR_MS = 3_600_000
MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25

MAX_TALLIES = 100_000
"""Topics, or pairs of group and topic, that are counted by themselves; others count in the totals only."""

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

    def text(self) -> str:
        """The rates over `WINDOWS_S` as code 28 writes them: up to three numbers with spaces between."""
        rates = (self.rate(window_s) for window_s in WINDOWS_S)
        return " ".join("" if rate is None else str(rate) for rate in rates)


class Window(NamedTuple):
    """What was counted within a window, and how much that is a second."""

    sum: int
    per_second: float


class Tally:
    """A total that only grows, and what it was: each 10 s for a minute, each 10 min for an hour, each hour for a day.

    As in the original, a window begins with nothing one sample before the first one.
    """

    __slots__ = ("_day", "_day_at", "_hour", "_hour_at", "_minute", "total")

    def __init__(self) -> None:
        self.total = 0
        self._minute = array("q")  # times and totals in turn
        self._hour = array("q")
        self._day = array("q")
        self._hour_at = self._day_at = 0

    def sample(self, now: Millis) -> None:
        minute = self._minute
        quiet = len(minute) == 2 * MINUTE_SAMPLES and minute[1] == minute[-1]
        if not quiet or minute[-1] != self.total:
            if quiet:  # nothing was noted meanwhile
                minute[:] = array("q", (now - SAMPLE_PERIOD_MS, minute[-1]))
            _add(minute, now, self.total, SAMPLE_PERIOD_MS, MINUTE_SAMPLES)
        if now >= self._hour_at:
            self._hour_at = now + TEN_MINUTES_MS
            _add(self._hour, now, self.total, TEN_MINUTES_MS, HOUR_SAMPLES)
        if now >= self._day_at:
            self._day_at = now + HOUR_MS
            _add(self._day, now, self.total, HOUR_MS, DAY_SAMPLES)

    @property
    def quiet(self) -> bool:
        """Nothing was counted for a minute."""
        minute = self._minute
        return len(minute) == 2 * MINUTE_SAMPLES and minute[1] == self.total

    @property
    def idle(self) -> bool:
        """Nothing was counted for a day."""
        return len(self._day) == 2 * DAY_SAMPLES and self._day[1] == self.total

    @property
    def minute(self) -> Window:
        return _window(self._minute)

    @property
    def hour(self) -> Window:
        return _window(self._hour)

    @property
    def day(self) -> Window:
        return _window(self._day)


def _add(series: array[int], now: Millis, total: int, period_ms: Millis, most: int) -> None:
    if not series:
        series.extend((now - period_ms, 0))
    series.extend((now, total))
    if len(series) > 2 * most:
        del series[:2]


def _window(series: array[int]) -> Window:
    if not series:
        return Window(0, 0.0)
    count = series[-1] - series[1]
    return Window(count, count * 1000 / (series[-2] - series[0]))


class Tallies(dict[K, Tally]):
    """Those that something was counted by within the last minute, and, apart from them, those that rest: so that ten
    thousand topics that nobody sends to cost nothing each 10 s."""

    def __init__(self) -> None:
        super().__init__()
        self._resting: dict[K, Tally] = {}
        self._rested_at: Millis = 0

    def find(self, key: K) -> Tally | None:
        """The tally of a key; None: nothing was counted for a day."""
        return self.get(key) or self._resting.get(key)

    def wake(self, key: K) -> Tally:
        """The tally of a key that is not among the active ones; when there are too many, one that is forgotten."""
        tally = self._resting.pop(key, None) or Tally()
        if len(self) + len(self._resting) < MAX_TALLIES:
            self[key] = tally
        return tally

    def sample(self, now: Millis) -> None:
        """Take the samples that are due."""
        for key, tally in list(self.items()):
            tally.sample(now)
            if tally.quiet:
                self._resting[key] = self.pop(key)
        if now - self._rested_at >= TEN_MINUTES_MS:
            self._rested_at = now
            for key, tally in list(self._resting.items()):
                tally.sample(now)
                if tally.idle:
                    del self._resting[key]

    def forget(self, wanted: Callable[[K], bool]) -> None:
        """Forget what has a key that is wanted."""
        for table in (self, self._resting):
            for key in [key for key in table if wanted(key)]:
                del table[key]


class BrokerStats:
    """The counters of one broker, since its start.

    `is_system` says which topics don't count in the totals of messages; midnight is that of UTC, moved by
    `utc_offset_ms`.
    """

    def __init__(
        self,
        now: Millis,
        is_system: Callable[[str], bool] = lambda topic: False,
        utc_offset_ms: int = 0,
        *,
        one_row_of_lmq: bool = False,
    ) -> None:
        """`one_row_of_lmq`: all light queues and their groups are counted as one, under their prefix."""
        self._one_row_of_lmq = one_row_of_lmq
        self.started = now
        self.put_failed_times = 0
        self.put_bytes = 0
        self.put_time_max_ms = 0
        self.turn_max_ns = self.long_turns = 0
        """The longest turn of the event loop, and how many took LONG_TURN_MS or more."""
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
        self.tallies = {name: Tally() for name in ("puts", "gets", "own_puts", "own_gets")}
        """Of the whole broker: messages put and got, with system topics and without them."""
        self._topic_puts = Tallies[str]()
        self._group_gets = Tallies[tuple[str, str]]()
        self._put_times = [0] * len(_PUT_TIME_NAMES)
        self._utc_offset_ms = utc_offset_ms
        self._next_sample = now
        self._next_morning = self._morning_after(now)

    def start(self, now: Millis) -> None:
        """Counting begins."""
        self.started = self._next_sample = now
        self._next_morning = self._morning_after(now)

    # ---- counting: once a batch ----

    def put(self, topic: str, messages: int, size: int) -> None:
        """`messages` of `size` bytes altogether were stored under `topic`."""
        self.put_messages.total += messages
        self.put_bytes += size
        tally = self._topic_puts.get(topic)
        if tally is None:
            tally = self._topic_puts.wake(topic)
        tally.total += messages
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

    def turn_took(self, elapsed_ns: int) -> None:
        """A turn of the event loop, in which nobody else was answered."""
        if elapsed_ns > self.turn_max_ns:
            self.turn_max_ns = elapsed_ns
        if elapsed_ns >= LONG_TURN_MS * 1_000_000:
            self.long_turns += 1

    def got(self, group: str, topic: str, messages: int, pulls: int = 1) -> None:
        """`pulls` of `group` were answered with `messages`."""
        if not pulls:
            return
        self.get_found.total += pulls
        self.get_all.total += pulls
        self.transferred.total += messages
        if self._one_row_of_lmq:
            group, topic = (LMQ_PREFIX if is_lmq(name) else name for name in (group, topic))
        tally = self._group_gets.get((group, topic))
        if tally is None:
            tally = self._group_gets.wake((group, topic))
        tally.total += messages
        if not self._is_system(topic):
            self.get_total += messages

    def missed(self, pulls: int = 1) -> None:
        """`pulls` were answered without messages."""
        self.get_missed.total += pulls
        self.get_all.total += pulls

    # ---- time ----

    def next_deadline(self) -> Millis:
        return min(self._next_sample, self._next_morning)

    def tick(self, now: Millis) -> None:
        """Take the samples that are due, and the day's totals at midnight."""
        if now >= self._next_sample:
            for meter in (self.put_messages, self.get_found, self.get_missed, self.get_all, self.transferred):
                meter.sample(now)
            totals = (self.put_messages.total, self.transferred.total, self.put_total, self.get_total)
            for tally, total in zip(self.tallies.values(), totals, strict=True):
                tally.total = total
                tally.sample(now)
            self._topic_puts.sample(now)
            self._group_gets.sample(now)
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
        tally = self._topic_puts.get(topic)
        return tally.minute.per_second if tally else 0.0

    def topic_puts(self, topic: str) -> Tally | None:
        """Messages put to `topic`; None: there was none for a day."""
        return self._topic_puts.find(topic)

    def group_gets(self, group: str, topic: str) -> Tally | None:
        """Messages that `group` pulled of `topic`; None: there was none for a day."""
        return self._group_gets.find((group, topic))

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that `group` pulled of `topic`, over the last minute."""
        tally = self._group_gets.get((group, topic))
        return tally.minute.per_second if tally else 0.0

    def forget_topic(self, topic: str) -> None:
        self._topic_puts.forget(lambda key: key == topic)
        self._group_gets.forget(lambda key: key[1] == topic)

    def forget_group(self, group: str) -> None:
        self._group_gets.forget(lambda key: key[0] == group)

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
