"""What the log of a Java replica excuses, and what it doesn't; with lines that real ones wrote."""

from __future__ import annotations

from broker_sets import JavaLog, name_of

from perseid.wire.ha_auto import EpochEntry

REFUSED = (
    "ERROR AutoSwitchHAClient - The appending entry's lastEpoch or endOffset EpochEntry{epoch=4, startOffset=731,"
    " endOffset=9223372036854775807} is not bigger than lastEntry EpochEntry{epoch=3, startOffset=731,"
    " endOffset=9223372036854775807}, append failed"
)
HANDSHAKE = (
    "INFO AutoSwitchHAClient - Receive handshake, masterMaxPosition 900, masterEpochEntries:[EpochEntry{epoch=1,"
    " startOffset=0, endOffset=9223372036854775807}, EpochEntry{epoch=2, startOffset=100,"
    " endOffset=9223372036854775807}], try truncate log"
)
STUCK = (
    "ERROR AutoSwitchHAClient - Failed to find a consistent point between masterEpoch:[EpochEntry{epoch=2,"
    " startOffset=0, endOffset=0}] and slaveEpoch:[EpochEntry{epoch=1, startOffset=0, endOffset=%d}]"
)
MASTER = "INFO main - Change ha to master success, newMasterEpoch:3, startOffset:1000"
SET = "INFO ReadSocketService - Notify the syncStateSet has been changed into [%s]."


def test_an_epoch_that_was_refused_and_the_one_that_was_kept_are_b9() -> None:
    log = JavaLog(REFUSED)
    assert name_of(EpochEntry(4, 731), [log]) == name_of(EpochEntry(3, 731), [log]) == "B9"
    assert name_of(EpochEntry(4, 732), [log]) is None and name_of(EpochEntry(5, 900), [log]) is None


def test_an_epoch_that_was_told_and_is_not_there_is_b10_where_a_java_master_may_have_labelled_it() -> None:
    log = JavaLog(HANDSHAKE)
    assert name_of(EpochEntry(2, 100), [log, JavaLog("")]) == "B10"
    assert name_of(EpochEntry(2, 100), [log]) is None, "our labels are right"
    assert name_of(EpochEntry(3, 100), [log, JavaLog("")]) is None


def test_a_master_is_alone_after_it_made_its_set_smaller() -> None:
    both, one = SET % "1, 2", SET % "1"
    assert JavaLog(f"{MASTER}\n{both}\n{one}").alone_at(1000)
    assert not JavaLog(f"{MASTER}\n{both}\n{one}").alone_at(999), "another master wrote it"
    assert not JavaLog(f"{MASTER}\n{both}").alone_at(1000)
    assert not JavaLog(f"{MASTER}\n{both}\n{one}\n{both}").alone_at(1000)
    assert not JavaLog(MASTER).alone_at(1000)


def test_no_epoch_in_common_is_b9_where_none_of_its_epochs_has_a_byte() -> None:
    assert JavaLog(STUCK % 0).without_bytes and not JavaLog(STUCK % 300).without_bytes
    assert JavaLog(f"{STUCK % 0}\n{STUCK % 0}").stuck == 2
    assert not JavaLog("").without_bytes and JavaLog("").stuck == 0
