"""Frames drawn at random, and brokers that keep all answers: for tests that hold a quick way to the handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from perseid import core
from perseid.base.machine import Effect, Opened, Write
from perseid.broker.access.config import Access
from perseid.broker.node import Broker
from perseid.broker.scheduled.timer_metrics import METRICS_PATH
from perseid.raft.config import RaftConfig
from perseid.testing.cores import core_from
from perseid.wire import batch, command
from perseid.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData, SubscriptionGroupConfig
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.headers.base import Header, to_ext
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import EndTransactionRequest, SendMessageRequest, SendMessageRequestV2
from perseid.wire.names import HALF_TOPIC
from perseid.wire.record import decode

from .harness import SMALL, Rig


def ways() -> Iterable[tuple[str, core.Core | None]]:
    yield "plain", None
    yield "source", core_from(Path(core.__file__).parent)
    if core.is_compiled:
        yield "compiled", core.installed


WAYS = dict(ways())
Fields = Header | Mapping[str, str | None] | None


PEERS = {1: "10.0.0.1:5000", 2: "10.0.0.2:65535", 3: "[2001:db8::3]:5000", 4: "no address"}
SYS_FLAGS = [0, 0, 0, 0, 0, 1, 0x101, 0x201, 0x301, 2, 4, 8, 0xC, 0x10, 0x40, 0x80, 1 << 20, -1]
TOPICS = [
    "Plain", "Other", "Multi", "Order", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "Gone",
    "a/b", "", "x" * 128, "%RETRY%" + "y" * 200, "TBW102",
]  # fmt: skip
UNIQUE = ["{n}", "a-{n}", 'quote"{n}', "back\\{n}", "é{n}", "消息{n}", "", "sp ace{n}"]
TAME_PIECES = [
    "TAGS\x01TagA", "TAGS\x01TagB", "TAGS\x01Aa", "KEYS\x01k{n}", "KEYS\x01k{n} shared  k2", "WAIT\x01true", "v\x011",
    "TAGS\x01消息", "KEYS\x01é{n} 订单{n} 😀", 'json\x01{"a": "b\\\\c/"}', "line\x01a\nb\tc\rd\fe\bf",
]  # fmt: skip
PIECES = [
    "TAGS\x01消息", "TAGS\x01BB", "KEYS\x01 ", "KEYS\x01é", "WAIT\x01false", "color\x01red", "a\x01b\x01c", "lonely",
    "\x01value", "empty\x01", "", "TAGS\x01", "KEYS\x01", "UNIQ_KEY\x01second{n}", "UNIQ_KEY\x01", "xUNIQ_KEY\x01no",
    "XTAGS\x01no", "TAGSX\x01no", "v\x01UNIQ_KEY\x01in", "v\x01TAGS\x01in", "TAGS\x01TagB", "KEYS\x01more",
    "DELAY\x012", "DELAY\x010", "DELAY\x01-1", "DELAY\x01x", "DELAY\x0199", "TIMER_DELAY_SEC\x013",
    "TIMER_DELIVER_MS\x015", "TRAN_MSG\x01true", "TRAN_MSG\x01false", "POP_CK\x01x", "INNER_NUM\x013",
    "MSG_REGION\x01mine", "TRACE_ON\x01false", "CLUSTER\x01mine", "RETRY_TOPIC\x01Plain", "\x7f\x01\x1f",
    "_SYS_MSG_PRIORITY_\x012", "_SYS_MSG_PRIORITY_\x01+1", "_SYS_MSG_PRIORITY_\x019999999999", "DELAY\x01018",
    "MSG_REGION\x01DefaultRegion", "CLUSTER\x01", "DELAY\x01000000000001", "quote\x01\"\\", "__SHARDINGKEY\x01s",
    "DELAY", "DELAY\x01", "TRAN_MSG\x01",
    "v\x01again", "TAGS\x01\U0010ffff\u07ff\u0800\ud7ff\ue000", "TIMER_OUT_MS\x01", "_SYS_MSG_PRIORITY_\x01",
]  # fmt: skip
EXTRA = {"nsd": "here", "ns": "space", "o": "5", "empty": "", "接": "口", "z": 'a"\\/\n', "lite": "\U0001f600"}
"""Fields that no broker knows."""


FILTERS = [
    ("TAG", "*"), ("TAG", "TagA"), ("TAG", "none"), ("SQL92", "TAGS CONTAINS 'gA' AND v > 0 OR color = 'red'"),
    ("SQL92", "TAGS = 'Aa' OR TAGS = 'TagB' OR TAGS = '消息'"), ("SQL92", "color = 'blue'"),
]  # fmt: skip
CHANGES = re.compile(rb'"counter":[0-9]+,')
HALF = "TRAN_MSG\x01true"
HALVES = [HALF + "\x02PGROUP\x01p", HALF + "\x02PGROUP\x01p", HALF]
TIMES = ["TIMER_DELIVER_MS\x01{later}", "TIMER_DELAY_MS\x01{wait}", "TIMER_DELAY_SEC\x012"]
LEVELS = ["DELAY\x011", "DELAY\x012", "DELAY\x01400", "_SYS_MSG_PRIORITY_\x011", "_SYS_MSG_PRIORITY_\x0199"]
EDITED = ["POP_CK\x010 1 2", "MSG_REGION\x01elsewhere\x02v\x012\x02CLUSTER\x01C"]
TIME_PIECES = [
    "TIMER_DELIVER_MS\x01{later}", "TIMER_DELIVER_MS\x019999999999999", "TIMER_DELAY_MS\x01+5", "TIMER_DELAY_MS\x010",
    "TIMER_DELAY_SEC\x0199999999999999999999", "TIMER_OUT_MS\x015", "REAL_TOPIC\x01Other", "REAL_QID\x012",
    "TIMER_DEL_UNIQKEY\x01Plain+k", "TIMER_ENQUEUE_MS\x011", "XREAL_QID\x01no", "TRAN_MSG\x01TRUE", "TRAN_MSG\x01no",
    "CHECK_IMMUNITY_TIME_IN_SECONDS\x0130", "__transactionId__\x01mine", "PGROUP\x01p", "k{n}\x01v", "k\x011", "k\x012",
]  # fmt: skip


KINDS = {
    "TIMER_D": "timed send", "TRAN_MSG": "half", "DELAY": "delayed", "_PRIORITY_": "priority", "POP_CK": "edited",
    "MSG_REGION": "edited",
}  # fmt: skip
"""Of sends, by a part of a property's name."""
GROUP = "a group"
ALONE = RaftConfig(
    peers="n0-10.0.0.9:1", mapped_file_size_for_entry_data=1 << 20, mapped_file_size_for_entry_index=32 * 1_000
)
"""A group of one, whose messages are committed when they are durable."""


