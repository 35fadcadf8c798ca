"""What it costs to send a file's bytes and nothing else: `python bench/plain_send.py FILE BYTES`.

One `sendall` of the mapped file over a connection on loopback to a process that reads and forgets. Prints the CPU
seconds of the sender: what no sender of these bytes can do without.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time

READ_BYTES = 1 << 20


def forget(address: tuple[str, int]) -> None:
    """Read all that comes."""
    buffer = bytearray(READ_BYTES)
    with socket.create_connection(address) as stream:
        while stream.recv_into(buffer):
            pass


def send(path: str, size: int) -> float:
    """CPU seconds of sending the first `size` bytes of a file."""
    with socket.create_server(("127.0.0.1", 0)) as listener, open(path, "rb") as file:
        if not (child := os.fork()):
            forget(listener.getsockname())
            os._exit(0)
        stream, _ = listener.accept()
        with stream, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            began = time.process_time()
            stream.sendall(view)
            spent = time.process_time() - began
        os.waitpid(child, 0)
    return spent


if __name__ == "__main__":
    print(send(sys.argv[1], int(sys.argv[2])))
