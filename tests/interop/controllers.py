"""Groups of controllers, Java's and ours, as processes, and what is asked of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rig

from perseid.testing.ports import free_port
from perseid.wire.codes import ResponseCode

ALTER, ELECT, REGISTER, INFO, METADATA, SETS = 1001, 1002, 1003, 1004, 1005, 1006
NEXT_ID, APPLY_ID, HEARTBEAT = 1012, 1013, 904
CLUSTER = "InteropCluster"
TRANSFER = 51005
SUCCESS = 200
MILLIS = "1700000000000"


def loads(body: bytes) -> Any:
    """fastjson leaves the keys of maps unquoted when they are numbers."""
    return json.loads(re.sub(rb"([{,])(-?\d+):", rb'\1"\2":', body))


class Controllers:
    """A group of `java` and `perseid`; or of `jraft`: the original's on another Raft, which ours can't join."""

    def __init__(self, folder: Path, kinds: Sequence[str], **properties: object) -> None:
        self.group = folder.name
        self.ports = [free_port() for _ in kinds]
        rafts = [free_port() for _ in kinds]
        self.members = [
            rig.Process(
                "controller", "perseid" if kind == "perseid" else "java", folder / f"c{i}",
                {
                    "listenPort": port, "controllerStorePath": folder / f"c{i}" / "store",
                    "configStorePath": folder / f"c{i}" / "controller.properties",
                    **(self._jraft(i, rafts) if kind == "jraft" else self._dledger(i)), **properties,
                },
            )
            for i, (kind, port) in enumerate(zip(kinds, self.ports, strict=True))
        ]  # fmt: skip
        self.addresses = ";".join(member.address for member in self.members)

    def _dledger(self, number: int) -> dict[str, object]:
        peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(self.ports))
        return {
            "controllerType": "DLedger", "controllerDLegerGroup": self.group, "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}", "mappedFileSize": 16 << 20,
        }  # fmt: skip

    def _jraft(self, number: int, rafts: Sequence[int]) -> dict[str, object]:
        return {
            "controllerType": "jRaft", "jRaftGroupId": self.group, "jRaftServerId": f"127.0.0.1:{rafts[number]}",
            "jRaftInitConf": ",".join(f"127.0.0.1:{port}" for port in rafts),
            "jRaftControllerRPCAddr": ",".join(f"127.0.0.1:{port}" for port in self.ports),
        }  # fmt: skip

    def start(self) -> Controllers:
        for member in self.members:
            member.start()
        rig.until("an active controller", self.active, 60)
        return self

    def kill(self) -> None:
        for member in self.members:
            if member.running:
                member.kill()

    def active(self) -> rig.Process | None:
        """The one that says that it is active."""
        for member in self.members:
            if member.running and rig.call(member.address, METADATA, timeout=3).ext.get("isLeader") == "true":
                return member
        return None

    def ask(self, code: int, ext: dict[str, object] | None = None, body: bytes = b"") -> rig.Answer:
        """A question to the active one, asked again while there is none."""

        def answered() -> rig.Answer | None:
            active = self.active()
            answer = rig.call(active.address, code, ext, body, timeout=6) if active is not None else None
            return answer if answer is not None and answer.code != 2007 else None

        found: rig.Answer = rig.until(f"an answer to {code}", answered, 60)
        return found

    def info(self, name: str) -> tuple[str | None, int, list[int]]:
        """The address of a set's master, its epoch, and who is in sync."""
        answer = self.ask(INFO, {"brokerName": name})
        if answer.code:
            return None, 0, []
        ext = answer.ext
        return ext.get("masterAddress"), int(ext["masterEpoch"]), sorted(loads(answer.body)["syncStateSet"])

    def sets(self, names: Sequence[str]) -> Any:
        """What the active one knows about sets, but for who is alive."""
        table = loads(self.ask(SETS, body=json.dumps(list(names)).encode()).body)["replicasInfoTable"]
        for info in table.values():
            for one in info["inSyncReplicas"] + info["notInSyncReplicas"]:
                del one["alive"]
        return table

    def lead(self, wanted: int) -> None:
        """Let a member be the active one: the leader is asked to hand over to it."""

        def leads() -> bool:
            active = self.active()
            if active is None or active is self.members[wanted]:
                return active is not None
            number = self.members.index(active)
            for term in range(1, 60):  # who asks has to name the term, and nobody tells it
                asked = {
                    "code": SUCCESS, "group": self.group, "remoteId": f"n{number}", "term": term,
                    "transferId": f"n{number}", "transfereeId": f"n{wanted}",
                }  # fmt: skip
                answer = rig.call(active.address, TRANSFER, {}, json.dumps(asked).encode(), timeout=5)
                if json.loads(answer.body)["code"] == SUCCESS:
                    break
            return self.active() is self.members[wanted]

        rig.until(f"c{wanted} is active", leads, 90)

    def decide(self, count: int) -> list[str]:
        """Have each member lead, and decide its share of `count` events and an election; names of the broker sets."""
        names: list[str] = []
        for wanted in range(len(self.members)):
            self.lead(wanted)

            def told(code: int, wanted: int = wanted, **ext: object) -> bool:
                """Have the wanted one do something; on a busy machine another one may lead meanwhile."""
                header = {"clusterName": "c", "brokerName": names[-1], **ext}
                answer = rig.call(self.members[wanted].address, code, header)
                if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                    self.lead(wanted)
                return answer.code in (0, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)

            for _ in range(count // len(self.members) + 1):
                names.append(f"decided-{len(names)}")
                code = f"10.1.1.1:{len(names)};{MILLIS}"
                rig.until("an id", lambda code=code: told(APPLY_ID, appliedBrokerId=1, registerCheckCode=code), 60)

            def elected() -> bool:
                beat = told(HEARTBEAT, brokerAddr="10.1.1.1:1", brokerId=1)
                return beat and told(ELECT, brokerId=1, invokeTime=MILLIS)

            rig.until("a master", elected, 60)
        return names

    def register(self, name: str, number: int, address: str) -> None:
        """A broker gets its id."""
        ext: dict[str, object] = {"clusterName": CLUSTER, "brokerName": name, "appliedBrokerId": number}
        ext["registerCheckCode"] = f"{address};{MILLIS}"
        rig.until(f"the id of {name}", lambda: self.ask(APPLY_ID, ext).code == 0, 60)


def brokers(
    cluster: rig.Cluster, group: Controllers, folder: Path, kinds: Sequence[str], first: int = 0, **properties: object
) -> list[rig.Process]:
    """A broker set under controllers: acknowledged is what all in sync have. Or more of one, from number `first` on."""
    return [
        rig.broker(
            kind, folder / f"b{first + i}", cluster.namesrv, brokerName=folder.name, brokerId=-1, brokerRole="SLAVE",
            enableControllerMode="true", controllerAddr=group.addresses, totalReplicas=len(kinds),
            inSyncReplicas=len(kinds), minInSyncReplicas=1, allAckInSyncStateSet="true",
            haListenPort=free_port(), **properties,
        )
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
