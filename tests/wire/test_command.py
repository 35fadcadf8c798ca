"""Commands: both serializers against Java's bytes, and what peers may send that Java would not."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.wire import command
from perseid.wire.codes import Language, RequestCode, ResponseCode, Serializer
from perseid.wire.command import decode, decode_all, encode_request, encode_response, response_head, response_parts
from perseid.wire.headers.base import INT_MAX
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.headers.offsets import GetMaxOffsetRequest, OffsetResponse, UpdateConsumerOffsetRequest
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.headers.send import SendMessageRequest, SendMessageRequestV2, SendMessageResponse

SEND = SendMessageRequestV2("PG", "T", "TBW102", 4, 1, 0, 1700000000000, 0, properties="KEYS\x01k\x02", broker_name="b")


def framed(header: bytes | str | dict[str, Any], body: bytes = b"", serializer: int = 0) -> bytes:
    if isinstance(header, dict):
        header = json.dumps(header)
    raw = header.encode() if isinstance(header, str) else header
    return struct.pack(">II", 4 + len(raw) + len(body), serializer << 24 | len(raw)) + raw + body


# ---- Java's bytes ----


@pytest.mark.parametrize("name", ["send_v2_json", "send_v2_rocketmq"])
def test_java_send(vectors: Any, name: str) -> None:
    got = decode(bytes.fromhex(vectors["remoting"][name]["frame"]))
    assert (got.code, got.opaque, got.flag, got.version, got.remark) == (310, 7, 0, 479, None)
    assert got.language == Language.JAVA
    assert got.serializer == (Serializer.JSON if name.endswith("json") else Serializer.ROCKETMQ)
    assert bytes(got.body) == b"hello"
    assert got.header(SendMessageRequestV2) == SendMessageRequestV2(
        producer_group="PG",
        topic="TopicTest",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=0,
        properties="KEYS\x01k1\x02TAGS\x01TagA\x02",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name="broker-a",
    )
    assert got.ext["i"] == "KEYS\x01k1\x02TAGS\x01TagA\x02"
    assert list(got.ext) == list("abcdefghijkmn")


@pytest.mark.parametrize("name", ["resp_17_json", "resp_17_rocketmq"])
def test_java_response(vectors: Any, name: str) -> None:
    got = decode(bytes.fromhex(vectors["remoting"][name]["frame"]))
    assert (got.code, got.opaque, got.version, got.remark) == (17, 7, 479, "No topic route")
    assert got.is_response and not got.is_oneway
    assert got.body == b"" and got.ext == {}


def test_java_route_request_oneway_and_truncated_code(vectors: Any) -> None:
    frames = {name: bytes.fromhex(one["frame"]) for name, one in vectors["remoting"].items() if "frame" in one}
    route = decode(frames["route_req_json"])
    assert route.header(GetRouteInfoByTopicRequest) == GetRouteInfoByTopicRequest("TopicTest")
    assert decode(frames["oneway_json"]).is_oneway
    assert decode(frames["pop_code_truncated_rocketmq"]).code == 3442
    assert [c.code for c in decode_all(b"".join(frames.values()))] == [310, 310, 17, 17, 105, 3442, 34]


def test_the_binary_response_is_java_s_but_for_language_and_version(vectors: Any) -> None:
    java = bytearray.fromhex(vectors["remoting"]["resp_17_rocketmq"]["frame"])
    ours = encode_response(7, 17, remark="No topic route", serializer=Serializer.ROCKETMQ)
    java[10:13] = ours[10:13]
    assert ours == bytes(java)


def test_java_reads_what_we_probe(vectors: Any) -> None:
    """The probes of Java's own tolerance hold for us as well."""
    assert "language=null" in vectors["json_parse_probes_5_5_0"]["unknown language name"]
    assert decode(framed({"code": 1, "language": "KLINGON"})).language == Language.OTHER
    got = decode(framed({"code": 1, "language": 3, "new": {}, "extFields": {"a": 1, "b": True}}))
    assert got.language == Language.PYTHON
    assert got.ext == {"a": "1", "b": "true"}


# ---- writing ----


@pytest.mark.parametrize("serializer", list(Serializer))
@pytest.mark.parametrize("body", [b"", b"body", bytearray(b"body"), memoryview(b"body")])
def test_requests_round_trip(serializer: Serializer, body: Any) -> None:
    got = decode(encode_request(RequestCode.SEND_MESSAGE_V2, 9, SEND, body, oneway=True, serializer=serializer))
    assert (got.code, got.opaque, got.version, got.language) == (310, 9, 513, Language.PYTHON)
    assert got.is_oneway and not got.is_response
    assert got.header(SendMessageRequestV2) == SEND
    assert bytes(got.body) == bytes(body)
    assert got.serializer is serializer


