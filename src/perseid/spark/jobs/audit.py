"""Do replicas agree? Compares the store folders of two or more replicas: master and slaves, or of a DLedger group.

Records are compared by offset and by all their stored bytes (`perseid.spark.log.compare`: nothing in a record may
differ), for each pair of folders, over the offsets that both logs have. A replica that is behind, or whose first files
were deleted, is reported, but this is no divergence. Epoch files are compared too: the same bytes under another epoch
are another history, which a later failover would truncate.

Each executor must see the folders under the same paths. They may be in use: each log is compared up to where it was
when the audit began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perseid.base.errors import ConfigError, RemoteProtocolError
from perseid.replication.auto_switch import epochs
from perseid.spark.log import compare
from perseid.spark.log.compare import KINDS, Finding, Share, Side, Told
from perseid.spark.log.options import LogOptions, parse
from perseid.spark.report import COLOURS, Page
from perseid.wire.ha_auto import EpochEntry, decode_epoch_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARE_BYTES = 64 << 20
"""Of each log, one task."""
SHARES_A_JOB = 64
"""Progress is told, and results are gathered, so often."""
SAMPLES = 20
"""Differences of a pair, and damage of a replica, that are told in words."""
MAX_SAMPLES = 10_000
MAX_FOLDERS = 16
"""All pairs are compared."""

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One folder, and what is in it."""

    folder: str
    """Its path, as it was given."""
    begin: int
    """The first offset of its log files."""
    end: int
    """The offset after its last record."""
    records: int
    """The number of records that could be read."""
    topics: dict[str, int]
    """Topic → records."""
    corrupt: int
    """The number of places where no record could be read, or with a wrong checksum."""
    damage: tuple[tuple[int, str], ...]
    """The first damaged places: the offset, and what is wrong."""
    epochs: tuple[EpochEntry, ...] | None
    """Of its epoch file; None: it has none."""
    is_written: bool
    """Its log grew, or was cut, while it was read."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """Where the epoch files of two replicas begin to differ."""

    offset: int
    """The offset from which they differ."""
    left: int
    """The epoch in the first replica's file."""
    right: int
    """The epoch in the second replica's file."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two replicas, from `begin` to `end`, where both have a log."""

    left: str
    """The folder of the first replica."""
    right: str
    """The folder of the second one."""
    begin: int
    """The first offset that both have."""
    end: int
    """Where the shorter log ends."""
    topics: dict[str, dict[str, int]]
    """Topic → differing, missing (in `right`), extra (only in `right`)."""
    findings: tuple[Finding, ...]
    """The first ones, in order."""
    epochs: Epochs | None
    """Where their epoch files differ; None: nowhere."""
    agreed: int | None
    """Up to there the two are one history by their epoch files; None: nothing is known of it, or they have none in
    common."""
    shares: tuple[tuple[int, int], ...]
    """Where divergences are, roughly: beginnings of shares, and how many each has."""

    def count(self, kind: str) -> int:
        """The number of records that differ in this way."""
        return sum(counts[kind] for counts in self.topics.values())

    @property
    def divergences(self) -> int:
        """The number of divergences of all kinds, without the epochs."""
        return sum(map(self.count, KINDS))

    @property
    def is_compared(self) -> bool:
        """Whether both logs have an offset in common."""
        return self.end > self.begin

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, and something was compared."""
        return self.is_compared and not self.divergences and self.epochs is None

    @property
    def first(self) -> int | None:
        """The offset of the first divergence, of bytes or of epochs."""
        places = [finding.place for finding in self.findings[:1]]
        places += [] if self.epochs is None else [self.epochs.offset]
        return min(places, default=None)


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit."""

    replicas: tuple[Replica, ...]
    """The folders, in the order in which they were given."""
    pairs: tuple[Pair, ...]
    """The comparison of each pair of them."""

    @property
    def is_equal(self) -> bool:
        """Whether there is no divergence, and nothing is corrupt."""
        return all(pair.is_equal for pair in self.pairs) and not any(replica.corrupt for replica in self.replicas)

    def told(self) -> dict[str, Any]:
        """The result as a JSON object."""
        found: dict[str, Any] = msgspec.to_builtins(asdict(self))
        found["equal"] = self.is_equal
        for told, pair in zip(found["pairs"], self.pairs, strict=True):
            told |= {"equal": pair.is_equal, "first": pair.first, "firstEpochs": self.first_epochs(pair)}
            told |= {kind: pair.count(kind) for kind in KINDS}
        return found

    def first_epochs(self, pair: Pair) -> tuple[int | None, int | None]:
        """Of which epochs, or terms of a group, the first divergence of a pair is, to one and to the other; None: it
        has no record there, or nobody knows."""
        if pair.first is None:
            return None, None
        one, other = (
            owner(replica.epochs, pair.first)
            for folder in (pair.left, pair.right)
            for replica in self.replicas
            if replica.folder == folder
        )
        if pair.findings and pair.findings[0].place == pair.first:
            left, right = pair.findings[0].left, pair.findings[0].right
            one = left.term if left is not None and left.term is not None else one
            other = right.term if right is not None and right.term is not None else other
        return one, other


