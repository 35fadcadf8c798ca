"""Transactions: halves, words, questions, starts over and changes of roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig, records
from broker.requests import properties
from perseid.base.machine import Frames, Tick
from perseid.broker.transactions import op_messages
from perseid.broker.transactions import service as transactions
from perseid.replication.config import ReplicationConfig
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.send import EndTransactionRequest, SendMessageRequest, SendMessageResponse
from perseid.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from perseid.wire.record import decode

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
END, CHECK = 37, 39


def bodies(rig: Rig, topic: str = "T", queue_id: int = 1) -> list[bytes]:
    return [record.body for record in records(rig, topic, queue_id)]


def begin(rig: Rig, body: bytes = b"half", **more: Any) -> SendMessageResponse:
    pairs: dict[str, Any] = {"UNIQ_KEY": "ID1", "TAGS": "A", "KEYS": "k", "TRAN_MSG": "true", "PGROUP": "p", **more}
    return rig.send("T", 1, body, properties(**pairs))


def word(rig: Rig, half: SendMessageResponse | Command, decision: int, **more: Any) -> Command:
    """A producer's word after its send, or after a question."""
    if isinstance(half, Command):
        offset, place = int(half.ext["tranStateTableOffset"]), int(half.ext["commitLogOffset"])
        more.setdefault("from_transaction_check", True)
    else:
        offset, place = half.queue_offset, int(half.msg_id[-16:], 16)
    fields: dict[str, Any] = {
        "producer_group": "p", "tran_state_table_offset": offset, "commit_log_offset": place,
        "commit_or_rollback": decision, "msg_id": "ID1",
    }  # fmt: skip
    return rig.ask(END, EndTransactionRequest(**{**fields, **more}))


def beat(rig: Rig, client: int = 3, group: str = "p") -> None:
    body = json.dumps({"clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}).encode()
    assert rig.ask(34, None, body, client=client).code == 0


# ---- words ----


def test_a_half_is_no_message_until_it_is_committed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    assert half.transaction_id == "ID1" and bodies(rig) == []
    [stored] = records(rig, HALF_TOPIC)
    assert stored.props["REAL_TOPIC"] == "T" and stored.props["REAL_QID"] == "1"
    assert stored.props["__transactionId__"] == "ID1" and stored.sys_flag & 0xC == 0
    assert word(rig, half, COMMIT).code == 0
    [message] = records(rig, "T", 1)
    assert message.body == b"half" and message.sys_flag & 0xC == 8
    assert message.prepared_transaction_offset == stored.physical_offset
    kept = message.props
    assert (kept["UNIQ_KEY"], kept["TAGS"]) == ("ID1", "A")
    assert not {"REAL_TOPIC", "REAL_QID", "TRAN_MSG"} & kept.keys()
    [op] = records(rig, OP_HALF_TOPIC)
    assert (op.body, op.tag) == (b"0,", "d")


def test_a_half_that_is_rolled_back_never_comes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert word(rig, begin(rig), ROLLBACK).code == 0
    beat(rig)
    rig.until(NOW + 3_600_000)
    assert bodies(rig) == [] and not rig.told(3, CHECK)


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"commit_log_offset": 7}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 62}, "Find prepared transaction message failed"),
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 5}, "The transaction state table offset wrong"),
    ],
)
def test_words_about_something_else_are_refused(tmp_path: Path, changed: dict[str, Any], remark: str) -> None:
    rig = Rig(tmp_path)
    answer = word(rig, begin(rig), COMMIT, **changed)
    assert (answer.code, answer.remark) == (1, remark) and bodies(rig) == []


def test_a_word_about_a_message_that_is_no_half_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    plain = rig.send("T", 1, b"plain", properties(UNIQ_KEY="X", PGROUP="p"))
    assert word(rig, plain, COMMIT).code == 1 and bodies(rig) == [b"plain"]


def test_a_half_is_decided_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    assert word(rig, half, COMMIT).code == 0
    assert word(rig, half, COMMIT).code == word(rig, half, ROLLBACK).code == 1
    assert bodies(rig) == [b"half"]


def test_a_word_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    assert word(rig, half, UNKNOWN).code == 0 and bodies(rig) == []
    assert word(rig, half, COMMIT).code == 0 and bodies(rig) == [b"half"]


