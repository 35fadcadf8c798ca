"""What is fuzzed: each target takes any bytes and lets only the declared errors pass unseen.

A target that raises anything has found a defect. `SEEDS` holds good inputs of each to start from.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.client.model import MessageQueue
from perseid.client.pulled import AnswerReader
from perseid.controller import events
from perseid.controller.state import Tables
from perseid.raft.applying import SNAPSHOT, Applier
from perseid.raft.files import FileLog
from perseid.raft.runs import CoreRuns, PlainRuns
from perseid.security.signature import ACCESS_KEY, SIGNATURE
from perseid.sim.disk import SimDisk
from perseid.spark import sink_options
from perseid.spark.encode import BatchPartition, Encoder, Layout, Packed
from perseid.spark.log.rows import CoreRows, PlainRows, RowOptions, Rows
from perseid.spark.sink_options import SinkError
from perseid.store.recovery import save_durably
from perseid.wire import batch, bodies, compression, copied, frame, inner, lite, properties, record, trace
from perseid.wire.codes import Serializer
from perseid.wire.command import Command, decode_all, encode_request, encode_response
from perseid.wire.dledger import Entry, PushEntryRequest
from perseid.wire.ha_auto import (
    EpochEntry,
    Packet,
    decode_entries,
    decode_epoch_file,
    encode_epoch_file,
    encode_master_handshake,
    encode_packet,
    encode_report,
    encode_slave_handshake,
)
from perseid.wire.hashing import crc32_raw
from perseid.wire.headers import controller as controllers
from perseid.wire.headers.base import Header, to_ext
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest, RegisterBrokerRequest
from perseid.wire.headers.offsets import GetMaxOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.host import Host
from perseid.wire.record import RecordError

try:
    from . import ends, permitted, poppers, secured
    from .twins import ReplicaTwins, Twins, checked_core
except ImportError:  # run.py puts this folder on the path
    import ends  # type: ignore[no-redef]
    import permitted  # type: ignore[no-redef]
    import poppers  # type: ignore[no-redef]
    import secured  # type: ignore[no-redef]
    from twins import ReplicaTwins, Twins, checked_core  # type: ignore[no-redef]

Target = Callable[[bytes], None]

HEADERS: Sequence[type[Header]] = (
    SendMessageRequest,
    SendMessageRequestV2,
    PullMessageRequest,
    SendMessageResponse,
    ConsumerSendMsgBackRequest,
    GetMaxOffsetRequest,
    RegisterBrokerRequest,
)
MAX_PLAIN_BYTES = 100_000


def frames(data: bytes) -> None:
    """Where frames end, and the commands in them."""
    try:
        end = frame.complete(data)
        assert 0 <= end <= len(data)
        assert sum(len(one) for one in frame.split(data[:end])) == end
        assert frame.missing(data, end) > 0
        commands = decode_all(data[:end])
    except RemoteProtocolError:
        return
    for command in commands:
        _look_at(command)


def json_header(data: bytes) -> None:
    """A JSON header, and typed headers out of it."""
    _header(data, Serializer.JSON)


def binary_header(data: bytes) -> None:
    """A ROCKETMQ header, and typed headers out of it."""
    _header(data, Serializer.ROCKETMQ)


def _header(data: bytes, serializer: Serializer) -> None:
    raw = struct.pack(">II", 4 + len(data), serializer << 24 | len(data)) + data
    try:
        commands = decode_all(raw)
    except RemoteProtocolError:
        return
    assert len(commands) == 1
    _look_at(commands[0])


def _look_at(command: Command) -> None:
    """Whatever a server may ask a command for; what it gives has to be writable again."""
    assert -(2**31) <= command.code < 2**31 and 0 <= command.language <= 13
    for kind in HEADERS:
        try:
            header = command.header(kind)
        except (RequestRefused, RemoteProtocolError):
            continue
        again = decode_all(encode_request(command.code, 1, header))[0]
        assert again.header(kind) == header, "what was read reads the same once written"
    try:
        ext = command.keep().ext
    except RemoteProtocolError:
        return
    assert decode_all(encode_response(1, 1, ext, remark=command.remark))[0].ext == ext
    "".join([*ext, *ext.values()]).encode()


def records(data: bytes) -> None:
    """A record, and many of them."""
    for check_crc in (True, False):
        try:
            for got in record.decode_all(data, check_crc=check_crc):
                assert got.size >= record.MIN_RECORD_BYTES
                assert got.tag == got.props.get("TAGS")
                got.msg_id, got.keys, got.unique_key  # noqa: B018
        except record.RecordError:
            continue


def batches(data: bytes) -> None:
    """The body of a batch."""
    try:
        items = batch.decode(data)
    except RemoteProtocolError:
        return
    assert sum(batch.MIN_ITEM_BYTES + len(i.body) + len(i.properties) for i in items) == len(data)
    for item in items:
        properties.encode(properties.decode(item.properties))


def json_bodies(data: bytes) -> None:
    """Bodies with fastjson's liberties."""
    for kind in (
        bodies.TopicStatsTable, bodies.HeartbeatData, bodies.TopicRouteData, copied.ConsumerOffsets,
        lite.LiteSubscriptionCtlBody,
    ):  # fmt: skip
        try:
            body = kind.from_json(data)
        except RequestRefused:
            continue
        assert kind.from_json(body.to_json()) == body