def test_json_is_compact_and_holds_strings_only() -> None:
    answer = SendMessageResponse("ID", 1, 2, 'a"b', msg_region="R", trace_on=True)
    raw = encode_response(7, 0, answer)
    assert raw[8:] == (
        b'{"code":0,"extFields":{"msgId":"ID","queueId":"1","queueOffset":"2","transactionId":"a\\"b",'
        b'"MSG_REGION":"R","TRACE_ON":"true"},"flag":1,"language":"PYTHON","opaque":7,"serializeTypeCurrentRPC":"JSON",'
        b'"version":513}'
    )
    assert decode(raw).header(SendMessageResponse) == answer


def test_mappings_remarks_and_bodies_without_a_copy() -> None:
    raw = encode_response(1, 20, {"a": "1", "b": None, "é": "\x01"}, remark="é\n")
    assert decode(raw).ext == {"a": "1", "é": "\x01"}
    assert decode(raw).remark == "é\n"
    assert decode(encode_response(1, 0, {"a": "é"})).ext == {"a": "é"}
    body = bytearray(b"12345")
    head, same = response_parts(1, 0, OffsetResponse(3), body)
    assert same is body
    assert head + bytes(body) == encode_response(1, 0, OffsetResponse(3), body)
    assert response_head(1, 0, OffsetResponse(3), 5) == head
    assert encode_response(1)[8:] == (
        b'{"code":0,"flag":1,"language":"PYTHON","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}'
    )


