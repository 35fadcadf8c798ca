"""What is measured: the rows of the table, and what each asks of Perseid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from crowd import CONSUMERS, TOPICS
from servers import CORE, JAVA, PLAIN, SHARDS, TUNED, UNSYNCED

from perseid.security.credentials import Credentials

IDLE_CONNECTIONS = 10_000
USER = Credentials("bench", "bench-secret")
"""Who signs, where users are asked for."""
GUARD_OPTIONS = ("tls", "access-key", "secret-key")
ROUNDS, WARM_S = 3, 30.0
TWO_ROUNDS = ("secured", "sends")
"""Parts of many rows that differ little."""
GROUP_ROUNDS, GROUP_WARM_S = 5, 60.0
"""Of DLedger's groups, whose figures differ most from round to round."""
FLAT = 1.2
"""A cost that is called flat rises by no more than that."""


@dataclass(frozen=True)
class Goal:
    """`server`'s figure `what` is to be at most (the speed: at least) `limit` times that of another.

    `against` is a server, in the same row; or a row, of the same server; or nothing: the figure itself is meant. "more"
    is not a ratio: so much may be added.
    """

    what: str
    limit: float
    server: str = CORE
    against: str = JAVA

    @property
    def at_least(self) -> bool:
        return self.what in ("speed", "catching up")

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


OWN = "own"
"""In `Row.half_of`: of each server's own capacity."""


def beside_java(*, plain: float = 1.0, **limits: float) -> tuple[Goal, ...]:
    """Limits of Perseid by name, and of what the CPU may be without the compiled core."""
    return (*(Goal(what, limit) for what, limit in limits.items()), Goal("cpu", plain, PLAIN))


def flat_beside(row: str) -> tuple[Goal, ...]:
    return (Goal("cpu", FLAT, CORE, row),)


@dataclass(frozen=True)
class Fill:
    """What a topic holds before it is measured: messages of `size` bytes, or as many as make `bytes` of log."""

    topic: str
    size: int
    messages: int = 0
    bytes: int = 0
    tags: int = 1


@dataclass(frozen=True)
class Row:
    """One kind of load. `load` are options of the load generator; rows of one `group` take turns."""

    name: str
    title: str
    goals: tuple[Goal, ...]
    load: dict[str, int | str]
    mode: str = "send"
    servers: tuple[str, ...] = (JAVA, CORE, PLAIN)
    flush: str = "ASYNC_FLUSH"
    store: str = ""
    """Rows with another name here have stores, and thus brokers, of their own."""
    group: str = ""
    fill: Fill | None = None
    role: str = ""
    """The master's brokerRole where it has a slave; both processes are measured."""
    file_bytes: int = 0
    """Of a file of the log; 0: what is usual."""
    cold: bool = False
    """The log is taken out of the page cache before each round."""
    members: int = 0
    """Of a DLedger group; all its brokers are measured."""
    replicas: int = 0
    """Of a broker set under three controllers; all its brokers are measured."""
    own_part: str = ""
    """Where it stands in docs/benchmarks.md, if its servers do not tell."""
    crowded: bool = False
    """Its brokers hold a crowd of topics and consumers besides (crowd.py)."""
    frame: str = ""
    """The client's frame that is sent (frames.py); none: the load generator's own."""
    half_of: str = ""
    """Whose capacity is measured first: half of it comes at random (OWN: each server's own)."""
    slow_reader: bool = False
    """Beside its sends a consumer reads the topic, a tenth of what is sent."""
    tuned: bool = False
    """Heartbeats and controllers that miss a broker sooner than by default."""

    @property
    def part(self) -> str:
        """Rows that stand together in docs/benchmarks.md, and are measured in one run."""
        if self.replicas or self.mode == "grow":
            return "failover"
        return self.own_part or ("dledger" if self.members else "replication" if self.role else "broker")

    @property
    def delayed(self) -> bool:
        """Sends of a delay level, which are stored elsewhere until they are due."""
        return self.frame.endswith(":delayed")

    @property
    def timed(self) -> bool:
        """Sends for a later time, measured until the last of them is delivered."""
        return "delay-most" in self.load

    @property
    def road(self) -> tuple[str, ...]:
        """What of a broker's code it takes: Java's, once warm for a row, is warm for the next one of the same road."""
        kinds = {"timed": self.timed, "delayed": self.delayed, "transactions": "transactions" in self.load}
        batch = "batch" if self.mode == "send" and "batch" in self.load else ""
        return (self.mode, batch, *(name for name, there in kinds.items() if there), *sorted(self.guard_options))

    @property
    def rounds(self) -> int:
        """Of each server, unless the command line says otherwise."""
        if self.members and self.mode != "catchup":
            return GROUP_ROUNDS
        return 2 if self.part in TWO_ROUNDS else ROUNDS

    @property
    def warm_s(self) -> float:
        """Of load before Java is measured, unless the command line says otherwise."""
        return GROUP_WARM_S if self.members else WARM_S

    @property
    def own_servers(self) -> bool:
        """No others' rows are measured on its servers: they are new, or killed."""
        return self.mode in ("start", "fail", "hang", "stock", "grow")

    @property
    def guard_options(self) -> dict[str, int | str]:
        """Those of the load that say how it asks, not what."""
        return {name: self.load[name] for name in GUARD_OPTIONS if name in self.load}

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def topics(self) -> list[str]:
        """All topics that the load generator sends to."""
        count = int(self.load.get("topics", 1))
        return [f"{self.topic}-{i:04}" for i in range(count)] if count > 1 else [self.topic]

    @property
    def reference(self) -> str:
        """The server beside which the others are put."""
        return self.servers[0]


