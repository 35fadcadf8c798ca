"""Entries by the core, as it was compiled and as plain Python: the same bytes as `wire.dledger` and `PlainRuns`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.base.errors import RequestRefused
from perseid.raft.runs import CoreRuns, PlainRuns, RunPush, entries_in
from perseid.testing.cores import core_from
from perseid.wire.dledger import Entry, Message, PushEntryRequest, push_text

BASE = Message(group="g", remote_id="n1", local_id="n0", leader_id="n0", term=7)
SIZES = [0, 1, 2, 3, 4, 5, 100, 1_000]


def ways() -> Iterator[Any]:
    yield pytest.param(core_from(Path(core.__file__).parent), id="source")
    if core.is_compiled:
        yield pytest.param(core.installed, id="compiled")


@pytest.fixture(params=ways())
def runs(request: pytest.FixtureRequest) -> CoreRuns:
    return CoreRuns(request.param)


def made(random: Random, count: int, *, index: int = 5, term: int = 7) -> list[Entry]:
    entries, pos = [], random.choice([0, 1_000, 1 << 40])
    for n in range(count):
        body = random.randbytes(random.choice(SIZES))
        entries.append(Entry(index + n, term, pos, body, channel=random.choice([0, 0, 3]), size=48 + len(body)))
        pos += entries[-1].disk_bytes
    return entries


def on_disk(entries: list[Entry]) -> bytes:
    return b"".join(bytes(part) for entry in entries for part in entry.encode())


@pytest.mark.parametrize("seed", range(5))
def test_what_stands_on_disk_is_read_as_plain_python_reads_it(runs: CoreRuns, seed: int) -> None:
    entries = made(Random(seed), 20)
    data, plain = on_disk(entries), PlainRuns()
    assert list(entries_in(data)) == entries
    for most in (1, 500, 2_000, len(data)):
        found = runs.text(memoryview(data), most)
        assert found == plain.text(data, most) and found.count >= 1
    assert runs.text(data, len(data)).json.decode() == ",".join(entry.json() for entry in entries)
    assert runs.derived(data) == plain.derived(data)


def test_what_is_no_entry_ends_a_run(runs: CoreRuns) -> None:
    data = on_disk(made(Random(1), 3))
    size = int.from_bytes(data[4:8], "big")
    for at in (0, 7, 15, 31, 47):  # magic, size, index, pos, size of the body
        damaged = bytearray(data)
        damaged[size + at] ^= 1
        assert runs.text(bytes(damaged), 1 << 20).count == len(list(entries_in(damaged))) == 1, at
    assert runs.text(data[:-1], 1 << 20).count == 2 and runs.text(b"", 1).count == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_push_is_read_as_the_ordinary_decoder_reads_it(runs: CoreRuns, seed: int) -> None:
    random = Random(seed)
    entries = made(random, random.randint(2, 9))
    body = push_text(BASE, "APPEND", 3, entries)
    found = runs.push(body)
    assert isinstance(found, RunPush) and found.run.data == on_disk(entries)
    assert (found.first, found.count, found.commit_index, found.type) == (5, len(entries), 3, "APPEND")
    assert found.entries == PushEntryRequest.from_json(body).entries
    for _ in range(300):
        other = bytearray(body)
        at = random.randrange(len(other))
        other[at] = random.choice([other[at] ^ 1, 34, 44, 45, 48, 61, 93, 255])
        quick = runs.push(bytes(other))
        if quick is not None:
            slow = PushEntryRequest.from_json(bytes(other))
            assert quick.entries == slow.entries and quick.commit_index == slow.commit_index
    assert all(runs.push(body[:size]) is None for size in range(0, len(body), 7))


def test_what_is_unusual_is_left_to_the_ordinary_decoder(runs: CoreRuns) -> None:
    entries = made(Random(2), 3)
    body = push_text(BASE, "APPEND", 3, entries)
    assert runs.push(push_text(BASE, "APPEND", 3, entries[:1])) is None, "a single entry"
    assert runs.push(push_text(BASE, "COMMIT", 3, [])) is None
    assert runs.push(push_text(BASE, "APPEND", 3, [entries[0], entries[2]])) is None, "a gap"
    later = made(Random(3), 1, index=8, term=8)
    later[0].pos = entries[-1].pos + entries[-1].disk_bytes
    assert runs.push(push_text(BASE, "APPEND", 3, entries + later)) is None, "two terms"
    for old, new in ((b'"bodyCrc":0', b'"bodyCrc":1'), (b'"magic":1', b'"magic":2'), (b'{"body"', b'{ "body"')):
        assert runs.push(body.replace(old, new, 1)) is None
    assert runs.push(body.replace(b'"code":200', b'"entry":' + entries[0].json().encode() + b',"code":200')) is None
    assert runs.push(body[:-1]) is None
    assert runs.push(body[: body.rindex(b"]") + 1] + b",}") is None, "a comma, and no member"
    for second in (b'"batchEntry":null', b'"batchEntry":[]', b'"batch\\u0045ntry":[]'):
        assert runs.push(body.replace(b'"code":200', second + b',"code":200')) is None, second


def test_a_run_of_the_senders_own_naming_is_not_looked_at(runs: CoreRuns) -> None:
    entries = made(Random(4), 2)
    body = push_text(BASE, "APPEND", 3, entries).replace(b'"code":200', b'"run":{"index":1},"code":200')
    found = runs.push(body)
    assert found is not None and found.run.data == on_disk(entries)
    with pytest.raises(RequestRefused):
        PushEntryRequest.from_json(b"[]")