def audit(
    spark: SparkSession,
    *,
    folders: Sequence[str],
    max_record_bytes: str | None = None,
    share_bytes: int = SHARE_BYTES,
    samples: int = SAMPLES,
    on_progress: Progress | None = None,
) -> Audited:
    """Compare the logs of two or more store folders. `ConfigError` names a folder without a log, or a wrong option.

    `max_record_bytes` is like the option maxRecordBytes of the source (a number, or with k, m, g)."""
    options = _options(folders, max_record_bytes)
    if not 1 <= samples <= MAX_SAMPLES:
        raise ConfigError(f"samples={samples} is not between 1 and {MAX_SAMPLES}")
    if share_bytes < 1:
        raise ConfigError(f"share_bytes={share_bytes} is not positive")
    sides = [compare.side(folder, options.most_bytes) for folder in options.folders]
    histories = [_epochs(one.folder) for one in sides]
    shares = compare.shares(sides, share_bytes)
    ranges = [(one.begin, one.end) for one in sides]
    total = sum(share.read_bytes for share in shares)
    done = 0
    sums = _Sums(sides, samples)
    for share, told in zip(shares, _run(spark, shares, ranges, options.most_bytes, samples), strict=True):
        sums.add(told)
        done += share.read_bytes
        if on_progress is not None:
            on_progress(done, total)
    return sums.audited(sides, histories, [_has_moved(one, options.most_bytes) for one in sides])


def _options(folders: Sequence[str], max_record_bytes: str | None) -> LogOptions:
    named = [folder.rstrip("/") or folder for folder in folders]
    if len(named) < 2:
        raise ConfigError("an audit needs two or more store folders, one of each replica")
    if len(named) > MAX_FOLDERS:
        raise ConfigError(f"{len(named)} folders: at most {MAX_FOLDERS} are compared with one another")
    again = [folder for folder, count in Counter(str(Path(f).resolve()) for f in named).items() if count > 1]
    if again:
        raise ConfigError(f"{again[0]} is given twice: a log is always equal to itself")
    given = {"path": ",".join(named)}
    if any("," in folder for folder in named):
        raise ConfigError("a folder's name can't have a comma")
    return parse(given if max_record_bytes is None else {**given, "maxRecordBytes": max_record_bytes})


def _run(
    spark: SparkSession, shares: Sequence[Share], ranges: Sequence[tuple[int, int]], most_bytes: int, samples: int
) -> Iterator[Told]:
    """What each share's task found, in order."""
    decoder = msgspec.msgpack.Decoder(Told)
    for first in range(0, len(shares), SHARES_A_JOB):
        some = shares[first : first + SHARES_A_JOB]
        numbers = spark.range(0, len(some), 1, len(some))
        rows = numbers.mapInArrow(_task(some, ranges, most_bytes, samples), "number bigint, told binary").collect()
        for row in sorted(rows, key=lambda row: row.number):
            yield decoder.decode(bytes(row.told))


