from __future__ import annotations

from perseid.broker.admin.stats import DAY_MS, HOUR_MS, MAX_TALLIES, SAMPLE_PERIOD_MS, BrokerStats, Meter, Tally, Window

START = 1_700_000_000_000


def run(stats: BrokerStats, begin: int, seconds: int, per_sample: int) -> int:
    """Put `per_sample` messages before each sample for a while; the time at the end."""
    for now in range(begin, begin + seconds * 1000 + 1, SAMPLE_PERIOD_MS):
        stats.tick(now)
        stats.put("T", per_sample, per_sample * 100)
    return begin + seconds * 1000


def test_rates_appear_one_window_after_the_other() -> None:
    stats = BrokerStats(START)
    assert stats.put_messages.text().split() == []
    now = run(stats, START, 10, 50)
    assert stats.put_messages.text().split() == ["5.0"]
    now = run(stats, now + SAMPLE_PERIOD_MS, 60, 50)
    assert stats.put_messages.text().split() == ["5.0", "5.0"]
    run(stats, now + SAMPLE_PERIOD_MS, 600, 50)
    assert stats.put_messages.text().split() == ["5.0", "5.0", "5.0"]


def test_a_late_sample_counts_with_the_time_that_really_passed() -> None:
    meter = Meter()
    meter.sample(START)
    meter.total = 100
    meter.sample(START + 20_000)
    assert meter.rate(10) == 5.0


def test_rates_of_a_topic_and_of_a_group() -> None:
    stats = BrokerStats(START)
    for i in range(7):
        stats.tick(START + i * SAMPLE_PERIOD_MS)
        stats.put("T", 20, 1)
        stats.got("G", "T", 10)
    assert stats.topic_put_tps("T") == 2.0
    assert stats.group_get_tps("G", "T") == 1.0
    assert stats.topic_put_tps("other") == 0.0
    stats.forget_topic("T")
    assert stats.topic_put_tps("T") == stats.group_get_tps("G", "T") == 0.0


def test_a_topic_that_is_idle_for_a_day_is_forgotten() -> None:
    stats = BrokerStats(START)
    stats.put("T", 1, 1)
    stats.got("G", "T", 1)
    for hour in range(25):
        assert stats.topic_puts("T") is not None and stats.group_gets("G", "T") is not None
        stats.tick(START + hour * HOUR_MS)
    assert stats.topic_puts("T") is None and stats.group_gets("G", "T") is None
    assert stats.put_total == 1


def test_what_rests_is_still_known_and_wakes_up() -> None:
    stats = BrokerStats(START)
    stats.put("T", 3, 1)
    for number in range(20):
        stats.tick(START + number * SAMPLE_PERIOD_MS)
    assert not stats._topic_puts, "it costs nothing while it rests"
    tally = stats.topic_puts("T")
    assert tally is not None and (tally.minute.sum, tally.day.sum) == (0, 3)
    stats.put("T", 2, 1)
    stats.tick(START + 20 * SAMPLE_PERIOD_MS)
    assert stats.topic_puts("T") is tally and (tally.total, tally.minute.sum) == (5, 2)
    stats.forget_topic("T")
    assert stats.topic_puts("T") is None


def test_windows_of_a_minute_an_hour_and_a_day() -> None:
    tally, now = Tally(), START
    assert tally.minute == tally.hour == tally.day == Window(0, 0.0)
    tally.total = 5
    tally.sample(now)
    assert tally.minute == Window(5, 0.5), "a window begins with nothing one sample before the first"
    assert (tally.hour.sum, tally.day.sum) == (5, 5)
    for _ in range(6 * 60 * 3):
        now += SAMPLE_PERIOD_MS
        tally.total += 10
        tally.sample(now)
    assert tally.minute == Window(60, 1.0)
    assert tally.hour == Window(6 * 600, 1.0)
    assert tally.day.sum == 5 + 3 * 3600 and 0.7 < tally.day.per_second < 1.0, "one hour before the first counts too"
    for _ in range(7):
        now += SAMPLE_PERIOD_MS
        tally.sample(now)
    assert tally.minute == Window(0, 0.0) and tally.hour.sum == 3600