class Recorder(Rig):
    """A rig that keeps the bytes of all answers."""

    def __init__(self, root: Path, *, plain: bool, flush: str = "ASYNC_FLUSH", access: Access | None = None) -> None:
        self.raw: dict[int, bytearray] = {}
        raft = ALONE if flush == GROUP else None
        store = replace(SMALL, flush_disk_type="ASYNC_FLUSH" if raft else flush)
        super().__init__(
            root, store=store, raft=raft, access=access, default_topic_queue_nums=4, enable_property_filter=True
        )
        if not plain:
            self.parts.quick.current = self.parts.timers.quick = self.parts.transactions.quick = None
            self.parts.delay.quick = None

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                data = effect.data if isinstance(effect.data, bytes | bytearray | memoryview) else b"".join(effect.data)
                self.raw.setdefault(effect.conn, bytearray()).extend(data)
        super()._carry_out(effects)

    def connect(self, client: int) -> None:
        if client not in self.parts.connections:
            self.handle(Opened(client, PEERS[client], "10.0.0.9:10911", "main"))

    def answers(self) -> dict[int, list[bytes]]:
        """Per client its frames, sorted: within a turn, answers may leave in any order."""
        found = {}
        for client, raw in self.raw.items():
            frames, at = [], 0
            while at < len(raw):
                end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
                frames.append(bytes(raw[at:end]))
                at = end
            found[client] = sorted(frames)
        return found

    def files(self) -> dict[str, bytes]:
        """All but how often the counts of timers changed: the quick way tells them of many messages at once."""
        root = Path(self.disk.root)
        found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        return {name: CHANGES.sub(b"", text) if name == METRICS_PATH else text for name, text in found.items()}


