"""Each aircraft's days: legs that follow one another within twelve hours are one session, told when it is over.

The state of an aircraft is its open session. It is over when a leg comes later than that, or when the watermark says
that none can come any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from common import main, stream

GAP_MS = 12 * 3600 * 1000
LATE = "3 hours"
SESSION = "tailnum string, begun timestamp, ended timestamp, legs int, miles int, route string"
STATE = "begun bigint, ended bigint, legs int, miles int, route string"
SHOWN = 15


def sessions(key: tuple[str], frames: Iterable[Any], state: Any) -> Iterator[Any]:
    """One aircraft's new legs, or its timeout: the sessions that are over."""
    import pandas as pd

    over = []
    if state.hasTimedOut:
        over.append(state.get)
        state.remove()
    else:
        legs = sorted(row for frame in frames for row in frame.itertuples(index=False))
        for leg in legs:
            at = leg.at.value // 1_000_000
            begun, ended, count, miles, route = state.get if state.exists else (at, at, 0, 0, leg.origin)
            if count and at - ended > GAP_MS:
                over.append((begun, ended, count, miles, route))
                begun, count, miles, route = at, 0, 0, leg.origin
            route += f" {leg.dest}" if route.endswith(leg.origin) else f" · {leg.origin} {leg.dest}"
            state.update((begun, max(ended, at) if count else at, count + 1, miles + leg.distance, route))
        if state.exists:
            state.setTimeoutTimestamp(max(state.get[1] + GAP_MS, state.getCurrentWatermarkMs() + 1))
    for begun, ended, count, miles, route in over:
        yield pd.DataFrame({
            "tailnum": [key[0]], "begun": [pd.Timestamp(begun, unit="ms", tz="UTC").tz_localize(None)],
            "ended": [pd.Timestamp(ended, unit="ms", tz="UTC").tz_localize(None)],
            "legs": [count], "miles": [miles], "route": [route],
        })  # fmt: skip


def run(spark: Any, namesrv: str, topic: str) -> None:
    """Print the longest sessions that are over."""
    legs = stream(spark, namesrv, topic).where("tailnum IS NOT NULL AND dep_delay IS NOT NULL")
    found = (
        legs.select("at", "tailnum", "origin", "dest", "distance").withWatermark("at", LATE).groupBy("tailnum")
        .applyInPandasWithState(sessions, SESSION, STATE, "append", "EventTimeTimeout")
    )  # fmt: skip
    query = found.writeStream.format("memory").queryName("sessions").outputMode("append")
    query.trigger(availableNow=True).start().awaitTermination()
    rows = spark.table("sessions")
    total = rows.count()
    for row in rows.orderBy("legs", "miles", ascending=False).limit(SHOWN).collect():
        print(f"{row.tailnum:7} {row.begun:%m-%d %H:%M} to {row.ended:%m-%d %H:%M}  {row.legs} legs from New York,"
              f" {row.miles:6,} miles  {row.route}")  # fmt: skip
    print(f"{total:,} sessions of {rows.select('tailnum').distinct().count():,} aircraft are over")


if __name__ == "__main__":
    main(run, __doc__)
