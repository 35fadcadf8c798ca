"""Each setting is described, and a name that none has leads to the one that was meant."""

import re

import pytest
from tests.app.test_configurations import original_keys

from perseid.app import broker, dledger, settings
from perseid.app.settings import CONTROLLER, Described
from perseid.base.config import camel
from perseid.base.errors import ConfigError
from perseid.security.members import MemberOptions
from perseid.security.tls_settings import TlsConfig

ALL = list(settings.described())
TIME = re.compile(r"(Interval|Period|TimeOut|Timeout|Mills|Millis|Ms)$")
NAMED = re.compile(r"`([a-z]+(?:[A-Z][A-Za-z0-9]+)+|tls\.[\w.]+)`")
"""What looks like a setting's key in a text."""
NO_KEYS = {"clientRebalance", "setConsumeMode", "jRaft"}
"""Words of mqadmin's, of Java's consumers, and a value."""
KNOWN = {one.option.key for one in ALL} | NO_KEYS


def ids(one: Described) -> str:
    return f"{one.part.title}-{one.option.key}"


def test_each_class_that_a_node_reads_is_described() -> None:
    read = {broker.ProcessConfig, *broker.PARTS, dledger.DLedgerConfig, MemberOptions, TlsConfig}
    assert read <= {part.cls for part in settings.PARTS}


@pytest.mark.parametrize("one", ALL, ids=ids)
def test_a_setting_says_what_it_does(one: Described) -> None:
    option = one.option
    assert len(option.effect) > 20 and option.effect.endswith(".") and "  " not in option.effect
    assert option.section, "before it nothing begins a group"
    assert not (option.kind is bool and option.unit)
    unknown = set(NAMED.findall(option.effect)) - KNOWN
    assert not unknown, f"no setting is named {unknown}"


@pytest.mark.parametrize("one", [one for one in ALL if one.option.kind is int and TIME.search(one.option.key)], ids=ids)
def test_a_time_has_a_unit(one: Described) -> None:
    assert one.option.unit == "ms"


@pytest.mark.parametrize("one", [one for one in ALL if not one.part.title.startswith("DLedger")], ids=ids)
def test_what_is_called_ours_is_no_key_of_rocketmq(one: Described) -> None:
    theirs = {key for keys in original_keys().values() for key in keys} | {"isProcessReadEvent"}
    assert one.option.ours == (one.option.key not in theirs)


@pytest.mark.parametrize("one", [one for one in ALL if one.option.told.startswith("no effect")], ids=ids)
def test_what_has_no_effect_says_so_first(one: Described) -> None:
    assert one.option.effect.startswith("No effect: ")


def test_a_name_is_found_in_both_spellings_and_in_each_node() -> None:
    assert {one.part.nodes[0] for one in settings.find("listen_port")} == {"name server", "broker"}
    assert settings.find("listenPort") == settings.find("listen_port")
    assert camel("listen_port") == "listenPort"
    (found,) = settings.find("scanInactiveMasterInterval")
    assert found.part.nodes == (CONTROLLER,) and found.limits == "at least 1" and found.default == "5000"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("brokerPermision", r"no setting has this name; did you mean brokerPermission\? `perseid settings` lists all"),
        ("zzz", "no setting has this name; `perseid settings` lists all"),
        ("aclEnable", r"it stops the start: .* remove the line or set aclEnable=false; .* \(broker\)"),
        ("maxTopicLength", r"it has no effect: 127 characters are the most in a topic's name \(broker\)"),
        ("useEpollNativeSelector", r"it has no meaning here \(broker, name server, controller\)"),
        ("x" * 500, "x{200}…: no setting has this name"),
    ],
)
def test_a_name_that_no_setting_has_is_told_of(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings.find(name)


def test_a_default_that_a_start_computes_is_described_and_not_shown() -> None:
    (name,) = settings.find("brokerName")
    assert name.default == "" and name.option.computed == "the machine's host name"
    assert name.to_dict()["default"] is None
