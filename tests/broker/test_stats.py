from __future__ import annotations

from perseid.broker.stats import DAY_MS, MAX_METERS, MINUTE_S, SAMPLE_PERIOD_MS, BrokerStats, Meter

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


def test_an_idle_topic_is_forgotten() -> None:
    stats = BrokerStats(START)
    stats.put("T", 1, 1)
    stats.got("G", "T", 1)
    for i in range(MINUTE_S // 10 + 1):
        assert stats._topic_puts and stats._group_gets
        stats.tick(START + i * SAMPLE_PERIOD_MS)
    assert not stats._topic_puts and not stats._group_gets
    assert stats.put_total == 1


def test_the_number_of_meters_is_bounded() -> None:
    stats = BrokerStats(START)
    for i in range(MAX_METERS + 10):
        stats.put(str(i), 1, 1)
    assert len(stats._topic_puts) == MAX_METERS
    assert stats.put_total == MAX_METERS + 10


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
