"""Every command of mqadmin 5.5.0 on Java's cluster and on ours: both print the same, or the table in `commands.py` says
why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import rig
from commands import COMMANDS, ELSEWHERE, ENDLESS, MORE, SAME, Check, Refused, plain

pytestmark = pytest.mark.interop
TOPIC, GROUP, NAME = "mqt", "mqg", "mqb"
SENDING = ("sendM", "checkMsg")
"""Commands that send to any queue: after those that look."""
TRIES = 5
"""A stock client that has just started now and then finds nothing: looking may be done again."""


class Stage:
    """A cluster with a topic of eight messages and a group that has consumed them."""

    def __init__(self, kind: str, agent: rig.Agent, folder: Path) -> None:
        self.kind = kind
        self.cluster = rig.cluster(NAME, kind, kind, folder)
        self.java = rig.Client(agent, self.cluster)
        self.folder = folder
        try:
            self.names = self._fill()
        except BaseException:
            self.stop()
            raise

    def _fill(self) -> dict[str, str]:
        java, cluster = self.java, self.cluster
        java.mqadmin("updateTopic", "-b", cluster.broker, "-t", TOPIC, "-r", "4", "-w", "4")
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": TOPIC}).code == 0)
        handle = java("push.start", topic=TOPIC, group=GROUP)
        queues = [{"topic": TOPIC, "broker": NAME, "queueId": n % 4} for n in range(8)]
        messages = [
            {"topic": TOPIC, "body": f"m{n}", "tags": "T", "keys": f"key{n}", "queue": queue}
            for n, queue in enumerate(queues)
        ]
        sent = java("send", group=GROUP, messages=messages)
        java.collect(handle, len(messages))
        rig.until("offsets", lambda: self._committed() == len(messages))
        rig.until("statistics", lambda: self._counted("TOPIC_PUT_NUMS", TOPIC) == len(messages))
        rig.until("statistics", lambda: self._counted("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == len(messages))
        row = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        (self.folder / "topics.json").write_text(json.dumps([{"topicName": f"{TOPIC}_listed", "order": False, **row}]))
        (self.folder / "groups.json").write_text(json.dumps([{"groupName": f"{GROUP}_listed", "retryMaxTimes": 3}]))
        return {
            "topic": TOPIC, "group": GROUP, "broker": cluster.broker, "name": NAME, "cluster": cluster.cluster_name,
            "namesrv": cluster.namesrv, "client": java("push.clientId", handle=handle), "msg": sent[1]["msgId"],
            "offsetMsg": sent[1]["offsetMsgId"], "key": "key1", "folder": str(self.folder),
        }  # fmt: skip

    def _committed(self) -> int:
        table = self.java.admin("examineConsumeStats", GROUP, TOPIC)["offsetTable"]
        return sum(row["consumerOffset"] for queue, row in table if queue["topic"] == TOPIC)

    def _counted(self, name: str, key: str) -> int:
        """Within the last minute: what was counted between two samples is not there yet."""
        answer = rig.call(self.cluster.broker, 315, {"statsName": name, "statsKey": key})
        return int(json.loads(answer.body)["statsMinute"]["sum"]) if answer.code == 0 else 0

    def run(self, command: str, args: str) -> list[str]:
        """What a command prints, without what differs from run to run."""
        try:
            printed = self.java.mqadmin(command, *args.format(**self.names).split())
        except rig.AgentError as error:
            printed = f"{error.type} {error.message}"
        return plain(printed, self.names)

    def stop(self) -> None:
        self.java.close()
        self.java("producers.stop")
        self.cluster.broker_process.kill()
        self.cluster.namesrv_process.kill()


def _difference(check: Check, ours: list[str], javas: list[str]) -> str:
    """What is wrong with what ours printed; "": nothing."""
    text = "\n".join(ours)
    if isinstance(check, Refused):
        return "" if re.search(check.says, text) else f"it is not refused ({check.why}): {ours[:5]}"
    if check == SAME:
        if ours == javas:
            return ""
        lacks, more = [x for x in javas if x not in ours], [x for x in ours if x not in javas]
        return f"Java's alone: {lacks[:5]}; ours alone: {more[:5]}"
    missing = [word for word in check for lines in (ours, javas) if not re.search(word, "\n".join(lines))]
    return f"{missing} not found" if missing else ""


def test_each_command_prints_what_it_prints_on_java(java_agent: rig.Agent, tmp_path: Path) -> None:
    listed = set(java_agent("mqadmin.commands"))
    assert listed == COMMANDS.keys() | ENDLESS.keys() | ELSEWHERE.keys(), "each has its row"
    calls = [(command, args, check) for command, (args, check) in (*COMMANDS.items(), *MORE)]
    calls.sort(key=lambda call: 2 * call[0].startswith(("delete", "clean", "reset")) + call[0].startswith(SENDING))
    printed: dict[str, list[list[str]]] = {"java": [], "perseid": []}
    wrong: dict[str, str] = {}
    for kind, lines in printed.items():
        (tmp_path / kind).mkdir()
        stage = Stage(kind, java_agent, tmp_path / kind)
        try:
            for number, (command, args, check) in enumerate(calls):
                lines.append(stage.run(command, args))
                if kind == "java":
                    continue
                why = _difference(check, lines[-1], printed["java"][number])
                # at once: later commands send, delete and clean
                for _ in range(TRIES if why and command.startswith(("query", "print", "topic", "consume")) else 0):
                    why = why and _difference(check, stage.run(command, args), printed["java"][number])
                if why:
                    wrong[f"{command} {args}"] = why
            (tmp_path / f"{kind}.json").write_text(json.dumps(lines, indent=1))
        finally:
            stage.stop()
    assert not wrong, "\n".join(f"{command}: {why}" for command, why in wrong.items())