def one_way(halves: list[SendMessageResponse], decisions: list[int], **more: Any) -> Frames:
    """Words in one read, as the clients send them."""
    headers = [
        EndTransactionRequest(
            producer_group="p", tran_state_table_offset=half.queue_offset,
            commit_log_offset=int(half.msg_id[-16:], 16), commit_or_rollback=decision, msg_id="ID1",
            **more,
        )
        for half, decision in zip(halves, decisions, strict=True)
    ]  # fmt: skip
    frames = [encode_request(END, 100 + n, header, oneway=True) for n, header in enumerate(headers)]
    return Frames(1, b"".join(bytes(one) for one in frames))


def test_a_word_about_another_transaction_at_the_same_place(tmp_path: Path) -> None:
    """After a power cut a half that was put back stands where another one had been acknowledged, whose producer then
    speaks (simulator, `broker`, swarm seed 45355250290); one-way, too."""
    rig = Rig(tmp_path)
    assert word(rig, begin(rig, b"first"), COMMIT).code == 0  # the queue is known from now on
    half = begin(rig)
    assert [word(rig, half, decision, transaction_id="ID2").code for decision in (COMMIT, ROLLBACK)] == [1, 1]
    rig.handle(one_way([half], [COMMIT], transaction_id="ID2"))
    assert bodies(rig) == [b"first"]
    rig.handle(one_way([half], [COMMIT], transaction_id="ID1"))
    assert bodies(rig) == [b"first", b"half"]


def ops(rig: Rig) -> list[bytes]:
    return [record.body for record in records(rig, OP_HALF_TOPIC)]


def test_one_way_words_of_a_read_share_an_op_message(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    halves = [begin(rig, b"%d" % n, UNIQ_KEY=f"ID{n}") for n in range(7)]
    assert word(rig, halves[0], COMMIT).code == 0  # the queue is known from now on
    told = [halves[n] for n in (1, 2, 3, 3, 4, 5)]
    rig.handle(one_way(told, [COMMIT, ROLLBACK, COMMIT, COMMIT, UNKNOWN, COMMIT]))
    assert bodies(rig) == [b"0", b"1", b"3", b"5"] and ops(rig) == [b"0,", b"1,2,3,5,"]
    rig.handle(Tick())
    rig.stop()
    rig = Rig(tmp_path, now=rig.now)
    beat(rig)
    rig.until(NOW + 12_500)
    assert {decode(memoryview(q.body)).body for q in rig.told(3, CHECK)} == {b"4", b"6"}, "those are open"


def test_an_op_message_names_no_more_than_java_reads_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    halves = [begin(rig, UNIQ_KEY=f"ID{n}") for n in range(2 * op_messages.OP_HALVES + 1)]
    rig.handle(one_way(halves, [ROLLBACK] * len(halves)))
    assert [body.count(b",") for body in ops(rig)] == [op_messages.OP_HALVES, op_messages.OP_HALVES, 1]


def test_what_one_way_words_decided_is_written_when_the_log_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    halves = [begin(rig, b"%d" % n, UNIQ_KEY=f"ID{n}") for n in range(3)]
    assert word(rig, halves[0], COMMIT).code == 0
    store, plain = rig.parts.store, rig.parts.store.appends.append

    def append(message: Any, now: int) -> Any:
        if message.topic == OP_HALF_TOPIC:
            raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "full")
        return plain(message, now)

    with monkeypatch.context() as full:
        full.setattr(store.appends, "append", append)
        rig.handle(one_way(halves[1:], [COMMIT, ROLLBACK]))
        assert bodies(rig) == [b"0", b"1"] and ops(rig) == [b"0,"]
        rig.handle(one_way(halves[1:], [ROLLBACK, COMMIT]))
    rig.until(NOW + 7_000)
    assert bodies(rig) == [b"0", b"1"] and sorted(ops(rig)) == [b"0,", b"1,", b"2,"]


def test_transactions_can_be_switched_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path, reject_transaction_message=True)
    with pytest.raises(AssertionError, match="sending transaction message is forbidden"):
        begin(rig)


def test_a_committed_message_may_be_delayed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    word(rig, begin(rig, DELAY=3), COMMIT)
    assert bodies(rig) == []
    rig.until(NOW + 11_000)
    assert bodies(rig) == [b"half"]