def test_what_wakes_up_after_a_long_time_counts_from_then_on() -> None:
    tally = Tally()
    for number in range(40):
        tally.sample(START + number * SAMPLE_PERIOD_MS)
    tally.total = 20
    tally.sample(START + 1000 * SAMPLE_PERIOD_MS)
    assert tally.minute == Window(20, 2.0), "not over the hours before"


def test_the_whole_broker_is_counted_with_system_topics_and_without() -> None:
    stats = BrokerStats(START, is_system=lambda topic: topic == "SYS")
    stats.put("T", 5, 1)
    stats.put("SYS", 100, 1)
    stats.got("G", "T", 3)
    stats.tick(START)
    assert {name: tally.minute.sum for name, tally in stats.tallies.items()} == {
        "puts": 105, "gets": 3, "own_puts": 5, "own_gets": 3,
    }  # fmt: skip


def test_the_number_of_tallies_is_bounded() -> None:
    stats = BrokerStats(START)
    for i in range(MAX_TALLIES + 10):
        stats.put(str(i), 1, 1)
    assert len(stats._topic_puts) == MAX_TALLIES
    assert stats.put_total == MAX_TALLIES + 10


def test_totals_of_the_days_leave_system_topics_out() -> None:
    midnight = START - START % DAY_MS + DAY_MS
    stats = BrokerStats(START, is_system=lambda topic: topic == "SYS")
    stats.put("T", 5, 1)
    stats.put("SYS", 100, 1)
    stats.got("G", "T", 3)
    assert stats.put_total == 5 and stats.put_total_mornings == (0, 0)
    stats.tick(midnight - 1)
    assert stats.put_total_mornings == (0, 0)
    stats.tick(midnight)
    assert stats.put_total_mornings == (0, 5) and stats.get_total_mornings == (0, 3)
    stats.put("T", 2, 1)
    stats.tick(midnight + DAY_MS)
    assert stats.put_total_mornings == (5, 7)


def test_midnight_follows_the_offset() -> None:
    stats = BrokerStats(START, utc_offset_ms=3_600_000)
    stats.put("T", 1, 1)
    midnight = START - START % DAY_MS + DAY_MS - 3_600_000
    stats.tick(midnight - 1)
    assert stats.put_total_mornings == (0, 0)
    stats.tick(midnight)
    assert stats.put_total_mornings == (0, 1)


def test_the_deadline_is_the_next_sample() -> None:
    stats = BrokerStats(START)
    assert stats.next_deadline() == START
    stats.tick(START)
    assert stats.next_deadline() == START + SAMPLE_PERIOD_MS


def test_put_times() -> None:
    stats = BrokerStats(START)
    for elapsed_ms in [0] * 98 + [30, 20_000]:
        stats.put_took(elapsed_ms)
    assert stats.put_distribution().startswith("[<=0ms]:98 [0~10ms]:0 [10~50ms]:1 ")
    assert stats.put_distribution().endswith("[10s~]:1 ")
    assert stats.put_time_max_ms == 20_000
    assert stats.put_latency_ms(0.5) < 1
    assert 10 <= stats.put_latency_ms(0.99) <= 50
    assert 10_000 <= stats.put_latency_ms(1.0) <= 20_000


def test_runtime_text() -> None:
    stats = BrokerStats(START)
    assert stats.runtime_text(START + DAY_MS + 3_661_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_long_turns_are_counted_and_the_longest_is_known() -> None:
    stats = BrokerStats(START)
    for elapsed_ns in (1_000, 19_999_999, 20_000_000, 31_000_000, 5_000):
        stats.turn_took(elapsed_ns)
    assert (stats.long_turns, stats.turn_max_ns) == (2, 31_000_000)
