"""What every way into the store shares: statuses as codes, and what properties ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.harness import Rig
from perseid.base.errors import RequestRefused
from perseid.broker.kernel import messages
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire import properties as props
from perseid.wire.record import Message

CODES = {
    PutStatus.MESSAGE_ILLEGAL: 13,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: 13,
    PutStatus.SERVICE_NOT_AVAILABLE: 14,
    PutStatus.CREATE_MAPPED_FILE_FAILED: 1,
    PutStatus.UNKNOWN_ERROR: 1,
}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def message(sys_flag: int = 0) -> Message:
    return Message(topic="T", body=b"x", queue_id=2, sys_flag=sys_flag)


@pytest.mark.parametrize("status", CODES)
def test_statuses_are_codes(rig: Rig, status: PutStatus) -> None:
    refused = rig.parts.appender.refusal(AppendRefused(status, "because"))
    assert refused.code == CODES[status]
    assert refused.remark


def test_a_full_disk_says_why(rig: Rig) -> None:
    rig.parts.store.condition.fail("/data: EIO")
    refused = rig.parts.appender.refusal(AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, ""))
    assert "the broker's disk is full [/data: EIO]" in refused.remark


def test_what_the_store_refuses_is_counted(rig: Rig) -> None:
    long = message()
    long.properties = b"p" * 40_000
    for _ in range(2):
        with pytest.raises(AppendRefused):
            rig.parts.appender.store(long)
    with pytest.raises(AppendRefused):
        rig.parts.appender.store_batch([message(), long])
    assert rig.parts.stats.put_failed_times == 3 and rig.parts.store.log.end == 0


@pytest.mark.parametrize("sys_flag", [0, 8, 0x301])
def test_delays_redirect(rig: Rig, sys_flag: int) -> None:
    delayed = message(sys_flag=sys_flag)
    rig.parts.transformer.transform(delayed, {"DELAY": "4", "TIMER_DELAY_MS": "7"})
    assert (delayed.topic, delayed.queue_id) == ("SCHEDULE_TOPIC_XXXX", 3)
    assert props.decode(delayed.properties) == {"DELAY": "4", "REAL_TOPIC": "T", "REAL_QID": "2"}


@pytest.mark.parametrize("sys_flag", [4, 0xC])
def test_prepared_and_rolled_back_messages_stay_where_they_are(rig: Rig, sys_flag: int) -> None:
    prepared = message(sys_flag=sys_flag)
    rig.parts.transformer.transform(prepared, {"DELAY": "4", "TIMER_DELAY_MS": "7"})
    assert (prepared.topic, prepared.queue_id) == ("T", 2)


def test_timers(rig: Rig) -> None:
    timed, delivered = message(), message()
    rig.parts.transformer.transform(timed, {"TIMER_DELAY_SEC": "1"})
    assert (timed.topic, timed.queue_id) == ("rmq_sys_wheel_timer", 0)
    rig.parts.transformer.transform(delivered, {"TIMER_DELAY_SEC": "1", "TIMER_OUT_MS": "5"})  # it came out
    assert (delivered.topic, delivered.queue_id) == ("T", 2)


def test_inner_batches(rig: Rig) -> None:
    with pytest.raises(RequestRefused) as refused:
        rig.parts.transformer.transform(message(), {"INNER_NUM": "2"})
    assert refused.value.code == 13


@pytest.mark.parametrize(("text", "level"), [("3", 3), ("+3", 3), ("-2", -2), ("0", 0), ("9999999999", 9_999_999_999)])
def test_delay_levels(text: str, level: int) -> None:
    assert messages.delay_level({"DELAY": text}) == level


def test_no_delay_level() -> None:
    assert messages.delay_level({}) == 0
