"""Every command of mqadmin 5.5.0: how the test calls it, and how what it prints on our cluster has to compare with what
it prints on Java's.

A command's row is its arguments, with `{topic}`, `{group}`, `{broker}`, `{name}` (the broker's), `{cluster}`,
`{namesrv}`, `{client}`, `{msg}`, `{key}`, `{folder}` filled in, and the comparison:

- SAME: the same lines, but for their order and for what differs from run to run (`plain`);
- words: the same exit, and each of these expressions is found in both;
- Refused: ours says no, with code 3 or in these words, and here is why; what Java says does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Refused:
    """A command that does not work on our cluster: why, and what it prints then."""

    why: str
    says: str = r"CODE: 3\b|request type \w+ not supported"


SAME = "same"
Check: TypeAlias = str | tuple[str, ...] | Refused
Row: TypeAlias = tuple[str, Check]

NO_LITE = (r"\[?NAME\]? error",)
"""Of a topic or group that is none of lite topics; those that are: test_lite.py."""
USERS = Refused("no users where requests are not signed", r"CODE: 16\b|has no users")
B, T, G = "-b {broker}", "-t {topic}", "-g {group}"

ENDLESS = {
    "clusterRT": "prints until it is killed; it asks for what clusterList and checkMsgSendRT ask for",
    "startMonitoring": "runs until it is killed; it asks for what consumerProgress and consumerStatus ask for",
}
"""Commands that never end: they are not run."""

ELSEWHERE = {
    "exportMetadataInRocksDB": "reads a folder of RocksDB on its own machine",
    "dumpCompactionLog": "reads a file on its own machine",
    "addBroker": "asks a broker container; here each broker is a process",
    "removeBroker": "asks a broker container; here each broker is a process",
    "getSyncStateSet": "asks a controller: test_autoswitch.py, test_controller.py",
    "getBrokerEpoch": "asks brokers under a controller: test_autoswitch.py, test_epochs.py",
    "getControllerMetaData": "asks a controller: test_controller.py",
    "getControllerConfig": "asks a controller: test_controller.py",
    "updateControllerConfig": "asks a controller: test_controller.py",
    "electMaster": "asks a controller: test_autoswitch.py, test_controller.py",
    "cleanBrokerMetadata": "asks a controller: test_controller.py",
    "copyUser": "asks brokers with users: security/test_mqadmin.py",
    "copyAcl": "asks brokers with users: security/test_mqadmin.py",
}
"""Commands that this cluster of one name server and one broker is not asked."""

COMMANDS: dict[str, Row] = {
    # looking
    "topicList": ("", ("TOPIC", "%RETRY%GROUP", "TBW102", "CLUSTER_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX")),
    "topicRoute": (T, SAME),
    "topicStatus": (T, SAME),
    "topicClusterList": (T, SAME),
    "clusterList": ("", ("#Cluster Name #Broker Name #BID #Addr #Version", "CLUSTER NAME 0 BROKER V5_5_0 .* true")),
    "brokerStatus": (B, ("brokerVersionDesc", "commitLogMaxOffset", "msgPutTotalTodayNow", "putTps", "runtime")),
    "brokerConsumeStats": (B, SAME),
    "consumerProgress": (G, SAME),
    "consumerStatus": ("-g {group} -i {client}", ("#Consumer Subscription#", "#Consumer Offset#", "TOPIC NAME 3")),
    "consumerConnection": (G, SAME),
    "producerConnection": ("-g {group} -t {topic}", SAME),
    "producer": (B, SAME),
    "getConsumerConfig": (G, SAME),
    "getBrokerConfig": (B, ("brokerName", "listenPort", "autoCreateTopicEnable", "flushDiskType")),
    "getNamesrvConfig": ("", ("listenPort", "kvConfigPath", "rocketmqHome")),
    "haStatus": (B, SAME),
    "statsAll": (T, SAME),
    "queryCq": ("-t {topic} -q 1 -i 0 -b {broker}", SAME),
    "queryMsgById": ("-t {topic} -i {offsetMsg}", SAME),
    "queryMsgByKey": ("-t {topic} -k {key}", SAME),
    "queryMsgByUniqueKey": ("-t {topic} -i {msg}", SAME),
    "queryMsgByOffset": ("-t {topic} -b {name} -i 1 -o 0", SAME),
    "queryMsgTraceById": ("-i {msg}", SAME),
    "printMsg": (T, SAME),
    "printMsgByQueue": ("-t {topic} -a {name} -i 1 -p true -d true", SAME),
    "consumeMessage": ("-t {topic} -b {name} -i 1 -o 0 -c 1", SAME),
    "exportConfigs": ("-c {cluster} -f {folder}", ("export .* success",)),
    "exportMetadata": ("-c {cluster} -f {folder}", ("export .* success",)),
    "exportMetrics": ("-c {cluster} -f {folder}", ("export .* success",)),
    "exportPopRecord": ("-b {broker} -d true", Refused("no RocksDB")),
    "getColdDataFlowCtrInfo": (B, SAME),
    "allocateMQ": ("-t {topic} -i 10.0.0.1,10.0.0.2", SAME),
    # sending
    "sendMessage": ("-t {topic} -p by-mqadmin", ("SEND_OK",)),
    "checkMsgSendRT": ("-t {topic} -a 3 -s 16", ("Avg RT", "NAME [0-3] true")),
    "sendMsgStatus": ("-b {name} -s 16 -c 3", ("SEND_OK",)),
    # changing
    "updateTopic": ("-b {broker} -t {topic}_made -r 2 -w 2", SAME),
    "updateTopicList": ("-b {broker} -f {folder}/topics.json", SAME),
    "updateTopicPerm": ("-b {broker} -t {topic}_made -p 4", SAME),
    "updateOrderConf": ("-t {topic}_made -m put -v {name}:2", SAME),
    "updateSubGroup": ("-b {broker} -g {group}_made -r 5", SAME),
    "updateSubGroupList": ("-b {broker} -f {folder}/groups.json", SAME),
    "cloneGroupOffset": ("-s {group} -d {group}_made -t {topic} -o false", SAME),
    "resetOffsetByTime": ("-g {group}_made -t {topic} -s 0", SAME),
    "skipAccumulatedMessage": ("-g {group}_made -t {topic}", ("#brokerName #queueId #offset", "NAME 3 [234]")),
    "updateStaticTopic": ("-t {topic}_static -qn 2 -c {cluster}", ("The new mapping data is written to file",)),
    "remappingStaticTopic": ("-t {topic}_static -c {cluster}", ("The old mapping data is written to file",)),
    "setConsumeMode": ("-b {broker} -t {topic} -g {group}_made -m POP -q 1", SAME),
    "deleteSubGroup": ("-b {broker} -g {group}_made", SAME),
    "deleteTopic": ("-t {topic}_made -c {cluster}", SAME),
    "updateBrokerConfig": ("-b {broker} -k shortPollingTimeMills -v 1234", SAME),
    "updateKvConfig": ("-s mine -k k -v v", SAME),
    "deleteKvConfig": ("-s mine -k k", SAME),
    "updateNamesrvConfig": ("-k orderMessageEnable -v true", SAME),
    "wipeWritePerm": ("-b {name}", ("wipe write perm of broker.NAME. in name server.NAMESRV. OK",)),
    "addWritePerm": ("-b {name}", ("add write perm of broker.NAME. in name server.NAMESRV. OK",)),
    "updateColdDataFlowCtrGroupConfig": ("-b {broker} -g {group} -v 1000", SAME),
    "removeColdDataFlowCtrGroupConfig": ("-b {broker} -g {group}", SAME),
    "cleanExpiredCQ": (B, SAME),
    "cleanUnusedTopic": (B, SAME),
    "deleteExpiredCommitLog": (B, SAME),
    "resetMasterFlushOffset": ("-b {broker} -o 0", SAME),
    # what is not there
    "setCommitLogReadAheadMode": ("-b {broker} -m 1", Refused("a reader thread asks for exactly what pulls want")),
    "rocksDBConfigToJson": ("-c {cluster} -n {namesrv} -t topics", Refused("no RocksDB", r"CODE: 3\b|Exception")),
    "checkRocksdbCqWriteProgress": ("-c {cluster} -n {namesrv} -t {topic}", Refused("no RocksDB")),
    "switchTimerEngine": ("-b {broker} -e F", Refused("no RocksDB, so one engine of timers")),
    "createUser": ("-b {broker} -u u -p p", USERS),
    "updateUser": ("-b {broker} -u u -p p2", USERS),
    "getUser": ("-b {broker} -u u", USERS),
    "listUser": (B, USERS),
    "createAcl": ("-b {broker} -s User:u -r Topic:t -a Pub -i 127.0.0.1 -d Allow", USERS),
    "updateAcl": ("-b {broker} -s User:u -r Topic:t -a Sub -i 127.0.0.1 -d Allow", USERS),
    "getAcl": ("-b {broker} -s User:u", USERS),
    "listAcl": (B, USERS),
    "deleteAcl": ("-b {broker} -s User:u", USERS),
    "deleteUser": ("-b {broker} -u u", USERS),
    "getBrokerLiteInfo": (B, ("#Broker #Store Type #Max LMQ", "BROKER default 20000 0 0")),
    "getParentTopicInfo": ("-p {topic}", NO_LITE),
    "getLiteTopicInfo": ("-p {topic} -l x", NO_LITE),
    "getLiteClientInfo": ("-p {topic} -g {group} -c {client}", NO_LITE),
    "getLiteGroupInfo": ("-p {topic} -g {group}", NO_LITE),
    "triggerLiteDispatch": ("-p {topic} -g {group}", NO_LITE),
}


MORE: tuple[tuple[str, Row], ...] = (
    ("clusterList", ("-m", ("CLUSTER NAME",))),
    ("topicList", ("-c", ("CLUSTER TOPIC GROUP",))),
    ("topicRoute", ("-t {topic} -l", SAME)),
    ("topicStatus", ("-t {topic} -c {cluster}", SAME)),
    ("consumerProgress", ("", ("GROUP 1 V5_5_0 PUSH CLUSTERING",))),
    ("consumerProgress", ("-g {group} -t {topic} -s true", SAME)),
    ("consumerStatus", ("-g {group}", ("Same subscription in the same group of consumer",))),
    ("consumerConnection", ("-g {group} -b {broker}", SAME)),
    ("brokerConsumeStats", ("-b {broker} -o true", SAME)),
    ("brokerConsumeStats", ("-b {broker} -l 1", SAME)),
    ("queryCq", ("-t {topic} -q 1 -i 0 -c 1 -b {broker} -g {group}", SAME)),
    ("queryMsgById", ("-t {topic} -i {offsetMsg} -g {group} -d {client}", ("CR_SUCCESS",))),
    ("queryMsgByUniqueKey", ("-t {topic} -i {msg} -g {group} -d {client}", ("CR_SUCCESS",))),
    ("queryMsgByKey", ("-t {topic} -k none", SAME)),
    ("statsAll", ("-a", ("TOPIC GROUP",))),
    ("haStatus", ("-c {cluster}", SAME)),
    ("updateTopic", ("-b {broker} -t {topic}_fifo -a +message.type=FIFO -o true", SAME)),
    ("updateTopic", ("-c {cluster} -t {topic}_fifo -a +message.type=NORMAL", SAME)),
    ("updateSubGroup", ("-c {cluster} -g {group}_other -o true -q 2", SAME)),
    ("resetOffsetByTime", ("-g {group}_other -t {topic} -s now", ("#brokerName #queueId #offset",))),
    ("resetOffsetByTime", ("-g {group}_other -t {topic} -b {broker} -q 1 -s 0 -o 1", SAME)),
    ("deleteSubGroup", ("-c {cluster} -g {group}_other -r true", SAME)),
    ("getColdDataFlowCtrInfo", ("-c {cluster}", SAME)),
    ("getBrokerConfig", ("-c {cluster}", ("Master: BROKER",))),
    ("cleanUnusedTopic", ("-c {cluster}", SAME)),
    ("topicRoute", ("-t nowhere", SAME)),
    ("topicStatus", ("-t nowhere", SAME)),
    ("consumerConnection", ("-g nobody", SAME)),
    ("producerConnection", ("-g nobody -t {topic}", SAME)),
    ("consumerProgress", ("-g nobody", SAME)),
    ("getConsumerConfig", ("-g nobody", SAME)),
    ("deleteTopic", ("-t nowhere -c {cluster}", SAME)),
)
"""Other ways to call them, and what is not there."""


_PLAIN = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,.:]\d{3})?\b", "TIME"),
        (r"\b[0-9A-F]{32,56}\b", "ID"),
        (r"\b\d+\.\d+\.\d+\.\d+(@\w+)?", "IP"),
        (r"IP:\d+", "ADDRESS"),
        (r"@[0-9a-f]{6,8}\b|0x[0-9a-f]+|\b[cp]\d{9,}\b", "OBJECT"),
        (r"\b\d+\.\d+\b", "FLOAT"),
        (r"-?\b\d{6,}\b", "NUMBER"),
        (r"\b\d+ms\b", "MS"),
        (r"\s+", " "),
    )
)
"""What differs from run to run, in this order."""


def plain(printed: str, names: dict[str, str]) -> list[str]:
    """The lines, in the order of the alphabet, without what differs from run to run and from cluster to cluster."""
    for what, name in sorted(names.items(), key=lambda item: -len(item[1])):
        printed = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", what.upper(), printed)
    lines: list[str] = []
    for line in printed.splitlines():
        if "|-" in line or not line.strip():
            continue  # Java's talk about its logging
        for pattern, word in _PLAIN:
            line = pattern.sub(word, line)
        lines.append(line.strip())
    return sorted(lines)
