"""What a feature and the model that it is played in have to do with each other.

A model gives a `Stage`: brokers that clients can reach, their clocks, and two counters. `losses` says when something of
what was acknowledged may have gone, by what the model allows: what was learnt at one count is held against nothing that
is seen at another. `repeats` says when something may be done twice, or once more: a process died within a turn, or
another master goes on.

A feature gives `Feature`: `prepare` before the first fault, `begin`, `wind_down` when the last one has healed, and
`left`, until all has come to its end; `check` is the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from perseid.base.machine import Buffer
from perseid.sim.driver import NodeDriver
from perseid.sim.process import TIMEOUT_MS, Process, Surroundings
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.topics import CreateTopicRequest
from perseid.wire.names import AUTO_CREATE_TOPIC

PREPARED_US = 60 * US_PER_S
"""Who follows a leader hears where it is with the next registration, after 30 s at most, and copies its tables then."""
ENDED_US = 90 * US_PER_S
"""So long it may take, when all is well again, until what a feature has begun comes to its end."""
STEP_US = US_PER_S // 5
AGAIN_MS = (200, 600)
ELSEWHERE = frozenset((
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NOT_LEADER_FOR_QUEUE,
))  # fmt: skip
"""Answers after which a client tries another broker."""
FORGOTTEN = frozenset((
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.INVALID_PARAMETER,
    ResponseCode.ILLEGAL_OPERATION,
))  # fmt: skip
"""Answers after which a client looks whether what it works with is still there."""
NO_TEMPLATE = "NONE"
"""What sends name as the template of their topic, so that nothing makes a plain one where one with attributes was."""
UNKNOWN = -1
"""The mark of what an answer said that holds for nothing."""


class Stage:
    """What a feature is told of the model."""

    def __init__(
        self, world: Surroundings, broker_name: str, port: int, brokers: Callable[[], Sequence[NodeDriver]]
    ) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.broker_name = broker_name
        self.port = port
        self.brokers = brokers
        """Machines that a client may take for the master."""
        self.offices: list[str] = []
        """Addresses of name servers and controllers."""
        self.trusts: Callable[[NodeDriver], bool] = lambda driver: True
        """Does what this broker answers now hold, as far as its mode promises?"""
        self.master: Callable[[], NodeDriver | None] = lambda: None
        """Whose state counts, when all is well."""
        self.log_start: Callable[[], int] = lambda: 0
        """Where the log begins of whoever removed most of it; as far as that can be seen now."""
        self.copied: Callable[[], bool] = lambda: True
        """Has each broker the tables of topics and groups that the master has? What is younger than a copy may go
        with a master."""
        self.may_forget: Callable[[], bool] = lambda: False
        """May there be a master now that never had a copy of these tables?"""
        self.repeats = 0
        self.unread = 0
        """How often what was read, and never acknowledged to its sender, may have gone: readers of a broker that nobody
        has to confirm see what is not durable yet."""
        self.prepared = False
        """Was all there that features need, and everywhere, since when brokers have to know it?"""
        self._losses = self._start = 0

    @property
    def losses(self) -> int:
        """How often something of what was acknowledged may have gone, old files with their messages too."""
        start = self.log_start()
        if start > self._start:
            self._start = start
            self._losses += 1
        return self._losses

    def lost(self) -> None:
        """Something of what was acknowledged may be gone."""
        self._losses += 1

    def was_unread(self) -> None:
        """Power failed where readers see what is not durable."""
        self.unread += 1

    def repeated(self) -> None:
        """Something may be there twice, or be done again."""
        self.repeats += 1

    def holds(self, mark: int) -> bool:
        """Does what an answer with this mark said still hold?"""
        return mark == self.losses

    def count(self, what: str) -> None:
        """That is met: `sim/coverage.py`."""
        self.world.count(what)

    def address_of(self, driver: NodeDriver) -> str:
        """Where clients reach a broker."""
        return f"{driver.ip}:{self.port}"

    def trusts_at(self, address: str) -> bool:
        """Does what the broker with this address answers now hold?"""
        driver = self.driver_at(address)
        return driver is not None and self.trusts(driver)

    def driver_at(self, address: str) -> NodeDriver | None:
        """The broker with this address, if it still has it."""
        return next((one for one in self.brokers() if self.address_of(one) == address), None)


def same_tables(brokers: Sequence[NodeDriver]) -> bool:
    """Have all that run the same topics, mappings and groups?"""
    machines: list[Any] = [driver.machine for driver in brokers if driver.machine is not None]
    rows = [(machine.parts.topics.rows, machine.parts.mappings.rows, machine.parts.groups.rows) for machine in machines]
    return all(one == rows[0] for one in rows)


Clock = tuple[str, int]
"""Times of two clocks are compared only if these are equal."""


def clock_of(driver: NodeDriver) -> Clock:
    """Which clock a broker has: what is right in all of them is one clock."""
    return driver.name if driver.drift_ppm else "", driver.clock_ms


class Member(Process):
    """A client of a feature: it stays with a broker as long as that serves, and tries another one then."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage.world, name)
        self.stage = stage
        self.address = stage.address_of(stage.brokers()[0])
        self.maker: Maker | None = None
        """What makes anew what it works with, when a master does not know it."""

    @property
    def driver(self) -> NodeDriver | None:
        """The broker that it is with."""
        return self.stage.driver_at(self.address)

    def call(
        self, code: int, header: Header | Mapping[str, str] | None, on_reply: Callable[[Command | None, int], None],
        body: Buffer = b"", *, timeout_ms: int = TIMEOUT_MS,
    ) -> None:  # fmt: skip
        """Ask the broker that it is with. `on_reply` takes the answer, and the mark of what it says."""
        asked, mark = self.address, self.stage.losses
        if not self.stage.trusts_at(asked):  # nor is its answer believed when it has found out that others lead
            mark = UNKNOWN

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code in ELSEWHERE:
                self.elsewhere(asked)
            driver = self.stage.driver_at(asked)
            if reply is not None and reply.code in FORGOTTEN and self.maker is not None:
                self.maker.again(driver)
            on_reply(reply, mark if self.stage.trusts_at(asked) else UNKNOWN)

        self.ask(asked, code, header, answered, body, timeout_ms=timeout_ms)

    def elsewhere(self, asked: str) -> None:
        """The broker at this address does not serve: try another one."""
        if self.address == asked:
            addresses = [self.stage.address_of(one) for one in self.stage.brokers()]
            others = [one for one in addresses if one != asked] or addresses
            self.address = self.random.choice(others)


