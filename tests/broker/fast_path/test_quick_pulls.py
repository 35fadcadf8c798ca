"""Seats of pulls: what ends them, and what never gets one. That answers are the handler's: test_fast.py."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from broker import streams
from broker.harness import Rig
from broker.streams import send_of, taken
from perseid import core
from perseid.base.machine import Closed, Frames, Opened
from perseid.core.layout import UNIT_BYTES
from perseid.wire import command
from perseid.wire.bodies import SubscriptionGroupConfig
from perseid.wire.codes import RequestCode
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.record import decode, decode_all

WAYS = {name: one for name, one in streams.WAYS.items() if one is not None}


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> core.Core:
    monkeypatch.setattr(core, "compiled", WAYS[request.param])
    return WAYS[request.param]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A broker with five messages, from which client 1 pulled once."""
    made = Rig(tmp_path)
    made.connect(1)
    texts = [f"UNIQ_KEY\x01ID{n}\x02TAGS\x01T{n % 2}\x02" for n in range(5)]
    made.handle(Frames(1, b"".join(send_of(n, properties=text) for n, text in enumerate(texts))))
    made.handle(Frames(1, pull_of(100)))
    return made


def pull_of(opaque: int, queue_offset: int = 0, **fields: object) -> bytes:
    header = PullMessageRequest(
        consumer_group="g", topic="Plain", queue_id=0, queue_offset=queue_offset, max_msg_nums=32, sys_flag=5,
        commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*", expression_type="TAG",
    )  # fmt: skip
    for name, value in fields.items():
        setattr(header, name, value)
    return command.encode_request(RequestCode.PULL_MESSAGE, opaque, header)


def test_the_second_pull_goes_the_quick_way_and_commits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, pull_of(101, 2, commit_offset=2)))
    assert seen == [True]
    answer = rig.sent[1][-1]
    assert (answer.opaque, answer.remark, answer.ext["nextBeginOffset"]) == (101, "FOUND", "5")
    assert decode(answer.body).queue_offset == 2
    assert rig.parts.offsets.query("Plain", "g", 0) == 2 and rig.parts.offsets.pull_offset("Plain", "g", 0) == 5
    rig.parts.quick.count()
    assert rig.parts.stats.transferred.total == 5 + 3


def test_tags_are_chosen_the_quick_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, pull_of(101, subscription="T1") + pull_of(102, 2, subscription="T1")))
    assert seen == [False, True]
    answer = rig.sent[1][-1]
    assert decode(answer.body).queue_offset == 3 and answer.ext["nextBeginOffset"] == "5"
    rig.handle(Frames(1, pull_of(103, 4, subscription="T1", commit_offset=4)))
    answer = rig.sent[1][-1]
    assert seen == [False, True, True]
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "5")
    assert rig.parts.offsets.query("Plain", "g", 0) == 4 and rig.parts.offsets.pull_offset("Plain", "g", 0) == 5


