"""`perseid admin roads`: how many requests a broker answers on its fast road, how many by handlers, and why sends
are not fast."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated

import typer

from perseid.broker.kernel.roads import FAST, ORDINARY, WHY
from perseid.cli.topics import DEFAULT_NAMESRV, AsJson, Namesrv, run, show
from perseid.client import Admin
from perseid.wire.codes import RequestCode

SENDS = (10, 310, 320)
FEW = 0.01
"""Of the sends; fewer on the ordinary road are not worth a word."""
NEXT = {
    "SLAVE": "send to the master: the clients' routes are old, or no master is registered",
    "MANY_WAIT": "find out why the disk or the replicas are slow: perseid admin ha-status",
    "FEW_REPLICAS": "bring the missing replicas back: perseid admin ha-status",
    "NOT_YET": "startAcceptSendRequestTimeStamp lies in the future",
    "NO_TOPIC": "create the topic before its first message: perseid topic create",
    "OWN_TOPIC": "an application sends to a topic of the broker's own, and is refused",
    "SPECIAL_TOPIC": "expected of such topics; without need of compaction or batch queues use an ordinary one",
    "STATIC_TOPIC": "expected of static topics; without need of them use an ordinary one",
    "MULTI_TAG": "set the topic's filter type to SINGLE_TAG, if one tag a message is enough",
    "NO_QUEUE": "clients send to queues that are not there: has the topic fewer than before?",
    "FORBIDDEN": "brokerPermission does not allow to write",
    "IPV6": "let these clients connect over IPv4, if they can",
    "EMPTY": "empty messages are refused",
}
"""What an operator can do about a reason, where there is something."""


def register(admin_app: typer.Typer) -> None:
    """Add the command to `perseid admin`."""
    admin_app.command()(roads)


def roads(
    broker: Annotated[list[str] | None, typer.Option(help="Only this broker; may be repeated.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="Watch for so long, and show rates; 0: counts since the start.")
    ] = 0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Which requests took the fast road, which the ordinary one, which costs several times as much; and why sends did.

    Counts of roads are exact. With the compiled core one refused send in 16 is asked for its reason."""

    async def work() -> dict[str, dict[str, float]]:
        async with Admin(namesrv) as admin:
            masters = await admin.masters(brokers=broker)
            before = {name: await admin.broker_runtime_info(address) for name, address in masters.items()}
            if not seconds:
                return {name: _numbers(rows) for name, rows in before.items()}
            await asyncio.sleep(seconds)
            after = {name: await admin.broker_runtime_info(address) for name, address in masters.items()}
            return {name: _rates(before[name], rows, seconds) for name, rows in after.items()}

    found = run(work(), namesrv)
    if as_json:
        typer.echo(json.dumps([one for name, rows in found.items() for one in rows_of(name, rows)]))
        return
    _print(found, "a second" if seconds else "since the start")


def _numbers(rows: Mapping[str, str]) -> dict[str, float]:
    """The counts among the rows of a broker's state."""
    heads = (FAST, ORDINARY, WHY)
    return {name: int(text) for name, text in rows.items() if name.startswith(heads) and text.isdecimal()}


def _rates(before: Mapping[str, str], after: Mapping[str, str], seconds: float) -> dict[str, float]:
    """What came a second. A broker that began anew in between counts from 0."""
    first = _numbers(before)
    return {name: max(0.0, count - first.get(name, 0)) / seconds for name, count in _numbers(after).items()}


def rows_of(broker: str, rows: Mapping[str, float]) -> list[dict[str, object]]:
    """What a broker said, by request code: `fast`, `ordinary`, and `why` (name of a reason → number)."""
    codes = {int(name.split("_")[1]) for name in rows}
    return [
        {
            "broker": broker,
            "code": code,
            "request": request_name(code),
            "fast": rows.get(f"{FAST}{code}", 0),
            "ordinary": rows.get(f"{ORDINARY}{code}", 0),
            "why": {
                name.split("_", 2)[2]: min(count, rows.get(f"{ORDINARY}{code}", 0))  # a sample counts for many
                for name, count in rows.items()
                if name.startswith(f"{WHY}{code}_") and count
            },
        }
        for code in sorted(codes)
        if any(rows.get(f"{head}{code}") for head in (FAST, ORDINARY))
    ]


def request_name(code: int) -> str:
    """`SEND_MESSAGE_V2` for 310; 0 stands for codes that a broker does not serve."""
    if code == 0:
        return "(not served)"
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def advice(rows: list[dict[str, object]], when: str) -> list[str]:
    """A line for each reason that many sends have: how many, what it is, and what to do."""
    from perseid.broker.fast_path.why_not import WhyNot  # brings the store along: only where it is needed

    words = {reason.name: reason.value for reason in WhyNot}
    lines = []
    for row in rows:
        why, fast, ordinary = row["why"], row["fast"], row["ordinary"]
        assert isinstance(why, dict) and isinstance(fast, int | float) and isinstance(ordinary, int | float)
        for name, count in sorted(why.items(), key=lambda one: -one[1]):
            if count < FEW * (fast + ordinary):
                continue
            next_step = f": {NEXT[name]}" if name in NEXT else ""
            text = words.get(name, name)
            lines.append(f"{row['broker']}: about {count:,.0f} {row['request']} {when}: {text}{next_step}")
    return lines


def _print(found: Mapping[str, Mapping[str, float]], when: str) -> None:
    from rich.table import Table

    table = Table("broker", "code", "request", "fast", "ordinary", "fast %", title=f"requests {when}")
    lines: list[str] = []
    for name, numbers in found.items():
        rows = rows_of(name, numbers)
        for row in rows:
            fast, ordinary = float(str(row["fast"])), float(str(row["ordinary"]))
            share = f"{100 * fast / (fast + ordinary):.1f}" if fast or row["code"] in SENDS else ""
            table.add_row(name, str(row["code"]), str(row["request"]), f"{fast:,.0f}", f"{ordinary:,.0f}", share)
        lines += advice(rows, when)
    show(table)
    for line in lines:
        typer.echo(line)