# ---- questions ----


def test_a_producer_that_says_nothing_is_asked(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    begin(rig)
    rig.until(NOW + 5_999)
    assert not rig.told(3, CHECK)
    rig.until(NOW + 6_001)
    [question] = rig.told(3, CHECK)
    asked = decode(memoryview(question.body))
    assert (asked.topic, asked.queue_id, asked.body) == ("T", 1, b"half")
    assert asked.props["TRANSACTION_CHECK_TIMES"] == "1" and question.ext["msgId"] == "ID1"
    assert question.ext["tranStateTableOffset"] == "1" and question.ext["bname"] == "b"
    assert word(rig, question, COMMIT).code == 0 and bodies(rig) == [b"half"]
    rig.until(NOW + 600_000)
    assert not rig.told(3, CHECK) and bodies(rig) == [b"half"]


def test_a_late_word_about_a_half_that_was_asked_about_counts_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    half = begin(rig)
    rig.until(NOW + 40_000)
    first, second = rig.told(3, CHECK)
    assert word(rig, half, COMMIT).code == 0
    for late in (first, second):
        assert word(rig, late, COMMIT).code == 1
    rig.until(NOW + 600_000)
    assert bodies(rig) == [b"half"] and not rig.told(3, CHECK)


def test_a_half_nobody_knows_of_is_kept_aside_after_so_many_questions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, transaction_check_max=3)
    beat(rig)
    begin(rig)
    rig.until(NOW + 3_600_000)
    assert len(rig.told(3, CHECK)) == 3 and bodies(rig) == []
    [aside] = records(rig, CHECK_MAX_TIME_TOPIC)
    assert aside.body == b"half" and aside.props["TRANSACTION_CHECK_TIMES"] == "3"
    assert len(rig.parts.transactions) == 0


def test_a_half_may_ask_for_more_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    half = begin(rig, CHECK_IMMUNITY_TIME_IN_SECONDS=60)
    rig.until(NOW + 60_001)
    assert len(rig.told(3, CHECK)) == 1
    answer = word(rig, half, COMMIT)
    assert (answer.code, bodies(rig)) == (604, [])


