"""Runs the demo: `python -m demo --out FOLDER`. Exit code 0 only if every check holds."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo import report, verify
from demo.flights import TOTAL, flights
from demo.produce import Produced, create_topic, stream
from demo.servers import Server
from perseid.testing.ports import free_port

TOPIC = "flights"
OFFSETS_A_BATCH = 60_000


def produce(namesrv: str, servers: tuple[Server, Server, Server]) -> Produced:
    """Start name server, master and slave, and stream; they are left running for the Spark job."""
    for server in servers:
        server.start()
    asyncio.run(create_topic(namesrv, TOPIC))
    return asyncio.run(stream(namesrv, TOPIC, flights(), servers[1]))


def land(folder: Path, namesrv: str, console: Console) -> tuple[verify.Checked, list[tuple[str, int, float]], float]:
    """Archive the topic with Spark and check the table."""
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
            return verify.check(rows, unique), verify.delays(unique), seconds
    finally:
        spark.stop()


def main() -> int:
    """The whole demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder, made anew")
    folder: Path = parser.parse_args().out.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console()
    namesrv_port, broker_port, slave_port = free_port(), free_port((0, -2, 1)), free_port((0, -2, 1))
    namesrv = f"127.0.0.1:{namesrv_port}"
    name_server = Server("namesrv", folder / "servers", namesrv_port, {"kvConfigPath": folder / "kvConfig.json"})
    both = {
        "brokerName": "demo", "brokerIP1": "127.0.0.1", "namesrvAddr": namesrv, "slaveReadEnable": "true",
        "mappedFileSizeCommitLog": 256 << 20,
    }  # fmt: skip
    broker = Server("broker", folder / "servers" / "master", broker_port, {
        **both, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "storePathRootDir": folder / "store",
    })  # fmt: skip
    slave = Server("broker", folder / "servers" / "slave", slave_port, {
        **both, "brokerRole": "SLAVE", "brokerId": 1, "storePathRootDir": folder / "slave",
    })  # fmt: skip
    console.print(f"[bold]Perseid demo[/]: {TOTAL:,} flights, name server {namesrv}, master and slave on 127.0.0.1")
    try:
        produced = produce(namesrv, (name_server, broker, slave))
        checked, delays, archive_s = land(folder, namesrv, console)
    finally:
        for server in (slave, broker, name_server):
            server.stop()
    report.plot(delays, folder / "delays.png")
    figures = [
        ("flights acknowledged", f"{produced.messages:,}"),
        ("messages a second, the outage included", f"{produced.messages_per_second:,.0f}"),
        ("flights read from the slave while the master was away", f"{produced.read_from_slave:,}"),
        ("reading them took", f"{produced.slave_s:.2f} s"),
        ("no sends from SIGKILL until the master was back", f"{produced.unavailable_s:.2f} s"),
        ("batches sent again", f"{produced.retries}"),
        ("rows in the table", f"{checked.rows:,}"),
        ("duplicates from retries, removed", f"{checked.duplicates:,}"),
        ("flights, once each", f"{checked.flights:,}"),
        ("flights out of order", f"{checked.out_of_order}"),
        ("landing the topic as Parquet", f"{archive_s:.1f} s"),
    ]
    page = report.write(folder, figures, checked.faults)
    results = {"produced": asdict(produced), "checked": asdict(checked)}
    (folder / "report.json").write_text(json.dumps(results, indent=1))
    table = Table(show_header=False)
    for name, value in figures:
        table.add_row(name, value)
    console.print(table)
    for fault in checked.faults:
        console.print(f"[bold red]failed:[/] {fault}")
    console.print(f"report: {page}")
    return 1 if checked.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