@pytest.mark.parametrize("remark", [None, "FOUND", 'a "b"\\', "é\n"])
@pytest.mark.parametrize("code", [0, ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND])
@pytest.mark.parametrize("header", [None, OffsetResponse(3), {"offset": "3"}])
def test_a_response_s_header_whatever_it_holds(remark: str | None, code: int, header: Any) -> None:
    fields = {
        "code": int(code),
        "extFields": None if header is None else {"offset": "3"},
        "flag": 1,
        "language": "PYTHON",
        "opaque": 7,
        "remark": remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    compact = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    assert response_head(7, code, header, remark=remark) == framed(compact)


def test_lone_surrogates_never_leave() -> None:
    assert decode(encode_response(1, 0, {"a": "x\ud800"}, remark="\udc00")).ext == {"a": "x?"}


@pytest.mark.parametrize("code", [32768, 200050, -32769])
def test_codes_that_a_binary_header_can_t_hold(code: int) -> None:
    with pytest.raises(LocalProtocolError, match=str(code)):
        encode_request(code, 1, serializer=Serializer.ROCKETMQ)
    assert decode(encode_request(code, 1)).code == code


def test_what_can_t_be_sent_is_a_defect_of_ours() -> None:
    with pytest.raises(LocalProtocolError, match="16777216"):
        encode_request(1, 1, None, bytes(16 * 1024 * 1024))
    with pytest.raises(LocalProtocolError, match="16777216"):
        response_head(1, 0, OffsetResponse(1), 16 * 1024 * 1024)
    with pytest.raises(LocalProtocolError, match="too long"):
        encode_request(1, 1, {"n" * 40000: "v"}, serializer=Serializer.ROCKETMQ)


# ---- odd JSON ----


def test_raw_control_characters_are_text() -> None:
    raw = b'{"code":310,"extFields":{"a":"g","b":"t","c":"d","d":"4","e":"1","f":"0","g":"1","h":"0","i":"K\x01v\x02"}}'
    got = decode(framed(raw))
    assert got.header(SendMessageRequestV2).properties == "K\x01v\x02"
    assert got.ext["i"] == "K\x01v\x02"


def test_members_of_any_order_kind_and_number() -> None:
    got = decode(framed('{"version":"317","extFields":{"topic":"t","queueId":3,"committed":true},"code":"30"}'))
    assert (got.code, got.version) == (30, 317)
    assert got.header(GetMaxOffsetRequest) == GetMaxOffsetRequest("t", 3, True)
    assert decode(framed({"code": 30, "extFields": None, "remark": None, "language": None, "flag": None})).ext == {}
    got = decode(framed({"code": 1, "extFields": {"a": None, "b": {"c": ["é"]}, "d": 1.50}}))
    assert got.ext == {"b": '{"c":["é"]}', "d": "1.5"}
    assert decode(framed("{}")).code == 0


def test_lone_surrogates_of_a_peer_become_question_marks() -> None:
    got = decode(framed('{"code":1,"remark":"\\ud800","extFields":{"a":"\\udc00b"}}'))
    assert got.remark == "?" and got.ext == {"a": "?b"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b'{"code":1}x',
        b'{"code":1,"remark":"\xff"}',
        b'{"code":2147483648}',
        b'{"code":"ten"}',
        b'{"code":true}',
        b'{"code":1,"opaque":1e400}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"x"}',
        b'{"code":1,"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"code":1,"new":' + b"9" * 10_000 + b".}",
    ],
)
def test_headers_that_are_none(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(framed(header)).ext  # noqa: B018


def test_text_that_is_not_utf8_is_refused_when_it_is_looked_at() -> None:
    got = decode(framed(b'{"code":1,"extFields":{"topic":"\xff"}}'))
    with pytest.raises(RemoteProtocolError):
        got.ext  # noqa: B018
    with pytest.raises(RemoteProtocolError):
        got.header(GetRouteInfoByTopicRequest)


def test_a_peer_can_t_set_what_is_ours() -> None:
    got = decode(framed('{"code":1,"body":"x","_ext":{"a":"b"},"_head":"x","serializer":1,"extFields":{"topic":"t"}}'))
    assert got.body == b"" and got.ext == {"topic": "t"} and got.serializer == Serializer.JSON
    hot = encode_request(310, 1, SEND)[8:-1] + b',"_head":"x","_ext":{"a":"b"},"body":[]}'
    got = decode(framed(hot))
    assert got.body == b"" and got.ext["b"] == "T" and got.header(SendMessageRequestV2) == SEND


def test_a_wrong_guess_at_the_code_changes_nothing() -> None:
    long_names = SendMessageRequest("g", "t", "d", 1, 2, 3, 4, 5)
    raw = encode_request(310, 1, long_names)[8:]
    assert decode(framed(raw)).header(SendMessageRequest) == long_names
    twice = encode_request(310, 1, SEND)[8:].replace(b'{"code":310,', b'{"code":310,"code":11,')
    got = decode(framed(twice))
    assert got.code == 11
    with pytest.raises(RequestRefused, match="consumerGroup"):
        got.header(PullMessageRequest)
    assert got.header(SendMessageRequestV2) == SEND


@given(st.permutations(["code", "extFields", "flag", "opaque", "version", "language"]), st.data())
def test_the_order_of_members_does_not_matter(order: list[str], data: st.DataObject) -> None:
    ext = decode(encode_request(310, 1, SEND)).ext
    ext["l"] = data.draw(st.sampled_from(["3", "-1", "null", ""]))
    ext["m"] = data.draw(st.sampled_from(["true", "false", "TRUE", "1", "yes", "0", ""]))
    members = {"code": 310, "flag": 0, "opaque": 5, "version": 317, "language": "GO", "extFields": ext}
    header = json.dumps({name: members[name] for name in order}, separators=(",", ":"))
    got = decode(framed(header))
    assert (got.code, got.opaque, got.version, got.language, got.ext) == (310, 5, 317, Language.GO, ext)
    typed = got.header(SendMessageRequestV2)
    assert typed.batch is (ext["m"].lower() == "true")
    assert typed.max_reconsume_times == {"3": 3, "-1": -1}.get(ext["l"])
    binary = decode(encode_request(310, 5, ext, serializer=Serializer.ROCKETMQ))
    assert binary.header(SendMessageRequestV2) == typed


def test_kept_commands_own_their_bytes() -> None:
    for header in (SEND, GetMaxOffsetRequest("t", 3, True)):
        for serializer in Serializer:
            raw = bytearray(encode_request(310, 1, header, b"body", serializer=serializer))
            got = decode(raw)
            assert got.keep() is got
            raw[:] = bytes(len(raw))
            assert got.header(type(header)) == header
            assert bytes(got.body) == b"body"
            assert got.ext == decode(encode_request(310, 1, header)).ext


# ---- fields ----


@pytest.mark.parametrize(
    ("ext", "named"),
    [
        ({"topic": "t", "queueId": "1", "commitOffset": "5"}, "consumerGroup"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "1"}, "commitOffset"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "x", "commitOffset": "5"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "", "commitOffset": "5"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "2147483648", "commitOffset": "5"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "9223372036854775808"}, "commitOffset"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "-9223372036854775809"}, "commitOffset"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "9" * 50_000, "commitOffset": "5"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "٣", "commitOffset": "5"}, "queueId"),
    ],
)
@pytest.mark.parametrize("serializer", list(Serializer))
def test_fields_that_can_t_be_read_are_named(ext: dict[str, str], named: str, serializer: Serializer) -> None:
    got = decode(encode_request(15, 1, ext, serializer=serializer))
    with pytest.raises(RequestRefused, match=named) as caught:
        got.header(UpdateConsumerOffsetRequest)
    assert caught.value.code == 1
    response = decode(encode_response(1, 0, ext, serializer=serializer))
    with pytest.raises(RemoteProtocolError, match=named):
        response.header(UpdateConsumerOffsetRequest)


