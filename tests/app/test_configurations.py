"""Configuration files in the wild: each is loaded as its process would load it. `-s` prints the table.

All load but those that ask for what Perseid has not; those are refused by the name of the key."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perseid.app import broker, controller, namesrv
from perseid.base.config import Foreign, options
from perseid.base.errors import ConfigError
from perseid.controller import config as controller_config
from perseid.nameserver import config as name_server_config
from perseid.raft.config import RaftConfig
from perseid.security.tls_settings import TlsConfig

FILES = Path(__file__).with_name("configurations.txt")
PROJECTS = 65
ADDRESS_SERVER = "fetchNamesrvAddrByAddressServer"
LINES = (
    "settings of which RocketMQ would take its default, not what is meant: ",
    "settings that matter and that Perseid does not follow: ",
    "unknown settings, without effect (`perseid settings` lists all): ",
    "settings without a meaning here: ",
)

REFUSED = {
    # they ask a server for the name servers' addresses
    "NDPMediaCorp/RocketMQ conf/2m-2s-async/broker-a-s.properties": ADDRESS_SERVER,
    "NDPMediaCorp/RocketMQ conf/2m-2s-async/broker-a.properties": ADDRESS_SERVER,
    "NDPMediaCorp/RocketMQ conf/2m-2s-async/broker-b-s.properties": ADDRESS_SERVER,
    "sherojinjin/Alibaba_RocketMQ conf/2m-2s-async/broker-b.properties": ADDRESS_SERVER,
    "sherojinjin/Alibaba_RocketMQ conf/2m-2s-sync/broker-a.properties": ADDRESS_SERVER,
    # of a container, whose brokers' files load
    "apache/rocketmq distribution/conf/container/2container-2m-2s/broker-container1.conf": "brokerConfigPaths",
    "apache/rocketmq distribution/conf/container/2container-2m-2s/broker-container2.conf": "brokerConfigPaths",
    # no use to RocketMQ either: a remark in the address, and no message is short enough
    "Ryuu-64/learn-rocketmq devops/docker/rabbitmq/broker.conf": "namesrvAddr",
    "mxsm/rocketmq-rust rocketmq-broker/tests/fixtures/config/java-broker.conf": "maxMessageSize",
}


@dataclass
class Row:
    """What became of one file."""

    refused: str = ""
    told: list[str] = field(default_factory=list)


def files() -> dict[str, str]:
    """Repository and path → settings."""
    sections = FILES.read_text().split("\n## ")[1:]
    return dict(section.split("\n", 1) for section in sections)


def load(source: str, path: Path) -> None:
    """As the process does whose file it is."""
    name = source.rpartition("/")[2]
    if "namesrv" in source:
        namesrv.load_controller(path, namesrv.load(path))
    elif "controller" in name:
        controller.load(path)
    else:
        broker.load(path)


def tried(source: str, text: str, folder: Path, caplog: pytest.LogCaptureFixture) -> Row:
    path, row = folder / "c.conf", Row()
    path.write_text(text)
    caplog.clear()
    try:
        load(source, path)
    except ConfigError as error:
        row.refused = str(error).replace(str(path), "c.conf")
    row.told = [record.getMessage().replace(str(path), "c.conf") for record in caplog.records]
    return row


def test_all_that_ask_for_what_is_there_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    caplog.set_level(logging.INFO, logger="perseid")
    rows = {source: tried(source, text, tmp_path, caplog) for source, text in files().items()}
    print_table(rows)
    refused = {source: row.refused for source, row in rows.items() if row.refused}
    assert refused.keys() == REFUSED.keys()
    for source, line in refused.items():
        where, _, rest = line.partition(": ")
        assert where.startswith("c.conf:") and rest.startswith(f"{REFUSED[source]}=") and "\n" not in line, line
    for row in rows.values():
        kinds = [kind for kind in LINES for line in row.told if line.startswith(kind)]
        assert len(kinds) == len(set(kinds)), "each kind once"
        others = [line for line in row.told if not line.startswith(LINES)]
        assert all("a master's id is 0, so it is 0" in line for line in others)


def print_table(rows: dict[str, Row]) -> None:
    loaded = sum(not row.refused for row in rows.values())
    print(f"{len(rows)} files of {len({source.split(' ')[0] for source in rows})} projects, {loaded} load")
    for source, row in rows.items():
        print(f"{'REFUSED' if row.refused else 'loads':8}{source}")
        for line in [row.refused, *row.told]:
            if line:
                print(f"{'':8}{'':4}{line}")


def test_they_are_of_many_projects() -> None:
    assert len({source.split(" ")[0] for source in files()}) >= PROJECTS


BROKER_OF = (broker.FOREIGN, (broker.ProcessConfig, TlsConfig, *broker.PARTS))
NAME_SERVER_OF = (name_server_config.FOREIGN, (name_server_config.NameServerConfig, TlsConfig))
CONTROLLER_OF = (controller_config.FOREIGN, (controller_config.ControllerConfig, RaftConfig, TlsConfig))
OF = {
    "NamesrvConfig": NAME_SERVER_OF,
    "ControllerConfig": CONTROLLER_OF,
    "JraftConfig": CONTROLLER_OF,
}


def original_keys() -> dict[str, list[str]]:
    """Class → keys."""
    sections = FILES.with_name("original_keys.txt").read_text().split("\n## ")[1:]
    return {name: keys.split() for name, keys in (section.split("\n", 1) for section in sections)}


@pytest.mark.parametrize("name", original_keys())
def test_each_key_of_the_originals_classes_is_an_option_or_it_is_known_what_becomes_of_it(name: str) -> None:
    foreign, classes = OF.get(name, BROKER_OF)
    known = {key for cls in classes for key in options(cls)} | foreign.keys | controller_config.ALIASES.keys()
    assert [key for key in original_keys()[name] if key not in known] == []


@pytest.mark.parametrize(
    ("foreign", "classes"), [BROKER_OF, NAME_SERVER_OF, CONTROLLER_OF], ids=["broker", "name server", "controller"]
)
def test_nothing_is_both(foreign: Foreign, classes: tuple[type, ...]) -> None:
    refused, ignored = [one.key for one in foreign.refused], [one.key for one in foreign.ignored]
    assert len({*refused, *ignored}) == len(refused) + len(ignored)
    assert not foreign.meaningless & {*refused, *ignored}
    own = {key for cls in classes for key in options(cls)}
    assert own & foreign.keys <= {"storeType", "controllerType"}, "shown, and held against its one value"
