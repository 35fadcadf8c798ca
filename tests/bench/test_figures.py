"""What `make bench` makes of its figures: ratios, verdicts, the tables. No server is started."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import figures
from rows import Goal, beside_java
from servers import CORE, JAVA, PLAIN, SHARDS, TUNED, UNSYNCED

LOADED = ("per_second", "server_cpu_us", "server_cores", "load_cores", "other_cores", "p50_ms", "p99_ms", "memory_mb")


def rounds(cpu_us: float, **more: float) -> list[dict[str, float]]:
    """Three rounds; messages a second and p99 follow from the CPU."""
    return [
        dict.fromkeys(LOADED, 1.0)
        | {"server_cpu_us": cpu_us * factor, "per_second": 1e6 / cpu_us, "p99_ms": cpu_us / 10, "load_cores": 0.25}
        | more
        for factor in (0.5, 1.0, 3.0)
    ]


def at_rest(start_s: float, memory_mb: float, idle_percent: float) -> list[dict[str, float]]:
    return [{"start_s": start_s, "memory_mb": memory_mb, "idle_percent": idle_percent}] * 3


def summary(**rows: dict[str, list[dict[str, float]]]) -> figures.Summary:
    return figures.summarise(rows, dict.fromkeys(rows, "a title"))


def beside_rows(found: figures.Summary) -> list[figures.Verdict]:
    """Verdicts of goals that are about another row of the same broker."""
    return [v for v in figures.verdicts(found) if v.goal.against not in (JAVA, "")]


def test_ratios_are_those_of_medians_and_goals_are_judged() -> None:
    found = summary(closed={JAVA: rounds(40.0), CORE: rounds(10.0), PLAIN: rounds(50.0)})
    ratios = found["closed"]["ratios"]
    assert {what: ratios[CORE][what] for what in ("cpu", "speed", "p99")} == {"cpu": 0.25, "speed": 4.0, "p99": 0.25}
    (line,) = figures.goals(found)
    assert line.count(": met)") == 3, "and memory is no less"
    assert "CPU a message 0.25 of Java's (goal ≤ 0.333: met)" in line
    assert f"{PLAIN}: CPU a message 1.25 of Java's (goal ≤ 1: missed)" in line


def test_a_goal_that_is_missed_is_called_missed() -> None:
    found = summary(pipelined={JAVA: rounds(24.0), CORE: rounds(6.0), PLAIN: rounds(12.0)})
    met = {(v.goal.server, v.goal.what): v.met for v in figures.verdicts(found)}
    assert met == {
        (CORE, "speed"): False,
        (CORE, "cpu"): False,
        (CORE, "p99"): True,
        (CORE, "memory"): False,
        (PLAIN, "cpu"): True,
    }
    core = list(figures.table_rows(found, ranges=True))[1]
    assert core[-3:] == ["4.00 ✗ ≥ 5", "0.25 ✗ ≤ 0.125", "0.25 ✓ ≤ 1"]


@pytest.mark.parametrize(
    ("what", "value", "met"), [("cpu", 0.5, True), ("cpu", 0.51, False), ("speed", 0.5, True), ("speed", 0.49, False)]
)
def test_a_limit_is_the_highest_cost_and_the_lowest_speed(what: str, value: float, met: bool) -> None:
    assert Goal(what, 0.5).met(value) is met


def test_shards_are_put_beside_one_broker() -> None:
    found = summary(shards={CORE: rounds(4.0), SHARDS: rounds(5.0)})
    assert [(str(v), v.met) for v in figures.verdicts(found)] == [
        (f"{SHARDS}: messages a second 0.80 of {CORE}'s (goal ≥ 1: missed)", False),
        (f"{SHARDS}: CPU a message 1.25 of {CORE}'s (goal ≤ 1.1: missed)", False),
    ]


def test_a_flat_cost_is_put_beside_the_other_row_of_the_same_broker() -> None:
    one = {JAVA: rounds(40.0), CORE: rounds(10.0)}
    found = summary(topics1=one, topics1000={JAVA: rounds(400.0), CORE: rounds(11.9)})
    (verdict,) = beside_rows(found)
    assert verdict.row == "topics1000" and verdict.met and verdict.value == pytest.approx(1.19)
    found = summary(topics1=one, topics1000={JAVA: rounds(40.0), CORE: rounds(12.1)})
    assert [v.met for v in beside_rows(found)] == [False]
    assert beside_rows(summary(topics1000=one)) == [], "the other row was not measured"


def test_what_is_added_to_another_rows_cost_is_no_ratio() -> None:
    found = summary(
        openclosed={JAVA: rounds(60.0), CORE: rounds(13.0)}, bothclosed={JAVA: rounds(80.0), CORE: rounds(17.5)}
    )
    (added,) = beside_rows(found)
    assert added.value == pytest.approx(4.5) and added.met
    assert str(added) == "µs of CPU a message 4.50 over openclosed's (goal ≤ 5: met)"
    assert "more" not in found["bothclosed"]["ratios"][CORE]


def test_a_broker_at_rest_is_judged_by_start_memory_and_idle_cpu() -> None:
    found = summary(start={JAVA: at_rest(4.0, 400.0, 9.0), CORE: at_rest(0.5, 50.0, 1.5)})
    assert [(v.goal.what, v.value, v.met) for v in figures.verdicts(found)] == [
        ("start", 0.125, True),
        ("memory", 0.125, False),
        ("idle", 1.5, False),
    ]
    assert list(figures.table_rows(found, ranges=False)) == []
    java, core = figures.rest_rows(found, ranges=False)
    assert java == ["start", JAVA, "4.00", "400", "9.00", "", ""]
    assert core == ["", CORE, "0.50", "50", "1.50 ✗", "0.12 ✓", "0.12 ✗"]


def test_a_row_with_idle_connections_is_in_both_tables() -> None:
    found = summary(idle10k={JAVA: rounds(40.0, idle_percent=8.0), CORE: rounds(10.0, idle_percent=0.2)})
    for cells, columns in ((figures.table_rows, figures.COLUMNS), (figures.rest_rows, figures.REST_COLUMNS)):
        rows = list(cells(found, ranges=False))
        assert [row[:2] for row in rows] == [["idle10k", JAVA], ["", CORE]]
        assert {len(row) for row in rows} == {len(columns)}


def test_seconds_without_a_leader_are_put_beside_javas() -> None:
    def kills(*gaps: float) -> list[dict[str, float]]:
        return [{"gap_s": gap, "follows_s": 2.0} for gap in gaps]

    found = summary(dlfail={JAVA: kills(7, 9, 8), CORE: kills(4, 4, 5), TUNED: kills(0.1, 0.2, 0.3)})
    java, core, tuned = figures.fail_rows(found, ranges=False)
    assert java == ["dlfail", JAVA, "8.00", "7.00", "9.00", "", "2.0"]
    assert core == ["", CORE, "4.00", "4.00", "5.00", "0.50 ✓", "2.0"]
    assert tuned[2] == "0.20 ✓" and tuned[-2] == "0.03" and len(tuned) == len(figures.FAIL_COLUMNS)
    assert list(figures.table_rows(found, ranges=False)) == list(figures.catch_up_rows(found, ranges=False)) == []


def kill(gap_s: float, joined_s: float = 0.5, lost: int = 0, acked: int = 100) -> dict[str, float]:
    own = {"gap_s": gap_s, "named_s": gap_s / 2, "beyond_s": gap_s - 3, "back_s": joined_s + 1, "joined_s": joined_s}
    return own | {"acked": acked, "lost": lost, "moved": 0}


def test_a_masters_death_is_judged_by_the_median_and_by_the_worst() -> None:
    java = [kill(0.2), kill(0.3), kill(0.4)]
    found = summary(hakill={JAVA: java, CORE: [kill(0.03), kill(0.04), kill(0.3, acked=300)]})
    assert {v.goal.what: v.met for v in figures.verdicts(found)} == {
        "gap": True,
        "worst gap": False,
        "rejoin": True,
        "lost": True,
    }
    first, ours = figures.switch_rows(found, ranges=False)
    assert first[:2] == ["hakill", JAVA] and len(ours) == len(first) == len(figures.SWITCH_COLUMNS)
    assert ours[2:7] == ["0.040 ✓", "0.030", "0.300 ✗", "0.13", ""], "who is killed has no timeout"
    assert ours[-2:] == ["0.50 ✓", "0 of 300 ✓"]
    assert list(figures.fail_rows(found, ranges=False)) == []
    found = summary(hahangtuned={JAVA: java, CORE: [kill(3.4, 0.9), kill(3.6, 1.1, lost=1)]})
    assert [(v.goal.what, v.met) for v in figures.verdicts(found)] == [
        ("beyond", False),
        ("rejoin", False),
        ("lost", False),
    ]
    assert list(figures.switch_rows(found, ranges=False))[1][6] == "0.60 ✗"


def test_a_controllers_growth_and_what_stock_producers_see() -> None:
    def growth(cores: float, elect_s: float) -> list[dict[str, float]]:
        own = {"beats_per_s": 6000.0, "beat_cores": cores, "elect_s": elect_s, "elect_cpu_s": 1.0}
        return [own | {"load_grow_cores": 0.1, "others_grow_cores": 0.0}]

    found = summary(hagrow={JAVA: growth(0.4, 1.0), CORE: growth(0.2, 4.0) + growth(0.2, 6.0)})
    assert [(v.goal.what, v.met) for v in figures.verdicts(found)] == [("beating", True), ("electing", False)]
    rows = list(figures.grow_rows(found, ranges=False))
    assert rows[1] == ["", CORE, "6,000", "0.200 ✓", "5.00 ✗", "1.00", "0.10", "0.00"]
    found = summary(haclient={JAVA: [{"outage_s": 3.0}, {"outage_s": 28.0}], CORE: [{"outage_s": 4.0}]})
    assert list(figures.outage_rows(found, ranges=False)) == [
        ["haclient", JAVA, "15.5", "3.0", "28.0"],
        ["", CORE, "4.0", "4.0", "4.0"],
    ]


def test_a_follower_that_is_filled_again_is_in_a_table_of_its_own() -> None:
    one = {"took_s": 6.0, "first_byte_s": 4.0, "mb_s": 100.0, "master_s_gib": 1.0, "slave_s_gib": 2.0}
    found = summary(dlcatch={JAVA: [one | {"slave_mb_cpu_s": 10.0}], UNSYNCED: [one | {"slave_mb_cpu_s": 25.0}]})
    java, ours = figures.refill_rows(found, ranges=False)
    assert java == ["dlcatch", JAVA, "6.00", "4.00", "100", "1.00", "2.00", ""]
    assert ours[-1] == "2.50" and len(ours) == len(figures.REFILL_COLUMNS)
    assert list(figures.catch_up_rows(found, ranges=False)) == []


def test_a_run_that_was_broken_off_shows_what_it_has() -> None:
    found = summary(closed={JAVA: rounds(40.0), CORE: []}, pull={JAVA: [], CORE: []})
    assert list(found) == ["closed"] and list(found["closed"]["servers"]) == [JAVA]
    assert len(list(figures.table_rows(found, ranges=True))) == 1


def test_one_server_alone_has_no_ratio() -> None:
    found = summary(pull={CORE: rounds(1.0)})
    assert list(figures.goals(found)) == []
    (cells,) = figures.table_rows(found, ranges=True)
    assert cells[:2] == ["pull", CORE] and cells[3] == "1.00 (0.50–3.00)" and cells[-3:] == ["", "", ""]


def test_what_is_nothing_on_both_sides_is_as_much() -> None:
    found = summary(start={JAVA: at_rest(4.0, 400.0, 0.0), CORE: at_rest(4.0, 400.0, 0.0)})
    assert found["start"]["ratios"][CORE]["idle"] == 1.0
    found = summary(start={JAVA: at_rest(4.0, 400.0, 0.0), CORE: at_rest(4.0, 400.0, 0.5)})
    assert found["start"]["ratios"][CORE]["idle"] == float("inf")


def test_a_load_generator_that_takes_more_than_a_broker_is_told() -> None:
    fine = {JAVA: rounds(40.0), CORE: rounds(10.0)}
    share, worse = figures.load_share(summary(closed=fine))
    assert (share, worse) == (0.25, [])
    assert "at most 0.25" in figures.load_words(summary(closed=fine))
    found = summary(closed={JAVA: rounds(40.0), CORE: rounds(10.0, load_cores=1.0)})
    assert figures.load_share(found) == (1.0, [f"closed on {CORE}"])
    assert "of no use: closed on Perseid" in figures.load_words(found)


def test_other_processes_count_by_the_worst_row() -> None:
    found = summary(
        closed={JAVA: rounds(40.0, other_cores=0.0)},
        pull={JAVA: rounds(1.0, other_cores=0.3)},
        start={JAVA: at_rest(1.0, 1.0, 1.0)},
    )
    assert figures.others_busy(found) == 0.3


def test_goals_beside_java_have_one_for_plain_python() -> None:
    speed, plain = beside_java(speed=2)
    assert (speed.server, speed.what, speed.limit) == (CORE, "speed", 2)
    assert (plain.server, plain.what, plain.limit) == (PLAIN, "cpu", 1.0)