@pytest.mark.parametrize("text", ["1", "+1", "01"])
def test_numbers_as_java_reads_them(text: str) -> None:
    ext = {"topic": "t", "queueId": text}
    for serializer in Serializer:
        assert decode(encode_request(30, 1, ext, serializer=serializer)).header(GetMaxOffsetRequest).queue_id == 1


# ---- odd binary headers ----


def binary(ext: bytes, *, remark: bytes = b"", remark_bytes: int | None = None, ext_bytes: int | None = None) -> bytes:
    lengths = len(remark) if remark_bytes is None else remark_bytes, len(ext) if ext_bytes is None else ext_bytes
    head = struct.pack(">hBhii", 10, 0, 479, 1, 0) + struct.pack(">i", lengths[0]) + remark
    return framed(head + struct.pack(">i", lengths[1]) + ext, b"", 1)


def pair(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def test_binary_pairs_without_a_name_or_a_value_are_absent() -> None:
    got = decode(binary(pair(b"a", b"") + pair(b"", b"x") + pair(b"b", b"y"), remark=b"hm"))
    assert got.ext == {"b": "y"} and got.remark == "hm"


@pytest.mark.parametrize(
    "raw",
    [
        framed(bytes(20), b"", 1),
        binary(b"", remark_bytes=-1),
        binary(b"", remark_bytes=INT_MAX),
        binary(b"", ext_bytes=-1),
        binary(b"", ext_bytes=INT_MAX),
        binary(b"\0"),
        binary(b"\0\x01a"),
        binary(b"\xff\xff"),
        binary(b"\0\x01a\0\0\0\x02x"),
        binary(b"\0\x01a\xff\xff\xff\xff"),
        binary(pair(b"\xff", b"x")),
        binary(pair(b"a", b"\xff")),
        binary(b"", remark=b"\xff"),
    ],
)
def test_binary_headers_that_are_none(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(raw)


@pytest.mark.parametrize(
    "raw",
    [b"\0", bytes(7), struct.pack(">II", 3, 0), struct.pack(">II", 9, 6), framed("{}", b"", 2), framed("{}")[:-1]],
)
def test_what_is_no_whole_frame(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_all(raw)


def test_one_frame_where_one_is_expected() -> None:
    for data in (b"", framed("{}") * 2):
        with pytest.raises(RemoteProtocolError, match="frames"):
            decode(data)


def test_hot_requests_are_guessed_by_what_java_and_go_write_first(vectors: Any) -> None:
    java = bytes.fromhex(vectors["remoting"]["send_v2_json"]["frame"])
    go = b'{"code":10,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":{}}'
    assert java[16:20] in command.HOT
    assert framed(go)[16:20] in command.HOT
    for code in (310, 320, 10, 11):
        assert encode_request(code, 1, SEND)[16:20] in command.HOT


TRUE = {
    "as Java writes it": ('"m":"true"', True),
    "as a boolean": ('"m":true', True),
    "in capitals": ('"m":"TRUE"', True),
    "as a number": ('"m":"1"', False),
    "twice, the last one not": ('"m":"true","m":"1"', False),
    "in another field": ('"m":"1","x":"true"', False),
    "in a text": ('"m":"1","x":"\\"m\\":\\"true\\""', False),
}


@pytest.mark.parametrize(("text", "wanted"), TRUE.values(), ids=TRUE.keys())
def test_a_boolean_is_true_when_java_says_so(text: str, wanted: bool) -> None:
    fields = '"a":"p","b":"t","c":"T","d":"4","e":"0","f":"0","g":"1","h":"0",' + text
    head = f'{{"code":320,"extFields":{{{fields}}},"flag":0,"language":"JAVA","opaque":1,"version":1}}'.encode()
    raw = (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head
    assert command.decode(raw).header(SendMessageRequestV2).batch is wanted
