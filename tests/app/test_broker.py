"""Loading a broker's configuration: the original's files, and one clear line for what can't be had."""

import logging
from pathlib import Path

import pytest

from perseid.app import broker, namesrv
from perseid.base.errors import ConfigError


def write(tmp_path: Path, text: str, name: str = "broker.conf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_of_the_original(tmp_path: Path) -> None:
    root = tmp_path / "store"
    path = write(
        tmp_path,
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = SYNC_FLUSH\nlistenPort=10921\n"
        f"brokerIP1=10.0.0.1\nnamesrvAddr=1.2.3.4:9876;ns:9877\nstorePathRootDir={root}\n"
        f"storePathCommitLog={root}/commitlog\nmappedFileSizeCommitLog=16777216\n",
    )
    loaded = broker.load(path)
    assert loaded.broker.broker_name == "broker-a"
    assert loaded.broker.address == "10.0.0.1:10921"
    assert loaded.broker.namesrv_addr == "1.2.3.4:9876;ns:9877"
    assert loaded.process.store_path_root_dir == str(root)
    assert loaded.store.flush_disk_type == "SYNC_FLUSH"
    assert loaded.store.commit_log_file_bytes == 16 << 20
    assert loaded.store.file_reserved_time == 48
    assert f"storePathRootDir={root}\n" in loaded.to_text()
    assert "flushDiskType=SYNC_FLUSH\n" in loaded.to_text(important=True)


def test_where_the_name_server_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    path = write(tmp_path, "namesrvAddr=file:1\n")
    assert broker.load(path, "option:1").broker.namesrv_addr == "option:1"
    assert broker.load(path).broker.namesrv_addr == "file:1"
    assert broker.load(None).broker.namesrv_addr == "env:1"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("authorizationEnabled=true", "anybody could pass for any user; set authenticationEnabled=true, too"),
        ("aclEnable=true", "take the list over: perseid admin acl import"),
        ("tls.server.mode=always", "one of disabled, permissive, enforcing is wanted"),
        ("storeType=defaultRocksDB", "Perseid does not read; remove the line or set storeType=default"),
        ("duplicationEnable=true", "Perseid has no duplication"),
        ("controllerType=jRaft", "Perseid has no controller of this kind"),
        ("enableDLegerCommitLog=true", "needs dLegerGroup"),
        ("enableControllerMode=true", "needs controllerAddr="),
        ("enableLmq=true", "need enableLmq=true and enableMultiDispatch=true"),
        ("enableMultiDispatch=true", "need enableLmq=true and enableMultiDispatch=true"),
        ("lockInStrictMode=true", "Perseid locks them at the one that is asked"),
        ("enableSlaveActingMaster=true\nenableControllerMode=true", "and enableControllerMode=true"),
        ("enableSlaveActingMaster=true\nenableDLegerCommitLog=true", "and enableDLegerCommitLog=true"),
        ("brokerRole=SLAVE", "a slave's id is above 0, like brokerId=1"),
        ("storePathCommitLog=/one,/two", "Perseid keeps it in one: move all files there and name it"),
        ("storePathCommitLog=/", "name a folder of its own"),
        ("namesrvAddr=nonsense", "host:port;host:port is wanted"),
        ("namesrvAddr=a:70000", "host:port;host:port is wanted"),
        ("listenPort=x", "a whole number is wanted"),
    ],
)
def test_what_cannot_be_had_is_one_line_with_file_line_and_key(tmp_path: Path, text: str, line: str) -> None:
    path = write(tmp_path, f"# a comment\nbrokerName=a\n{text}\n")
    with pytest.raises(ConfigError) as error:
        broker.load(path)
    message = str(error.value)
    assert message.startswith(f"{path}:3: {text.partition('=')[0]}=") and line in message and "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        "storeType=default",
        "enableControllerMode=false",
        "enableSlaveActingMaster=true\ntotalReplicas=2",
        "aclEnable=FALSE",
        "tls.server.mode=permissive",
        "controllerType=DLedger",
    ],
)
def test_what_is_asked_for_and_there_is_no_complaint(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.load(write(tmp_path, text))
    assert not caplog.records


REFUSED = {
    "configManagerVersion=v2": "topics, groups and offsets would be in RocksDB",
    "messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore": "tiered storage",
    "storePathEpochFile=/data/epochs": "move the file there",
    "storePathBrokerIdentity=/data/identity": "move the file there",
    "storePathDLedgerCommitLog=/data/log": "dledger-ID/data below storePathRootDir; remove the line; move it there",
    "dataStorePath=/data/log": "dledger-ID/data below storePathRootDir; remove the line; move it there",
    "readOnlyDataStoreDirs=/old": "older files of a DLedger group's log",
    "readOnlyCommitLogStorePaths=/old": "older files of the log",
    "enabledAppendPropCRC=true": "remove the line or set enabledAppendPropCRC=false",
    "forceVerifyPropCRC=true": "remove the line or set forceVerifyPropCRC=false",
    "rejectPullConsumerEnable=true": "consumers that pull would be turned away",
    "enableLeaderElector=false": "remove the line or set enableLeaderElector=true",
    "fetchNamesrvAddrByAddressServer=true": "name the servers in namesrvAddr",
    "fetchNameSrvAddrByDnsLookup=true": "name the servers in namesrvAddr",
    "popConsumerKVServiceEnable=true": "what is popped and not acknowledged",
    "timerRocksDBEnable=true": "messages for a time",
    "transRocksDBEnable=true": "open transactions",
}
USUAL = [
    "configManagerVersion=v1",
    "enabledAppendPropCRC=false",
    "enableLeaderElector=true",
    "fetchNamesrvAddrByAddressServer=false",
    "fetchNameSrvAddrByDnsLookup=false",
    "forceVerifyPropCRC=FALSE",
    "messageStorePlugIn=",
    "readOnlyCommitLogStorePaths=",
    "rejectPullConsumerEnable=false",
    "storePathEpochFile=",
    "timerRocksDBEnable=false",
    "useTLS=false",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_go_wrong_in_silence_is_refused_with_what_it_would_do_and_the_way_out(
    tmp_path: Path, text: str
) -> None:
    path = write(tmp_path, f"# a comment\n{text}\n")
    with pytest.raises(ConfigError) as error:
        broker.load(path)
    message = str(error.value)
    assert message.startswith(f"{path}:2: {text}: ") and "; remove the line" in message and "\n" not in message
    assert REFUSED[text] in message


@pytest.mark.parametrize("text", USUAL)
def test_the_usual_values_of_those_keys_harm_nobody(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.load(write(tmp_path, text))
    assert not caplog.records


def test_a_file_may_name_the_usual_places(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="perseid")
    places = {
        "storePathCommitLog": "commitlog", "storePathConsumeQueue": "consumequeue", "storePathIndex": "index",
        "storeCheckpoint": "checkpoint", "abortFile": "abort", "storePathEpochFile": "epochFileCheckpoint",
        "storePathBrokerIdentity": "brokerIdentity", "storePathDLedgerCommitLog": "dledger-n0/data",
    }  # fmt: skip
    lines = [f"{key}={tmp_path}/root/{name}\n" for key, name in places.items()]
    path = write(tmp_path, f"storePathRootDir={tmp_path}/root\ndLegerSelfId=n0\n" + "".join(lines))
    assert broker.load(path).process.store_path_commit_log == ""
    assert not caplog.records


def test_no_address_server_is_asked_where_name_servers_are_named(tmp_path: Path) -> None:
    text = "fetchNamesrvAddrByAddressServer=true\n"
    assert broker.load(write(tmp_path, text + "namesrvAddr=a:1\n")).broker.namesrv_addr == "a:1"
    assert broker.load(write(tmp_path, text), "b:2").broker.namesrv_addr == "b:2"


def test_settings_without_effect_are_told_of_in_groups_each_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="perseid")
    text = (
        "brokerNam=a\nsendMessageThreadPoolNums=4\nfilterSupportRetry=true\nenableCalcFilterBitMap=true\nmystery=1\n"
        "storePathIndex=/x\nserverWorkerThreads=9\nreviveQueueNum=8\nmystery=2\n"
    )
    path = write(tmp_path, text)
    broker.load(path)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "settings that matter and that Perseid does not follow: "
            f"filterSupportRetry=true ({path}:3): what comes again is not filtered, "
            f"storePathIndex=/x ({path}:6): it is index below storePathRootDir, as in RocketMQ",
        ),
        (
            "WARNING",
            "unknown settings, without effect (`perseid settings` lists all): "
            f"brokerNam ({path}:1; did you mean brokerName?), mystery ({path}:9)",
        ),
        (
            "INFO",
            f"settings without a meaning here: sendMessageThreadPoolNums ({path}:2), "
            f"enableCalcFilterBitMap ({path}:4), serverWorkerThreads ({path}:7)",
        ),
    ]


