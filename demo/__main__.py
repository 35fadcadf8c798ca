"""Runs the demo: `python -m demo --out FOLDER`. Exit code 0 only if every check holds."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo import picture, produce, report, verify
from demo.cluster import Cluster
from demo.flights import TOTAL, flights
from demo.steady import Steady
from perseid.cli.verify import Picture

TOPIC = "flights"
OFFSETS_A_BATCH = 60_000


Landed = tuple[verify.Checked, list[tuple[str, int, float]], float]
"""What the table holds, the mean delays by carrier and hour, and how many seconds the landing took."""


def land(folder: Path, namesrv: str, count: int, console: Console) -> Landed:
    """Archive the topic with Spark and check that the table has so many flights."""
    import perseid.spark
    from perseid.spark.jobs.archive import ArchiveOptions, archive, read

    table = str(folder / "table")
    with console.status("starting Spark"):
        spark = perseid.spark.session("perseid demo", config={"spark.sql.shuffle.partitions": "4"})
        spark.sparkContext.setLogLevel("ERROR")
    try:
        started = time.monotonic()
        with console.status("landing the topic as Parquet") as status:
            archive(
                spark, nameserver=namesrv, topic=TOPIC, table=table,
                options=ArchiveOptions(batch_offsets=OFFSETS_A_BATCH),
                on_batch=lambda batch, rows, _: status.update(f"landing as Parquet: batch {batch}, {rows:,} rows"),
            )  # fmt: skip
        seconds = time.monotonic() - started
        with console.status("checking every flight"):
            rows = read(spark, table)
            unique = verify.unique_flights(rows).cache()
            return verify.check(rows, unique, count), verify.delays(unique), seconds
    finally:
        spark.stop()


def failures(steady: Steady) -> list[str]:
    """What went wrong before Spark, in words."""
    faults = []
    if steady.outage is None:
        faults.append("no other master took over")
    if not steady.told["kept"]:
        faults.append(f"of the steady sender's messages some were lost or moved: {steady.told['named']}")
    return faults


def failover(cluster: Cluster, produced: produce.Produced, steady: Steady, checked: verify.Checked) -> picture.Failover:
    """What the picture shows of the outage."""
    assert steady.outage is not None
    outage, names = steady.outage, {broker["address"]: broker["name"] for broker in cluster.brokers}
    begin_ms = outage["lastAcknowledgementMs"] - produced.killed_ms
    return picture.Failover(
        list(names.values()), produced.killed, names[outage["newMaster"]], begin_ms, outage["lengthMs"],
        [picture.Part(p["name"], begin_ms + p["startMs"], p["ms"]) for p in outage["parts"] if p["seen"]],
        [at - produced.killed_ms for at in steady.acknowledged_ms()],
        f"{checked.flights:,} flights in the Spark table, each once and in order; "
        f"{steady.told['lost']} of {steady.told['acknowledged']:,} acknowledged messages lost",
    )  # fmt: skip


def main() -> int:
    """The whole demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder, made anew")
    parser.add_argument("--flights", type=int, default=TOTAL, help="only the first so many, to try it out")
    parser.add_argument("--secure", action="store_true", help="with TLS on each link, and requests that are signed")
    arguments = parser.parse_args()
    folder: Path = arguments.out.resolve()
    count = min(TOTAL, max(1000, arguments.flights))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console()
    console.print(f"[bold]Perseid demo[/]: {count:,} flights; 3 controllers, a name server, a master and its 2 slaves")
    steady: Steady | None = None
    with console.status("starting the cluster"):
        cluster = Cluster.start(folder, secure=arguments.secure)
    try:
        for member in cluster.told["members"]:
            console.print(f"  {member['name']:<14} {member['address']:<16} pid {member['pid']}")
        with console.status("starting `perseid verify run`"):
            steady = Steady.start(folder, cluster.namesrv)
        produced = asyncio.run(produce.run(cluster, TOPIC, islice(flights(), count), count))
        with console.status("checking what `perseid verify run` had acknowledged"):
            steady.stop()
        if steady.outage is not None:
            console.print(Picture(steady.outage))
        checked, delays, archive_s = land(folder, cluster.namesrv, count, console)
    finally:
        if steady is not None:
            steady.kill()
        cluster.stop()
    faults = checked.faults + failures(steady)
    outage = steady.outage or {"lengthMs": 0.0, "parts": []}
    parts = [(f"of that, {p['name']}", f"{p['ms']:,.0f} ms") for p in outage["parts"] if p["seen"]]
    figures = [
        ("flights acknowledged", f"{produced.messages:,}"),
        ("messages a second, the outage included", f"{produced.messages_per_second:,.0f}"),
        ("from SIGKILL to the next acknowledged flight", f"{produced.unavailable_s * 1000:,.0f} ms"),
        ("batches of flights sent again", f"{produced.retries}"),
        ("`perseid verify run` was without an acknowledgement for", f"{outage['lengthMs']:,.0f} ms"),
        *parts,
        ("of its messages lost", f"{steady.told['lost']} of {steady.told['acknowledged']:,}"),
        ("rows in the table", f"{checked.rows:,}"),
        ("duplicates from retries, removed", f"{checked.duplicates:,}"),
        ("flights, once each", f"{checked.flights:,}"),
        ("flights out of order", f"{checked.out_of_order}"),
        ("landing the topic as Parquet", f"{archive_s:.1f} s"),
    ]
    page = report.write(folder, figures, faults, produced, steady, delays)
    if not faults:
        picture.write(folder, failover(cluster, produced, steady, checked))
    told = {key: value for key, value in asdict(produced).items() if key != "timeline"}
    results = {"produced": told, "verify": steady.told, "checked": asdict(checked)}
    (folder / "report.json").write_text(json.dumps(results, indent=1))
    table = Table(show_header=False)
    for name, value in figures:
        table.add_row(name, value)
    console.print(table)
    for fault in faults:
        console.print(f"[bold red]failed:[/] {fault}")
    console.print(f"report: {page}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