class Maker(Member):
    """Makes a topic, or whatever requests make, and again until that is done; and anew when a master has lost it, as it
    may where it led without a copy of the tables."""

    def __init__(
        self, stage: Stage, name: str, requests: Sequence[tuple[RequestCode, Header | None, bytes]],
        there: Callable[[Any], bool],
    ) -> None:  # fmt: skip
        """`there`: does this broker, as it runs, know all of it?"""
        super().__init__(stage, name)
        self.requests, self._there = requests, there
        self.left = list(requests)

    def work(self) -> None:
        """Make what is left, one after the other."""
        if not self.left:
            self.stop()
            return
        code, header, body = sent = self.left[0]

        def answered(reply: Command | None, mark: int) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS
            if done and self.left and self.left[0] is sent:  # it may have been sent twice: once more, by `again`
                self.left.pop(0)
            self.later(*AGAIN_MS, self.work)

        self.call(code, header, answered, body)

    def again(self, driver: NodeDriver | None) -> bool:
        """Begin anew if this is the master, and does not know what was made. Is something being made now?"""
        if self.left or not self.requests:
            return bool(self.left)
        if driver is None or driver is not self.stage.master() or driver.machine is None or self._there(driver.machine):
            return False
        if self.stage.prepared and not self.stage.may_forget():
            raise Violation("a topic stays", f"{driver.name} leads, and does not know what {self.name} has made")
        self.stage.count("topic forgotten with its master, made anew")
        self.left, self.running = list(self.requests), True
        self.work()
        return True

    def unprepared(self) -> str:
        """What is still to be made, or anew; "": nothing."""
        return f"{self.name} has not made all" if self.again(self.stage.master()) else ""


def has_topic(name: str, key: str, value: str) -> Callable[[Any], bool]:
    """Does a broker know this topic, with this attribute?"""

    def there(machine: Any) -> bool:
        row = machine.parts.topics.rows.get(name)
        return row is not None and row.attributes.get(key) == value

    return there


def topic_request(name: str, queues: int, attributes: str | None = None) -> tuple[RequestCode, Header, bytes]:
    """What makes a topic."""
    header = CreateTopicRequest(
        topic=name, default_topic=AUTO_CREATE_TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes=attributes,
    )  # fmt: skip
    return RequestCode.UPDATE_AND_CREATE_TOPIC, header, b""


class Feature(Protocol):
    """One feature in one run."""

    def prepare(self) -> None:
        """Make what is needed; nothing fails yet."""

    def unprepared(self) -> str:
        """What is still to be made; "": nothing."""

    def begin(self) -> None:
        """Clients begin."""

    def wind_down(self) -> None:
        """All is well: begin nothing new, and bring what there is to its end."""

    def left(self) -> str:
        """What has not come to its end; "": nothing."""

    def check(self) -> None:
        """The last look. Violation when something is wrong."""

    def stop(self) -> None:
        """Clients end."""


Making = Callable[[Stage], Feature]


class Features:
    """Those of one run."""

    def __init__(self, stage: Stage, made: dict[str, Making]) -> None:
        self.stage = stage
        self.all = [make(stage) for make in made.values()]
        stage.scheduler.chosen.parts.update(made)
        for name in made:
            stage.count(f"feature {name}")

    def prepare(self) -> None:
        """Make what they need."""
        for one in self.all:
            one.prepare()
        why = self._until_all(lambda one: one.unprepared(), PREPARED_US)
        why = why or self._until_all(self._not_everywhere, PREPARED_US)
        if why:
            raise Violation("a fresh cluster serves", f"not within {PREPARED_US // US_PER_S} s: {why}")
        self.stage.prepared = True

    def _not_everywhere(self, one: Feature) -> str:
        """What was made goes with a master that dies before others have it, and is made anew then."""
        return one.unprepared() or ("" if self.stage.copied() else "tables are to be copied")

    def begin(self) -> None:
        """Let them play."""
        for one in self.all:
            one.begin()

    def finish(self) -> None:
        """All faults have healed: all comes to its end, and all promises are looked at once more."""
        for one in self.all:
            one.wind_down()
        why = self._until_all(lambda one: one.left(), ENDED_US)
        if why:
            raise Violation("what was begun comes to its end", f"not within {ENDED_US // US_PER_S} s: {why}")
        for one in self.all:
            one.check()
            one.stop()

    def _until_all(self, what: Callable[[Feature], str], limit_us: int) -> str:
        """Go on until no feature has anything left, a step at a time; what is left after so long."""
        scheduler = self.stage.scheduler
        until = scheduler.now_us + limit_us
        while why := "; ".join(filter(None, map(what, self.all))):
            if scheduler.now_us >= until:
                return why
            scheduler.run(scheduler.now_us + STEP_US)
        return ""

