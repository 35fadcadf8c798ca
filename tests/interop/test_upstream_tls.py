"""What the original's own tests of TLS demand, between its clients and our servers, and between our clients and its
servers (`tests/upstream_tls.py` has the cases; between our own: `tests/app/test_upstream_tls.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import rig
import ways
from test_tls import options, running

from perseid.client import ClientError, ClientTls
from perseid.client.blocking import BlockingAdmin
from upstream_tls import CASES, Case

pytestmark = pytest.mark.interop

IN_CI = ("basicClientServerIntegrationTest", "serverRejectsUntrustedClientCert", "clientRejectsUntrustedServerCert")


def asked(client: rig.Client) -> str:
    """Why Java's client gets no answer of a name server; nothing: it gets one."""
    try:
        client.admin("fetchAllTopicList")
    except rig.AgentError as error:
        return error.type
    return ""


@pytest.mark.parametrize("given", ways.in_ci({name: ways.Each((case,)) for name, case in CASES.items()}, *IN_CI))
def test_java_is_served_by_ours_or_not(given: Case, workshop: Path, tmp_path: Path) -> None:
    names = rig.namesrv("perseid", tmp_path / "names", **given.server)
    agent = rig.java_agent(workshop / f"agent-{tmp_path.name}", *options(given.client))
    try:
        names.start()
        cluster = rig.Cluster("tls", names.address, "", "", tmp_path, names, names)
        why = asked(rig.Client(agent, cluster))
        assert (why == "") == given.served, why
        if given.refused:
            rig.until("the server says why", lambda: given.refused in names.tail())
    finally:
        agent.stop()
        names.kill()


def our_tls(settings: Mapping[str, str]) -> ClientTls | None:
    if settings["tls.enable"] != "true":
        return None
    told = (settings.get(f"tls.client.{key}", "") for key in ("trustCertPath", "certPath", "keyPath", "keyPassword"))
    return ClientTls(*told, verify=settings["tls.client.authServer"] == "true")


@pytest.mark.parametrize("given", ways.in_ci({name: ways.Each((case,)) for name, case in CASES.items()}, *IN_CI))
def test_ours_is_served_by_java_or_not(given: Case, tmp_path: Path) -> None:
    names = rig.namesrv("java", tmp_path / "names")
    names.options = options(given.server)
    try:
        names.start()
        with BlockingAdmin(names.address, tls=our_tls(given.client)) as admin:
            try:
                admin.topic_list()
            except ClientError as error:
                why = str(error)
            else:
                why = ""
        assert (why == "") == given.served, why
        assert given.refuses in why
    finally:
        names.kill()


@pytest.fixture(scope="module")
def permissive(workshop: Path) -> Iterator[rig.Cluster]:
    """Our servers as they are when nobody says anything of TLS."""
    with running("perseid", workshop / "permissive", None) as cluster:
        yield cluster


MIXES = {"TlsIT": (True, True), "TlsMixIT": (False, True), "TlsMix2IT": (True, False)}


@pytest.mark.parametrize(
    ("sends", "reads"), ways.in_ci({name: ways.Each(both) for name, both in MIXES.items()}, "TlsMixIT")
)
def test_java_sends_and_reads_with_tls_or_without(
    permissive: rig.Cluster, workshop: Path, sends: bool, reads: bool, request: pytest.FixtureRequest
) -> None:
    topic = request.node.callspec.id
    with BlockingAdmin(permissive.namesrv) as admin:
        admin.create_topic(topic, 2)
    bodies = [str(number) for number in range(16)]
    for number, tls in enumerate((sends, reads)):
        agent = rig.java_agent(workshop / f"agent-{topic}-{number}", f"-Dtls.enable={str(tls).lower()}")
        client = rig.Client(agent, permissive)
        try:
            if number == 0:
                client.send(topic, bodies)
            else:
                got = client.consume(topic, f"g_{topic}", len(bodies))
                assert sorted(one["body"] for one in got) == sorted(bodies)
            client.close()
        finally:
            agent.stop()