def _load(connections: int, window: int, size: int, **more: int | str) -> dict[str, int | str]:
    return {"connections": connections, "window": window, "size": size, **more}


PIPELINED = beside_java(speed=5, cpu=1 / 8, p99=1, memory=1 / 5, plain=0.5)
CLOSED = beside_java(speed=2, cpu=1 / 3, p99=1 / 3, memory=1 / 5)
BATCH = beside_java(speed=3, cpu=1 / 4, p99=1)
PULL = beside_java(speed=1.5, cpu=1 / 3, p99=1)
SYNC = beside_java(speed=1, cpu=1 / 3, p99=1)


def core_only(**limits: float) -> tuple[Goal, ...]:
    """Limits of Perseid by name, where it is not measured without the compiled core."""
    return beside_java(**limits)[:-1]


LEAST = core_only(speed=1, cpu=1 / 2, p99=1)
"""What each row has to reach at least."""
AT_A_RATE = core_only(cpu=1 / 2, p99=1)
"""The same where the load sets how many messages there are."""
ONE_AT_A_TIME = core_only(speed=2, cpu=1 / 3, p99=1)
SOME_OF_PULLED = core_only(speed=1.5, cpu=1 / 3, p99=1)
POPPED = core_only(speed=2, cpu=1 / 4, p99=1)
SHARDED = (Goal("speed", 1, SHARDS, CORE), Goal("cpu", 1.1, SHARDS, CORE))
AT_REST = (Goal("start", 1 / 4), Goal("memory", 1 / 10), Goal("idle", 1, against=""))
WITHOUT_PLAIN = (JAVA, CORE)
REPLICATED = (Goal("speed", 2), Goal("cpu", 1 / 4), Goal("p99", 1 / 2))
ALL_IN_SYNC = (Goal("speed", 2), Goal("cpu", 1 / 4), Goal("p99", 1))
CAUGHT_UP = (Goal("catching up", 2), Goal("sending", 2, against=""), Goal("first byte", 1, against=""))
ONE_FILE_BYTES, ONE_FILE_FILL = 2_147_479_552, 2_120_000_000
"""2 GiB, all but a page: as large as a file of Java's can be; and what goes into it."""
CLOSED_LOAD = _load(64, 1, 128)
GROUPS, TIMED_GROUPS = (JAVA, UNSYNCED, CORE), (JAVA, CORE, TUNED)
CHEAPER = (
    *(Goal("speed", 2, UNSYNCED), Goal("cpu", 1 / 10, UNSYNCED), Goal("p99", 1, UNSYNCED)),
    *(Goal("speed", 2), Goal("cpu", 1 / 4)),
)
"""As Java does it, from memory; what syncing costs stands beside it."""
FOLLOWED = (Goal("gap", 1 / 2), Goal("gap", 0.3, TUNED, against=""))
BACK = (Goal("rejoin", 1, against=""), Goal("lost", 0, against=""))
SWITCHED = (Goal("gap", 0.06, against=""), Goal("worst gap", 0.2, against=""), *BACK)
MISSED = (Goal("beyond", 0.5, against=""), *BACK)
GROWN = (Goal("beating", 0.25, against=""), Goal("electing", 5, against=""))
FILLED = 400_000
BESIDE_MANY = (*ONE_AT_A_TIME, Goal("memory", 1 / 5), Goal("idle", 1), *flat_beside("lone"))
TO_POP = 1_000_000
"""Each round pops them from the first on, in a group of its own, and may not get to the end."""
LEAST_DELAY_MS, MOST_DELAY_MS = 2_000, 20_000