def registrations(data: bytes) -> None:
    """A broker's registration, plain or compressed."""
    try:
        bodies.RegisterBrokerBody.decode(data).compress()
    except RequestRefused:
        return


def inflated_registrations(data: bytes) -> None:
    """What a compressed registration holds: changed before it is compressed, or zlib would refuse each change."""
    registrations(zlib.compress(data, 1))


def compressed(data: bytes) -> None:
    """Compressed bodies of messages."""
    for kind in (compression.LZ4, compression.ZSTD, compression.ZLIB):
        try:
            plain = compression.decompress(data, compression.flag_of(kind), MAX_PLAIN_BYTES)
        except RemoteProtocolError:
            continue
        assert len(plain) <= MAX_PLAIN_BYTES


_twins: list[Twins] = []


def core(data: bytes) -> None:
    """The compiled core beside the handlers: the same answers, the same log. Each frame comes twice, since a pull is
    known when it comes again."""
    if not _twins:
        _twins.append(Twins())
        for seed in SEEDS["core"]:  # topics and queues are there
            _twins[0].compare(_framed(seed) * 2)
    if not _twins[0].compare(_framed(data) * 2):
        _twins.clear()


_signed_twins: list[Twins] = []


def signed_core(data: bytes) -> None:
    """The same where requests have to be signed: as it came, then what is left of it signed anew, twice."""
    if not _signed_twins:
        _signed_twins.append(Twins(permitted.SIGNED))
        for seed in SEEDS["signed_core"]:
            _signed_twins[0].compare(_framed(seed) * 2)
    if not _signed_twins[0].compare(_framed(data) + _signed_anew(_framed(data)) * 2):
        _signed_twins.clear()


def _signed_anew(raw: bytes) -> bytes:
    """The request of a frame with a signature that is right; nothing, where there is no request."""
    try:
        (command,) = decode_all(raw)
        fields = {name: value for name, value in command.ext.items() if name not in (ACCESS_KEY, SIGNATURE)}
        signed = permitted.SIGNED.sign(fields, command.body)
        return encode_request(
            command.code, command.opaque, signed, bytes(command.body), oneway=command.is_oneway,
            serializer=command.serializer,
        )  # fmt: skip
    except (RemoteProtocolError, LocalProtocolError):
        return b""


_replicas: list[ReplicaTwins] = []


def slave(data: bytes) -> None:
    """What a slave makes of its master's records, changed on their way, with the compiled core and without."""
    if not _replicas:
        _replicas.append(ReplicaTwins())
    if not _replicas[0].compare(data):
        _replicas.clear()


_runs: list[CoreRuns] = []


def pushes(data: bytes) -> None:
    """A push of a Raft leader: what the core takes, the ordinary decoder takes for the same."""
    if not _runs:
        _runs.append(CoreRuns(checked_core()))
    quick = _runs[0].push(data)
    if quick is None:
        return
    whole = PushEntryRequest.from_json(data)
    assert quick.entries == whole.entries, f"{quick.entries} and {whole.entries}"
    for name in ("group", "remote_id", "local_id", "leader_id", "term", "code", "type", "commit_index"):
        assert getattr(quick, name) == getattr(whole, name), name
    entries(quick.run.data)


