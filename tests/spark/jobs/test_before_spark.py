"""What is wrong with a command's words is told before Spark is started; a first run that fails leaves nothing."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill
from tests.spark.jobs.tables import FORMATS
from tests.spark.jobs.test_formats import opened
from typer.testing import CliRunner, Result

import perseid.spark
from perseid.base.errors import ConfigError
from perseid.cli.main import app
from perseid.spark.jobs.archive import job as archiving
from perseid.spark.jobs.archive.folder import TableFolder, TableInfo
from perseid.spark.jobs.options import ArchiveOptions
from perseid.testing.embedded import EmbeddedBroker

SECONDS = 20
"""Where the machine is busy; a name server that says nothing takes three."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`perseid spark …` with these words, where Spark must not be started."""

    def session(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(perseid.spark, "session", session)
    return lambda *words: CliRunner().invoke(app, ["spark", *map(str, words)])


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with ExitStack() as open_sockets:
        server = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def made(table: Path, **more: Any) -> Path:
    """A table with nothing in it, of the topic `known`."""
    TableFolder(table).create(TableInfo(**{"topic": "known", "format": "parquet", "partition_by": "none",
                                           "table_id": "1", **more}))  # fmt: skip
    return table


# ---- name servers ----


@pytest.mark.parametrize("job", ["archive", "replay", "time-travel", "stats", "trace", "dead-letters"])
def test_item_11_a_wrong_name_server_is_told_within_seconds_and_before_spark(
    command: Callable[..., Result], closed: str, tmp_path: Path, job: str
) -> None:
    words = {
        "archive": ("t", tmp_path / "t"), "replay": (tmp_path / "known", "t"), "time-travel": ("t", "--as-of", "1"),
    }  # fmt: skip
    if job == "replay":
        made(tmp_path / "known")
    began = time.monotonic()
    said = command(job, *words.get(job, ()), "-n", closed)
    assert said.exit_code == 1 and time.monotonic() - began < SECONDS
    assert said.stderr.startswith(f"perseid: no name server answers ({closed}: can't connect to {closed}: Connection")
    assert said.stderr.endswith("give --namesrv the host:port of one that runs\n") and said.stderr.count("\n") == 1
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(("code", "is_one"), [(16, True), (3, False)])
def test_a_name_server_that_refuses_our_user_is_one(
    monkeypatch: pytest.MonkeyPatch, code: int, is_one: bool
) -> None:
    """Users of brokers may not list brokers there; what does not know the question is something else."""
    from perseid.client.blocking import BlockingAdmin
    from perseid.client.errors import ServerRefused
    from perseid.spark import nameservers

    def refuse(admin: BlockingAdmin) -> None:
        raise ServerRefused(code, "as the test says", "127.0.0.1:9876")

    monkeypatch.setattr(BlockingAdmin, "cluster_info", refuse)
    if is_one:
        nameservers.check("127.0.0.1:9876")
    else:
        with pytest.raises(ConfigError, match=r"no name server answers \(127.0.0.1:9876: .*as the test says"):
            nameservers.check("127.0.0.1:9876")


def test_of_several_name_servers_each_says_why_and_one_that_answers_is_enough(
    silent: str, closed: str, broker: EmbeddedBroker
) -> None:
    from perseid.spark import nameservers

    began = time.monotonic()
    with pytest.raises(ConfigError) as told:
        nameservers.check(f"{closed};{silent};no.such.host.invalid:9876;nonsense;{broker.address}")
    assert time.monotonic() - began < SECONDS
    text = str(told.value)
    for why in (
        f"{closed}: can't connect", f"{silent}: {silent} did not answer within 3000 ms",
        "no.such.host.invalid:9876: can't connect", "nonsense: can't connect to nonsense: an address looks like",
        f"{broker.address}: ",
    ):  # fmt: skip
        assert why in text, text
    nameservers.check(f"{closed};{broker.namesrv}")
    with pytest.raises(ConfigError, match="no name server given"):
        nameservers.check(" ; ")


# ---- other words ----


def test_item_11_what_is_wrong_with_an_archive_is_told_before_spark(
    command: Callable[..., Result], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "known", 4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "of.things").write_text("")
    (tmp_path / "bad.avsc").write_text("{")
    new, old = tmp_path / "new", made(tmp_path / "old", format="iceberg", partition_by="day")
    for words, why in (
        (("known", new, "--format", "delte"), "format='delte' is unknown: did you mean 'delta'?"),
        (("known", new, "--partition-by", "month"), "partition-by='month' is unknown"),
        (("known", new, "--schema", "missing.avsc"), "schema 'missing.avsc' is neither a file nor a DDL"),
        (("known", new, "--schema", tmp_path / "bad.avsc"), "bad.avsc: "),
        (("known", new, "--message", "m.N"), "give schema too"),
        (("known", new, "--option", "tag=a"), "option 'tag' is unknown to the perseid source: did you mean 'tags'?"),
        (("known", new, "--option", "deadlineMs=soon"), "deadlineMs='soon'"),
        (("knwn", new), "did you mean 'known'?"),
        (("known", tmp_path / "bad.avsc"), "bad.avsc is no folder: name another one"),
        (("known", tmp_path / "bad.avsc" / "t"), "t: no table can be written there: Not a directory"),
        (("known", "/proc/t"), "/proc/t: no table can be written there: No such file or directory"),
        (("known", tmp_path / "full"), "full is no archive and not empty"),
        (("known", old, "--format", "delta"), "old holds format=iceberg, not delta"),
        (("known", old, "--format", "delta", "--schema", "id bigint"), "old holds format=iceberg, not delta"),
        (("known", old, "--partition-by", "hour"), "old holds partitions=day, not hour"),
        (("known", old, "--tags", "a"), "old holds tags=None, not a"),
        (("known", new, "--catalog", "lake"), "a table of parquet is in no catalog: --catalog is for iceberg"),
        (("known", old, "--catalog", "la.ke"), "a catalog's name has letters, digits, '_', '-': not 'la.ke'"),
        (("other", old), "old holds topic known, not other"),
    ):  # fmt: skip
        said = command("archive", *words, "-n", broker.namesrv)
        assert (said.exit_code, said.stderr.count("\n")) == (1, 1), said.stderr
        assert why in said.stderr
        assert not new.exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["of.things"]


def test_what_is_wrong_with_a_replay_is_told_before_spark(
    command: Callable[..., Result], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "known", 4)
    table, decoded = made(tmp_path / "t"), made(tmp_path / "decoded", keep_value=False)
    for words, why in (
        ((tmp_path, "known"), "is no archive"),
        ((table, "knwn"), "knows no topic 'knwn': did you mean 'known'?"),
        ((table, "known", "--order-by", "keyz"), "has no column 'keyz': did you mean 'keys'?"),
        ((table, "known", "--name", "a/b"), "a replay's name has letters"),
        ((table, "known", "--since", "5", "--until", "5"), "the time range is empty"),
        ((decoded, "known"), "has no raw bodies (--drop-value)"),
    ):
        said = command("replay", *words, "-n", broker.namesrv)
        assert (said.exit_code, said.stderr.count("\n")) == (1, 1), said.stderr
        assert why in said.stderr
    assert not (table / "_perseid" / "replays").exists()


def test_what_is_wrong_with_the_other_jobs_is_told_before_spark(
    command: Callable[..., Result], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "known", 4)
    table = made(tmp_path / "t")
    namesrv, as_of = ("-n", broker.namesrv), ("--as-of", "1")
    for words, why in (
        (("time-travel", "known", *as_of, "--out", tmp_path, *namesrv), "is there already"),
        (("time-travel", "other", *as_of, "--table", table, *namesrv), "holds topic known, not other"),
        (("time-travel", "known", *as_of, "--table", tmp_path, *namesrv), "is no archive"),
        (("time-travel", "knwn", *as_of, *namesrv), "did you mean 'known'?"),
        (("stats", "knwn", *namesrv), "knows no topic 'knwn': did you mean 'known'?"),
        (("stats",), "either a name server (--namesrv), or store folders (--folder)"),
        (("stats", "--folder", tmp_path / "none"), "none"),
        (("trace", "knwn", *namesrv), "knows no topic 'knwn'"),
        (("dead-letters", "none", *namesrv), "knows no topic '%DLQ%none'"),
        (("audit", tmp_path / "a", tmp_path / "b"), f"{tmp_path / 'a'}"),
        (("audit", tmp_path), "an audit needs two or more store folders"),
    ):
        said = command(*words)
        assert (said.exit_code, said.stderr.count("\n")) == (1, 1), said.stderr
        assert why in said.stderr


def test_a_job_that_has_nothing_to_do_starts_no_spark(
    command: Callable[..., Result], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("empty", 2)
    table = tmp_path / "t"
    words = ("archive", "empty", table, "-n", broker.namesrv, "--format", "iceberg", "--catalog", "lake")
    for batches in (1, 0):  # the first one says where the queues began
        said = command(*words)
        assert (said.exit_code, said.stderr) == (0, ""), said.stderr
        assert said.stdout == f"0 messages in {batches} batches added to {table}\n"
    assert opened(table, "lake").scan().to_arrow().num_rows == 0


# ---- what a failed first run leaves ----


@pytest.mark.parametrize("form", FORMATS)
def test_item_11_a_first_run_that_fails_leaves_nothing_of_its_table(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fill(broker, "known", 4)
    monkeypatch.setattr(archiving, "write_ranges", _full_disk)
    there = tmp_path / "there"
    there.mkdir()
    for table, left in ((tmp_path / "deep" / "er" / "t", [there]), (there, [there])):
        with pytest.raises(OSError, match="No space left"):
            archiving.archive(
                None,  # type: ignore[arg-type]
                nameserver=broker.namesrv, topic="known", table=str(table), options=ArchiveOptions(format=form),
            )  # fmt: skip
        assert [path for path in tmp_path.rglob("*") if not path.is_relative_to(broker.data)] == left


def _full_disk(_: Any, __: Any, ___: Any, target: Any) -> None:
    Path(target.folder, "half.parquet").write_bytes(b"PAR1")
    raise OSError(28, "No space left on device")


def test_what_others_have_in_a_tables_folder_stays(broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "known", 4)
    table = tmp_path / "t"
    (table / "_perseid").mkdir(parents=True)
    (table / "_perseid" / "notes").write_text("others'")
    with pytest.raises(ConfigError, match="did you mean 'known'"):
        archiving.archive(None, nameserver=broker.namesrv, topic="knwn", table=str(table))  # type: ignore[arg-type]
    assert (table / "_perseid" / "notes").read_text() == "others'"
    folder = TableFolder(tmp_path / "u")
    missing = folder.missing()
    with pytest.raises(KeyboardInterrupt), folder.locked(), archiving.undone(folder, missing):
        (folder.path / "of.others").write_text("")
        raise KeyboardInterrupt
    assert [path.name for path in folder.path.iterdir()] == ["of.others"]


def test_a_lock_that_was_removed_meanwhile_is_nobodys(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path / "t")
    with folder.locked():
        (folder.own / "lock").unlink()
        with folder.locked(), pytest.raises(ConfigError, match="is held by another run"), folder.locked():
            raise AssertionError("two at once")
