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

from demo import produce, report, verify
from demo.cluster import Cluster
from demo.flights import TOTAL, flights

TOPIC = "flights"
OFFSETS_A_BATCH = 60_000


Landed = tuple[verify.Checked, list[tuple[str, int, float]], float]
"""What the table holds, the mean delays by carrier and hour, and how many seconds the landing took."""


def land(folder: Path, namesrv: str, count: int, console: Console) -> Landed:
    """Archive the topic with Spark and check that the table has so many flights."""
    import perseid.spark
    from perseid.spark.archive import archive, read

    table = str(folder / "table")
    with console.status("starting Spark"):
        spark = perseid.spark.session("perseid demo", config={"spark.sql.shuffle.partitions": "4"})
        spark.sparkContext.setLogLevel("ERROR")
    try:
        started = time.monotonic()
        with console.status("landing the topic as Parquet") as status:
            archive(
                spark, nameserver=namesrv, topic=TOPIC, table=table, max_offsets_per_trigger=OFFSETS_A_BATCH,
                on_batch=lambda batch, rows: status.update(f"landing as Parquet: batch {batch}, {rows:,} rows"),
            )  # fmt: skip
        seconds = time.monotonic() - started
        with console.status("checking every flight"):
            rows = read(spark, table)
            unique = verify.unique_flights(rows).cache()
            return verify.check(rows, unique, count), verify.delays(unique), seconds
    finally:
        spark.stop()


def failures(run: produce.Run) -> list[str]:
    """What went wrong before Spark, in words."""
    faults = []
    if not any(outage.cause is not None for outage in run.outages):
        faults.append("the kill of the master was not noticed")
    if not run.findings.kept:
        faults.append(f"of the steady sender's messages some were lost or moved: {run.findings.named}")
    return faults


def main() -> int:
    """The whole demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder, made anew")
    parser.add_argument("--flights", type=int, default=TOTAL, help="only the first so many, to try it out")
    arguments = parser.parse_args()
    folder: Path = arguments.out.resolve()
    count = min(TOTAL, max(1000, arguments.flights))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console()
    console.print(f"[bold]Perseid demo[/]: {count:,} flights; 3 controllers, a name server, a master and its 2 slaves")
    with console.status("starting the cluster"):
        cluster = Cluster.start(folder)
    try:
        for member in cluster.told["members"]:
            console.print(f"  {member['name']:<14} {member['address']:<16} pid {member['pid']}")
        run = asyncio.run(produce.run(cluster, TOPIC, islice(flights(), count), count))
        checked, delays, archive_s = land(folder, cluster.namesrv, count, console)
    finally:
        cluster.stop()
    produced, findings = run.produced, run.findings
    outage = max(run.outages, key=lambda one: (one.cause is not None, one.length_ms or 0), default=None)
    faults = checked.faults + failures(run)
    report.plot_failover(produced, outage, folder / "failover.png")
    report.plot_delays(delays, folder / "delays.png")
    seen = [] if outage is None else [part for part in outage.parts() if part.seen]
    parts = [(f"of that, {part.name}", f"{part.length_ms:.0f} ms") for part in seen]
    figures = [
        ("flights acknowledged", f"{produced.messages:,}"),
        ("messages a second, the outage included", f"{produced.messages_per_second:,.0f}"),
        ("no flight acknowledged from SIGKILL on for", f"{produced.unavailable_s * 1000:,.0f} ms"),
        ("batches of flights sent again", f"{produced.retries}"),
        ("a steady sender was without acknowledgement for", f"{(outage and outage.length_ms) or 0:,.0f} ms"),
        *parts,
        ("of its messages lost", f"{findings.lost} of {findings.acknowledged:,}"),
        ("rows in the table", f"{checked.rows:,}"),
        ("duplicates from retries, removed", f"{checked.duplicates:,}"),
        ("flights, once each", f"{checked.flights:,}"),
        ("flights out of order", f"{checked.out_of_order}"),
        ("landing the topic as Parquet", f"{archive_s:.1f} s"),
    ]
    page = report.write(folder, figures, faults, produced)
    results = {
        "produced": {k: v for k, v in asdict(produced).items() if k not in ("timeline", "steady")},
        "outages": [one.to_json() for one in run.outages], "steady": asdict(findings), "checked": asdict(checked),
    }  # fmt: skip
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