def entries(data: bytes) -> None:
    """Entries as they stand on disk: their text and what the index has of them, by the core and without."""
    if not _runs:
        _runs.append(CoreRuns(checked_core()))
    plain = PlainRuns()
    for most in (1, 200, 1 << 20):
        assert _runs[0].text(data, most) == plain.text(data, most)
    assert _runs[0].derived(data) == plain.derived(data)


def ha_master(data: bytes) -> None:
    """What comes in at a master's port of the AutoSwitch stream."""
    ends.master_hears(data)


def ha_slave(data: bytes) -> None:
    """What a master sends to a slave of the AutoSwitch stream."""
    ends.slave_hears(data)


def tls(data: bytes) -> None:
    """Both ends of a TLS connection, with somebody between them."""
    secured.play(data)


def controller(data: bytes) -> None:
    """A request for a controller."""
    ends.controller_hears(data, _framed)


def controller_events(data: bytes) -> None:
    """An entry of the controllers' log: whatever it holds, every member applies it, and a snapshot has all of it."""
    tables, again = Tables(), Tables()
    for body in (EVENTS[0], EVENTS[1], data, data):
        tables.apply(Entry(0, 1, 0, body))
    again.restore(tables.snapshot())
    assert (again.replicas, again.in_sync) == (tables.replicas, tables.in_sync)
    try:
        event = events.decode(data)
    except events.UnreadableEvent:
        return
    assert event is None or events.decode(events.encode(event)) == event