def test_a_half_of_a_producer_that_is_away_waits(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    begin(rig)
    rig.until(NOW + 100_000)
    beat(rig)
    rig.until(NOW + 140_000)
    question = rig.told(3, CHECK)[-1]
    assert word(rig, question, COMMIT).code == 0 and bodies(rig) == [b"half"]


def test_a_half_of_a_clock_that_is_ahead_is_asked_about_all_the_same(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    header = SendMessageRequest(
        producer_group="p", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=4,
        born_timestamp=NOW * 2, flag=0, properties=properties(UNIQ_KEY="ID1", TRAN_MSG="true", PGROUP="p"),
    )  # fmt: skip
    assert rig.ask(10, header, b"half").code == 0
    rig.until(NOW + 6_001)
    assert len(rig.told(3, CHECK)) == 1


def test_settings_that_change_count_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    wanted = b"transactionTimeOut=1000\ntransactionCheckInterval=500\ntransactionCheckMax=2\n"
    assert rig.ask(25, None, wanted).code == 0
    begin(rig)
    rig.until(NOW + 1_001)
    assert len(rig.told(3, CHECK)) == 1
    rig.until(NOW + 2_600)
    assert len(rig.told(3, CHECK)) == 1 and len(records(rig, CHECK_MAX_TIME_TOPIC)) == 1


# ---- set aside, and resumed ----


def resume(rig: Rig, msg_id: str) -> Command:
    return rig.ask(323, {"topic": "T", "msgId": msg_id})


def test_a_half_that_was_set_aside_can_be_asked_about_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, transaction_check_max=2)
    begin(rig)
    rig.until(NOW + 600_000)
    [aside] = records(rig, CHECK_MAX_TIME_TOPIC)
    beat(rig)
    assert resume(rig, aside.msg_id).code == 0
    rig.until(rig.now + 1)
    [question] = rig.told(3, CHECK)
    assert decode(memoryview(question.body)).props["TRANSACTION_CHECK_TIMES"] == "1"
    assert word(rig, question, COMMIT).code == 0 and bodies(rig) == [b"half"]


@pytest.mark.parametrize("msg_id", ["", "x", "00" * 16, "7F00000100002A9F" + "7" * 16, "7F00000100002A9F" + "0" * 16])
def test_only_a_half_that_was_set_aside_is_resumed(tmp_path: Path, msg_id: str) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    for each in (msg_id, half.msg_id):
        answer = resume(rig, each)
        assert answer.code == 1 and "Put message back" in (answer.remark or "")
    assert len(rig.parts.transactions) == 1 and len(records(rig, HALF_TOPIC)) == 1


# ---- starts over ----


@pytest.mark.parametrize("clean", [True, False])
def test_open_halves_are_known_after_a_start_over(tmp_path: Path, clean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "LOADED_A_TURN", 2)
    rig = Rig(tmp_path)
    halves = [begin(rig, b"%d" % i, UNIQ_KEY=f"ID{i}") for i in range(6)]
    for number in (0, 1, 3):
        word(rig, halves[number], COMMIT)
    rig.until(NOW + 5_500)
    if clean:
        rig.stop()
    else:
        rig.disk.unlock("lock")  # what the end of a process does
    rig = Rig(tmp_path, now=rig.now)
    assert word(rig, halves[3], COMMIT).code == word(rig, halves[4], ROLLBACK).code == 14, "not taken up yet"
    rig.until(NOW + 5_501)
    assert word(rig, halves[3], COMMIT).code == 1, "decided before"
    assert word(rig, halves[4], ROLLBACK).code == 0
    beat(rig)
    rig.until(NOW + 12_500)
    questions = rig.told(3, CHECK)
    assert [decode(memoryview(q.body)).body for q in questions] == [b"2", b"5"]
    for question in questions:
        assert word(rig, question, COMMIT).code == 0
    assert bodies(rig) == [b"0", b"1", b"3", b"2", b"5"]


def test_progress_is_told_up_to_the_oldest_open_half(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    first, second = begin(rig), begin(rig, UNIQ_KEY="ID2")
    word(rig, second, COMMIT)
    rig.handle(Tick())
    progress = rig.parts.offsets.query
    assert not progress(HALF_TOPIC, transactions.GROUP, 0) and not progress(OP_HALF_TOPIC, transactions.GROUP, 0)
    word(rig, first, COMMIT)
    rig.handle(Tick())
    assert progress(HALF_TOPIC, transactions.GROUP, 0) == 2 and progress(OP_HALF_TOPIC, transactions.GROUP, 0) == 2


# ---- trouble ----


def test_a_decision_that_the_log_does_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    store, plain = rig.parts.store, rig.parts.store.appends.append

    def append(message: Any, now: int) -> Any:
        if message.topic == OP_HALF_TOPIC:
            raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "full")
        return plain(message, now)

    monkeypatch.setattr(store.appends, "append", append)
    assert word(rig, half, COMMIT).code == 0 and word(rig, half, COMMIT).code == 1
    rig.until(NOW + 5_000)
    assert rig.parts.offsets.query(HALF_TOPIC, transactions.GROUP, 0) in (None, 0)
    monkeypatch.setattr(store.appends, "append", plain)
    rig.until(NOW + 7_000)
    assert [op.body for op in records(rig, OP_HALF_TOPIC)] == [b"0,"]
    assert rig.parts.offsets.query(HALF_TOPIC, transactions.GROUP, 0) == 1 and bodies(rig) == [b"half"]


def test_a_log_that_takes_no_decision_is_asked_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    half, plain = begin(rig), rig.parts.store.appends.append
    tries: list[int] = []

    def append(message: Any, now: int) -> Any:
        if message.topic != OP_HALF_TOPIC:
            return plain(message, now)
        tries.append(now)
        raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "full")

    monkeypatch.setattr(rig.parts.store.appends, "append", append)
    assert word(rig, half, COMMIT).code == 0
    for _ in range(1_050):
        rig.until(rig.now + 10)
        rig.handle(Tick())
    assert tries == [NOW + 1_000 * second for second in range(11)]


def test_a_rollback_that_the_log_does_not_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)

    def append(message: Any, now: int) -> Any:
        raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "full")

    with monkeypatch.context() as full:
        full.setattr(rig.parts.store.appends, "append", append)
        assert word(rig, half, ROLLBACK).code == word(rig, half, COMMIT).code == 14
    assert word(rig, half, ROLLBACK).code == 0 and word(rig, half, COMMIT).code == 1


