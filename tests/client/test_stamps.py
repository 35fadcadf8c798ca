"""Stamps: what is one, and how stamped messages are cut into runs."""

from __future__ import annotations

import pytest

from perseid.client.stamps import Column, Placed, Run, crc_bytes, parse, runs, runs_of

from .stamped import id_of, stamp


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "q:0:0:l:0000000a:0:0",
        "q:-1:0:l:0000000a:0:0:0000000d",
        "q:a:0:l:0000000a:0:0:0000000d",
        "q:0:0:l:0000000a:0:0:0000000d:e",
        "q:0:0:l::0:0:0000000d",
        "q:0:0:l:0000000a:0:0:d",
        "q:0:0:l:0000000a:0:0:0000000D",
        "q:٣:0:l:0000000a:0:0:0000000d",
        "q" * 300,
        f"q:{2**63}:0:l:0000000a:0:0:0000000d",
        f"q:0:0:l:0000000a:0:{'9' * 200}:0000000d",
    ],
)
def test_what_is_no_stamp_says_nothing(text: str) -> None:
    assert parse(text) is None
    assert runs([Placed(0, text, "id", 0)]) == []


def of(*texts: str, unique: dict[int, str] | None = None) -> list[Placed]:
    return [Placed(at, text, (unique or {}).get(at, id_of(text)), at) for at, text in enumerate(texts)]


def columns(messages: list[Placed]) -> list[Run] | None:
    """The same messages in columns."""
    made = []
    for texts in ([one.stamp.encode() for one in messages], [(one.unique_key or "").encode() for one in messages]):
        ends = [7]
        for text in texts:
            ends.append(ends[-1] + len(text))
        made.append(Column(b"".join(texts), ends))
    crcs = b"".join(crc_bytes(one.body_crc) for one in messages)
    return runs_of(made[0], made[1], [one.queue_offset for one in messages], crcs)


def test_a_run_is_of_one_batch_of_one_stream_and_rises() -> None:
    texts = [stamp(0, 0), stamp(0, 1), stamp(0, 5), stamp(0, 5), stamp(1, 6), stamp(1, 7, stream="1"), "x", "x:1"]
    cut = runs(of(*texts, stamp(1, 8), stamp(1, 9, since=4)))
    assert [list(run.offsets) for run in cut] == [[0, 1, 2], [3], [4], [5], [8], [9]]
    assert [list(run.sequences) for run in cut] == [[0, 1, 5], [5], [6], [7], [8], [9]]
    assert cut[0].crcs == b"".join(crc_bytes(n) for n in range(3)) and len(cut[0].digests) == 12


def test_a_message_with_another_id_is_no_message_of_the_stamp() -> None:
    cut = runs(of(stamp(0, 0), stamp(0, 1), stamp(0, 2), unique={1: "another"}))
    assert [(run.own, list(run.offsets)) for run in cut] == [(True, [0]), (False, [1]), (True, [2])]


def test_columns_give_the_same_runs_or_none() -> None:
    plain = of(stamp(0, 0), stamp(0, 1), stamp(0, 9), "", stamp(0, 10), stamp(0, 11, stream="1"), stamp(1, 2**59))
    quick = columns(plain)
    assert quick is not None
    assert [(r.batch, r.own, list(r.sequences), list(r.offsets), r.digests, r.crcs) for r in quick] == [
        (r.batch, r.own, list(r.sequences), list(r.offsets), r.digests, r.crcs)
        for r in runs(plain[:3]) + runs(plain[4:])
    ]
    one = stamp(0, 3)
    prefix = one[: one.rindex(":", 0, -9) + 1]
    for odd in (
        of("no stamp"), of(one, one), of(one, stamp(0, 4), unique={1: "x" * 32}), of(one, prefix + "4:0000000D"),
        of(one, prefix + "4:000000d"), of(one, prefix + "+4:0000000d"), of(one, prefix + "4"),
        of(one, prefix + prefix + "5:0000000d"), of(one, f"{prefix}{2**63}:0000000d"), of(one, prefix + ":0000000d"),
        of(one, prefix + "4:000000 d"), of(one, prefix + "4:0000000é"),
    ):  # fmt: skip
        assert columns(odd) is None, odd
