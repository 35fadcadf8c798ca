"""Loading a broker's configuration: the original's files, and one clear line for what can't be had."""

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
        ("authenticationEnabled=true", "Perseid has no authentication yet"),
        ("authorizationEnabled=true", "Perseid has no authorization yet"),
        ("aclEnable=true", "Perseid has no access lists yet"),
        ("tls.server.mode=enforcing", "Perseid has no TLS yet"),
        ("storeType=defaultRocksDB", "Perseid has one kind of store"),
        ("duplicationEnable=true", "Perseid has no duplication"),
        ("controllerType=jRaft", "Perseid has no controller of this kind"),
        ("enableDLegerCommitLog=true", "needs dLegerGroup"),
        ("enableControllerMode=true", "needs controllerAddr="),
        ("enableLmq=true", "need enableLmq=true and enableMultiDispatch=true"),
        ("enableMultiDispatch=true", "need enableLmq=true and enableMultiDispatch=true"),
        ("lockInStrictMode=true", "Perseid locks queues at the broker that is asked alone"),
        ("enableAutoInSyncReplicas=true", "Perseid waits for inSyncReplicas"),
        ("enableSlaveActingMaster=true\nenableControllerMode=true", "and enableControllerMode=true"),
        ("enableSlaveActingMaster=true\nenableDLegerCommitLog=true", "and enableDLegerCommitLog=true"),
        ("brokerRole=SLAVE", "a slave's id is above 0, like brokerId=1"),
        ("brokerId=1", "a master's id is 0"),
        ("storePathCommitLog=/elsewhere", "Perseid keeps it at"),
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


def test_unknown_keys_are_reported_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "mystery=1\nbrokerName=a\nsendMessageThreadPoolNums=4\n")
    broker.load(path)
    (record,) = caplog.records
    assert record.getMessage() == (f"settings without effect: mystery ({path}:1), sendMessageThreadPoolNums ({path}:3)")


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
