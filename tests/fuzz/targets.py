"""What is fuzzed: each target takes any bytes and lets only the declared errors pass unseen.

A target that raises anything has found a defect. `SEEDS` holds good inputs of each to start from.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.raft.runs import CoreRuns, PlainRuns
from perseid.spark.log.rows import CoreRows, PlainRows, RowOptions, Rows
from perseid.wire import batch, bodies, compression, frame, properties, record
from perseid.wire.codes import Serializer
from perseid.wire.command import Command, decode_all, encode_request, encode_response
from perseid.wire.dledger import Entry, PushEntryRequest
from perseid.wire.headers.base import Header, to_ext
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.headers.namesrv import RegisterBrokerRequest
from perseid.wire.headers.offsets import GetMaxOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from perseid.wire.host import Host

try:
    from .twins import ReplicaTwins, Twins, checked_core
except ImportError:  # run.py puts this folder on the path
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
    for kind in (bodies.TopicStatsTable, bodies.HeartbeatData, bodies.TopicRouteData, bodies.ConsumerOffsets):
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
        core,
        slave,
        pushes,
        entries,
        columns,
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


def _requests() -> list[bytes]:
    """Headers and bodies of sends, batches and pulls that the core takes, most of them."""
    pieces = ("", "TAGS\x01a\x02", "KEYS\x01k l\x02TAGS\x01b\x02", "WAIT\x01true\x02", "DELAY\x012\x02")
    reads = []
    for code, kind in ((310, SendMessageRequestV2), (10, SendMessageRequest)):
        for number, piece in enumerate(pieces):
            properties_of = f"{piece}UNIQ_KEY\x01A{number}\x02"
            header = kind("g", "t", "TBW102", 4, number % 2, 0, 1_700_000_000_000, number, properties_of)
            for serializer in Serializer:
                body = b"body" * number + b"x"
                frame = encode_request(code, number, header, body, oneway=number == 3, serializer=serializer)
                reads.append(frame[8:])
    header = SendMessageRequestV2("g", "t", "TBW102", 4, 0, 0, 5, 0, "UNIQ_KEY\x01B\x02", batch=True)
    items = [(number, b"x" * (number + 1), f"{piece}UNIQ_KEY\x01C\x02".encode()) for number, piece in enumerate(pieces)]
    for serializer in Serializer:
        reads += [encode_request(320, 9, header, batch.encode(items[:n]), serializer=serializer)[8:] for n in (1, 4, 5)]
        for subscription in ("*", "a || b"):
            pull = PullMessageRequest("c", "t", 0, 0, 32, 5, 1, 0, 0, subscription, "TAG")
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
    offsets = bodies.ConsumerOffsets({"t@g": {0: 12, 1: 9}}, bodies.DataVersion(0, 1, 2))
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
        "pushes": [push.to_json()],
        "entries": [b"".join(bytes(part) for entry in log for part in entry.encode())],
        "core": _requests(),
        "slave": [bytes(8) + text.encode() for text in SLAVE_TEXTS],
        "frames": [*written[Serializer.JSON], *written[Serializer.ROCKETMQ], b"".join(written[Serializer.JSON])],
        "json_header": [raw[8:] for raw in written[Serializer.JSON]],
        "binary_header": [raw[8:] for raw in written[Serializer.ROCKETMQ]],
        "records": [*made, b"".join(made), record.blank(100)],
        "batches": [batch.encode([(0, b"A", b"A\1B\2"), (3, b"BB", b"")])],
        "json_bodies": [one.to_json() for one in (table, heartbeat, route, offsets)],
        "registrations": [register.to_json(), register.compress()],
        "inflated_registrations": [zlib.decompress(register.compress())],
        "compressed": [compression.compress(plain, kind) for kind in kinds],
    }


SEEDS = _seeds()
