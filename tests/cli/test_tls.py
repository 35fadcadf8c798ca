"""A cluster that takes TLS alone and signed requests: clients, commands and the pipeline with both, and what is said to
those without."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.output import Output

from perseid.client import (
    Admin,
    ClientError,
    ClientTls,
    Credentials,
    Message,
    Producer,
    PullConsumer,
    Session,
    read_credentials,
)
from perseid.client.blocking import BlockingPopConsumer, BlockingProducer, BlockingPullConsumer
from perseid.security.certificates import server_context
from perseid.spark import plan
from perseid.spark.bounds import Bounds
from perseid.spark.options import parse
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, read_range
from perseid.spark.sink_options import parse as parse_sink
from pki import PASSWORD, files

DEADLINE = 60.0
COMMAND = [sys.executable, "-c", "from perseid.cli.main import main; main()"]


@dataclass
class Up:
    """`perseid up --secure`."""

    namesrv: str
    broker: str
    security: Path
    hints: list[str]
    process: subprocess.Popen[str]

    @property
    def tls(self) -> ClientTls:
        return ClientTls(
            str(self.security / "ca.pem"), str(self.security / "client.pem"), str(self.security / "client.key")
        )

    @property
    def keys(self) -> Credentials:
        return read_credentials(self.security / "admin.credentials")

    def session(self) -> Session:
        return Session(self.namesrv, credentials=self.keys, tls=self.tls)

    def command(self, *words: str, told: bool = True) -> subprocess.CompletedProcess[str]:
        """`told`: in a shell that has done what was printed."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("PERSEID_")}
        environment = self.hints[1].split()[2].rstrip(";") if told else "/dev/null"
        return subprocess.run(
            ["sh", "-c", '. "$0"; exec "$@"', environment, *COMMAND, *words],
            capture_output=True, text=True, timeout=DEADLINE, env=env, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("secure")
    words = ["up", "--secure", "--data", str(home / "data"), "--namesrv-port", "0", "--broker-port", "0"]
    with open(home / "stderr", "wb") as stderr:
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=stderr, text=True)
    output = Output(process, home / "stderr")
    ready, hints = output.line(DEADLINE).split(), [output.line(DEADLINE) for _ in range(5)]
    told = dict(word.partition("=")[::2] for word in ready[1:])
    yield Up(told["namesrv"], told["broker"], home / "data" / "security", hints, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0


def test_what_was_made_is_its_owners_alone(up: Up) -> None:
    assert stat.S_IMODE(up.security.stat().st_mode) == 0o700
    made = sorted(up.security.iterdir())
    pairs = [f"{name}.{kind}" for name in ("ca", "client", "server") for kind in ("key", "pem")]
    others = ["admin.credentials", "nodes.credentials", "secret.key", "client.env", "java-tls.properties"]
    assert [path.name for path in made] == sorted(pairs + others)
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}


def test_what_is_printed_names_files_and_has_no_secret_in_it(up: Up) -> None:
    log = (up.security.parent.parent / "stderr").read_text()
    for name in ("admin", "nodes"):
        keys = read_credentials(up.security / f"{name}.credentials")
        assert len(keys.secret_key) >= 32 and keys.secret_key not in "".join(up.hints) + log
    assert [line.split()[0] for line in up.hints] == ["secured:", "perseid", "Python", "Java", "Spark"]
    assert str(up.security / "admin.credentials") in up.hints[0]


def test_who_has_a_certificate_but_no_key_is_refused_and_so_is_who_guesses(up: Up) -> None:
    for keys, told in ((None, "username cannot be null"), (Credentials("admin", "a guess"), "check signature failed")):
        with BlockingProducer(up.namesrv, tls=up.tls, credentials=keys) as producer, pytest.raises(ClientError) as no:
            producer.send(Message("TBW102", b"x"))
        assert told in str(no.value)


def test_asynchronous_clients(up: Up) -> None:
    async def main() -> None:
        async with Admin(session=up.session()) as admin, Producer(session=up.session()) as producer:
            await admin.create_topic("orders", 1)
            sent = [await producer.send(Message("orders", b"%d" % n * 40_000)) for n in range(5)]
            async with PullConsumer(group="g", from_where="first", session=admin.session) as consumer:
                consumer.assign(await consumer.queues("orders"))
                got: list[str] = []
                while len(got) < len(sent):
                    got += [message.msg_id for message in await consumer.poll()]
            assert got == [one.msg_id for one in sent]

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_blocking_clients_and_a_shared_session(up: Up) -> None:
    with BlockingProducer(up.namesrv, credentials=up.keys, tls=up.tls) as producer:
        producer.send(Message("blocking", b"x"))
    with BlockingPullConsumer(up.namesrv, "g", credentials=up.keys, tls=up.tls) as consumer:
        assert len(consumer.queues("blocking")) > 0
    with BlockingPopConsumer(up.namesrv, "g", "blocking", credentials=up.keys, tls=up.tls) as popped:
        assert [message.body for message in popped.receive()] == [b"x"]

    async def main() -> None:
        async with Admin(session=up.session()) as admin:
            assert "blocking" in await admin.user_topics()

    asyncio.run(main())


