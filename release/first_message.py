"""The first minutes of a user, by an installed Perseid alone: `perseid up`, a message sent, and read back.

    python first_message.py FOLDER

Prints JSON: the seconds until the broker was ready and until the message was read, the broker's first log line, and
what `perseid --version` says. Needs nothing but the standard library and Perseid; it runs outside of the checkout.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 60
BODY = b"first message"


async def send_and_read(namesrv: str) -> bytes:
    """The body of a message that went through the broker."""
    from perseid.client import Message, Producer, PullConsumer
    from perseid.client.admin import Admin

    async with Admin(namesrv) as admin:
        await admin.create_topic("first", 1)
    async with Producer(namesrv) as producer:
        (queue,) = await producer.queues("first")
        await producer.send(Message("first", BODY))
    async with PullConsumer(namesrv, "readers") as consumer:
        async for messages in consumer.read(queue, 0, 1):
            return bytes(messages[0].body)
    raise RuntimeError("the topic was read to its end, and the message was not in it")


def main() -> None:
    folder, command = Path(sys.argv[1]), Path(sys.executable).parent / "perseid"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    began = time.perf_counter()
    with (folder / "up.log").open("w") as log:
        arguments = ["up", "--data", str(folder / "data"), "--namesrv-port", "0", "--broker-port", "0", "--json"]
        server = subprocess.Popen([command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        ready_s = time.perf_counter() - began
        body = asyncio.run(asyncio.wait_for(send_and_read(ready["namesrv"]), TIMEOUT_S))
        read_s = time.perf_counter() - began
        server.send_signal(signal.SIGTERM)
        status = server.wait(TIMEOUT_S)
    finally:
        server.kill()
        server.communicate()
    if body != BODY or status != 0:
        raise SystemExit(f"read {body!r}, perseid up ended with {status}; see {folder / 'up.log'}")
    first_line = (folder / "up.log").read_text().partition("\n")[0]
    told = {"ready_s": ready_s, "read_s": read_s, "first_line": first_line, "version": version.stdout.strip()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
