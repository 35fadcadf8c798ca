"""Record what stock clients send: `python tests/interop/recording/record.py java-4.9.2 java-5.5.0 go-2.1.2 …`.

A client's program (`Kinds.java`, `kinds.go`, …) does one kind of thing after the other against a broker of ours, behind
a tap (`tap.py`). The frames go to tests/traffic/NAME.json: of each kind the first two of each request code.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

import rig  # noqa: E402

from perseid.wire.command import decode  # noqa: E402
from recording import programs  # noqa: E402
from recording.tap import Tap  # noqa: E402

TRAFFIC = HERE.parents[1] / "traffic"
EACH = 2
"""Of the frames of one kind and one request code, so many are kept: the first ones."""
CONFIG = {"enablePropertyFilter": "true", "enablePopLog": "false", "traceTopicEnable": "true"}
CREATE_TOPIC, SET_MODE = 17, 401
HEARTBEAT = 34
"""All of them: each pull that follows names its version of the subscription."""
POPPING = ("recorded_pop", "recorded_pop_back")
TOPIC = "recorded"
ROW = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
       "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip


class Recording:
    """The frames of one client, by what it was doing."""

    def __init__(self) -> None:
        self.kind = ""
        self.rows: list[dict[str, object]] = []
        self._seen: Counter[tuple[str, int]] = Counter()

    def heard(self, data: bytes) -> None:
        command = decode(data)
        key = self.kind, command.code
        if command.is_response or (self._seen[key] >= EACH and command.code != HEARTBEAT):
            return
        self._seen[key] += 1
        self.rows.append({"kind": self.kind, "code": command.code, "frame": data.hex()})


def record(program: programs.Program, folder: Path, only: Collection[str] = ()) -> list[dict[str, object]]:
    """What the program sends to a broker, kind after kind. `only`: these kinds, not all that it knows."""
    recording = Recording()
    with ExitStack() as ends:
        names = rig.namesrv("perseid", folder / "namesrv").start()
        ends.callback(names.stop)
        broker = rig.broker("perseid", folder / "broker", names.address, **CONFIG).start()
        ends.callback(broker.stop)
        rig.await_registered(names.address, "broker")
        tap = ends.enter_context(Tap(broker.port, recording.heard))
        ours, others = str(broker.port).encode(), str(tap.port).encode()
        assert len(ours) == len(others), "ports of as many digits, or a frame's length would change"
        route = ends.enter_context(Tap(names.port, recording.heard, lambda data: data.replace(ours, others)))
        rig.call(broker.address, CREATE_TOPIC, ROW)  # the oldest clients' default topic has another name
        for group in POPPING:
            body = json.dumps({"topic": TOPIC, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0})
            rig.call(broker.address, SET_MODE, body=body.encode())
        _play(program.command(f"127.0.0.1:{route.port}", folder), folder, recording, only)
    return recording.rows


def _play(command: Sequence[str], folder: Path, recording: Recording, only: Collection[str]) -> None:
    with (
        open(folder / "program.err", "wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        assert child.stdin
        assert child.stdout
        try:
            kinds = _line(child.stdout, "kinds", folder).split()[1:]
            for kind in [one for one in kinds if not only or one in only]:
                recording.kind = kind
                child.stdin.write(f"{kind}\n")
                child.stdin.flush()
                print(f"  {_line(child.stdout, ('done', 'lacks', 'failed'), folder)}"[:160], flush=True)
            child.stdin.close()
        finally:
            child.kill()


def _line(lines: IO[str], starts: str | tuple[str, ...], folder: Path) -> str:
    for line in lines:
        if line.startswith(starts):
            return line.rstrip()
    raise rig.RigError(f"the program ended by itself: {(folder / 'program.err').read_text()[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"of {', '.join(programs.NAMES)}")
    for name in parser.parse_args().names:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows = record(programs.of(name), Path(folder))
        TRAFFIC.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(row) for row in rows)
        (TRAFFIC / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(f"  {len(rows)} frames", flush=True)


if __name__ == "__main__":
    main()
