"""Why sends take the ordinary way: what is said is what happens, in all ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import SMALL, Rig
from broker.streams import send_of, taken
from perseid.base.machine import Frames, Opened
from perseid.broker.fast_path.plain_sends import PlainSends
from perseid.broker.fast_path.why_not import OF_NAMES, Properties, WhyNot, why_not
from perseid.wire import command
from perseid.wire import properties as props
from perseid.wire.names import RETRY_PREFIX

pytestmark = pytest.mark.usefixtures("way")
KEY = "UNIQ_KEY\x01K1\x02"
SENDS = {
    None: send_of(11),
    WhyNot.NO_SEND: send_of(11).replace(b'"e":"0"', b'"e":"x"'),
    WhyNot.NO_TOPIC: send_of(11, "Nowhere", default_topic="Nothing"),
    WhyNot.OWN_TOPIC: send_of(11, "SCHEDULE_TOPIC_XXXX"),
    WhyNot.NO_QUEUE: send_of(11, queue_id=-1),
    WhyNot.FIRST_SEND: send_of(11, queue_id=3),
    WhyNot.SYS_FLAG: send_of(11, sys_flag=0x2),
    WhyNot.EMPTY: send_of(11)[:-4].replace(send_of(11)[:4], (len(send_of(11)) - 8).to_bytes(4, "big"), 1),
    WhyNot.LONG_UNIQUE_KEY: send_of(11, properties=f"UNIQ_KEY\x01{'k' * 257}\x02"),
    WhyNot.REPEATED: send_of(11, properties="k\x011\x02k\x012\x02"),
    WhyNot.NO_WAIT: send_of(11, properties=f"{KEY}WAIT\x01false\x02"),
    WhyNot.CHANGING: send_of(11, properties=f"{KEY}INNER_NUM\x013\x02"),
}
"""A frame for each reason that a client gives."""
PLAIN = {
    "no properties": "",
    "no unique key": "KEYS\x01k\x02empty\x01\x02lonely\x02",
    "a unique key with signs": 'UNIQ_KEY\x01a-"\\\x1f消息\x02',
    "two unique keys": f"UNIQ_KEY\x01first\x02{KEY}UNIQ_KEY\x01\x02",
    "Chinese": f"{KEY}KEYS\x01消息 😀\x02TAGS\x01标签\x02订单\x01号\x02",
    "no last separator": f"{KEY}k\x01v",
    "an empty property": f"{KEY}k\x01\x02\x02\x01v\x02",
    "a changing name that is none": f"{KEY}DELAY\x02xDELAY\x013\x02",
    "waits in the end": f"{KEY}WAIT\x01false\x02WAIT\x01true\x02",
}
"""Properties of sends that go the fast way."""
BY_CORE = {
    WhyNot.RETRY_TOPIC: send_of(11, f"{RETRY_PREFIX}g"),
    WhyNot.DELAYED: send_of(11, properties=f"{KEY}DELAY\x013\x02"),
    WhyNot.PRIORITY: send_of(11, properties=f"{KEY}_SYS_MSG_PRIORITY_\x011\x02"),
    WhyNot.TIMED: send_of(11, properties=f"{KEY}TIMER_DELAY_SEC\x012\x02"),
    WhyNot.TRANSACTION: send_of(11, properties=f"{KEY}TRAN_MSG\x01true\x02PGROUP\x01p\x02"),
}
"""The core takes them as it takes plain ones."""


def of(rig: Rig, frame: bytes, client: int = 1) -> WhyNot | None:
    ports, properties = rig.parts.quick._ports, Properties(waits=rig.parts.durability.waits)
    return why_not(ports, rig.parts.connections[client], command.decode(frame), properties)


@pytest.mark.parametrize("why", SENDS, ids=str)
def test_a_send_goes_the_fast_way_unless_there_is_a_reason(
    tmp_path: Path, why: WhyNot | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type="SYNC_FLUSH"), default_topic_queue_nums=4)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    seen = taken(rig, monkeypatch)
    assert of(rig, SENDS[why]) is why
    rig.handle(Frames(1, SENDS[why]))
    assert seen == [why is None]


@pytest.mark.parametrize("properties", PLAIN.values(), ids=PLAIN)
def test_what_stock_clients_write_goes_the_fast_way(
    tmp_path: Path, properties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type="SYNC_FLUSH"), default_topic_queue_nums=4)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    seen = taken(rig, monkeypatch)
    frame = send_of(11, properties=properties)
    assert of(rig, frame) is None
    rig.handle(Frames(1, frame))
    assert seen == [True]


@pytest.mark.parametrize("why", BY_CORE, ids=str)
def test_sends_of_the_core_alone_have_a_reason_where_there_is_none(tmp_path: Path, why: WhyNot) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Frames(1, send_of(1) + send_of(2) + send_of(3, f"{RETRY_PREFIX}g")))
    assert of(rig, BY_CORE[why]) is why
    plain = PlainSends(rig.parts.quick._ports)
    assert plain.send(rig.parts.connections[1], command.decode(BY_CORE[why])) is why


def test_a_sender_with_an_ipv6_address_and_a_broker_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.connect(1)
    rig.handle(Opened(9, "[2001:db8::1]:4000", "10.0.0.9:10911", "main"))
    rig.handle(Frames(1, send_of(1) + send_of(2)))
    seen = taken(rig, monkeypatch)
    assert of(rig, send_of(3), client=9) is WhyNot.IPV6
    rig.handle(Frames(9, send_of(3)))
    assert seen == [False]
    rig.parts.settings.current = replace(
        rig.parts.settings.current, start_accept_send_request_time_stamp=rig.now + 100
    )
    assert of(rig, send_of(4)) is WhyNot.NOT_YET
    rig.parts.roles.is_slave = True
    assert of(rig, send_of(4)) is WhyNot.SLAVE


def test_each_property_that_changes_what_is_stored_is_a_reason() -> None:
    for name in props.CHANGING_NAMES:
        found = Properties(waits=False).read(f"{KEY}{name}\x011\x02")
        assert found is OF_NAMES[name], name
    assert Properties(waits=False).read(f"{KEY}WAIT\x01false\x02TAGS\x01T\x02") not in list(WhyNot)
