"""POP, the quick way, against the ordinary handlers: the same frames give the same answers and the same files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.fast_path.test_quick_pulls import WAYS
from broker.harness import Rig
from broker.pops import ACK, BATCH_ACK, CHANGE, POP, Popped, ack_header, change_header, named_acks, pop, pop_header
from broker.pops import read_pop as deliveries
from broker.streams import GROUP, Recorder, send_of, taken, vars_of, watch, with_head
from perseid import core
from perseid.base.machine import Frames, Tick
from perseid.wire import command
from perseid.wire import pop as wire
from perseid.wire.command import Command
from perseid.wire.headers.pop import PopMessageResponse
from perseid.wire.pop import BatchAck

LEAST = {ACK: 100, POP: 5}
"""How many frames of each code go the quick way at least, with any seed."""


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> core.Core:
    monkeypatch.setattr(core, "compiled", WAYS[request.param])
    return WAYS[request.param]


class Consumers:
    """Frames of consumers that pop, drawn at random; what they got is taken from the answers."""

    def __init__(self, random: Random, rig: Rig) -> None:
        self.random = random
        self.rig = rig
        self.out: list[tuple[Popped, str, str]] = []
        self.n = 1_000
        self.asked: dict[int, tuple[str, str]] = {}

    def frame(self, code: int, header: Any, body: bytes = b"") -> bytes:
        self.n += 1
        made = command.encode_request(code, self.n, header, body, oneway=self.random.random() < 0.01)
        if self.random.random() < 0.05:  # the same header, written in another way
            body_at = 8 + int.from_bytes(made[5:8], "big")
            made = with_head(made, made[8:body_at].replace(b'"flag":0,', b'"flag" : 0 ,'), body)
        return made

    def read(self) -> bytes:
        """What comes in one read."""
        random = self.random
        frames = []
        for _ in range(random.choice([1, 1, 2, 4])):
            kind = random.random()
            if kind < 0.3:
                frames += [
                    send_of(self.number(), "T", queue_id=random.choice([0, 0, 1, 3]), properties=self.properties())
                    for _ in range(random.choice([1, 5, 40]))
                ]
            elif kind < 0.6:
                frames.append(self.pop())
            elif kind < 0.9:
                frames += self.acks()
            elif kind < 0.94:
                frames.append(self.change())
            elif kind < 0.98:
                frames.append(self.batch())
            else:
                frames.append(self.other())
        return b"".join(frames)

    def number(self) -> int:
        self.n += 1
        return self.n

    def properties(self) -> str:
        return f"UNIQ_KEY\x01ID{self.n:030d}\x02TAGS\x01{self.random.choice('AB')}\x02"

    def pop(self) -> bytes:
        random, now = self.random, self.rig.now
        if random.random() < 0.85:  # one of a few consumers that pop again and again
            group, exp, wait_ms = random.choice([("g", "*", 0), ("g", "*", 3_000), ("h", "A", 0)])
            usual = pop_header(self.rig, consumer_group=group, exp=exp, poll_time=wait_ms, invisible_time=10_000)
            usual.born_time *= random.random() < 0.7  # 0: the broker takes its own time
            made = self.frame(POP, usual)
            self.asked[self.n] = "T", group
            return made
        topic, group = random.choice(["T", "T", "T", "Plain"]), random.choice(["g", "g", "g", "h"])
        header = pop_header(
            self.rig, topic=topic, consumer_group=group, queue_id=random.choice([-1, -1, -1, 0, 3, 9]),
            max_msg_nums=random.choice([32, 32, 32, 5, 1, 33]),
            invisible_time=random.choice([10_000, 10_000, 1_500, 0]), poll_time=random.choice([0, 0, 0, 3_000]),
            born_time=now - random.choice([0, 0, 3, 3_000]),
            exp=random.choice(["*", "*", "*", "A", "none"]), init_mode=random.choice([0, 0, 1]),
            order=random.choice([None, False, False, False, True]),
        )  # fmt: skip
        made = self.frame(POP, header)
        self.asked[self.n] = topic, group
        return made

    def acks(self) -> list[bytes]:
        random = self.random
        begin = random.randrange(len(self.out) + 1)
        picked = self.out[begin : begin + random.choice([1, 3, 32, 70])]
        if random.random() < 0.6:
            del self.out[begin : begin + len(picked)]
        if random.random() < 0.3:
            random.shuffle(picked)
        made = []
        for one, _, group in picked:
            header = ack_header(one, group)
            if random.random() < 0.05:
                header.offset += random.choice([1, -1, 1_000, -1_000])
            if random.random() < 0.05:
                header.extra_info = header.extra_info.replace(" ", random.choice([" ", "  ", " 1"]), 1)
            if random.random() < 0.02:
                header.extra_info = header.extra_info.rpartition(" ")[0]
            made += [self.frame(ACK, header) for _ in range(random.choice([1] * 20 + [2, 40]))]
        return made

    def change(self) -> bytes:
        if not self.out:
            return b""
        one, _, group = self.random.choice(self.out)
        return self.frame(CHANGE, change_header(one, self.random.choice([500, 20_000]), group))

    def batch(self) -> bytes:
        if not self.out:
            return b""
        one, topic, group = self.random.choice(self.out)
        handle = one.handle
        return self.frame(BATCH_ACK, None, wire.batch_ack_body("b", [BatchAck(
            group, topic, handle.retry, handle.start_offset, handle.queue_id, handle.revive_queue, handle.pop_time,
            handle.invisible_time, (handle.offset,),
        )]))  # fmt: skip

    def other(self) -> bytes:
        random = self.random
        kind = random.randrange(3)
        if kind == 0:
            text = random.choice(["brokerPermission=2", "brokerPermission=6", "brokerPermission=6"])
            return self.frame(25, None, text.encode())
        if kind == 1:
            reset = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "0"}
            return self.frame(222, reset | {"offset": str(random.randint(0, 50))})
        return self.frame(38, {"consumerGroup": "nobody"})

    def take(self, answers: list[Command]) -> None:
        """Remember what answers to pops brought."""
        for answer in answers:
            asked = self.asked.pop(answer.opaque, None)
            if asked is not None and answer.code == 0:
                header = answer.header(PopMessageResponse)
                self.out += [(one, *asked) for one in deliveries(answer, asked[1], asked[0]) if header.pop_time]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH", GROUP])
@pytest.mark.parametrize("seed", range(3))
def test_pops_and_acks_do_what_the_handlers_do(
    tmp_path: Path, seed: int, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    quick, handlers = (Recorder(tmp_path / name, plain=name == "quick", flush=flush) for name in ("quick", "handlers"))
    seen: Counter[int] = Counter()

    def told(one: Command, quickly: bool) -> None:
        seen[one.code] += quickly

    watch(quick, monkeypatch, told)
    consumers = Consumers(random, handlers)
    for step in range(150):
        now = handlers.now + random.choice([0, 0, 1, 40, 700])
        data, client = consumers.read(), random.choice([1, 1, 2])
        for broker in (quick, handlers):
            broker.now = now
            broker.handle(Tick())
            broker.connect(client)
            broker.handle(Frames(client, data))
        assert quick.answers() == handlers.answers(), step
        consumers.take([answer for found in handlers.sent.values() for answer in found])
        for broker in (quick, handlers):
            broker.sent.clear()
            broker.raw.clear()
    for broker in (quick, handlers):
        for _ in range(30):
            broker.now += 1_000
            broker.handle(Tick())
        broker.stop()
    assert quick.answers() == handlers.answers()
    assert quick.files() == handlers.files()
    assert [note.text for note in quick.notes] == [note.text for note in handlers.notes]
    assert vars_of(quick) == vars_of(handlers)
    for code, least in LEAST.items():
        assert seen[code] >= least, f"{seen} went the quick way"


def test_acks_of_one_read_are_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    for number in range(40):
        rig.send("T", 0, b"m%d" % number)
    found = pop(rig)
    rig.ask(ACK, ack_header(found[0]))
    seen = taken(rig, monkeypatch)
    answers = rig.tell_all([(ACK, ack_header(one)) for one in found[1:]])
    assert seen == [True] * 31
    assert [rig.answer(opaque).code for opaque in answers] == [0] * 31  # type: ignore[union-attr]
    assert named_acks(rig) == [("ack", 0, [0]), ("bAck", 0, list(range(1, 32)))]
    assert len(rig.parts.pop) == 0