class Stream:
    """Frames at random."""

    def __init__(self, random: Random, now: int, *, holds: bool = True) -> None:
        self.holds = holds
        self.random = random
        self.now = now
        self.n = 0

    def properties(self, tame: bool) -> str:
        random = self.random
        pieces = random.sample(TAME_PIECES, k=random.randint(0, 3))
        if not tame or random.random() < 0.9:
            pieces.append(f"UNIQ_KEY\x017F0000010000ABCDEF{self.n:012X}")
        if not tame:
            if random.random() < 0.3:
                pieces[-1] = "UNIQ_KEY\x01" + random.choice(UNIQUE)
            if random.random() < 0.1:
                pieces.pop()
            pieces += random.choices(PIECES, k=random.randint(0, 3))
            if random.random() < 0.05:
                pieces.append("long\x01" + "p" * random.choice([1000, 32_600, 32_700, 40_000]))
        random.shuffle(pieces)
        text = "\x02".join(pieces).replace("{n}", str(self.n))
        return text if not text or random.random() < 0.1 else text + "\x02"

    def timed(self, properties: str, tame: bool) -> str:
        """The properties, and a time that they ask for, or that of a half."""
        random = self.random
        known = [*HALVES, *HALVES, *TIMES, *LEVELS, *EDITED]
        pieces = [random.choice(known)] if tame else random.choices([*known, *TIME_PIECES], k=random.randint(1, 3))
        later, wait = self.now + random.randint(1, 9_000), random.randint(1, 9_000)
        text = "".join(f"{piece}\x02" for piece in pieces).format(later=later, wait=wait, n=self.n)
        return text + properties if random.random() < 0.5 or properties[-1:] not in ("", "\x02") else properties + text

    def send(self) -> bytes:
        random = self.random
        tame = random.random() < 0.6
        header_type = random.choice([SendMessageRequestV2, SendMessageRequestV2, SendMessageRequest])
        header = header_type(
            producer_group="p",
            topic=random.choice(["Plain", "Plain", "Other", "Order"]),
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=random.choice([0, 0, 0, 1, 2, 3]),
            sys_flag=random.choice([0, 0, 0, 0x301]),
            born_timestamp=self.now - random.randint(0, 5),
            flag=random.choice([0, 0, 7, -7]),
            properties=self.properties(tame),
            reconsume_times=random.choice([0, 0, 0, 3]),
        )
        if random.random() < 0.3:
            header.properties = self.timed(header.properties, tame)
            header.sys_flag = random.choice([header.sys_flag, 4]) if HALF in header.properties else header.sys_flag
        if tame and random.random() < 0.08:
            header.topic = "%RETRY%g"
            header.max_reconsume_times = random.choice([None, 16, 2])
        if not tame:
            header.topic = random.choice([header.topic, header.topic, *TOPICS])
            header.default_topic = random.choice(["TBW102", "TBW102", "none"])
            header.default_topic_queue_nums = random.choice([4, 8, 1])
            header.queue_id = random.choice([header.queue_id] * 8 + [4, 99, -1])
            header.sys_flag = random.choice([0] * 10 + SYS_FLAGS)
            header.reconsume_times = random.choice([0, 0, 20])
            header.max_reconsume_times = random.choice([None, None, 3])
            header.batch = random.random() < 0.1
        elif kind_of_send(header.properties) == "send":
            header.batch = header_type is SendMessageRequestV2 and random.random() < 0.2
        code = RequestCode.SEND_MESSAGE if header_type is SendMessageRequest else RequestCode.SEND_MESSAGE_V2
        if header.batch and header_type is SendMessageRequestV2:
            code = RequestCode.SEND_BATCH_MESSAGE
        return self.frame(code, header, self.body(tame, header.batch))

    def body(self, tame: bool, is_batch: bool) -> bytes:
        random = self.random
        if is_batch and (tame or random.random() < 0.9):
            count = random.randint(1 if tame else 0, 5)
            all_tame = tame or random.random() < 0.5
            items = []
            for i in range(count):
                self.n += 1
                text = self.properties(all_tame or random.random() < 0.9)
                items.append((i, b"b" * (i + all_tame), text.encode()[: 32_767 if i % 2 else -1][:32_767]))
            return batch.encode(items)
        sizes = [1, 10, 100, 1000] if tame else [0, 100, 90_000]
        return random.randbytes(random.choice(sizes))

    def frame(self, code: int, header: Fields, body: bytes = b"", *, usual: bool = False) -> bytes:
        self.n += 1
        random = self.random
        oneway = not usual and random.random() < 0.1
        serializer = random.choice([Serializer.JSON] * (4 if usual else 12) + [Serializer.ROCKETMQ])
        differs = not usual and random.random() < 0.1
        if differs:
            name, value = random.choice(list(EXTRA.items()))
            header = {name: value, **(to_ext(header) if isinstance(header, Header) else header or {})}
        header, body = self.signed(header, body)
        raw = command.encode_request(code, self.n, header, body, oneway=oneway, serializer=serializer)
        if differs and serializer == Serializer.JSON:
            raw = with_head(raw, self.rewritten(raw[8 : len(raw) - len(body)]), body)
        return raw

    def rewritten(self, head: bytes) -> bytes:
        """The same header as another client might write it."""
        random = self.random
        members = json.loads(head)
        fields = members["extFields"] | random.choice([{}, {}, {"l": None}, {"absent": None}])
        if random.random() < 0.3:
            fields |= {name: int(value) for name, value in fields.items() if value in ("0", "7", "-7", "4")}
        fields = dict(random.sample(list(fields.items()), k=len(fields)))
        members |= random.choice([{}, {"remark": None, "language": "RUST"}, {"language": 4, "remark": ""}, {"x": True}])
        members["extFields"] = fields
        if random.random() < 0.5:
            members = dict(random.sample(list(members.items()), k=len(members)))
        separators = random.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])
        text = json.dumps(members, ensure_ascii=random.random() < 0.5, separators=separators)
        return text.replace("Tag", "\\u0054\\u0061g").replace("/", random.choice(["/", "\\/"])).encode()

    def signed(self, header: Fields, body: bytes) -> tuple[Fields, bytes]:
        """What is sent in place of these."""
        return header, body

    def pull(self) -> bytes:
        random = self.random
        if random.random() < 0.7:  # one of a few consumers that pull again and again
            kind, wanted = random.choice(FILTERS)
            header = PullMessageRequest(
                consumer_group=random.choice(["g", "g", "g", "known"]),
                topic="Plain",
                queue_id=0,
                queue_offset=random.choice([0, 3, 10, 30, 60]),
                max_msg_nums=random.choice([2, 32, 32, 32]),
                sys_flag=random.choice([5, 5, 5, 4, 1]),
                commit_offset=random.randint(0, 9),
                suspend_timeout_millis=0,
                sub_version=0,
                subscription=wanted,
                expression_type=kind,
            )
            return self.frame(RequestCode.PULL_MESSAGE, header, usual=True)
        header = PullMessageRequest(
            consumer_group="g",
            topic=random.choice(["Plain", "Plain", "Other", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "Gone"]),
            queue_id=random.randint(0, 4),
            queue_offset=random.choice([0, 0, 1, 5, 20, 50, 1000]),
            max_msg_nums=random.choice([1, 32, 2000, -1]),
            sys_flag=random.choice([4, 6, 6, 7, 0] if self.holds else [4, 5, 0]),
            commit_offset=random.randint(-1, 9),
            suspend_timeout_millis=random.choice([0, 50, 15_000]),
            sub_version=0,
            subscription=random.choice(["*", "TagA", "TagA||消息", "Aa", "||", None, "color IS NULL"]),
            expression_type=random.choice(["TAG", None, "SQL92"]),
        )
        return self.frame(RequestCode.PULL_MESSAGE, header)

    def other(self) -> bytes:
        random = self.random
        kind = random.randrange(10)
        if kind == 0:
            return self.frame(215, {"topic": random.choice(["Plain", "Other"])})
        if kind == 1 and self.holds:  # settings change at the end of a turn, so by how frames are cut into reads
            closed = f"startAcceptSendRequestTimeStamp={self.now + 5}"
            text = random.choice(["brokerPermission=4", "brokerPermission=6", "brokerPermission=6", closed])
            return self.frame(25, None, text.encode())
        if kind == 2:
            row = {"topic": "Multi", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
            return self.frame(17, row | {"topicFilterType": "MULTI_TAG", "order": "false"})
        if kind == 3:
            row = {"topic": random.choice(["Order", "Plain"]), "defaultTopic": "TBW102", "readQueueNums": "4"}
            order = random.choice(["true", "false"])
            return self.frame(
                17, row | {"writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": order}
            )
        if kind == 4:
            times = {"beginTimestamp": "0", "endTimestamp": str(self.now + 10)}
            key = random.choice(["k1", "shared", "TagA"])
            kind_of_key = {"indexType": "T"} if key == "TagA" else {}
            return self.frame(12, {"topic": "Plain", "key": key, "maxNum": "32"} | times | kind_of_key)
        if kind == 5:
            may = random.random() < 0.7
            return self.frame(200, None, SubscriptionGroupConfig(group_name="g", consume_enable=may).to_json())
        if kind == 6:
            wanted = SubscriptionData("Plain", random.choice(["*", "TagA"]), sub_version=random.randint(0, 2))
            consumer = ConsumerData("known", subscription_data_set=[wanted])
            return self.frame(34, None, HeartbeatData("c", consumer_data_set=[consumer]).to_json())
        if kind == 7:
            return self.frame(35, {"clientID": "c", "consumerGroup": "known"})
        if kind == 8:
            reset = {"topic": "Plain", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "0"}
            return self.frame(222, reset | {"offset": str(random.randint(0, 5))})
        return self.frame(38, {"consumerGroup": "nobody"})

    def word(self, broker: Broker) -> bytes:
        """What a producer says of a half, most often of one that is open."""
        random, store, opened = self.random, broker.parts.store, list(broker.parts.transactions._open)
        halves = store.queues.get(HALF_TOPIC, 0)
        if halves is None or not opened:
            return b""
        at = random.choice(opened) if random.random() < 0.9 else random.randrange(halves.end)
        unit = halves.raw(at)
        assert unit is not None
        half = store.reads.record_at(unit.physical_offset)
        own = decode(half).unique_key if half is not None else None
        header = EndTransactionRequest(
            producer_group=random.choice(["p"] * 19 + ["other"]),
            tran_state_table_offset=random.choice([at] * 19 + [at + 1]),
            commit_log_offset=random.choice([unit.physical_offset] * 30 + [0, -1, store.log.end, 1 << 62]),
            commit_or_rollback=random.choice([8, 8, 8, 8, 12, 0]),
            from_transaction_check=random.random() < 0.2,
            msg_id="x",
            transaction_id=random.choice([own] * 8 + [None, "y"]),
        )
        self.n += 1
        oneway = random.random() < 0.8
        fields, body = self.signed(header, b"")
        return bytes(command.encode_request(RequestCode.END_TRANSACTION, self.n, fields, body, oneway=oneway))

    def next(self) -> bytes:
        chance = self.random.random()
        return self.send() if chance < 0.8 else self.pull() if chance < 0.985 else self.other()


def with_head(raw: bytes, head: bytes, body: bytes) -> bytes:
    """A frame like `raw` with this header and body."""
    size = 4 + len(head) + len(body)
    return size.to_bytes(4, "big") + (raw[4] << 24 | len(head)).to_bytes(4, "big") + head + body


def vars_of(rig: Rig) -> dict[str, object]:
    """What the broker counted."""
    for quick in (rig.parts.quick.current, rig.parts.timers.quick, rig.parts.delay.quick):
        if quick is not None:
            quick.count()
    stats = rig.parts.stats
    return {
        "puts": stats.put_messages.total,
        "bytes": stats.put_bytes,
        "failed": stats.put_failed_times,
        "times": stats.put_distribution(),
        "held": len(rig.parts.holds),
        "halves": (rig.parts.transactions.places(), rig.parts.transactions.next_deadline()),
        "offsets": rig.parts.offsets.to_json(),
    }


def kind_of_send(properties: str) -> str:
    """The first one that its properties say, of those that are taken each in a way of its own."""
    return next((kind for name, kind in KINDS.items() if name in properties), "send")


def watch(rig: Rig, monkeypatch: pytest.MonkeyPatch, told: Callable[[command.Command, bool], None]) -> None:
    """Tell of each frame from now on whether it went the quick way, in their order."""
    assert rig.parts.quick.current is not None
    quick = rig.parts.quick.current.unusual

    def watched(conn: object, data: bytes) -> Iterator[command.Command]:
        left = list(command.decode_each(data))
        for one in quick(conn, data):  # type: ignore[arg-type]
            while left[0].opaque != one.opaque:
                told(left.pop(0), True)
            told(left.pop(0), False)
            yield one
        for other in left:
            told(other, True)

    monkeypatch.setattr(rig.parts.quick.current, "unusual", watched)


def taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each frame from now on went the quick way, in their order."""
    seen: list[bool] = []
    watch(rig, monkeypatch, lambda _, quickly: seen.append(quickly))
    return seen


def send_of(n: int, topic: str = "Plain", body: bytes = b"body", **fields: object) -> bytes:
    header = SendMessageRequestV2(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
        born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01ID{n:030d}\x02",
    )  # fmt: skip
    for name, value in fields.items():
        setattr(header, name, value)
    return command.encode_request(RequestCode.SEND_MESSAGE_V2, n, header, body)