def _kind(name: str, title: str, goals: tuple[Goal, ...], load: dict[str, int | str], **more: Any) -> Row:
    """A row of what else there is than plain sends and pulls."""
    return Row(name, title, goals, load, servers=WITHOUT_PLAIN, own_part="kinds", **more)


KINDS_OF_SENDS = {
    "plain": ("java-5.5.0:plain", "a Java client's, 5.5.0"),
    "binary": ("java-5.5.0-binary:plain", "a Java client's with binary headers, 5.5.0"),
    "cut": ("java-4.9.2:plain", "a Java client's, 4.9.2: no separator behind the last property"),
    "go": ("go-2.1.2:plain", "a Go client's, 2.1.2"),
    "node": ("node-3.12.0:plain", "a Node.js client's, 3.12.0: no UNIQ_KEY, numbers without quotes"),
    "cpp": ("cpp-2.2.0-like:plain", "as the C++ client's source writes them"),
    "rust": ("rust-1.0.0:plain", "a Rust client's, 1.0.0"),
    "chinese": ("java-5.5.0:chinese-key", "a Java client's with a key in Chinese"),
    "quoted": ("java-5.5.0:json-property", "a Java client's with JSON in a property, whose quotes are escaped"),
    "unkeyed": ("made:unkeyed", "without UNIQ_KEY"),
    "bare": ("made:bare", "without properties"),
    "delayed": ("made:delayed", "with a delay level of two hours"),
    "priority": ("java-5.5.0:priority", "a Java client's with a priority"),
}
"""Rows of `sends`: their frame, and what is in it."""


def _sends() -> Iterator[Row]:
    """Two rows of each kind: many in flight, and one a connection."""
    for name, (frame, title) in KINDS_OF_SENDS.items():
        for suffix, load, goals, words in (
            ("", _load(16, 64, 128), core_only(speed=4, cpu=1 / 5, p99=1), "16 connections × 64 in flight"),
            ("1", CLOSED_LOAD, ONE_AT_A_TIME, "64 connections × 1"),
        ):
            yield Row(
                f"send-{name}{suffix}",
                f"sends, {title}; {words}, 128 B",
                goals,
                load,
                servers=WITHOUT_PLAIN,
                group=f"send-{name}",
                own_part="sends",
                frame=frame,
            )


def _shape(name: str, title: str, load: dict[str, int | str], whose: str = JAVA, **more: Any) -> Row:
    """Sends that come at random, half of what a broker can take."""
    words = "half of what each broker itself takes" if whose == OWN else "half of what Java's takes"
    return Row(
        name,
        f"sends that come at random, {words}, {title}; latency from the time at which each was due",
        AT_A_RATE,
        load,
        servers=WITHOUT_PLAIN,
        own_part="shapes",
        store="shapes",
        half_of=whose,
        **more,
    )