def controller_snapshots(data: bytes) -> None:
    """A snapshot of the controllers' state: as a file, and as the bytes of one whose checksum is right."""
    for text in (data, b'{"crc":%d,"lastIncludedIndex":-1,"lastIncludedTerm":0}\n' % crc32_raw(data) + data):
        disk = SimDisk(Random(1))
        save_durably(disk, SNAPSHOT, text)
        log = FileLog(disk, 1 << 10, 32 * 64)
        log.load(-1)
        applier = Applier(Tables(), log, "", 10)
        assert applier.load(disk, -1) and applier.applied == -1, "there are no entries that it could be of"
    tables = Tables()
    try:
        tables.restore(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    again = Tables()
    again.restore(tables.snapshot())
    assert (again.replicas, again.in_sync) == (tables.replicas, tables.in_sync)


def epoch_files(data: bytes) -> None:
    """The file of epochs, and the entries of a handshake."""
    for decode in (decode_epoch_file, decode_entries):
        try:
            found = decode(data[: len(data) // 12 * 12] if decode is decode_entries else data)
        except RemoteProtocolError:
            continue
        assert decode_epoch_file(encode_epoch_file(found)) == found


def traces(data: bytes) -> None:
    """A message of the trace topic."""
    try:
        found = trace.decode(data)
    except RemoteProtocolError:
        return
    assert all(0 <= (one.time_ms or 0) <= trace.LAST_MS for one in found)


_hidden: list[object] = []


def columns(data: bytes) -> None:
    """A segment of a log, and of a group's: where records stand, and their rows, by the core and without."""
    sys.unraisablehook = _hidden.append
    names = ("topic", "body", "properties", "tags", "bornHost", "bornTimestamp", "_corrupt")
    options = RowOptions(names, most_bytes=MAX_PLAIN_BYTES, most_rows=256)
    for in_entries in (False, True):
        ways: list[Rows] = [PlainRows(options, in_entries), CoreRows(options, in_entries, checked_core().columns)]
        places = [way.marks(data, 0, len(data), 0) for way in ways]
        assert places[0] == places[1]
        found = [_rows(way, data) for way in ways]
        assert found[0].equals(found[1])
    assert not _hidden, f"an error in a function that can't raise: {_hidden[0]}"


def _rows(way: Rows, data: bytes) -> Any:
    at = 0
    while (at := way.read(data, at, len(data), 0)) < len(data):
        if way.full:
            break
        if way.sound(data, at, 0) > 0:
            at += way.odd(data, at, 0, "here")
        else:
            way.hole(at, "nothing")
            found = way.find(data, at + 1, len(data), 0)
            at = len(data) if found < 0 else found
    return way.batch()


def pulled(data: bytes) -> None:
    """An answer to a pull: the core's messages, and what it refuses, are those of plain Python."""
    sys.unraisablehook = _hidden.append
    found = [_messages(AnswerReader("b", module), data) for module in (None, checked_core().messages)]
    assert found[0] == found[1]
    assert not _hidden, f"an error in a function that can't raise: {_hidden[0]}"


def _messages(reader: AnswerReader, data: bytes) -> object:
    try:
        messages = reader.messages(memoryview(data), 6)
    except RecordError as error:
        return str(error)
    return [
        (one.queue, one.queue_offset, one.topic, one.reconsume_times, one.record_bytes, one.properties,
         one.record.props, one.record)
        for one in messages
    ]  # fmt: skip


def sink(data: bytes) -> None:
    """Rows for the sink: two bytes for the limits of a batch, then rows, each a length, a length of its tag, a body."""
    sys.unraisablehook = _hidden.append
    if len(data) < 3:
        return
    limits = {"batchMessages": str(1 + data[0] % 16), "batchBytes": str(1000 + 20 * data[1])}
    options = sink_options.parse({"nameserver": "h:1", "topic": "t", **limits})
    values, tags, at = [], [], 2
    while at + 2 < len(data):
        end = at + 3 + data[at]
        values.append(data[at + 2 : end])
        tags.append(None if data[at + 1] == 0 else data[at + 2 : end].hex()[: data[at + 1]])
        at = end
    found = []
    for module in (None, checked_core().items):
        found.append(sent := list[Any]())
        emit = partial(_keep, sent)
        layout = Layout(tuple(MessageQueue("t", "a", n) for n in range(2)), (0, 7))
        columns = {"value": "value", "tag": "tag"}
        part = BatchPartition("q", 1, 0)
        encoder = Encoder(options, columns, part, lambda topic, layout=layout: layout, emit, module)
        try:
            rows = pa.record_batch({"value": pa.array(values, pa.binary()), "tag": pa.array(tags, pa.string())})
            for half in (rows.slice(0, len(values) // 2), rows.slice(len(values) // 2)):
                encoder.add(half)
            encoder.finish()
        except SinkError as error:
            sent.append(str(error))
    assert found[0] == found[1]
    assert not _hidden, f"an error in a function that can't raise: {_hidden[0]}"


def _keep(sent: list[Any], queue: MessageQueue, packed: Packed) -> None:
    sent.append((queue, packed.body, packed.properties))


def _framed(data: bytes) -> bytes:
    """A frame of a header and a body: JSON ends with the last brace, a binary header where it says."""
    if data[:1] == b"{":
        word = data.rfind(b"}") + 1
    else:
        word = 1 << 24 | min(21 + int.from_bytes(data[17:21], "big"), len(data))
    return struct.pack(">II", 4 + len(data), word) + data


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        permitted.signatures,
        permitted.policies,
        permitted.users_files,
        core,
        signed_core,
        poppers.pops,
        slave,
        ha_master,
        ha_slave,
        controller,
        controller_events,
        tls,
        controller_snapshots,
        epoch_files,
        pushes,
        entries,
        columns,
        pulled,
        sink,
        traces,
        frames,
        json_header,
        binary_header,
        records,
        batches,
        json_bodies,
        registrations,
        inflated_registrations,
        compressed,
    )
}


SLAVE_TEXTS = (
    "UNIQ_KEY\x01ABCDEF0123456789\x02KEYS\x01a b\x02TAGS\x01t\x02\nbody",
    "UNIQ_KEY\x01A\x02CLUSTER\x01c\x02TRACE_ON\x01true\x02\nbody body body",
    "\nno properties",
)


def _wrapped() -> bytes:
    """Two messages in a record, and one that comes again, in a record of the second version."""
    body = batch.encode([(0, b"A", b"TAGS\x01a\x02"), (3, b"BB", b"")])
    two = record.encode(record.Message(topic="t", body=body, sys_flag=inner.WRAPPED, properties=b"INNER_NUM\x012\x02"))
    again = record.Message(topic="%RETRY%g" + "g" * 120, body=b"C", properties=b"RETRY_TOPIC\x01t\x02a\x01\xff\x02")
    one = record.encode(again)
    record.patch(two, 5, 48, 1_700_000_000_000)
    record.patch(one, 7, 48, 1_700_000_000_000)
    return bytes(two + one)


EVENTS = [
    events.encode(one)
    for one in (
        events.ApplyBrokerId("c", "b", "10.0.0.1:10911", "10.0.0.1:10911;1", 1),
        events.ApplyBrokerId("c", "b", "10.0.0.2:10911", "10.0.0.2:10911;2", 2),
        events.ElectMaster("b", True, 1),
        events.AlterSyncStateSet("b", [1, 2]),
        events.UpdateBrokerAddress("c", "b", "10.0.0.3:10911", 2),
        events.ElectMaster("b", False),
        events.CleanBrokerData("b", [2]),
        events.CleanBrokerData("b"),
    )
]


def _ids(kind: type[Header], **more: Any) -> Header:
    return kind(cluster_name="c", broker_name="b", **more)


def _controller_requests() -> list[bytes]:
    """Headers and bodies, in the order in which a set comes to be and goes."""
    said: list[tuple[int, Header | None, bytes]] = [
        (1012, controllers.GetNextBrokerIdRequest(cluster_name="c", broker_name="b"), b""),
        (1013, _ids(controllers.ApplyBrokerIdRequest, applied_broker_id=1, register_check_code="1.1.1.1:9;1"), b""),
        (1003, _ids(controllers.RegisterBrokerToControllerRequest, broker_id=1, broker_address="1.1.1.1:9"), b""),
        (904, BrokerHeartbeatRequest("c", "10.0.0.1:10911", "b", 1, 1, 100, 100, 3000, 0), b""),
        (1002, _ids(controllers.ElectMasterRequest, broker_id=1), b""),
        (1001, controllers.AlterSyncStateSetRequest("b", 1, 1), b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'),
        (1004, controllers.GetReplicaInfoRequest("b"), b""),
        (1005, None, b""),
        (1006, None, b'["b"]'),
        (1009, None, b"scanNotActiveBrokerInterval=1000\n"),
        (1010, None, b""),
        (1011, _ids(controllers.CleanBrokerDataRequest, broker_controller_ids_to_clean="2"), b""),
    ]
    return [encode_request(code, n, header, body)[8:] for n, (code, header, body) in enumerate(said)]


def _snapshots() -> list[bytes]:
    """States, and a file of one."""
    tables, found = Tables(), []
    for body in EVENTS[:4]:
        tables.apply(Entry(0, 1, 0, body))
        found.append(tables.snapshot())
    head = b'{"crc":%d,"lastIncludedIndex":-1,"lastIncludedTerm":0}' % crc32_raw(found[-1])
    return [*found, head + b"\n" + found[-1]]


def _streams() -> tuple[list[bytes], list[bytes]]:
    """What replicas say to their master, and what a master says to them; the first byte says in what pieces."""
    source = ends.End()
    source.write()
    source.lead(5)
    log = source.store.log
    bytes_of, end = bytes(log.segments.view(0, log.end)), log.end
    hello = encode_slave_handshake(2, from_last_file=False, learner=False)
    learner = encode_slave_handshake(3, from_last_file=True, learner=True)
    said = [hello + encode_report(0), hello + encode_report(end) * 2, learner + encode_report(0), hello + learner]
    five = EpochEntry(5, 0)
    greeting = encode_master_handshake([five], end)
    packets = encode_packet(Packet(end, 0, *five, end)) + bytes_of + encode_packet(Packet(0, end, *five, end))
    halves = b"".join(
        encode_packet(Packet(len(part), at, *five, at)) + part
        for at, part in ((0, bytes_of[:100]), (100, bytes_of[100:]))
    )
    older = encode_master_handshake([EpochEntry(1, 0), EpochEntry(6, 150)], 500)
    sent = [greeting + packets, greeting + halves, older, greeting]
    return [bytes((n * 9,)) + one for n, one in enumerate(said)], [bytes((n * 13,)) + one for n, one in enumerate(sent)]


def _requests() -> list[bytes]:
    """Headers and bodies of sends, batches and pulls that the core takes, most of them."""
    pieces = (
        "", "TAGS\x01a\x02", "KEYS\x01k l\x02TAGS\x01b\x02", "WAIT\x01true\x02", "DELAY\x012\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "TIMER_DELAY_MS\x013000\x02", "TIMER_DELAY_SEC\x012\x02TAGS\x01b\x02",
        "TAGS\x01b\x02DELAY\x0140\x02REAL_QID\x012\x02", "_SYS_MSG_PRIORITY_\x011\x02KEYS\x01k\x02",
        "POP_CK\x010 1\x02CLUSTER\x01mine\x02TAGS\x01a\x02TRACE_ON\x01f\x02",
    )  # fmt: skip
    reads = []
    for code, kind in ((310, SendMessageRequestV2), (10, SendMessageRequest)):
        for number, piece in enumerate(pieces):
            properties_of = f"{piece}UNIQ_KEY\x01A{number}\x02"
            header = kind("g", "t", "TBW102", 4, number % 2, 0, 1_700_000_000_000, number, properties_of)
            for serializer in Serializer:
                body = b"body" * number + b"x"
                frame = encode_request(code, number, header, body, oneway=number == 3, serializer=serializer)
                reads.append(frame[8:])
    for number, text in enumerate(("", "DELAY\x013\x02", "DELAY\x01x\x02", "RETRY_TOPIC\x01t\x02TRACE_ON\x01f\x02")):
        properties_of = f"{text}UNIQ_KEY\x01R{number}\x02"
        header = SendMessageRequestV2("g", "%RETRY%g", "TBW102", 1, 0, 0, 5, 0, properties_of)
        header.reconsume_times, header.max_reconsume_times = number, 2 * number
        reads.append(encode_request(310, number, header, b"again")[8:])
    header = SendMessageRequestV2("g", "t", "TBW102", 4, 0, 0, 5, 0, "UNIQ_KEY\x01B\x02", batch=True)
    items = [(number, b"x" * (number + 1), f"{piece}UNIQ_KEY\x01C\x02".encode()) for number, piece in enumerate(pieces)]
    for serializer in Serializer:
        for n in (1, 4, 5, 6):
            reads.append(encode_request(320, 9, header, batch.encode(items[:n]), serializer=serializer)[8:])
        for kind_of, wanted in (("TAG", "*"), ("TAG", "a || b"), ("SQL92", "TAGS CONTAINS 'b' OR KEYS IS NULL")):
            pull = PullMessageRequest("c", "t", 0, 0, 32, 5, 1, 0, 0, wanted, kind_of)
            reads.append(encode_request(11, 10, pull, serializer=serializer)[8:])
    return reads


def _seeds() -> dict[str, list[bytes]]:
    send = SendMessageRequestV2("g", "t", "TBW102", 4, 1, 0, 1_700_000_000_000, 0, properties="TAGS\x01a\x02")
    odd = {**to_ext(send), "m": "TRUE", "l": "3", "é": "\x01", "topic": "t", "queueId": "1"}
    written: dict[Serializer, list[bytes]] = {}
    for serializer in Serializer:
        answer = encode_response(7, 0, SendMessageResponse("I", 1, 2, "k"), remark="hm", serializer=serializer)
        requests = [encode_request(code, 7, one, serializer=serializer) for code in (310, 30) for one in (send, odd)]
        written[serializer] = [*requests, answer]
    v4, v6 = Host(b"\x7f\0\0\1", 10911), Host(bytes(15) + b"\1", 5)
    stored = [
        record.Message(topic=topic, body=b"body", born_host=host, store_host=v4, properties=b"TAGS\1a\2")
        for topic in ("Topic", "T" * 200)
        for host in (v4, v6)
    ]
    made = [bytes(record.encode(message)) for message in stored]
    table = bodies.TopicStatsTable({bodies.MessageQueue("t", "b", 0): bodies.TopicOffset(0, 5, 6)})
    consumer = bodies.ConsumerData("g", subscription_data_set=[bodies.SubscriptionData("t", "a", ["a"], [97])])
    heartbeat = bodies.HeartbeatData("c", [bodies.ProducerData("p")], [consumer])
    broker = bodies.BrokerData("c", "b", {0: "a:1"})
    route = bodies.TopicRouteData(queue_datas=[bodies.QueueData("b", 4, 4, 6)], broker_datas=[broker])
    change = lite.LiteSubscriptionChange(
        lite.PARTIAL_ADD, "client", "group", "topic", ["a", "b"], lite.OffsetOption(lite.TAIL_N, 5), 1
    )
    readers = lite.LiteSubscriptionCtlBody([change])
    offsets = copied.ConsumerOffsets({"t@g": {0: 12, 1: 9}}, bodies.DataVersion(0, 1, 2))
    wrapper = bodies.TopicConfigSerializeWrapper({"T": bodies.TopicConfig("T")})
    wrapper.topic_queue_mapping_info_map["S"] = {"topic": "S"}
    register = bodies.RegisterBrokerBody(wrapper)
    plain = b"a compressed body, a compressed body " * 9
    kinds = (compression.LZ4, compression.ZSTD, compression.ZLIB)
    log = [Entry(n, 2, n * 60, b"a body, \xff"[:n], size=48 + n) for n in (3, 4, 9)]
    for before, entry in pairwise(log):
        entry.index, entry.pos = before.index + 1, before.pos + before.disk_bytes
    push = PushEntryRequest(
        group="g", remote_id="n1", local_id="n0", leader_id="n0", term=2, type="APPEND", commit_index=2, batch_entry=log
    )
    sent = bytearray(made[0])
    for message in stored[1:]:
        one = record.encode(message)
        record.patch(one, 5, len(sent), 1_700_000_000_000)
        sent += one
    packed = record.Message(topic="t", body=compression.compress(plain), sys_flag=compression.flag_of(compression.ZLIB))
    one = record.encode(packed)
    record.patch(one, 5, 48, 1_700_000_000_000)
    entry = b"".join(bytes(part) for part in Entry(0, 1, 0, bytes(one), size=48 + len(one)).encode())
    return {
        "columns": [bytes(sent), entry],
        "pulled": [bytes(sent), bytes(one), _wrapped()],
        "sink": [bytes([3, 9]) + b"\x05\x03hello!\x02\x00ab?\x04\x01abcde" * 9],
        "pushes": [push.to_json()],
        "entries": [b"".join(bytes(part) for entry in log for part in entry.encode())],
        "core": _requests(),
        "signed_core": [_signed_anew(_framed(one))[8:] for one in _requests()],
        "ha_master": _streams()[0],
        "ha_slave": _streams()[1],
        "controller": _controller_requests(),
        "controller_events": EVENTS,
        "tls": secured.SEEDS,
        **permitted.SEEDS,
        "pops": poppers.SEEDS,
        "controller_snapshots": _snapshots(),
        "epoch_files": [encode_epoch_file([EpochEntry(1, 0), EpochEntry(4, 900)]), b"0\n0\n"],
        "traces": [
            b"Pub\x011\x01r\x01g\x01t\x01I\x01a\x01k\x01h:1\x015\x017\x010\x01O\x01true\x02",
            b"SubBefore\x011\x01r\x01g\x01R\x01I\x010\x01k\x02SubAfter\x01R\x01I\x013\x01false\x01k\x014\x019\x01g\x02",
        ],
        "slave": [bytes(8) + text.encode() for text in SLAVE_TEXTS],
        "frames": [*written[Serializer.JSON], *written[Serializer.ROCKETMQ], b"".join(written[Serializer.JSON])],
        "json_header": [raw[8:] for raw in written[Serializer.JSON]],
        "binary_header": [raw[8:] for raw in written[Serializer.ROCKETMQ]],
        "records": [*made, b"".join(made), record.blank(100)],
        "batches": [batch.encode([(0, b"A", b"A\1B\2"), (3, b"BB", b"")])],
        "json_bodies": [one.to_json() for one in (table, heartbeat, route, offsets, readers)],
        "registrations": [register.to_json(), register.compress()],
        "inflated_registrations": [zlib.decompress(register.compress())],
        "compressed": [compression.compress(plain, kind) for kind in kinds],
    }


SEEDS = _seeds()
