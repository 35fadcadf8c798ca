"""From the results of rounds to medians, ratios, verdicts and the cells of the tables. Nothing is started here."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rows import ROWS, Goal, Row
from servers import CORE, PLAIN, SERVERS, SHARDS, UNSYNCED

RATIOS = {
    "speed": "per_second",
    "cpu": "server_cpu_us",
    "more": "server_cpu_us",
    "p99": "p99_ms",
    "start": "start_s",
    "memory": "memory_mb",
    "idle": "idle_percent",
    "catching up": "slave_mb_cpu_s",
    "sending": "sending",
    "first byte": "first_byte_s",
    "gap": "gap_s",
    "worst gap": "gap_s",
    "beyond": "beyond_s",
    "rejoin": "joined_s",
    "lost": "lost",
    "beating": "beat_cores",
    "electing": "elect_s",
}
"""What goals are about, and the figure of a round that it is."""
WORDS = {
    "speed": "messages a second",
    "cpu": "CPU a message",
    "more": "µs of CPU a message",
    "p99": "p99",
    "start": "start-up",
    "memory": "resident memory",
    "idle": "% of a core when idle",
    "catching up": "a slave's bytes a CPU-second",
    "sending": "a master's sending CPU over a plain sendall's",
    "first byte": "seconds to a slave's first byte",
    "gap": "seconds without a leader",
    "worst gap": "seconds without a leader, the longest",
    "beyond": "seconds without a leader beyond the timeout, the longest",
    "rejoin": "seconds from a broker's first connection until it is in sync, the longest",
    "lost": "acknowledged messages lost",
    "beating": "cores that heartbeats take",
    "electing": "seconds until all are elected, the longest",
}
WORST = ("worst gap", "beyond", "rejoin", "lost", "electing")
"""Goals that are about the highest figure of all rounds, not the median."""
DIFFERENCES = ("more",)
"""Goals that are about what is added to another figure, not a ratio."""
QUIET_CORES = 0.1
"""Of other processes; more, and the figures are of no use."""

Rounds = dict[str, dict[str, list[dict[str, float]]]]
"""{row: {server: [result of each round]}}"""
Summary = dict[str, Any]
"""{row: {title, servers: {name: {figure: [median, lowest, highest]}}, ratios: {name: {what: its median over the
reference's}}}}"""


def spread(rounds: Sequence[dict[str, float]], figure: str) -> list[float]:
    """Median, lowest, highest."""
    values = [r[figure] for r in rounds]
    return [statistics.median(values), min(values), max(values)]


def row_named(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def summarise(results: Rounds, titles: dict[str, str]) -> Summary:
    """`titles` are those of the rows as they were run. What has no result yet is left out."""
    summary: Summary = {}
    for name, rounds in results.items():
        servers = {server: {f: spread(some, f) for f in some[0]} for server, some in rounds.items() if some}
        if not servers:
            continue
        reference = servers.get(row_named(name).reference)
        ratios = {
            server: {
                what: _ratio(figures[f][0], reference[f][0])
                for what, f in RATIOS.items()
                if f in figures and what not in DIFFERENCES
            }
            for server, figures in servers.items()
            if reference is not None and figures is not reference
        }
        summary[name] = {"title": titles[name], "servers": servers, "ratios": ratios}
    return summary


def _ratio(value: float, other: float) -> float:
    """Infinite beside nothing; nothing beside nothing is as much."""
    if other:
        return value / other
    return float("inf") if value else 1.0


@dataclass(frozen=True)
class Verdict:
    """One goal beside what was measured: a ratio, or the figure itself."""

    row: str
    goal: Goal
    value: float

    @property
    def met(self) -> bool:
        return self.goal.met(self.value)

    def __str__(self) -> str:
        goal = self.goal
        whose = "" if goal.server == CORE else f"{goal.server}: "
        of = f" {'over' if goal.what in DIFFERENCES else 'of'} {goal.against}'s" if goal.against else ""
        limit = f"goal {'≥' if goal.at_least else '≤'} {goal.limit:.3g}"
        return f"{whose}{WORDS[goal.what]} {self.value:.2f}{of} ({limit}: {'met' if self.met else 'missed'})"


def verdicts(summary: Summary) -> Iterator[Verdict]:
    """Of each goal whose figures were all measured."""
    for name, row in summary.items():
        for goal in row_named(name).goals:
            value = _value(summary, row, goal)
            if value is not None:
                yield Verdict(name, goal, value)


def _value(summary: Summary, row: dict[str, Any], goal: Goal) -> float | None:
    figure = RATIOS[goal.what]
    own = row["servers"].get(goal.server)
    if own is None:
        return None
    value: float = own[figure][2 if goal.what in WORST else 0]
    if not goal.against:
        return value
    if goal.against in SERVERS:
        other = row["servers"].get(goal.against)
    else:
        other = summary.get(goal.against, {"servers": {}})["servers"].get(goal.server)
    if other is None:
        return None
    return value - other[figure][0] if goal.what in DIFFERENCES else _ratio(value, other[figure][0])


def goals(summary: Summary) -> Iterator[str]:
    """One line for each row: each goal, and whether it was met."""
    found = list(verdicts(summary))
    for name in summary:
        if parts := [str(v) for v in found if v.row == name]:
            yield f"**{name}**: " + ", ".join(parts)


# ---- tables ----

COLUMNS = ("row", "broker", "k/s", "µs CPU", "cores", "p50/p99 ms", "load", "other", "speed", "CPU", "p99")
COLUMN_TEXT = (
    "k/s: thousand messages a second; µs CPU: the broker's, a message; cores: that the broker, the load generator "
    "and all other processes kept busy; speed, CPU, p99: messages a second, CPU a message and latency over those of "
    f"the row's first broker, with the goal and whether it was met; {PLAIN}: Perseid without the compiled core "
    f"(PERSEID_CORE=off); {SHARDS}: `perseid broker --shards 2`, its ratios over one Perseid broker; {UNSYNCED}: "
    "`syncBeforeAnswer=false`, a group's members answer from memory, as Java's do."
)
REST_COLUMNS = ("row", "broker", "start s", "MB", "idle %", "start", "memory")
REST_TEXT = (
    "start s: from the broker's spawn to its first accepted send; MB: resident memory without file pages (RssAnon); "
    "idle %: of a core; start, memory: over Java's, with the goal and whether it was met."
)


CATCH_UP_COLUMNS = (
    "row",
    "broker",
    "first byte s",
    "MB/s",
    "master s/GiB",
    "slave s/GiB",
    "sendall s/GiB",
    "slave",
    "sending",
)
CATCH_UP_TEXT = (
    "first byte s: from the slave's spawn to its first acknowledgement; MB/s: from then on, until its queues have all; "
    "s/GiB: CPU seconds a GiB of log in that time; sendall: of one sendall of the same mapped file; slave: bytes a "
    "CPU-second over those of Java's; sending: the master's CPU over the sendall's."
)
REFILL_COLUMNS = ("row", "broker", "s", "first byte s", "MB/s", "leader s/GiB", "follower s/GiB", "follower")
REFILL_TEXT = (
    "s: from the spawn of the broker whose folder is empty until its log and its queues have all that the leader's "
    "have; first byte s: until the first message is committed there; MB/s and s/GiB, CPU seconds a GiB of log: from "
    "then on; follower: bytes a CPU-second over those of Java's."
)
FAIL_COLUMNS = ("row", "broker", "median s", "lowest", "highest", "of Java's", "follows again s")
FAIL_TEXT = (
    "From SIGKILL (dlhang: SIGSTOP) of the leader to the first message after it that is acknowledged, for a client "
    "that sends one after the other to whoever the name server names as master, asked 30 times a second. follows again "
    "s: from the killed broker's new start until it has what the new leader had then. tuned: "
    "`heartBeatTimeIntervalMs=50`, `maxHeartBeatLeak=3`, `minVoteIntervalMs=20`, `maxVoteIntervalMs=60`, which are not "
    "Java's brokers' to set."
)
SWITCH_COLUMNS = (
    "row",
    "broker",
    "median s",
    "lowest",
    "highest",
    "of Java's",
    "beyond timeout s",
    "named s",
    "in sync s",
    "from connection s",
    "lost",
)
SWITCH_TEXT = (
    "From SIGKILL (hahang: SIGSTOP) of the master to the first message that another broker acknowledged, for a client "
    "that sends every 5 ms, and asks the name server for the master as often while it has none; beyond timeout s: the "
    "longest, less the time after which a silent broker counts as gone (10 s; tuned: 3 s); named s: until the name "
    "server named another master. in sync s: from the killed broker's new start until the controllers name it in the "
    "SyncStateSet; from connection s: from its first connection to a controller on, the longest is judged. lost: of "
    "all messages acknowledged by a set, looked for behind its last kill. Java, which takes up to a minute a kill, is "
    "killed half as often in hakilltuned, a quarter as often in the hang rows; a replica of it that stays out of sync "
    "for 10 s is started anew, a set that does not come back within 120 s gives way to another one. tuned: "
    "`brokerHeartbeatInterval=500`, `controllerHeartBeatTimeoutMills=3000`, and "
    "`scanNotActiveBrokerInterval=1000` for the controllers."
)
OUTAGE_COLUMNS = ("row", "broker", "median s", "lowest", "highest")
OUTAGE_TEXT = (
    "The longest time between two acknowledgements of each of six stock Java producers, whose questions for the route, "
    "one in 30 s, are spread over the 30 s; the killed broker comes back only after all of them go on."
)
GROW_COLUMNS = ("row", "broker", "heartbeats/s", "cores", "elected s", "CPU s", "load", "other")
GROW_TEXT = (
    "cores: of the controller while it hears heartbeats and nothing else; elected s: from the first closed connection "
    "until the controller has told brokers of every one of these sets of its new master; CPU s: of the controller in "
    "that time; load, other: cores of the load generator and of other processes beside the heartbeats."
)
LAG_COLUMNS = ("row", "broker", "lag MB", "most MB", "most s")
LAG_TEXT = (
    "What the slave lacks under load, asked of its master 20 times a second: median and most; s: over what comes in."
)


def _cell(values: Sequence[float], digits: int, ranges: bool) -> str:
    median, low, high = (f"{v:,.{digits}f}" for v in values)
    return f"{median} ({low}–{high})" if ranges else median


def _judged(summary: Summary, row: str, server: str, what: str, ranges: bool) -> str:
    """A ratio and, where it has a goal, whether it was met, and that goal."""
    ratio = summary[row]["ratios"].get(server, {}).get(what)
    if ratio is None:
        return ""
    found = (v for v in verdicts({row: summary[row]}) if v.goal.against)
    own = (v for v in found if (v.goal.server, v.goal.what) == (server, what))
    return f"{ratio:.2f}" + "".join(_mark(v, ranges) for v in own)


def _absolute(summary: Summary, row: str, server: str) -> list[Verdict]:
    """What became of a server's goals that are beside nobody else's figure."""
    return [v for v in verdicts({row: summary[row]}) if v.goal.server == server and not v.goal.against]


def _mark(verdict: Verdict, with_limit: bool) -> str:
    goal = verdict.goal
    limit = f" {'≥' if goal.at_least else '≤'} {goal.limit:.3g}" if with_limit else ""
    return f" {'✓' if verdict.met else '✗'}{limit}"


def table_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of COLUMNS for all rows with a load: medians; with `ranges` the lowest and highest behind them."""
    for name, row in summary.items():
        servers = {server: figures for server, figures in row["servers"].items() if "per_second" in figures}
        for i, (server, figures) in enumerate(servers.items()):
            yield [
                "" if i else name,
                server,
                _cell([v / 1000 for v in figures["per_second"]], 1, ranges),
                _cell(figures["server_cpu_us"], 2, ranges),
                f"{figures['server_cores'][0]:.2f}",
                f"{figures['p50_ms'][0]:.2f}/{figures['p99_ms'][0]:.1f}",
                f"{figures['load_cores'][0]:.2f}",
                f"{figures['other_cores'][0]:.2f}",
                *(_judged(summary, name, server, what, ranges) for what in ("speed", "cpu", "p99")),
            ]


def rest_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of REST_COLUMNS for the rows that were also, or only, looked at while nothing happened."""
    for name, row in summary.items():
        servers = {server: figures for server, figures in row["servers"].items() if "idle_percent" in figures}
        for i, (server, figures) in enumerate(servers.items()):
            own = [v for v in verdicts({name: row}) if (v.goal.server, v.goal.what) == (server, "idle")]
            yield [
                "" if i else name,
                server,
                _cell(figures["start_s"], 2, ranges) if "start_s" in figures else "",
                _cell(figures["memory_mb"], 0, ranges),
                _cell(figures["idle_percent"], 2, ranges) + "".join(_mark(v, ranges) for v in own),
                *(_judged(summary, name, server, what, ranges) for what in ("start", "memory")),
            ]


def catch_up_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of CATCH_UP_COLUMNS."""
    for name, server, figures, first in _having(summary, "plain_s_gib"):
        marks = _marks(summary, name, server, ranges)
        yield [
            first,
            server,
            _cell(figures["first_byte_s"], 2, ranges) + marks.get("first byte", ""),
            _cell(figures["mb_s"], 0, ranges),
            *(_cell(figures[f"{what}_s_gib"], 2, ranges) for what in ("master", "slave", "plain")),
            _judged(summary, name, server, "catching up", ranges),
            _cell(figures["sending"], 2, ranges) + marks.get("sending", ""),
        ]


def refill_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of REFILL_COLUMNS."""
    for name, server, figures, first in _having(summary, "took_s"):
        yield [
            first,
            server,
            *(_cell(figures[f], 2, ranges) for f in ("took_s", "first_byte_s")),
            _cell(figures["mb_s"], 0, ranges),
            *(_cell(figures[f"{what}_s_gib"], 2, ranges) for what in ("master", "slave")),
            _judged(summary, name, server, "catching up", ranges),
        ]


def fail_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of FAIL_COLUMNS."""
    for name, server, figures, first in _having(summary, "follows_s"):
        gap = [f"{seconds:.2f}" for seconds in figures["gap_s"]]
        gap[0] += "".join(_mark(v, ranges) for v in _absolute(summary, name, server))
        yield [
            first,
            server,
            *gap,
            _judged(summary, name, server, "gap", ranges),
            _cell(figures["follows_s"], 1, ranges),
        ]


def switch_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of SWITCH_COLUMNS."""
    for name, server, figures, first in _having(summary, "joined_s"):
        marks = _marks(summary, name, server, ranges)
        median, lowest, highest = (f"{seconds:.3f}" for seconds in figures["gap_s"])
        yield [
            first,
            server,
            median + marks.get("gap", ""),
            lowest,
            highest + marks.get("worst gap", ""),
            _judged(summary, name, server, "gap", ranges),
            f"{figures['beyond_s'][2]:.2f}" + marks.get("beyond", "") if row_named(name).mode == "hang" else "",
            _cell(figures["named_s"], 3, ranges),
            _cell(figures["back_s"], 2, ranges),
            _cell(figures["joined_s"], 2, ranges) + marks.get("rejoin", ""),
            f"{figures['lost'][2]:.0f} of {figures['acked'][2]:,.0f}" + marks.get("lost", ""),
        ]


def outage_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of OUTAGE_COLUMNS."""
    for _, server, figures, first in _having(summary, "outage_s"):
        yield [first, server, *(f"{seconds:.1f}" for seconds in figures["outage_s"])]


def grow_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of GROW_COLUMNS."""
    for name, server, figures, first in _having(summary, "elect_s"):
        marks = _marks(summary, name, server, ranges)
        yield [
            first,
            server,
            _cell(figures["beats_per_s"], 0, False),
            _cell(figures["beat_cores"], 3, ranges) + marks.get("beating", ""),
            _cell(figures["elect_s"], 2, ranges) + marks.get("electing", ""),
            _cell(figures["elect_cpu_s"], 2, ranges),
            *(f"{figures[f'{whose}_grow_cores'][0]:.2f}" for whose in ("load", "others")),
        ]


def _marks(summary: Summary, row: str, server: str, ranges: bool) -> dict[str, str]:
    """What is to be written behind a server's figures that are judged beside nobody else's."""
    return {v.goal.what: _mark(v, ranges) for v in _absolute(summary, row, server)}


def lag_rows(summary: Summary, *, ranges: bool) -> Iterator[list[str]]:
    """The cells of LAG_COLUMNS."""
    for _, server, figures, first in _having(summary, "lag_mb"):
        yield [first, server, *(_cell(figures[f], 2, ranges) for f in ("lag_mb", "lag_most_mb", "lag_s"))]


def _having(summary: Summary, figure: str) -> Iterator[tuple[str, str, dict[str, list[float]], str]]:
    """Row, server, figures, and the row's name where it is to be written, of those that have a figure."""
    for name, row in summary.items():
        found = [(server, figures) for server, figures in row["servers"].items() if figure in figures]
        for i, (server, figures) in enumerate(found):
            yield name, server, figures, "" if i else name


# ---- is the run of any use? ----


def others_busy(summary: Summary) -> float:
    """Cores that other processes used, at the worst median."""
    return max((f["other_cores"][0] for _, _, f in _loaded(summary)), default=0.0)


def load_share(summary: Summary) -> tuple[float, list[str]]:
    """The load generator's CPU over the broker's, at the highest; and where it took more than the broker."""
    shares = {
        f"{row} on {server}": _ratio(f["load_cores"][0], f["server_cores"][0]) for row, server, f in _loaded(summary)
    }
    return max(shares.values(), default=0.0), [where for where, share in shares.items() if share >= 1]


def load_words(summary: Summary) -> str:
    highest, worse = load_share(summary)
    if worse:
        return (
            f"The load generator took more CPU than the broker in these rows, which are of no use: {', '.join(worse)}."
        )
    return f"The load generator took at most {highest:.2f} of the CPU of the broker that it loaded."


def _loaded(summary: Summary) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    for name, row in summary.items():
        for server, figures in row["servers"].items():
            if "load_cores" in figures:
                yield name, server, figures
