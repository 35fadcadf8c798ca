"""What histories found in the archive, each as the shortest history that shows it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perseid.spark.jobs.archive.folder import FORMATS
from perseid.spark.jobs.archive.resuming import REMOVED
from perseid.spark.jobs.archive.run import DELETED_ANEW, Allowed

from . import operators
from .case import A, Case
from .landing import DONE, REFUSED, Asked


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    found = Case(tmp_path)
    with found.playing():
        yield found


def test_a_first_run_on_an_empty_topic_notes_its_place(case: Case) -> None:
    assert case.run().how == DONE
    case.world.publish(A, 5)
    case.world.retain(A, 3)
    refused = case.run()
    assert refused.refusal == "messages gone", "it began before them"
    done = case.run(gaps=True).done
    assert done is not None and [gap.messages for gap in done.gaps] == [3] and case.rows() == 2


def test_a_table_that_was_put_back_says_so_also_when_there_is_nothing_to_add(case: Case) -> None:
    case.world.add_queue("b")
    case.world.publish("t/b/0", 4)
    case.run(batch=2)
    for path in sorted((case.landing.path / "data").iterdir())[1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    case.world.leave("b")
    done = case.run().done
    assert done is not None and done.rewound == (1, 0) and done.batches == 1, "a batch says where the table is now"
    case.world.come_back()
    done = case.run().done
    assert done is not None and done.rewound is None and done.rows == 2 and case.rows() == 4


def test_a_topic_that_is_made_again_is_noticed_when_the_message_that_was_read_last_is_gone(case: Case) -> None:
    case.world.publish(A, 6)
    case.run()
    case.world.recreate()
    case.world.publish(A, 12)
    case.world.compact(A, [5])
    refused = case.run(gaps=True)
    assert refused.refusal == "begun anew", "by another row that the table has"
    assert case.run(gaps=True, anew=True).how == DONE and case.rows() == 6 + 11


def test_a_queue_that_begins_earlier_than_it_did_is_another_one(case: Case) -> None:
    case.run()
    case.world.publish(A, 6)
    case.world.retain(A, 6)
    case.run(gaps=True)
    case.world.recreate()
    case.world.publish(A, 9)
    assert case.run(gaps=True).refusal == "begun anew", "no row tells it, and no message"
    assert case.run(gaps=True, anew=True).how == DONE and case.rows() == 9


def test_what_a_queue_that_was_begun_anew_has_lost_already_is_a_gap(case: Case) -> None:
    case.world.publish(A, 20)
    case.run()
    case.world.recreate()
    case.world.publish(A, 12)
    case.world.retain(A, 5)
    refused = case.run(anew=True)
    assert refused.how == REFUSED and "offsets 0 to 4 of it are gone" in refused.error
    done = case.run(gaps=True, anew=True).done
    assert done is not None and [(gap.end, gap.messages, gap.why) for gap in done.gaps] == [(5, 5, DELETED_ANEW)]
    assert case.rows() == 20 + 7


@pytest.mark.parametrize("point", range(40))
def test_a_topic_that_is_exchanged_while_it_is_read_is_noticed(tmp_path: Path, point: int) -> None:
    case = Case(tmp_path)
    case.world.publish(A, 8)

    def exchange() -> None:
        before = case.world.current()
        case.world.lose_tail(A, 8)
        case.world.publish(A, 20)
        case.judge.lost_by_brokers(before)

    with case.playing():
        asked = Asked(Allowed(), 2)
        outcome = case.landing.archive(asked, {point: exchange})
        assert outcome.refusal in ("", "begun anew")
        case.judge.after_run(asked, outcome)
        assert case.run(gaps=True, anew=True, accept=True).how == DONE


def test_a_queue_that_is_exchanged_while_others_are_read_is_noticed_by_the_next_run(tmp_path: Path) -> None:
    for point in range(60):
        case = Case(tmp_path / str(point))
        case.world.add_queue("a")
        case.world.publish(A, 1)
        case.world.publish("t/a/1", 8)

        def exchange(case: Case = case) -> None:
            before = case.world.current()
            case.world.lose_tail(A, 1)
            case.world.publish(A, 2)
            case.judge.lost_by_brokers(before)

        with case.playing():
            asked = Asked(Allowed(), 2)
            case.judge.after_run(asked, case.landing.archive(asked, {point: exchange}))
            case.run(anew=True)


@pytest.mark.parametrize("form", FORMATS)
def test_a_queue_that_loses_its_tail_is_compared_also_with_files_that_others_rewrote(tmp_path: Path, form: str) -> None:
    """Delta's own DELETE writes strings of another kind (by real Spark: delta 3007)."""
    case = Case(tmp_path, form)
    with case.playing():
        case.world.publish(A, 9)
        case.run()
        if form == "parquet":
            rewritten = next((case.landing.path / "data").rglob("*.parquet"))
            rows = pq.ParquetFile(rewritten).read()
            places = rows.schema.get_field_index("brokerName")
            names = rows.column(places).cast(pa.string_view())
            pq.write_table(rows.set_column(places, "brokerName", names).slice(1), rewritten)
        else:
            assert deleted(form, case.landing.path) == 8
        case.judge.touched = True
        before = case.world.current()
        case.world.lose_tail(A, 3)
        case.judge.lost_by_brokers(before)
        done = case.run(gaps=True, anew=True, accept=True).done
    assert done is not None and [(gap.messages, gap.why) for gap in done.gaps] == [(1, REMOVED)] and case.rows() == 8


def deleted(form: str, table: Path) -> int:
    """How many rows are left when the first one was deleted by the format's own means."""
    if form == "delta":
        import deltalake

        deltalake.DeltaTable(str(table)).delete("queueOffset = 0")
        return int(deltalake.DeltaTable(str(table)).to_pyarrow_dataset().count_rows())
    found = operators.iceberg(table)
    found.delete("queueOffset = 0")
    return int(operators.iceberg(table).scan().to_arrow().num_rows)


def test_a_queue_that_loses_its_tail_again_is_compared_with_what_it_had_in_all_generations(case: Case) -> None:
    case.world.add_queue("a")
    case.world.publish(A, 8)
    case.world.publish("t/a/1", 8)
    case.run()
    for name, count in ((A, 2), ("t/a/1", 3), (A, 3)):
        before = case.world.current()
        case.world.lose_tail(name, count)
        case.judge.lost_by_brokers(before)
        case.world.publish(name, count + 1)
        assert case.run(anew=True).how == DONE, "what it still holds is not landed twice"
    assert case.rows() == 16 + 3 + 4 + 4


def test_a_table_whose_own_files_are_damaged_is_refused_in_one_line(tmp_path: Path) -> None:
    damaged = {
        "parquet": ["_perseid/table.json", "_perseid/plans/00000001.json", "_perseid/committed.json"],
        "delta": ["_perseid/plans/00000001.json", "_delta_log/*.json"],
        "iceberg": ["_perseid/catalog.db", "metadata/*.metadata.json", "metadata/snap-*.avro"],
    }
    for form, names in damaged.items():
        for number, name in enumerate(names):
            case = Case(tmp_path / f"{form}-{number}", form)
            with case.playing():
                case.world.publish(A, 5)
                case.run(batch=3)
                path = max(case.landing.path.glob(name), key=lambda one: one.stat().st_mtime_ns)
                path.write_bytes(b"\xff\xfe\x00\x01" * 10)
                refused = case.landing.archive(Asked())
            assert refused.refusal == "a damaged file" and "\n" not in refused.error, (form, name)
            assert str(case.landing.path) in refused.error