SHAPES = (
    _shape("half", "64 connections, 128 B", _load(64, 16, 128)),
    _shape("half1k", "64 connections, 1 KiB", _load(64, 16, 1024)),
    _shape("half100k", "16 connections, 100 KiB", _load(16, 4, 100 << 10)),
    _shape(
        "halfslow", "64 connections, 1 KiB, and a consumer that reads a tenth", _load(64, 16, 1024), slow_reader=True
    ),
    _shape("ownhalf", "64 connections, 1 KiB", _load(64, 16, 1024), OWN),
)
"""At Java's half both brokers get the same messages, so that latencies and CPU compare; at its own half, a broker's
latency is that of one which is as busy as the other."""
GUARDED = 1.15
"""What TLS and signatures together may make of a cost."""
WAYS: dict[str, tuple[str, dict[str, int | str]]] = {
    "open": ("", {}),
    "tls": (" over TLS", {"tls": 1}),
    "acl": (", signed", {"access-key": USER.access_key, "secret-key": USER.secret_key}),
    "both": (", signed, over TLS", {"tls": 1, "access-key": USER.access_key, "secret-key": USER.secret_key}),
}
"""How the rows of `secured` ask: words, and options of the load generator."""


def _secured(name: str, title: str, load: dict[str, int | str], most: Goal, **more: Any) -> Iterator[Row]:
    """A row each way. `most`: what both together may cost beside none."""
    for way, (words, options) in WAYS.items():
        goals = LEAST
        if way == "both":
            goals += (most,)
        kind = f"{way}{name}"
        fill = {"fill": Fill(f"bench-{kind}", 128, FILLED)} if more.get("mode") == "pull" else {}
        yield Row(
            kind,
            title.format(words),
            goals,
            load | options,
            servers=WITHOUT_PLAIN,
            group=f"secured{name}",
            own_part="secured",
            **more,
            **fill,
        )