def test_a_file_of_ten_thousand_unknown_keys_is_three_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker.load(write(tmp_path, "".join(f"nothing{number}{'x' * 90}=1\n" for number in range(10_000))))
    (record,) = caplog.records
    assert "and 9960 more" in record.getMessage() and len(record.getMessage()) < 20_000


def test_a_number_that_can_only_be_meant_is_taken_and_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(
        tmp_path,
        "brokerId=0 # the master\ndiskMaxUsedSpaceRatio=95.0\ndiskSpaceWarningLevelRatio=97%\nbrokerName=a # b\n",
    )
    loaded = broker.load(path)
    assert (loaded.store.disk_max_used_space_ratio, loaded.store.disk_space_warning_level_ratio) == (95, 97)
    assert loaded.broker.broker_name == "a # b", "a text is what it is, as in RocketMQ"
    (record,) = caplog.records
    assert "brokerId=0 # the master is taken as 0" in record.getMessage()
    for text in ("diskMaxUsedSpaceRatio=95.5", "maxMessageSize=4%", "listenPort=1 2", "listenPort=1e3"):
        with pytest.raises(ConfigError, match="a whole number is wanted"):
            broker.load(write(tmp_path, text))


def test_a_masters_id_is_0_whatever_its_file_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the original's; it is told of once."""
    path = write(tmp_path, "brokerRole=SYNC_MASTER\nbrokerId=1\n")
    assert broker.load(path).broker.broker_id == 0
    (record,) = caplog.records
    assert record.getMessage() == f"{path}:2: brokerId=1: a master's id is 0, so it is 0 (brokerRole=SYNC_MASTER)"


