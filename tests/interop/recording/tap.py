"""A wire that listens in: what a client and a cluster say to each other, with each whole frame kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from perseid.wire import frame

READ_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 10.0
Heard = Callable[[bytes], None]
Change = Callable[[bytes], bytes]


class Tap:
    """Stands before the server at `port`: `heard` gets each frame of each client, `change` may rewrite each answer.

    A context: its listening socket and connections end with it.
    """

    def __init__(self, port: int, heard: Heard, change: Change = bytes) -> None:
        self._server = ("127.0.0.1", port)
        self._heard, self._change = heard, change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]

    def __enter__(self) -> Tap:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its other end has closed it
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server, CONNECT_TIMEOUT_S)
            except OSError:
                return  # closed by __exit__, or the server has ended
            server.settimeout(None)
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, self._listen), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, self._change), daemon=True).start()

    def _listen(self, data: bytes) -> bytes:
        self._heard(data)
        return data

    def _pass(self, source: socket.socket, to: socket.socket, each: Change) -> None:
        """Pass whole frames on until one end closes."""
        kept = bytearray()
        try:
            while data := source.recv(READ_BYTES):
                kept += data
                whole = frame.complete(kept)
                at = 0
                while at < whole:
                    end = at + 4 + int.from_bytes(kept[at : at + 4], "big")
                    to.sendall(each(bytes(kept[at:end])))
                    at = end
                del kept[:whole]
        except OSError:
            pass  # one end has closed, so does the other
        for one in (source, to):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
