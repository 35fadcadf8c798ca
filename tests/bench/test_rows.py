"""The rows of `make bench`, and what the command line makes of them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from fleet import Fleet
from rows import GUARD_OPTIONS, OWN, ROWS, Sizes, groups, sized
from run import PARTS, arrivals, warm_share, with_parts
from servers import CORE, JAVA, PLAIN, SHARDS, TUNED, UNSYNCED

NAMES = [row.name for row in ROWS]


def test_rows_have_names_of_their_own_and_goals_that_can_be_judged() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for row in ROWS:
        assert CORE in row.servers
        for goal in row.goals:
            assert goal.server in row.servers, f"{row.name}: {goal}"
            assert goal.against in (*row.servers, *NAMES, ""), f"{row.name}: {goal}"
            assert goal.limit > 0 or goal.what == "lost"


def test_what_is_compared_with_another_row_takes_turns_with_it() -> None:
    for row in ROWS:
        for goal in row.goals:
            if goal.against in NAMES:
                other = ROWS[NAMES.index(goal.against)]
                assert row.group == other.group != "" and row.load.items() >= other.load.items()


def test_rows_of_a_group_stand_together() -> None:
    parts = [[row.name for row in part] for part in groups(ROWS)]
    assert [name for part in parts for name in part] == NAMES
    assert ["topics1", "topics1000"] in parts and ["empty", "large"] in parts and ["closed"] in parts


def test_topics_of_a_row() -> None:
    by_name = {row.name: row for row in ROWS}
    assert by_name["closed"].topics() == ["bench-closed"]
    many = by_name["topics1000"].topics()
    assert len(set(many)) == 1000 and many[0] == "bench-topics1000-0000" and many[-1] == "bench-topics1000-0999"


def test_sizes_fill_in_the_large_log_or_leave_it_out() -> None:
    without = [row.name for row in sized(ROWS, Sizes(large_gib=0, cold_mib=64))]
    assert set(NAMES) - set(without) == {"empty", "large"}
    by_name = {row.name: row for row in sized(ROWS, Sizes(large_gib=1.5, cold_mib=64))}
    assert list(by_name) == NAMES
    large, cold = by_name["large"], by_name["cold"]
    assert large.title == "closed, log of 1.5 GiB"
    assert large.fill is not None and large.fill.bytes == 3 << 29
    assert cold.fill is not None and cold.fill.bytes == 64 << 20
    assert not any("{" in row.title for row in by_name.values())


def test_rows_of_a_group_have_brokers_of_their_own() -> None:
    ours = [row for row in ROWS if row.part == "dledger"]
    assert [row.name for row in ours if row.mode == "send"] == [
        "dl64x1k",
        "dl64x128",
        "dl16x1k",
        "dlpipe1k",
        "dlpipe128",
    ]
    for row in ours:
        assert row.members == 3 and not row.role
        assert row.servers == ((JAVA, CORE, TUNED) if row.mode in ("fail", "hang") else (JAVA, UNSYNCED, CORE))
    sizes = Sizes(large_gib=0, cold_mib=64, catch_mib=96, kills=3)
    by_name = {row.name: row for row in sized(ours, sizes)}
    assert by_name["dlfail"].title.endswith("killed, 3 times") and by_name["dlfail"].own_servers
    fill = by_name["dlcatch"].fill
    assert fill is not None and fill.bytes == 96 << 20 and "96 MiB" in by_name["dlcatch"].title
    assert {row.part for row in ROWS} == {
        "broker",
        "sends",
        "shapes",
        "kinds",
        "crowd",
        "secured",
        "replication",
        "dledger",
        "failover",
    }


def test_rows_of_a_controllers_set() -> None:
    ours = [row for row in ROWS if row.part == "failover"]
    assert {row.name: row.replicas for row in ours} == {
        "haall16": 2,
        "haall64": 2,
        "hakill": 3,
        "hakilltuned": 3,
        "hahang": 3,
        "hahangtuned": 3,
        "haclient": 3,
        "hagrow": 0,
    }
    assert all(row.servers == (JAVA, CORE) for row in ours)
    assert [row.name for row in ours if row.tuned] == ["hakilltuned", "hahangtuned"]
    by_name = {row.name: row for row in sized(ours, Sizes(large_gib=0, cold_mib=64, kills=10, sets=300))}
    assert by_name["hahangtuned"].title.endswith("its connections stay, tuned")
    assert by_name["haclient"].title.endswith("2 times") and "300 sets" in by_name["hagrow"].title
    assert "30 masters" in by_name["hagrow"].title
    assert all(by_name[name].own_servers for name in by_name if not name.startswith("haall"))


def test_sends_of_each_kind_are_many_in_flight_and_one() -> None:
    ours = [row for row in ROWS if row.part == "sends"]
    assert len(ours) == len(PARTS["sends"]) == 2 * len({row.frame for row in ours}) >= 16
    assert {row.load["window"] for row in ours} == {64, 1}
    assert {(goal.what, goal.limit) for goal in ours[0].goals} == {("speed", 4), ("cpu", 0.2), ("p99", 1)}
    assert [row.name for row in ours if row.delayed] == ["send-delayed", "send-delayed1"]


def test_what_comes_at_random_is_half_of_a_capacity() -> None:
    ours = [row for row in ROWS if row.half_of]
    assert {row.part for row in ours} == {"shapes"} and {row.half_of for row in ours} == {JAVA, OWN}
    assert {row.load["size"] for row in ours} == {128, 1024, 102_400}
    assert sum(row.slow_reader for row in ours) == 1
    with_reader = next(row for row in ours if row.slow_reader)
    assert arrivals(with_reader, 500.0) == {
        "poisson": 1,
        "rate": 500.0,
        "readers": 1,
        "read-topic": with_reader.topic,
        "read-rate": 50.0,
    }
    assert arrivals(with_reader, 0.0) == {}


def test_no_row_beside_java_is_without_a_limit_of_its_cpu() -> None:
    limits = {}
    for row in ROWS:
        if row.reference == JAVA and (row.load or row.half_of):
            limits[row.name] = [goal.limit for goal in row.goals if (goal.what, goal.against) == ("cpu", JAVA)]
    assert len(limits) > 60 and all(found and min(found) <= 0.5 for found in limits.values()), limits


def test_java_is_warmed_less_for_what_it_was_warmed_for() -> None:
    by_name = {row.name: row for row in ROWS}
    shares, roads = [], set()
    for name in ("pipelined", "closed", "pull", "tags", "batch16", "batch32"):
        shares.append(warm_share(roads, by_name[name]))
        roads.add(by_name[name].road)
    assert shares == [1, 1 / 8, 1 / 3, 1 / 8, 1 / 3, 1 / 8]
    assert by_name["dl64x1k"].warm_s == 60 and by_name["dl64x1k"].rounds == 5
    assert by_name["closed"].warm_s == 30 and by_name["closed"].rounds == 3


def test_a_part_stands_for_its_rows() -> None:
    assert with_parts("all") == {*NAMES}
    assert with_parts("closed,sync") == {"closed", "sync"}
    assert with_parts("dledger,closed") == PARTS["dledger"] | {"closed"}
    assert sorted(name for part in PARTS.values() for name in part) == sorted(NAMES)


def test_who_is_compared_with_whom() -> None:
    references = {row.name: row.reference for row in ROWS}
    assert {references[name] for name in NAMES if not name.startswith("shards")} == {JAVA}
    assert references["shards"] == references["shards-closed"] == CORE
    assert all(SHARDS in row.servers for row in ROWS if row.name.startswith("shards"))
    assert sum(PLAIN in row.servers for row in ROWS) >= 10


def test_java_is_killed_less_often_but_in_the_first_row() -> None:
    sizes, rows = Sizes(large_gib=0, cold_mib=64, kills=20), {row.name: row for row in ROWS}
    assert sizes.kills_of(rows["hakill"], JAVA) == 20 == sizes.kills_of(rows["hahang"], CORE)
    assert sizes.kills_of(rows["hahang"], JAVA) == 5 and sizes.kills_of(rows["hakilltuned"], JAVA) == 10


def test_rows_of_the_other_kinds_stand_apart_and_know_how_many_timers_there_are() -> None:
    ours = [row for row in ROWS if row.part == "kinds"]
    assert (
        [row.name for row in ours]
        == ["timed", "transactions", "pop", "pop64", "sql", "sqlany"]
        == sorted(PARTS["kinds"], key=NAMES.index)
    )
    timed, *others = sized(ours, Sizes(large_gib=0, cold_mib=64, timers=5_000))
    assert timed.timed and timed.load["messages"] == 5_000 and timed.title.startswith("5,000 messages")
    assert not any(row.timed or "messages" in row.load for row in others)


def test_secured_rows_have_brokers_by_their_guards() -> None:
    ours = [row for row in ROWS if row.part == "secured"]
    kinds = ("pipe", "closed", "pull")
    named = {f"{way}{kind}" for way in ("open", "tls", "acl", "both") for kind in kinds}
    assert {row.name for row in ours} == named | {"tlsidle10k"}
    fleet = Fleet(Path("nowhere"), [])
    keys: dict[tuple[str, ...], set[str]] = {}
    for row in ours:
        keys.setdefault(fleet.key(CORE, row), set()).add(row.name)
    assert sorted(map(len, keys.values())) == [6, 7], "those with users, and those without"
    assert not keys.keys() & {fleet.key(CORE, row) for row in ROWS if row.part != "secured"}
    assert all(set(row.guard_options) <= set(GUARD_OPTIONS) for row in ours)