def _task(
    shares: Sequence[Share], ranges: Sequence[tuple[int, int]], most_bytes: int, samples: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What Spark runs: numbers of shares in, what was found out."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        encode = msgspec.msgpack.encode
        for batch in batches:
            for number in batch.column(0).to_pylist():
                told = encode(compare.compare(shares[number], ranges, most_bytes=most_bytes, samples=samples))
                yield pa.RecordBatch.from_pydict({"number": [number], "told": [told]})

    return task


class _Sums:
    """What the tasks found, added up."""

    def __init__(self, sides: Sequence[Side], samples: int) -> None:
        self._samples = samples
        self._pairs = compare.pairs(len(sides))
        self._topics: list[Counter[str]] = [Counter() for _ in sides]
        self._damage = [one.gaps[:samples] for one in sides]
        self._corrupt = [len(one.gaps) for one in sides]
        self._counts: list[dict[str, Counter[str]]] = [{} for _ in self._pairs]
        self._findings: list[list[Finding]] = [[] for _ in self._pairs]
        self._shares: list[list[tuple[int, int]]] = [[] for _ in self._pairs]

    def add(self, told: Told) -> None:
        """One share; they come in order."""
        for number, topics in enumerate(told.topics):
            self._topics[number].update(topics)
            self._corrupt[number] += told.corrupt[number]
            self._damage[number] = sorted([*self._damage[number], *told.damage[number]])[: self._samples]
        for number, compared in enumerate(told.compared):
            count = 0
            for topic, counts in compared.counts.items():
                self._counts[number].setdefault(topic, Counter()).update(dict(zip(KINDS, counts, strict=True)))
                count += sum(counts)
            if count:
                self._shares[number].append((told.begin, count))
            room = self._samples - len(self._findings[number])
            self._findings[number] += compared.findings[:room]

    def audited(
        self,
        sides: Sequence[Side],
        histories: Sequence[tuple[EpochEntry, ...] | str | None],
        moved: Sequence[bool],
    ) -> Audited:
        """All of it."""
        replicas = []
        for number, one in enumerate(sides):
            history, topics = histories[number], self._topics[number]
            damage, corrupt = self._damage[number], self._corrupt[number]
            if isinstance(history, str):
                damage, corrupt = [(one.begin, history), *damage], corrupt + 1
            replicas.append(Replica(
                one.folder, one.begin, one.end, topics.total(), dict(sorted(topics.items())), corrupt, tuple(damage),
                None if isinstance(history, str) else history, moved[number],
            ))  # fmt: skip
        found = []
        for number, (left, right) in enumerate(self._pairs):
            found.append(self._pair(number, replicas[left], replicas[right]))
        return Audited(tuple(replicas), tuple(found))

    def _pair(self, number: int, left: Replica, right: Replica) -> Pair:
        begin, end = max(left.begin, right.begin), min(left.end, right.end)
        differ, agreed = None, None
        if left.epochs and right.epochs:
            differ = epochs_differ(left.epochs, right.epochs, begin, end)
            point = epochs.consistent_point(left.epochs, left.end, right.epochs, right.end)
            agreed = None if point < 0 else point
        topics = {
            topic: {kind: counts[kind] for kind in KINDS} for topic, counts in sorted(self._counts[number].items())
        }
        return Pair(
            left.folder, right.folder, begin, max(begin, end), topics, tuple(self._findings[number]), differ, agreed,
            tuple(self._shares[number]),
        )  # fmt: skip


# ---- epochs ----


def _epochs(folder: str) -> tuple[EpochEntry, ...] | str | None:
    """Those of a folder's epoch file (or of its `.bak`, as the original reads it); None without one; what is wrong, if
    neither can be read."""
    why = None
    root = Path(folder.removeprefix("file://")).expanduser()
    root = root.parent if root.name == "commitlog" else root
    for name in (epochs.PATH, epochs.BACKUP):
        path = root / name
        if not path.is_file():
            continue
        try:
            return tuple(decode_epoch_file(path.read_bytes()))
        except RemoteProtocolError as error:
            why = f"{path}: {error}"
    return why


def epochs_differ(
    left: Sequence[EpochEntry], right: Sequence[EpochEntry], begin: int, end: int
) -> Epochs | None:
    """The first offset of [begin, end) that is another epoch's to one than to the other. What is older than a file's
    first epoch, nobody knows of."""
    for place in sorted({begin, *(entry.start for entry in (*left, *right) if begin < entry.start < end)}):
        one, other = owner(left, place), owner(right, place)
        if begin < end and one is not None and other is not None and one != other:
            return Epochs(place, one, other)
    return None


def owner(entries: Sequence[EpochEntry] | None, offset: int) -> int | None:
    """The epoch that a byte is of; None: it is older than all of them, or there are none."""
    owned = [entry.epoch for entry in entries or () if entry.start <= offset]
    return owned[-1] if owned else None


def _has_moved(one: Side, most_bytes: int) -> bool:
    """Has a log another end, or begin, than when it was looked at?"""
    try:
        now = compare.side(one.folder, most_bytes)
    except (ConfigError, FileNotFoundError):
        return True
    return (now.begin, now.end) != (one.begin, one.end)


# ---- for people ----


def lines(found: Audited) -> list[str]:
    """The findings as lines of text."""
    said = []
    furthest = max(replica.end for replica in found.replicas)
    for one in found.replicas:
        text = f"{one.folder}: offsets {one.begin} to {one.end}, {one.records} records"
        if one.end < furthest:
            text += f"; {furthest - one.end} bytes behind the longest"
        if one.is_written:
            text += "; its log changed meanwhile: compared up to where it was"
        if one.corrupt:
            text += f"; {one.corrupt} corrupt"
        said.append(text)
        said += [f"  corrupt at {place}: {why}" for place, why in one.damage]
    for pair in found.pairs:
        said += _pair_lines(pair, found.first_epochs(pair))
    return said


def _pair_lines(pair: Pair, first_epochs: tuple[int | None, int | None]) -> list[str]:
    both = f"{pair.left} and {pair.right}"
    if not pair.is_compared:
        return [f"{both}: no offset is in both: nothing was compared"]
    if pair.is_equal:
        return [f"{both}: equal from {pair.begin} to {pair.end}"]
    text = f"{both}: the first divergence is at {pair.first}"
    one, other = ("none" if epoch is None else epoch for epoch in first_epochs)
    if first_epochs != (None, None):
        text += f", epoch {one}" if one == other else f", epochs {one} and {other}"
    said = [f"{text}; " + ", ".join(f"{pair.count(kind)} {kind}" for kind in KINDS)]
    if pair.epochs is not None:
        said.append(f"  from {pair.epochs.offset} on it is epoch {pair.epochs.left} in one file, "
                    f"{pair.epochs.right} in the other")  # fmt: skip
    if pair.agreed is not None and pair.epochs is None and pair.first is not None and pair.first < pair.agreed:
        said.append(f"  by their epoch files they are one history up to {pair.agreed}: nothing would repair this")
    for topic, counts in pair.topics.items():
        said.append(f"  {topic}: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]))
    said += [f"  {finding_text(finding)}" for finding in pair.findings]
    return said


def finding_text(finding: Finding) -> str:
    """One difference, in a line."""
    stored = finding.left or finding.right
    if stored is None:
        return f"at {finding.place}: {finding.kind}"
    where = f"{stored.topic}, queue {stored.queue_id}, offset {stored.queue_offset}"
    terms = [str(one.term) for one in (finding.left, finding.right) if one is not None and one.term is not None]
    told = f"at {finding.place}: {finding.kind}: {where}"
    told += f", term {'/'.join(dict.fromkeys(terms))}" if terms else ""
    told += f", message {stored.msg_id}" if stored.msg_id else ""
    return told + (f"; not the same: {', '.join(finding.fields)}" if finding.fields else "")


def page(found: Audited) -> Page:
    """The findings as an HTML page, for `--report`."""
    divergences = sum(pair.divergences + (pair.epochs is not None) for pair in found.pairs)
    corrupt = sum(replica.corrupt for replica in found.replicas)
    apart = sum(not pair.is_compared for pair in found.pairs)
    records = sum(replica.records for replica in found.replicas)
    summary = f"{len(found.replicas)} replicas with {records:,} records: {divergences:,} divergences"
    summary += f", {corrupt:,} corrupt"
    summary += f", {apart} pairs without an offset in common." if apart else "."
    verdict = "They agree." if found.is_equal else "They do not agree."
    made = Page("Audit of replicas", summary, good=found.is_equal, verdict=verdict)
    furthest = max(replica.end for replica in found.replicas)
    made.heading("Replicas")
    made.table(
        ["folder", "first offset", "end", "behind", "records", "corrupt", "epochs"],
        [
            [r.folder, r.begin, r.end, furthest - r.end, r.records, r.corrupt,
             " ".join(f"{e.epoch}@{e.start}" for e in r.epochs or ()) or "–"]
            for r in found.replicas
        ],
    )  # fmt: skip
    made.picture(lambda figure: _draw(figure, found), "The offsets that each replica has, and where replicas diverge")
    made.heading("Pairs")
    made.table(
        ["one", "the other", "from", "to", "first divergence", "epoch", "epoch", *KINDS],
        [[p.left, p.right, p.begin, p.end, p.first, *found.first_epochs(p), *map(p.count, KINDS)] for p in found.pairs],
    )
    made.text("missing: the second has no record there; extra: only the second has one.")
    made.heading("Topics")
    names = sorted({topic for replica in found.replicas for topic in replica.topics})
    made.table(
        ["topic", *(f"records in {replica.folder}" for replica in found.replicas)],
        [[name, *(replica.topics.get(name, 0) for replica in found.replicas)] for name in names],
    )
    if not found.is_equal:
        made.heading("The first divergences")
        made.table(["pair", "what"], [
            [f"{p.left} – {p.right}", finding_text(finding)] for p in found.pairs for finding in p.findings
        ])  # fmt: skip
        made.heading("What is corrupt")
        made.table(["folder", "offset", "what"], [[r.folder, place, why] for r in found.replicas
                                                  for place, why in r.damage])  # fmt: skip
    return made


def _draw(figure: Any, found: Audited) -> None:
    """A bar for each replica, a mark for each share of it with divergences."""
    axes = figure.subplots()
    names = [replica.folder for replica in found.replicas]
    unit = 2**20 if max(replica.end for replica in found.replicas) > 2**22 else 2**10
    for number, replica in enumerate(found.replicas):
        axes.barh(
            number, (replica.end - replica.begin) / unit, left=replica.begin / unit, height=0.5, color=COLOURS[0]
        )
    marks: set[tuple[int, int]] = set()
    for pair in found.pairs:
        places = [finding.place for finding in pair.findings] + [begin for begin, _ in pair.shares[1:]]
        marks |= {(names.index(folder), place) for folder in (pair.left, pair.right) for place in places}
    if marks:
        rows, at = zip(*marks, strict=True)
        axes.vlines([place / unit for place in at], [r - 0.32 for r in rows], [r + 0.32 for r in rows],
                    color=COLOURS[4], linewidth=1.2)  # fmt: skip
    axes.set_yticks(range(len(names)), [name if len(name) < 30 else "…" + name[-28:] for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(f"offset, {'KiB' if unit == 2**10 else 'MiB'} (red: divergences)")
    axes.grid(axis="y", visible=False)
