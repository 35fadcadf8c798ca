"""From a connection's commands to the handlers of its requests, and from their answers to the turn.

A request passes the gates in their order: one may refuse it (RequestRefused), or see to it itself. Then its route's
handler answers it, or (None) will. What a handler can't foresee becomes code 1; bytes that are no request close their
connection, after the answers to what stood before them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Close, ConnId
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.request import VIP_LISTENER, Connection, Reply, Request
from perseid.broker.kernel.roads import UNKNOWN_CODE, Roads
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.saves import Saves
from perseid.broker.kernel.turn import Turn
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.rpc import Caller

Gate = Callable[[Request, Route], bool]
"""Does it see to the request itself? RequestRefused: nobody does."""
Admit = Callable[[Request, Route | None], None]
"""Asked first of each request, of one that nobody serves too. RequestRefused: it may not."""
Logical = Callable[[Request, Route], Reply | None]
"""Answers a request that may be about a logical queue."""


class Dispatch:
    """The requests of one broker."""

    def __init__(self, turn: Turn, saves: Saves, generation: Generation, caller: Caller, roads: Roads) -> None:
        self._turn = turn
        self._saves = saves
        self._generation = generation
        self._caller = caller
        self.roads = roads
        self._refused: dict[ConnId, str] = {}
        self._gates: Sequence[Gate] = ()
        self._logical: Logical = lambda request, route: route.handler(request)
        self.admit: Admit | None = None
        """None: everybody may do everything."""
        self.routes: Mapping[int, Route] = {}
        """By request code."""
        self.serves = False
        """Is the broker running?"""
        self.only_plain = True
        """Has this turn had plain sends only?"""

    def serve(self, routes: Mapping[int, Route], gates: Sequence[Gate], logical: Logical) -> None:
        """What is served, what is asked before it, and who answers for logical queues."""
        self.routes, self._gates, self._logical = routes, gates, logical

    def take(self, conn: Connection, commands: Iterable[Command]) -> None:
        """Hand the commands of a connection on, one after the other."""
        try:
            for command in commands:
                self.only_plain = False
                if command.is_response:
                    self._turn.emit_all(self._caller.answered(conn.id, command, self._turn.now))
                else:
                    self.roads.ordinary[command.code if command.code in self.routes else UNKNOWN_CODE] += 1
                    self.request(Request(conn, command, None))
        except RemoteProtocolError as error:
            self._turn.note("warning", f"connection {conn.id} of {conn.peer}: {error}; it is closed")
            self._refused[conn.id] = str(error)

    def request(self, request: Request) -> None:
        """Hand one request to its handler, and its answer to this turn."""
        route = self.routes.get(request.command.code)
        if route is None or not route.keeps_checks:
            self._generation.rise()
        try:
            reply = self._handled(request, route)
        except RequestRefused as refused:
            reply = Reply(refused.code, remark=refused.remark)
        except (AssertionError, RemoteProtocolError):
            raise
        except Exception as error:
            text = f"request {request.command.code} of {request.conn.peer}: {traceback.format_exc()}"
            self._turn.note("error", text)
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if reply is None:
            return
        if route is not None and not route.promises:
            self._turn.reply(request, reply)
        else:
            self._saves.answer(request, reply)

    def _handled(self, request: Request, route: Route | None) -> Reply | None:
        if self.admit is not None:
            self.admit(request, route)
        if route is None or (request.conn.listener == VIP_LISTENER and not route.on_vip):
            code = request.command.code
            raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        if not self.serves:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is shutting down")
        for gate in self._gates:
            if gate(request, route):
                return None
        if route.header is not None and request.header is None:
            request.header = request.command.header(route.header)
        return self._logical(request, route) if route.logical else route.handler(request)

    def close_refused(self) -> None:
        """At the end of a turn, behind its answers: close connections that sent what is no request."""
        if self._refused:
            self._turn.emit_all([Close(conn, reason) for conn, reason in self._refused.items()])
            self._refused.clear()
