"""When an acknowledgement may leave: what is stored is as durable then as the mode promises.

An answer that depends on the log being durable (SYNC_FLUSH), or on more nodes than this one (SYNC_MASTER, a group, a
controller), waits in `acks` until the log is so up to its end offset (`ready`). One flush is under way at a time; what
comes meanwhile shares the next one (group commit). When an answer's time is up it says what is missing: the disk, or
other replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perseid.base.machine import Buffer, ConnId, Millis
from perseid.broker.kernel.acks import Acks, Waiting
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.appends import Appends
from perseid.store.commit_log import CommitLog
from perseid.store.flushing import Flusher
from perseid.wire import command as wire
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageResponse


class Stored(Protocol):
    """What acknowledgements ask of the store: how far its log is, and to flush it."""

    @property
    def log(self) -> CommitLog: ...

    @property
    def appends(self) -> Appends: ...

    @property
    def flusher(self) -> Flusher: ...


class Nodes(Protocol):
    """What acknowledgements ask of the other nodes that have the log."""

    @property
    def synchronous(self) -> bool:
        """Do acknowledgements wait for slaves, or did they once?"""

    @property
    def by_quorum(self) -> bool:
        """Do they wait for a quorum of a group?"""

    @property
    def too_few(self) -> str:
        """Why no message is taken, with fewer replicas in sync than are wanted; "": there are enough."""

    @property
    def wait_ms(self) -> Millis:
        """How long an acknowledgement waits for other nodes at most."""

    def replicated(self) -> int:
        """The log is on as many nodes as was promised up to here."""


class Durability:
    """The acknowledgements of one broker."""

    def __init__(
        self, turn: Turn, settings: Settings, store: Stored, nodes: Nodes, acks: Acks, counts: Counts,
        *, sync_flush: bool,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._settings = settings
        self._store = store
        self._nodes = nodes
        self._stats = counts
        self._sync_flush = sync_flush
        self._flushing = False
        self._lost = ""
        """Why what waits was given up in this turn: answers that the turn holds back only now share that."""
        self.acks = acks
        self.waits: bool = sync_flush or nodes.synchronous or nodes.by_quorum
        """Acknowledgements wait: for the disk, for slaves, for both, or for the group."""
        acks.for_nodes = nodes.synchronous or nodes.by_quorum

    # ---- for parts ----

    @property
    def ready(self) -> int:
        """What ends up to here in the log is as durable as the mode promises."""
        own = self._store.log.flushed if self._sync_flush else self._store.log.end
        return min(own, self._nodes.replicated()) if self._nodes.synchronous else own

    @property
    def too_few(self) -> str:
        """Why no message is taken, with fewer replicas in sync than are wanted; "": there are enough."""
        return self._nodes.too_few if self.waits else ""

    @property
    def by_quorum(self) -> bool:
        """Do acknowledgements wait for a quorum of a group?"""
        return self._nodes.by_quorum

    @property
    def full(self) -> bool:
        """No further message may be stored that has to wait."""
        return self.acks.full

    @property
    def _most_wait_ms(self) -> Millis:
        nodes_ms = self._nodes.wait_ms
        if self._nodes.by_quorum or not self._sync_flush:
            return nodes_ms
        own_ms = self._settings.current.sync_flush_timeout
        return min(own_ms, nodes_ms) if self._nodes.synchronous else own_ms

    def acknowledge(self, request: Request, reply: Reply, end_offset: int, *, wait: bool = True) -> Reply | None:
        """The reply to a message that ends there in the log: now, or (None) once it is as durable as the mode promises.
        `wait`: the sender wants to wait for that; a group's mode waits whatever it wants."""
        if not self.waits or not (wait or self._nodes.by_quorum):
            self._stats.put_took(0)
            return reply
        request.command.body = b""  # it is stored: the answer needs it no more
        request.command.keep()
        self.acks.wait(end_offset, self._turn.now, self._most_wait_ms, request, reply)
        return None

    def confirm(self, request: Request, reply: Reply) -> Reply | None:
        """The same for what an earlier request stored, whose answer may still wait."""
        if self.ready >= self._store.log.end:
            return reply
        return self.acknowledge(request, reply, self._store.log.end)

    def acknowledge_frames(self, answers: Sequence[tuple[ConnId, bytes]], count: int) -> None:
        """Hold the frames back that answer the last `count` plain sends: what a turn stored is flushed, and goes to
        other nodes, as one."""
        self._hold(self._store.appends.end, answers, count)

    def confirm_frames(self, conn: ConnId, answers: bytes, count: int, end_offset: int | None) -> None:
        """Let frames leave that answer `count` requests of one connection, when what ends at `end_offset` is as durable
        as the mode promises; None: what earlier requests stored, all of the log."""
        if end_offset is None and self.ready >= self._store.log.end:
            self._turn.write(conn, answers)
        elif not self.waits:
            self._stats.put_took(0, count)
            self._turn.write(conn, answers)
        else:
            end = self._store.log.end if end_offset is None else end_offset
            self._hold(end, [(conn, answers)], count)

    def acknowledge_pieces(self, conn: ConnId, answer: list[Buffer], end_offset: int) -> None:
        """Let one answer, a frame in pieces, leave when what ends at `end_offset` is as durable as promised."""
        if self.waits:
            self._hold(end_offset, [(conn, b"".join(answer))], 1)
            return
        self._stats.put_took(0)
        for piece in answer:
            self._turn.write(conn, piece)

    def _hold(self, end_offset: int, frames: Sequence[tuple[ConnId, bytes]], count: int) -> None:
        """Frames wait. Their messages were stored before a request of the same turn may have made another broker the
        master."""
        self.acks.wait_frames(end_offset, self._turn.now, self._most_wait_ms, frames, count)
        if self._lost:
            self.give_up(self._lost)

    def wait_from_now_on(self) -> None:
        """Acknowledgements wait for nodes from now on (an operator asked for it)."""
        self.waits = self.acks.for_nodes = True
        self.acks.turn(self._store.log.end)

    def give_up(self, why: str) -> None:
        """Answer that the outcome of the messages that are waited for is unknown."""
        self._lost = why
        for one in self.acks.give_up():
            self._answer_instead(one, ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR: {why}")

    # ---- the turn ----

    def begin(self) -> None:
        """A turn begins."""
        self._lost = ""
        if self.waits:
            self.acks.turn(self._store.log.end)

    def flushed(self) -> None:
        """The flush that was under way has ended."""
        self._flushing = False

    def settle(self) -> None:
        """At the end of a turn: give the answers that may leave, and ask for the flush that others wait for."""
        if len(self.acks):
            self.release()
            if self._sync_flush and len(self.acks) and not self._flushing and self._store.flusher.needs_flush:
                self._flushing = True
                self._turn.emit(self._store.flusher.flush([]))

    def release(self) -> None:
        """Give the answers whose messages are as durable as promised now."""
        for done in self.acks.release(self.ready):
            self._stats.put_took(self._turn.now - done.since, done.count)
            if done.request is not None and done.reply is not None:
                self._turn.reply(done.request, done.reply)
            self._turn.write_each(done.frames)

    def tick(self, now: Millis) -> None:
        """Answer those whose time is up."""
        for late in self.acks.expire(now):
            self._answer_late(late)

    def next_deadline(self) -> Millis | None:
        return self.acks.next_deadline()

    def validate(self) -> None:
        self.acks.validate(self.ready)

    # ---- late ----

    def _answer_late(self, late: Waiting) -> None:
        """Say what is missing: the disk, or other replicas."""
        replicated = self._nodes.replicated() >= late.end_offset
        code = ResponseCode.FLUSH_DISK_TIMEOUT if replicated else ResponseCode.FLUSH_SLAVE_TIMEOUT
        if self._nodes.by_quorum:
            code = ResponseCode.SYSTEM_ERROR
        self._answer_instead(late, code, "IN_SYNC_REPLICAS_NOT_ENOUGH: no quorum had the message in time")

    def _answer_instead(self, late: Waiting, code: int, remark: str) -> None:
        """Answer what waits with another code. The remark is for codes that senders take for a failure."""
        self._stats.put_took(self._turn.now - late.since, late.count)
        if late.request is not None and late.reply is not None:
            late.reply.code = code
            if code == ResponseCode.SYSTEM_ERROR:
                late.reply.remark = remark
            self._turn.reply(late.request, late.reply)
        for conn, frames in late.frames:
            for sent in wire.decode_each(frames):
                why = remark if code == ResponseCode.SYSTEM_ERROR else sent.remark
                if "msgId" in sent.ext:
                    answer = wire.encode_response(sent.opaque, code, sent.header(SendMessageResponse), remark=why)
                else:  # of POP
                    answer = wire.encode_response(sent.opaque, code, sent.ext or None, sent.body, remark=why)
                self._turn.write(conn, answer)