def test_halves_are_refused_when_too_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 2)
    rig = Rig(tmp_path)
    begin(rig)
    begin(rig)
    with pytest.raises(AssertionError, match="2 transactions are open"):
        begin(rig)


def test_op_messages_of_strangers_are_read_with_care(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    begin(rig)
    for body in (b"x", b"1,,-3,99999999999999999999,\xff,", b""):
        rig.parts.transactions._load_op(0, set())
        rig.parts.store.appends.append(_op(body), NOW)
    rig.stop()
    assert len(Rig(tmp_path, now=rig.now).parts.transactions) == 1, "the half is open"


def _op(body: bytes) -> Any:
    from perseid.wire.record import Message

    return Message(topic=OP_HALF_TOPIC, body=body, properties=b"TAGS\x01d\x02")


# ---- roles, and slaves that are down ----


def test_a_slave_decides_nothing_and_the_next_master_knows_what_is_open(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    beat(rig)
    half = begin(rig)
    rig.parts.roles.become(master=False)
    assert word(rig, half, COMMIT).code == resume(rig, half.msg_id).code == 11
    rig.until(NOW + 60_000)
    assert not rig.told(3, CHECK) and len(rig.parts.transactions) == 0
    rig.parts.roles.become(master=True)
    rig.until(NOW + 60_001)
    [question] = rig.told(3, CHECK)
    assert word(rig, question, COMMIT).code == 0 and bodies(rig) == [b"half"]


def test_a_new_master_knows_what_readers_do_not_see_yet(tmp_path: Path) -> None:
    """What a log has beyond the confirm offset may have been acknowledged by the last master."""
    rig = Rig(tmp_path)
    beat(rig)
    decided, half = begin(rig), begin(rig, UNIQ_KEY="ID2")
    word(rig, decided, COMMIT)
    rig.parts.roles.become(master=False)
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        queue = rig.parts.store.queues.get(topic, 0)
        assert queue is not None
        queue.limit = 0
        assert rig.parts.store.reads.max_offset(topic, 0) == 0
    rig.parts.roles.become(master=True)
    assert len(rig.parts.transactions) == 1
    assert word(rig, decided, COMMIT).code == 1 and word(rig, half, COMMIT).code == 0
    assert len(bodies(rig)) == 2


def test_a_commit_while_a_slave_is_down_is_kept(tmp_path: Path) -> None:
    """#7709: the answer says that no slave has it, the message is delivered, and nobody is asked again."""
    rig = Rig(tmp_path, replication=ReplicationConfig(in_sync_replicas=2), broker_role="SYNC_MASTER")
    beat(rig)
    header = SendMessageRequest(
        producer_group="p", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=4,
        born_timestamp=NOW, flag=0, properties=properties(UNIQ_KEY="ID1", TRAN_MSG="true", PGROUP="p"),
    )  # fmt: skip
    sent = rig.tell(10, header, b"half")
    rig.until(NOW + 4_000)
    answer = rig.answer(sent)
    assert answer.code == 12
    stored = answer.header(SendMessageResponse)
    said = rig.tell(END, EndTransactionRequest(
        producer_group="p", tran_state_table_offset=stored.queue_offset, commit_log_offset=int(stored.msg_id[-16:], 16),
        commit_or_rollback=COMMIT, msg_id="ID1",
    ))  # fmt: skip
    rig.until(rig.now + 4_000)
    assert rig.answer(said).code == 12 and bodies(rig) == [b"half"]
    rig.until(rig.now + 600_000)
    assert bodies(rig) == [b"half"] and not rig.told(3, CHECK)


def test_a_word_while_too_few_are_in_sync_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    half = begin(rig)
    with monkeypatch.context() as few:
        few.setattr(type(rig.parts.mode.nodes), "too_few", "in-sync replicas not enough")
        few.setattr(rig.parts.durability, "waits", True)  # nobody else asks how many are in sync
        assert word(rig, half, COMMIT).code == word(rig, half, ROLLBACK).code == 1
    assert bodies(rig) == [] and word(rig, half, COMMIT).code == 0 and bodies(rig) == [b"half"]
