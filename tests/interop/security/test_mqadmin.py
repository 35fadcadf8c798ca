"""mqadmin's commands for users and policies: what they print on Java's broker, and the same on ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rig
from secured import IMPLS, SUPER
from shared import Shared

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security")]

B = "-b {broker}"
ACL = "createAcl -b {broker} -s User:mq_a"
SCRIPT: tuple[tuple[str, str], ...] = (
    ("createUser -b {broker} -u mq_a -p secret", "create user to ADDRESS success."),
    ("createUser -b {broker} -u mq_a -p secret", "The user is existed"),
    ("createUser -c {cluster} -u mq_b -p secret -t Super", "create user to ADDRESS success."),
    ("getUser -b {broker} -u mq_a", "mq_a secret Normal enable"),
    ("getUser -c {cluster} -u mq_b", "mq_b secret Super enable"),
    ("getUser -b {broker} -u nobody", ""),
    ("listUser -b {broker} -f mq_", "mq_a secret Normal enable"),
    ("listUser -b {broker} -f no_such_user", ""),
    ("updateUser -b {broker} -u mq_a -p other", "update user to ADDRESS success."),
    ("updateUser -b {broker} -u mq_a -t Super", "update user to ADDRESS success."),
    ("updateUser -b {broker} -u mq_a -s disable", "update user to ADDRESS success."),
    ("updateUser -b {broker} -u nobody -p other", "The user is not exist"),
    ("getUser -b {broker} -u mq_a", "mq_a other Super disable"),
    (f"{ACL} -r Topic:a,Group:b* -a Pub,Sub -i 127.0.0.1,10.0.0.0/8 -d Allow", "create acl to ADDRESS success."),
    (f"{ACL} -r * -a All -d Deny", "create acl to ADDRESS success."),
    (f"{ACL} -r Foo:a -a Pub -d Allow", "The resource is null."),
    (f"{ACL} -r Topic:a -a Fly -d Allow", "The actions is empty."),
    (f"{ACL} -r Topic:a -a Pub -i 1.2.3 -d Allow", "The source ip is invalid."),
    ("createAcl -b {broker} -s User:nobody -r Topic:a -a Pub -d Allow", "The subject of User:nobody is not exist."),
    ("getAcl -b {broker} -s User:mq_a", "User:mq_a Custom Group:b. .Pub, Sub. .127.0.0.1, 10.0.0.0/8. Allow"),
    ("getAcl -c {cluster} -s User:mq_a", "User:mq_a Custom . .All. null Deny"),
    ("getAcl -b {broker} -s User:mq_b", ""),
    ("getAcl -b {broker} -s User:nobody", "The subject is not exist."),
    ("updateAcl -b {broker} -s User:mq_a -r Topic:a -a Get -i 10.0.0.1 -d Deny", "update acl to ADDRESS success."),
    ("listAcl -b {broker} -s mq_", "User:mq_a Custom Topic:a .Get. .10.0.0.1. Deny"),
    ("listAcl -b {broker} -s mq_ -r Group", "User:mq_a Custom Group:b. .Pub, Sub. .127.0.0.1, 10.0.0.0/8. Allow"),
    ("listAcl -b {broker} -s nobody", ""),
    ("copyUser -f {broker} -t {broker} -u mq_a,mq_b", "copy user of mq_b from ADDRESS to ADDRESS success."),
    ("copyAcl -f {broker} -t {broker} -s User:mq_a", "copy acl of User:mq_a from ADDRESS to ADDRESS success."),
    ("deleteAcl -b {broker} -s User:mq_a -r Topic:a", "delete acl to ADDRESS success."),
    ("deleteAcl -b {broker} -s User:mq_a -r Topic:none", "delete acl to ADDRESS success."),
    ("getAcl -b {broker} -s User:mq_a", "User:mq_a Custom Group:b"),
    ("deleteAcl -c {cluster} -s User:mq_a", "delete acl to ADDRESS success."),
    ("deleteAcl -b {broker} -s User:mq_a", "The acl is not exist."),
    ("deleteUser -b {broker} -u mq_a", "delete user to ADDRESS success."),
    ("deleteUser -c {cluster} -u mq_b", "delete user to ADDRESS success."),
    ("deleteUser -b {broker} -u nobody", "delete user to ADDRESS success."),
    ("listUser -b {broker} -f mq_", ""),
)
"""In this order: what is called, and an expression that is found in what it prints."""


@contextmanager
def _signing(agent: rig.Agent) -> Iterator[None]:
    """mqadmin reads who it is from a file, at each command."""
    file: Path = agent.log.parent / "conf" / "tools.yml"
    file.write_text(f"accessKey: {SUPER.access_key}\nsecretKey: {SUPER.secret_key}\n")
    try:
        yield
    finally:
        file.write_text("")


def _printed(client: rig.Client, line: str) -> list[str]:
    cluster = client.cluster
    names = {"broker": cluster.broker, "cluster": cluster.cluster_name, "namesrv": cluster.namesrv}
    command, *args = (word.format(**names) for word in line.split())
    try:
        printed = client.mqadmin(command, *args)
    except rig.AgentError as error:
        printed = f"{error.type} {error.message}"
    lines = (re.sub(r"\s+", " ", line).strip() for line in printed.replace(cluster.broker, "ADDRESS").splitlines())
    return [line for line in lines if line and "|-" not in line]  # without Java's talk about its logging


def _untold(lines: list[str]) -> list[str]:
    """Without passwords: Java's broker tells them, ours never."""
    return [re.sub(r"^(\S+) \S+ (Normal|Super) (enable|disable)$", r"\1 \2 \3", line) for line in lines]


def test_ours_tells_no_password(secured_clusters: Shared, java_agent: rig.Agent) -> None:
    with _signing(java_agent), secured_clusters.lent("perseid") as cluster:
        client = rig.Client(java_agent, cluster)
        _printed(client, "createUser -b {broker} -u mq_c -p told")
        assert "mq_c null Normal enable" in _printed(client, "getUser -b {broker} -u mq_c")
        assert "told" not in " ".join(_printed(client, "listUser -b {broker}"))
        _printed(client, "deleteUser -b {broker} -u mq_c")


def test_each_command_prints_what_it_prints_on_java(secured_clusters: Shared, java_agent: rig.Agent) -> None:
    printed: dict[str, list[list[str]]] = {impl: [] for impl in IMPLS}
    with _signing(java_agent):
        for impl in IMPLS:
            with secured_clusters.lent(impl) as cluster:
                client = rig.Client(java_agent, cluster)
                printed[impl] = [_printed(client, line) for line, _ in SCRIPT]
    wrong = []
    for number, (line, words) in enumerate(SCRIPT):
        said = "\n".join(printed["java"][number])
        if not re.search(words, said) or (not words and "mq_" in said):
            wrong.append(f"{line}: Java says {said!r}")
        wrong += [
            f"{line}: {impl} says {printed[impl][number]}, Java {printed['java'][number]}"
            for impl in IMPLS
            if _untold(printed[impl][number]) != _untold(printed["java"][number])
        ]
    assert not wrong, "\n".join(wrong)