ROWS = (
    Row("pipelined", "send, 16 connections × 64 in flight, 128 B", PIPELINED, _load(16, 64, 128)),
    Row("pipelined1k", "send, 16 connections × 64 in flight, 1 KiB", PIPELINED, _load(16, 64, 1024)),
    Row("closed", "send, 64 connections × 1, 128 B", CLOSED, CLOSED_LOAD),
    Row("closed16", "send, 16 connections × 1, 128 B", CLOSED, _load(16, 1, 128)),
    Row("closed1k", "send, 16 connections × 1, 1 KiB", CLOSED, _load(16, 1, 1024)),
    Row("batch16", "batches of 16, 16 connections × 1, 128 B", BATCH, _load(16, 1, 128, batch=16)),
    Row("batch32", "batches of 32, 16 connections × 1, 128 B", BATCH, _load(16, 1, 128, batch=32)),
    Row(
        "pull",
        "pull 32 at a time, 16 connections × 1, 128 B",
        PULL,
        _load(16, 1, 128, batch=32),
        mode="pull",
        fill=Fill("bench-pull", 128, FILLED),
    ),
    *(
        Row(
            name,
            f"pull {count} at a time{note}, 16 connections × 1, {title}",
            PULL,
            _load(16, 1, size, batch=count),
            mode="pull",
            fill=Fill(f"bench-{name}", size, FILLED if size < 1024 else FILLED // 4),
        )
        for name, count, note, size, title in (
            ("pull1", 1, "", 128, "128 B"),
            ("pull32x1k", 32, "", 1024, "1 KiB"),
            ("pull256", 256, " (each answer has 32, by the brokers' own limit)", 128, "128 B"),
        )
    ),
    Row(
        "tags",
        "pull 32 of one tag out of 4, 16 connections × 1; figures are of messages that were looked at",
        beside_java(speed=1.5, cpu=1 / 3, p99=1),
        _load(16, 1, 128, batch=32, tags=4, subscription="TagB"),
        mode="pull",
        fill=Fill("bench-tags", 128, FILLED, tags=4),
    ),
    Row(
        "tail",
        "5,000 sends a second to 8 queues, at whose ends 8 consumers wait; latency from send to delivery",
        beside_java(cpu=1 / 2, p99=1),
        _load(16, 1, 128, readers=8, rate=5_000),
        mode="tail",
    ),
    Row(
        "held10k",
        "20 sends a second to 8 queues, at whose ends 10,000 consumers wait, 1,250 at each; CPU of a send and of all "
        "that it wakes",
        (Goal("cpu", 1 / 3), Goal("p99", 1)),
        _load(16, 1, 128, readers=10_000, rate=20),
        mode="tail",
        servers=WITHOUT_PLAIN,
    ),
    Row(
        "cold",
        "closed, while one consumer reads a cold log from its start; latency of the sends, CPU a message sent or read",
        LEAST,
        CLOSED_LOAD | {"readers": 1, "read-topic": "bench-cold-log"},
        servers=WITHOUT_PLAIN,
        fill=Fill("bench-cold-log", 1024),
        cold=True,
    ),
    Row("topics1", "closed, 1 topic", ONE_AT_A_TIME, CLOSED_LOAD, servers=WITHOUT_PLAIN, group="topics"),
    Row(
        "topics1000",
        "closed, spread over 1,000 topics",
        (*ONE_AT_A_TIME, *flat_beside("topics1")),
        CLOSED_LOAD | {"topics": 1_000},
        servers=WITHOUT_PLAIN,
        group="topics",
    ),
    Row("shards", "pipelined, spread over 2 shards", SHARDED, _load(16, 64, 128), servers=(CORE, SHARDS)),
    Row("shards-closed", "closed, spread over 2 shards", SHARDED, CLOSED_LOAD, servers=(CORE, SHARDS)),
    Row("sync", "send with SYNC_FLUSH, 64 connections × 1, 128 B", SYNC, CLOSED_LOAD, flush="SYNC_FLUSH"),
    Row("empty", "closed, empty log", ONE_AT_A_TIME, CLOSED_LOAD, servers=WITHOUT_PLAIN, store="empty", group="large"),
    Row(
        "large",
        "closed, log of {large} GiB",
        (*ONE_AT_A_TIME, *flat_beside("empty")),
        CLOSED_LOAD,
        servers=WITHOUT_PLAIN,
        store="large",
        group="large",
        fill=Fill("bench-large-log", 1024),
    ),
    *(
        Row(
            f"sync2x{connections}",
            f"send to SYNC_MASTER with inSyncReplicas=2, {connections} connections × 1, 1 KiB",
            REPLICATED,
            _load(connections, 1, 1024),
            servers=WITHOUT_PLAIN,
            role="SYNC_MASTER",
        )
        for connections in (16, 64)
    ),
    Row(
        "lag",
        "send to ASYNC_MASTER with a slave, 16 connections × 64 in flight, 1 KiB",
        LEAST,
        _load(16, 64, 1024),
        servers=WITHOUT_PLAIN,
        role="ASYNC_MASTER",
    ),
    Row(
        "catchup",
        "an empty slave copies 2 GiB, with its queues and index",
        CAUGHT_UP,
        {},
        mode="catchup",
        servers=WITHOUT_PLAIN,
        role="ASYNC_MASTER",
        store="catchup",
        fill=Fill("bench-catchup", 1024, bytes=ONE_FILE_FILL),
        file_bytes=ONE_FILE_BYTES,
    ),
    _kind(
        "timed",
        f"{{timers:,}} messages for a time {LEAST_DELAY_MS // 1000} to {MOST_DELAY_MS // 1000} s off, 64 connections "
        "× 1, 128 B, from the first send to the last delivery; latency of the sends",
        AT_A_RATE,
        CLOSED_LOAD | {"delay-least": LEAST_DELAY_MS, "delay-most": MOST_DELAY_MS},
    ),
    _kind(
        "transactions",
        "halves, 64 connections × 1, 128 B, each committed; latency of the halves",
        ONE_AT_A_TIME,
        CLOSED_LOAD | {"transactions": 1},
    ),
    *(
        _kind(
            name,
            f"pop 32, then acknowledge each; {title}, 128 B; latency of the pops",
            POPPED,
            _load(connections, 1, 128),
            mode="pop",
            fill=Fill(f"bench-{name}", 128, TO_POP),
        )
        for name, title, connections in (("pop", "one consumer", 1), ("pop64", "64 consumers of a group", 64))
    ),
    *(
        _kind(
            name,
            f"pull 32 by SQL92, {expression}, which half of the messages are, 16 connections × 1; figures are of "
            "messages that were looked at",
            SOME_OF_PULLED,
            _load(16, 1, 128, batch=32, tags=2, filter="SQL92", subscription=expression),
            mode="pull",
            fill=Fill(f"bench-{name}", 128, FILLED, tags=2),
        )
        for name, expression in (("sql", "TAGS = 'TagB'"), ("sqlany", "TAGS CONTAINS 'gB'"))
    ),
    Row(
        "lone",
        "closed, nothing besides",
        ONE_AT_A_TIME,
        CLOSED_LOAD,
        servers=WITHOUT_PLAIN,
        group="crowd",
        own_part="crowd",
    ),
    Row(
        "idle10k",
        f"closed, beside {IDLE_CONNECTIONS:,} idle connections",
        BESIDE_MANY,
        CLOSED_LOAD | {"idle": IDLE_CONNECTIONS},
        servers=WITHOUT_PLAIN,
        group="crowd",
        own_part="crowd",
    ),
    Row(
        "crowd",
        f"closed, beside {TOPICS:,} topics and {CONSUMERS:,} consumers, each of a group of its own, whose pull is held",
        BESIDE_MANY,
        CLOSED_LOAD | {"idle": 1},
        servers=WITHOUT_PLAIN,
        store="crowd",
        group="crowd",
        own_part="crowd",
        crowded=True,
    ),
    *_secured(
        "pipe",
        "send, 16 connections × 64 in flight, 128 B{}",
        _load(16, 64, 128),
        Goal("cpu", GUARDED, CORE, "openpipe"),
    ),
    *_secured("closed", "send, 64 connections × 1, 128 B{}", CLOSED_LOAD, Goal("more", 5, CORE, "openclosed")),
    Row(
        "tlsidle10k",
        f"closed over TLS, beside {IDLE_CONNECTIONS:,} idle connections, with TLS too",
        (*LEAST, Goal("memory", 1 / 5), Goal("idle", 1), *flat_beside("tlsclosed")),
        CLOSED_LOAD | {"tls": 1, "idle": IDLE_CONNECTIONS},
        servers=WITHOUT_PLAIN,
        group="securedclosed",
        own_part="secured",
    ),
    *_secured(
        "pull",
        "pull 32 at a time, 16 connections × 1, 128 B{}",
        _load(16, 1, 128, batch=32),
        Goal("cpu", GUARDED, CORE, "openpull"),
        mode="pull",
    ),
    *_sends(),
    *SHAPES,
    Row("start", "a new broker, started and at rest", AT_REST, {}, mode="start"),
    *(
        Row(f"dl{name}", f"send to a DLedger group, {title}", CHEAPER, load, servers=GROUPS, store="dledger", members=3)
        for name, title, load in (
            ("64x1k", "64 connections × 1, 1 KiB", _load(64, 1, 1024)),
            ("64x128", "64 connections × 1, 128 B", _load(64, 1, 128)),
            ("16x1k", "16 connections × 1, 1 KiB", _load(16, 1, 1024)),
            ("pipe1k", "16 connections × 64 in flight, 1 KiB", _load(16, 64, 1024)),
            ("pipe128", "16 connections × 64 in flight, 128 B", _load(16, 64, 128)),
        )
    ),
    *(
        Row(name, f"the leader of a DLedger group {title}", goals, {}, mode=mode, servers=TIMED_GROUPS, members=3)
        for name, mode, title, goals in (
            ("dlfail", "fail", "is killed, {kills} times", FOLLOWED),
            ("dlhang", "hang", "is stopped, {kills} times: its connections stay", ()),
        )
    ),
    Row(
        "dlcatch",
        "a wiped broker of a DLedger group copies {catch} MiB, with its queues and index",
        (),
        {},
        mode="catchup",
        servers=GROUPS,
        store="dlcatch",
        fill=Fill("bench-dlcatch", 1024),
        members=3,
    ),
    *(
        Row(
            f"haall{connections}",
            f"send to a controllers' set of two, both in sync, {connections} connections × 1, 1 KiB",
            ALL_IN_SYNC,
            _load(connections, 1, 1024),
            servers=WITHOUT_PLAIN,
            replicas=2,
        )
        for connections in (16, 64)
    ),
    *(
        Row(
            name + tuned,
            f"the master of a controllers' set of three {title}{settings}",
            goals,
            {},
            mode=mode,
            servers=WITHOUT_PLAIN,
            replicas=3,
            tuned=bool(tuned),
        )
        for name, mode, title, goals in (
            ("hakill", "fail", "is killed, {kills} times", SWITCHED),
            ("hahang", "hang", "is stopped, {kills} times: its connections stay", MISSED),
        )
        for tuned, settings in (("", ""), ("tuned", ", tuned"))
    ),
    Row(
        "haclient",
        "the master of a controllers' set of three is killed, as stock Java producers see it, {stock_kills} times",
        (),
        {},
        mode="stock",
        servers=WITHOUT_PLAIN,
        replicas=3,
    ),
    Row(
        "hagrow",
        "a controller with {sets:,} sets of three, whose brokers beat once a second; {dying} masters die at once",
        GROWN,
        {},
        mode="grow",
        servers=WITHOUT_PLAIN,
    ),
)


@dataclass(frozen=True)
class Sizes:
    """What the command line may change about the rows."""

    large_gib: float
    cold_mib: int
    catch_mib: int = 512
    kills: int = 6
    sets: int = 2_000
    timers: int = 400_000

    @property
    def stock_kills(self) -> int:
        """Each shows the outage of several producers, and takes a minute."""
        return max(1, self.kills // 5)

    def kills_of(self, row: Row, server: str) -> int:
        """Java takes up to a minute a kill: fewer, but for the first row."""
        if server != JAVA or row.name == "hakill":
            return self.kills
        return max(1, self.kills // (4 if row.mode == "hang" else 2))

    @property
    def dying(self) -> int:
        """How many masters of all sets die at once."""
        return max(1, self.sets // 10)


def sized(rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """The rows with their sizes filled in; without the large log and what it is compared with when it has no size."""
    made = []
    for row in rows:
        if row.group == "large" and not sizes.large_gib:
            continue
        fill = row.fill
        if row.name == "large" and fill:
            fill = replace(fill, bytes=int(sizes.large_gib * (1 << 30)))
        if row.cold and fill:
            fill = replace(fill, bytes=sizes.cold_mib << 20)
        if row.name == "dlcatch" and fill:
            fill = replace(fill, bytes=sizes.catch_mib << 20)
        load = row.load | ({"messages": sizes.timers} if row.timed else {})
        title = row.title.format(
            large=f"{sizes.large_gib:g}",
            catch=sizes.catch_mib,
            kills=sizes.kills,
            stock_kills=sizes.stock_kills,
            sets=sizes.sets,
            dying=sizes.dying,
            timers=sizes.timers,
        )
        made.append(replace(row, title=title, fill=fill, load=load))
    return made


def groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows that take turns, together."""
    for _, some in groupby(rows, lambda row: row.group or row.name):
        yield list(some)
