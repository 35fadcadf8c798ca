"""Configuration files: what is read, and that each error names file, line and key."""

from dataclasses import dataclass

import pytest

from perseid.base import config
from perseid.base.config import Refusal, option
from perseid.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    broker_name: str = "perseid"
    broker_ip1: str = option("127.0.0.1", key="brokerIP1", important=True)
    listen_port: int = option(10911, low=0, high=65535, important=True)
    flush_disk_type: str = option("ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    long_polling_enable: bool = True
    access_ratio: float = option(0.4, low=0.0, high=1.0)


def built(text: str, name: str = "broker.conf") -> Sample:
    return config.build(Sample, config.read(text, name))


def test_defaults() -> None:
    assert built("") == Sample()


def test_a_file_of_the_original() -> None:
    text = (
        "# Licensed to nobody\n! old style comment\n\n"
        "brokerName = broker-a\nbrokerIP1=10.0.0.1\n  listenPort: 10921  \r\n"
        "flushDiskType SYNC_FLUSH\nlongPollingEnable=FALSE\naccessRatio=0.25\n"
    )
    assert built(text) == Sample(
        broker_name="broker-a",
        broker_ip1="10.0.0.1",
        listen_port=10921,
        flush_disk_type="SYNC_FLUSH",
        long_polling_enable=False,
        access_ratio=0.25,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("brokerName=a=b:c", "a=b:c"),
        ("brokerName=", ""),
        ("brokerName", ""),
        ("brokerName=a\\\n   b\\\n c", "abc"),
        ("brokerName=a\\\\", "a\\"),
        ("brokerName=\\u4e2d\\t|\\x", "中\t|x"),
        ("broker\\u004eame=a", "a"),
        ("brokerName=a # no comment", "a # no comment"),
        ("brokerName=one\nbrokerName=two", "two"),
        ("brokerName=a\\", "a"),
        ("\ufeffx=1\nbrokerName=a", "a"),
    ],
)
def test_properties_syntax(text: str, value: str) -> None:
    assert built(text).broker_name == value


def test_toml_in_either_spelling_with_tables_as_groups() -> None:
    text = 'brokerName = "b"\n[net]\nlisten_port = 1\n[pull]\nlongPollingEnable = false\naccess_ratio = 1\n'
    assert built(text, "x.toml") == Sample(broker_name="b", listen_port=1, long_polling_enable=False, access_ratio=1.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.conf", "\nlistenPort=x", "b.conf:2: listenPort=x: a whole number is wanted"),
        ("b.conf", "listenPort=1_0", "b.conf:1: listenPort=1_0: a whole number is wanted"),
        ("b.conf", "listenPort=٣", "b.conf:1: listenPort=٣: a whole number is wanted"),
        ("b.conf", "listenPort=", "b.conf:1: listenPort=: a whole number is wanted"),
        ("b.conf", "listenPort=9223372036854775808", "a whole number is wanted"),
        ("b.conf", "#\n#\nlistenPort=70000", "b.conf:3: listenPort=70000: at most 65535 is wanted"),
        ("b.conf", "listenPort=-1", "b.conf:1: listenPort=-1: at least 0 is wanted"),
        ("b.conf", "longPollingEnable=yes", "b.conf:1: longPollingEnable=yes: true or false is wanted"),
        ("b.conf", "flushDiskType=SOMETIMES", "one of ASYNC_FLUSH, SYNC_FLUSH is wanted"),
        ("b.conf", "accessRatio=much", "b.conf:1: accessRatio=much: a number is wanted"),
        ("b.conf", "accessRatio=nan", "at least 0.0 is wanted"),
        ("b.conf", "a=1\n\\\nlistenPort=\\\n x", "b.conf:2: listenPort=x: a whole number is wanted"),
        ("b.toml", "[a]\nlisten_port = 'x'", "b.toml:2: listenPort=x: a whole number is wanted"),
        (
            "b.toml",
            "listenPort = 1\n[a]\nlisten_port = 2",
            "b.toml:3: listenPort: given twice, also at b.toml:1",
        ),
        ("b.toml", "listenPort = [1]", "b.toml:1: listenPort: a text, number, true or false is wanted"),
        ("b.toml", "listenPort = ", "b.toml: "),
    ],
)
def test_an_error_names_file_line_and_key(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        built(text, name)
    assert message in str(error.value)


def test_unknown_keys_are_handed_back() -> None:
    settings = config.read("listenPort=1\nmystery=2\n", "b.conf")
    assert [(s.key, s.where) for s in config.unknown(settings, Sample)] == [("mystery", "b.conf:2")]


def test_what_is_lacking_is_refused() -> None:
    refusals = [Refusal("aclEnable", ("false",), "there are no access lists yet")]
    config.refuse(config.read("aclEnable=False", "b.conf"), refusals)
    config.refuse({}, refusals)
    with pytest.raises(ConfigError) as error:
        config.refuse(config.read("x=1\naclEnable=true", "b.conf"), refusals)
    assert str(error.value) == (
        "b.conf:2: aclEnable=true: there are no access lists yet; remove the line or set aclEnable=false"
    )


def test_a_refusal_without_another_value_says_the_way_out() -> None:
    refusals = [Refusal("place", (), "it would be there", "move it here")]
    config.refuse(config.read("place=\n", "b.conf"), refusals)
    with pytest.raises(ConfigError) as error:
        config.refuse(config.read("place=" + "x" * 100_000, "b.conf"), refusals)
    assert str(error.value).endswith("x…: it would be there; remove the line; move it here")
    assert len(str(error.value)) < 300


def test_what_is_written_reads_back() -> None:
    sample = Sample(broker_name="x", listen_port=3, long_polling_enable=False, access_ratio=0.125)
    assert built(config.to_file(sample)) == sample
    assert config.to_text(Sample(), important=True) == "brokerIP1=127.0.0.1\nlistenPort=10911\n"


NAMES = [
    "C:\\new\\table", " a b ", "a\nlistenPort=1", "a\r\x0blistenPort=1", "\x85listenPort=1", "\u2028listenPort=1", "\\",
    "a\\", "#a", "=a", "\f\ta", "",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_text_that_is_written_becomes_another_setting(name: str) -> None:
    assert built(config.to_file(Sample(broker_name=name))) == Sample(broker_name=name)
    assert built(config.edited("brokerName=x\nlistenPort=7\n", {"brokerName": name})) == Sample(
        broker_name=name, listen_port=7
    )
    assert config.pairs(config.to_file(kept={"odd key:=#": name})) == {"odd key:=#": name}


def test_an_edited_file_keeps_what_is_not_changed() -> None:
    text = "# the port\n\nlistenPort = 1\\\n 2\r\nbrokerName=a\n! end\nlistenPort=13"
    new = config.edited(text, {"listenPort": "14", "accessRatio": "0.5"})
    assert new == "# the port\n\nlistenPort=14\nbrokerName=a\n! end\nlistenPort=14\naccessRatio=0.5\n"
    assert config.edited("", {"a": "b"}) == "a=b\n" and config.edited("x=1", {}) == "x=1"


def test_the_nearest_key() -> None:
    known = ("brokerName", "listenPort", "fileReservedTime")
    assert config.nearest("brokername", known) == "brokerName"
    assert config.nearest("fileReserveTime", known) == "fileReservedTime"
    assert config.nearest("mystery", known) is None and config.nearest("x" * 100_000, known) is None


def test_a_number_of_ten_thousand_digits_is_none() -> None:
    with pytest.raises(ConfigError, match="a whole number is wanted") as error:
        built("listenPort=" + "9" * 10_000)
    assert len(str(error.value)) < 300