def test_replicas_that_adapt_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without effect under a controller, as there."""
    controlled = "enableControllerMode=true\ncontrollerAddr=a:1\nenableAutoInSyncReplicas=true\n"
    assert broker.load(write(tmp_path, controlled)).broker.enable_controller_mode
    acting = "enableSlaveActingMaster=true\nbrokerRole=SYNC_MASTER\ninSyncReplicas=2\nenableAutoInSyncReplicas=true\n"
    assert broker.load(write(tmp_path, acting)).replication.enable_auto_in_sync_replicas
    assert not caplog.records


def test_a_missing_file(tmp_path: Path) -> None:
    for load in (broker.load, namesrv.load):
        with pytest.raises(ConfigError, match="can't be read"):
            load(tmp_path / "none.conf")


def test_a_name_servers_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bare = namesrv.load(None)
    assert bare.kv_config_path == f"{tmp_path}/namesrv/kvConfig.json"
    assert bare.config_store_path == f"{tmp_path}/namesrv/namesrv.properties"
    path = write(tmp_path, "listenPort=1\nkvConfigPath=/x/kv.json\n", "ns.conf")
    told = namesrv.load(path)
    assert (told.kv_config_path, told.config_store_path) == ("/x/kv.json", str(path))


def test_light_message_queues(tmp_path: Path) -> None:
    both = "enableLmq=true\nenableMultiDispatch=true\n"
    assert broker.load(write(tmp_path, both + "maxLmqConsumeQueueNum=5\n")).store.lmq
    group = "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-localhost:40911\ndLegerSelfId=n0\n"
    with pytest.raises(ConfigError, match="enableLmq=true: a broker of a DLedger group has no light message queues"):
        broker.load(write(tmp_path, both + group))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("authenticationStrategy=org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy", 0),
        ("authorizationProvider=org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider", 0),
        ("authenticationStrategy=com.example.OnlyAtNight", 1),
        ("authorizationMetadataProvider=com.example.Ldap", 1),
    ],
)
def test_a_class_of_ones_own_is_not_run_and_that_is_said(
    tmp_path: Path, text: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker.load(write(tmp_path, text + "\n"))
    named = [record for record in caplog.records if text in record.getMessage() and "com.example" in text]
    assert len(named) == len(caplog.records) == told