def test_a_unit_that_tells_a_place_of_an_extension_is_wanted_with_any_tags(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Java broker with enableConsumeQueueExt=true leaves it; one that finds no extension answers the same."""
    queue = rig.parts.store.queues.get("Plain", 0)
    assert queue is not None
    for number, code in ((0, -(1 << 63)), (2, -(1 << 31) - 1), (4, -(1 << 31))):
        queue.segments.file(0).write(number * UNIT_BYTES + 12, code.to_bytes(8, "big", signed=True))
    seen = taken(rig, monkeypatch)
    for opaque in (101, 102):
        rig.handle(Frames(1, pull_of(opaque, subscription="T1")))
        assert [record.queue_offset for record in decode_all(rig.sent[1][-1].body)] == [0, 1, 2, 3]
    assert seen == [False, True]


REQUESTS = {
    "the group is shut": (200, None, SubscriptionGroupConfig(group_name="g", consume_enable=False).to_json(), 16),
    "the topic may not be read": (
        17, {"topic": "Plain", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "2",
             "topicFilterType": "SINGLE_TAG", "order": "false"}, b"", 16,
    ),
    "the topic is gone": (215, {"topic": "Plain"}, b"", 17),
    "the broker may not be read": (25, None, b"brokerPermission=2", 16),
    "an offset is reset": (
        222, {"topic": "Plain", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "1"},
        b"", 21,
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_change_ends_the_seat(
    rig: Rig, change: tuple[int, dict[str, str] | None, bytes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, ext, body, then = change
    seen = taken(rig, monkeypatch)
    before, after = pull_of(101) + command.encode_request(code, 102, ext, body), pull_of(103)
    for read in (before, after) if code == 25 else (before + after,):  # settings change at the end of a turn
        rig.handle(Frames(1, read))
    assert seen == [True, False, False]
    assert {a.opaque: a.code for a in rig.sent[1]} == dict.fromkeys((*range(5), 100, 101, 102), 0) | {103: then}


def test_a_consumer_that_leaves_ends_the_seats(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    rig.connect(2)
    rig.handle(Closed(2, "gone"))
    rig.handle(Frames(1, pull_of(101)))
    rig.handle(Frames(1, pull_of(102)))
    assert seen == [False, True]


def test_a_subscription_is_renewed_each_minute(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    known = rig.parts.consumers.subscription("g", "Plain")
    assert known is not None
    rig.now += 60_000  # no tick meanwhile
    rig.handle(Frames(1, pull_of(101)))
    renewed = rig.parts.consumers.subscription("g", "Plain")
    assert renewed is not None and renewed.sub_version == known.sub_version + 60_000


def test_no_quick_way_at_the_second_port_nor_for_what_nobody_answers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = taken(rig, monkeypatch)
    rig.handle(Opened(7, "10.0.0.7:1", "10.0.0.9:10909", "vip"))
    rig.handle(Frames(7, pull_of(101)))
    assert seen == [False] and rig.sent[7][-1].code == 3
    oneway = pull_of(102).replace(b'"flag":0,', b'"flag":2,')
    rig.handle(Frames(1, oneway + oneway))
    assert seen == [False] * 3 and rig.sent[1][-1].opaque == 100


ODD = {
    "an ext field of a header's name": (b'"extFields":{', b'"extFields":{"opaque":"5",'),
    "a header field of an ext field's name": (b'"flag":0,', b'"flag":0,"queueOffset":3,'),
    "blanks": (b'"flag":0,', b'"flag": 0 ,'),
    "an escape in a value": (b'"topic":"Plain"', b'"topic":"Pl\\u0061in"'),
    "a quote in a value": (b'"subscription":"*"', b'"subscription":"a = \\"queueOffset\\":7"'),
    "Chinese": (b'"subscription":"*"', '"subscription":"消息"'.encode()),
    "an object behind it": (b'"topic":"Plain"', b'"topic":"Plain","x":"{"'),
}
NONE = {
    "a number in another object": (b'"extFields":{', b'"x":[{"queueOffset":"3"}],"extFields":{'),
    "a number twice": (b'"queueOffset":"0"', b'"queueOffset":"0","queueOffset":"4"'),
    "a number that goes on": (b'"opaque":101', b'"opaque":101e1'),
    "a number without quotes that goes on": (b'"queueOffset":"0"', b'"queueOffset":0.0'),
    "a number with a sign": (b'"queueOffset":"0"', b'"queueOffset":"+0"'),
    "a number too many digits long": (b'"queueOffset":"0"', b'"queueOffset":"0000000000000000000"'),
    "a name with an escape": (b'"topic":"Plain"', b'"topi\\u0063":"Plain"'),
    "a name with an escape, and a blank behind it": (b'"topic":"Plain"', b'"topi\\u0063" : "Plain"'),
    "a text that does not end": (b'"version":', b'"x":"\\'),
    "no commit offset": (b'"commitOffset":"0",', b""),
    "an opaque out of range": (b'"opaque":101', b'"opaque":4294967397'),
}


def changed(old: bytes, new: bytes, opaque: int, **fields: int) -> bytes:
    raw = pull_of(opaque, **fields)
    head = raw[8:].replace(old, new)
    assert head != raw[8:]
    return (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head


@pytest.mark.parametrize("texts", ODD.values(), ids=ODD.keys())
def test_the_three_numbers_are_those_of_the_header(rig: Rig, texts: tuple[bytes, bytes], way: core.Core) -> None:
    pulls = way.pulls.Pulls(False)
    first, second = changed(*texts, 101), changed(*texts, 102, queue_offset=4)
    assert pulls.find(first, 0) is None and pulls.keys
    for key in pulls.keys:
        pulls.learn(key, "prepared pull", 10)
    assert pulls.find(second, 0) == "prepared pull"
    assert (pulls.opaque, pulls.queue_offset, pulls.commit_offset, pulls.end) == (102, 4, 0, len(second))


@pytest.mark.parametrize("texts", NONE.values(), ids=NONE.keys())
def test_what_could_mean_something_else_has_no_key(texts: tuple[bytes, bytes], way: core.Core) -> None:
    pulls = way.pulls.Pulls(False)
    assert pulls.find(changed(*texts, 101), 0) is None and not pulls.keys


def test_numbers_need_no_quotes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Node's client writes them."""
    seen = taken(rig, monkeypatch)
    bare = [changed(b'"queueOffset":"%d"' % n, b'"queueOffset":%d' % n, 101 + n, queue_offset=n) for n in (2, 3)]
    rig.handle(Frames(1, b"".join(bare)))
    assert seen == [False, True]
    assert [r.queue_offset for r in decode_all(rig.sent[1][-1].body)] == [3, 4]


def shuffled(opaque: int, members: list[bytes], **fields: int) -> bytes:
    """A pull whose ext fields come in another order, and others behind them."""
    raw = pull_of(opaque, **fields)[8:]
    before, _, rest = raw.partition(b'"extFields":{')
    inside, _, behind = rest.partition(b"}")
    own = inside.split(b",")
    Random(opaque).shuffle(own)
    head = before + b'"extFields":{' + b",".join(own + members) + b"}" + behind
    return (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head


def test_the_order_of_ext_fields_makes_no_difference(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go's client writes them in another order each time."""
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, b"".join(shuffled(n, [], queue_offset=n % 5) for n in range(201, 221))))
    assert seen == [True] * 20
    for answer in rig.sent[1][-20:]:
        assert next(iter(decode_all(answer.body))).queue_offset == answer.opaque % 5


def test_two_ext_fields_of_a_name_keep_their_order(way: core.Core) -> None:
    pulls = way.pulls.Pulls(False)
    keys = []
    for twice in ([b'"x":"1"', b'"x":"2"'], [b'"x":"2"', b'"x":"1"']):
        pulls.find(shuffled(1, twice), 0)
        keys.append(pulls.keys)
    assert [len(some) for some in keys] == [1, 1] and keys[0] != keys[1]


def test_a_header_that_differs_has_another_key(way: core.Core) -> None:
    pulls = way.pulls.Pulls(False)
    keys = set()
    for fields in ({}, {"queue_id": 1}, {"subscription": "T1"}, {"sys_flag": 4}, {"sub_version": 1}):
        pulls.find(pull_of(1, **fields), 0)
        keys.add(pulls.keys)
    assert len(keys) == 5 and () not in keys


@pytest.mark.parametrize("unit", [(-1, 10, 0), (5, 0, 0), (5, 1 << 30, 0), (1 << 20, 10, 0), (1 << 62, 10, 0)])
def test_a_unit_that_does_not_fit_the_log_is_left_to_the_handler(
    rig: Rig, unit: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = b"".join(n.to_bytes(size, "big", signed=True) for n, size in zip(unit, (8, 4, 8), strict=True))
    queue = rig.parts.store.queues.get("Plain", 0)
    assert queue is not None and len(packed) == UNIT_BYTES
    queue.segments.file(0).write(0, packed)
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, pull_of(101)))
    rig.handle(Frames(1, pull_of(102, 3)))
    assert seen == [False, True]