def refusal(namesrv: str, tls: ClientTls | None) -> str:
    async def main() -> str:
        async with Admin(namesrv, tls=tls) as admin:
            with pytest.raises(ClientError) as error:
                await admin.topic_list()
            return str(error.value)

    return asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_a_client_without_tls(up: Up) -> None:
    assert "ended before the answer: the server closed it" in refusal(up.namesrv, None)


def test_a_client_that_does_not_know_the_ca(up: Up) -> None:
    assert "is refused: self-signed certificate in certificate chain" in refusal(up.namesrv, ClientTls(files().ca))


def test_a_client_that_dials_another_name(up: Up) -> None:
    tls = ClientTls(up.tls.ca, up.tls.cert, up.tls.key, server_name="elsewhere.example")
    assert "Hostname mismatch, certificate is not valid for 'elsewhere.example'" in refusal(up.namesrv, tls)


def test_a_client_without_a_certificate(up: Up) -> None:
    assert "TLS: the peer requires a certificate of ours" in refusal(up.namesrv, ClientTls(up.tls.ca))


def test_a_client_with_a_certificate_of_another_ca(up: Up) -> None:
    stranger = files().own("stranger")
    told = refusal(up.namesrv, ClientTls(up.tls.ca, stranger.certificate, stranger.key))
    assert "TLS: the peer does not trust our certificate's CA" in told


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("expired", "certificate has expired"),
        ("other_host", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ("other_server", "unable to get local issuer certificate"),
    ],
)
def test_a_server_whose_certificate_is_refused(name: str, why: str) -> None:
    """Whoever stands at its address: the request is not sent."""

    async def main() -> None:
        said: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said.append(await reader.read())
            writer.close()

        own = server_context(files().own(name))
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Admin(address, tls=ClientTls(files().ca)) as admin:
                with pytest.raises(ClientError) as error:
                    await admin.topic_list()
            told = str(error.value)
            assert f"{address}: TLS: the certificate of" in told and f"is refused: {why}" in told
        assert not any(said)

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_a_password_is_in_no_text() -> None:
    own = files().own("encrypted")
    tls = ClientTls(files().ca, own.certificate, own.key, PASSWORD)
    assert PASSWORD not in repr(tls) and tls.context() is not None


def test_commands(up: Up, tmp_path: Path) -> None:
    done = up.command("send", "by-command", "hello", "--namesrv", up.namesrv)
    assert done.returncode == 0, done.stderr
    done = up.command("topic", "list", "--namesrv", up.namesrv)
    assert "by-command" in done.stdout, done.stderr
    done = up.command("consume", "by-command", "--namesrv", up.namesrv)
    assert "hello" in done.stdout, done.stderr
    done = up.command("admin", "users", "list", "--namesrv", up.namesrv)
    assert "admin" in done.stdout and "nodes" in done.stdout, done.stderr
    done = up.command("topic", "list", "--namesrv", up.namesrv, told=False)
    assert done.returncode == 1 and "the server closed it" in done.stderr and "Traceback" not in done.stderr


def test_the_pipeline_reads_and_sends_with_it(up: Up) -> None:
    told = dict(re.findall(r'\.option\("(.*?)", "(.*?)"\)', up.hints[4]))
    assert told.pop("nameserver") == up.namesrv
    with BlockingProducer(up.namesrv, credentials=up.keys, tls=up.tls) as producer:
        for number in range(50):
            producer.send(Message("rows", b"%d" % number))
    options = parse({"nameserver": up.namesrv, "subscribe": "rows", **told}, streaming=False)
    with Bounds(options) as bounds:
        parts = plan.ranges_between(bounds.starting(), bounds.ending())
    batches = [one for part in parts for one in read_range(options, ["value"], QueueRange(part), Pushed())]
    assert sorted(int(row["value"]) for one in batches for row in one.to_pylist()) == list(range(50))
    sink = parse_sink({"nameserver": up.namesrv, **told})
    assert sink.link() == options.link() == {"tls": up.tls, "credentials": up.keys}


def test_certificates_are_made_by_command(tmp_path: Path) -> None:
    def certs(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "admin", "certs", *words, "--folder", str(tmp_path / "pki")]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)

    assert "`perseid admin certs ca` makes a CA" in certs("client", "orders").stderr
    for words in (["ca"], ["server", "b1", "--host", "b1.example", "--host", "192.0.2.7"], ["client", "orders"]):
        done = certs(*words)
        assert done.returncode == 0, done.stderr
    assert certs("server", "b1", "--host", "b1.example").returncode == 0, "it is renewed"
    assert "is there already" in certs("ca").stderr
    assert stat.S_IMODE((tmp_path / "pki" / "b1.key").stat().st_mode) == 0o600