def test_pulls_of_a_read_are_answered_together_as_far_as_they_are_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = taken(rig, monkeypatch)
    reads = [
        pull_of(101),
        pull_of(102, 3),
        pull_of(103, subscription="T1"),
        pull_of(104, 4),
        send_of(9),
        pull_of(105, 5),
    ]
    rig.handle(Frames(1, b"".join(reads)))
    assert seen == [True, True, False, True, True, True]
    found = {answer.opaque: answer for answer in rig.sent[1] if answer.opaque > 100}
    offsets = {opaque: [record.queue_offset for record in decode_all(one.body)] for opaque, one in found.items()}
    assert offsets == {101: [0, 1, 2, 3, 4], 102: [3, 4], 103: [1, 3], 104: [4], 105: [5]}


def test_answers_longer_than_what_is_copied_are_pieces_of_the_log(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(20_000)
    rig.handle(Frames(1, b"".join(send_of(n, body=body) for n in range(10, 14))))
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, pull_of(101, 5)))
    assert seen == [True]
    assert [(record.queue_offset, len(record.body)) for record in decode_all(rig.sent[1][-1].body)] == [
        (n, len(body)) for n in range(5, 9)
    ]


def test_pulls_of_lite_consumers_go_the_quick_way_once_they_are_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite = [pull_of(n).replace(b'{"code":11,', b'{"code":361,') for n in (101, 102)]
    framed = [(len(one) - 4).to_bytes(4, "big") + (len(one) - 8).to_bytes(4, "big") + one[8:] for one in lite]
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, b"".join(framed)))
    assert seen == [False, True]
    assert rig.sent[1][-1].body == rig.sent[1][-2].body and rig.sent[1][-1].code == 0


def test_a_header_whose_code_is_not_first_goes_the_quick_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    other = [changed(b'{"code":11,', b'{"language":"CPP","code":11,', n) for n in (101, 102)]
    seen = taken(rig, monkeypatch)
    rig.handle(Frames(1, b"".join(other)))
    assert seen == [False, True]
    assert rig.sent[1][-1].body == rig.sent[1][-2].body and rig.sent[1][-1].code == 0
