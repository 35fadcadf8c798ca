"""Pulls, the quick way: one that repeats an earlier one but for its numbers is answered without reading it anew.

The ordinary handler is the reference. After it has answered a pull, the pull is *prepared*: what the checks came to,
for as long as nothing that they look at has changed. That ends with the *generation* (`kernel.generation`): each
request that may change something of that begins a new one, and so do a connection that closed and the housekeeping.
Topic, group and queue are compared besides, since a send or a pull may create them.

Where pulls have to be signed, each one's signature is checked besides (`signers`).

Left to the ordinary handler: pulls of static topics, what is not found (it waits, or is refused), what has to be
fetched, pulls at the second port, and all pulls while an operator's reset of an offset waits to be taken up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.consume import pull
from perseid.broker.consume.filter import READ_WORK
from perseid.broker.fast_path.signers import Signers, text_of_pull
from perseid.broker.kernel.request import VIP_LISTENER, Connection, Request
from perseid.core.layout import HIGH, LOW, NEXT, OPAQUE
from perseid.security.signature import ACCESS_KEY
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.reading import scan_units
from perseid.store.results import ReadStatus
from perseid.wire.codes import RequestCode, Serializer
from perseid.wire.command import Command, response_head
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse

if TYPE_CHECKING:
    from perseid.broker.consume.pull import PullRequests
    from perseid.broker.kernel.generation import Generation
    from perseid.broker.kernel.roads import Roads
    from perseid.broker.static_topics.mappings import TopicMappings
    from perseid.core import Core
    from perseid.core.pull_answers import Answers, Head, Prepared

CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
CODE_FIRST = b'{"code":'
PULL_HINTS = (b'11,"', b"361,")
"""What stands behind that in a pull, at byte 16 of a frame."""
BINARY_PULL_HINTS = tuple(code.to_bytes(2, "big") for code in CODES)
"""What a binary header begins with, at byte 8 of a frame."""
MAX_PREPARED = 20_000
"""Of one broker. When there are more, all are learnt anew."""
_OFFSETS = {NEXT: 1_111_111_111, LOW: 2_222_222_222, HIGH: 3_333_333_333}
_OPAQUE = 1_234_567_891
_BINARY_FIXED_BYTES = 17
"""Of a binary header: what stands before its remark, with the remark's length."""


class Signed(NamedTuple):
    """Who signs a pull, of what (with places for commit and queue offset), and what it has to be permitted."""

    user: bytes
    text: bytes
    permit: tuple[str, str]


def head_of(compiled: Core, checked: pull.Admitted, suggest: int, status: ReadStatus, serializer: Serializer) -> Head:
    """What answers of this status begin with."""
    header = PullMessageResponse(
        suggest_which_broker_id=suggest,
        next_begin_offset=_OFFSETS[NEXT],
        min_offset=_OFFSETS[LOW],
        max_offset=_OFFSETS[HIGH],
        topic_sys_flag=checked.topic.topic_sys_flag,
        group_sys_flag=checked.group.group_sys_flag,
    )
    raw = response_head(_OPAQUE, pull.CODES[status], header, remark=status.name, serializer=serializer)[8:]
    binary = serializer != Serializer.JSON
    texts = {number: b"%d" % value for number, value in _OFFSETS.items()}
    ext_at = 0
    if binary:
        ext_at = _BINARY_FIXED_BYTES + len(status.name)
        size = int.from_bytes(raw[ext_at : ext_at + 4], "big") - sum(map(len, texts.values()))
        raw = raw[:ext_at] + size.to_bytes(4, "big") + raw[ext_at + 4 :]
        texts = {number: len(text).to_bytes(4, "big") + text for number, text in texts.items()}
        ext_at += 8
    texts[OPAQUE] = _OPAQUE.to_bytes(4, "big") if binary else b"%d" % _OPAQUE
    order = sorted(texts, key=lambda number: raw.index(texts[number]))
    pieces = []
    for number in order:
        before, _, raw = raw.partition(texts[number])
        pieces.append(before)
    found: Head = compiled.pull_answers.Head([*pieces, raw], order, ext_at)
    return found


class QuickPulls:
    """The pulls of one broker that the compiled core answers."""

    def __init__(
        self, requests: PullRequests, generation: Generation, mappings: TopicMappings, compiled: Core,
        signers: Signers | None, roads: Roads,
    ) -> None:  # fmt: skip
        """`signers`: where each pull has to be signed."""
        self._signers = signers
        self._requests = requests
        self._generation = generation
        self._mappings = mappings
        self._roads = roads
        self._compiled = compiled
        self._begun = False
        self._who: Connection | None = None
        """Whose pulls are taken."""
        self._pulls: Answers = compiled.pull_answers.Answers(
            signers is not None, requests.store.queues.table, requests.topics.rows, requests.groups.rows,
            self._admits, self._commit, requests.offsets.pulled,
        )  # fmt: skip

    @staticmethod
    def may_be(data: Buffer, at: int) -> bool:
        """Does a frame look like a pull? Where the code does not come first, any may be one."""
        hint = data[at + 16 : at + 20]
        return (
            hint in PULL_HINTS
            or data[at + 8 : at + 10] in BINARY_PULL_HINTS
            or (data[at + 8 : at + 9] == b"{" and data[at + 8 : at + 16] != CODE_FIRST)
        )

    def take(self, conn: Connection, data: Buffer, at: int) -> int:
        """Answer the pulls that stand one behind the other from `at` on, as far as it can be done quickly: where the
        next frame is, which is at `at` if the first one can't be."""
        requests, pulls, work = self._requests, self._pulls, self._requests.holds.work
        self._who = conn
        if not self._begun:
            self._begin()
        if conn.listener == VIP_LISTENER or requests.offsets.resets_wait:
            pulls.find(data, at)
            return at
        at = pulls.take(data, at, work.left, READ_WORK)
        work.left -= pulls.work
        for piece in pulls.out:
            requests.turn.write(conn.id, piece)
        return at

    def _begin(self) -> None:
        """Pulls come, before which something else was handled."""
        requests, store = self._requests, self._requests.store
        config, end = store.config, store.log.end
        limits = self._compiled.pull_answers.Limits(
            end - config.hot_bytes, end - config.in_memory_bytes, end,
            config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory,
        )  # fmt: skip
        self._pulls.begin(self._generation.number, requests.turn.now, store.log.segments, limits)
        self._begun = True

    def settle(self) -> None:
        """Something else is handled next, or nothing in this turn."""
        if self._begun:
            self._begun = False
            self._pulls.let_go()

    def count(self) -> None:
        """Tell the statistics of the pulls that were answered."""
        stats = self._requests.stats
        for one in self._pulls.uncounted:
            stats.got(one.group_name, one.topic_name, one.messages, one.pulls)
            stats.missed(one.misses)
            self._roads.fast[one.code] += one.pulls + one.misses
            one.pulls = one.messages = one.misses = 0
        self._pulls.uncounted.clear()

    def _commit(self, prepared: Prepared, offset: int) -> None:
        requests = self._requests
        step = requests.settings.current.consumer_offset_update_version_step
        topic, queue_id = prepared.key
        requests.offsets.commit(topic, prepared.group_name, queue_id, offset, requests.turn.now, step)

    def _admits(self, prepared: Prepared) -> bool:
        assert self._who is not None, "a pull of nobody"
        return self._is_admitted(prepared.signed, self._who)

    def _is_admitted(self, signed: Signed | None, conn: Connection) -> bool:
        """Did somebody sign the pull that was found last who may, where that is asked for?"""
        if self._signers is None:
            return True
        assert signed is not None, "a pull that nobody signs was prepared"
        signer = self._signers.at(conn).get(signed.user)
        if signer is None or signed.permit not in signer.permits:
            return False
        pulls = self._pulls
        return signer.has_signed(signed.text % (pulls.commit_offset, pulls.queue_offset), pulls.signature)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Of the frame that `take` left to the ordinary handler; none when it can't be prepared."""
        return self._pulls.keys

    def learn(self, keys: tuple[bytes, ...], conn: Connection, command: Command) -> None:
        """Prepare a pull that the ordinary handler has answered, if it may be."""
        requests = self._requests
        if command.code not in CODES or command.flag or conn.listener == VIP_LISTENER:
            return
        try:
            header = command.header(PullMessageRequest)
            signed = None if self._signers is None else self._learn_signer(conn, command, header)
            if self._signers is not None and signed is None:
                return  # nothing may be checked for who may not: that makes groups
            checked = requests.admit(Request(conn, command, header))
        except RequestRefused:
            return
        if header.topic in self._mappings.rows:
            return
        queue = requests.store.queues.get(header.topic, header.queue_id)
        if queue is not None and not requests.topics.is_special(header.topic):
            prepared = self._prepared(header, checked, queue, command.serializer, signed)
            prepared.code = command.code
            for key in keys:
                self._pulls.learn(key, prepared, MAX_PREPARED)

    def _prepared(
        self, header: PullMessageRequest, checked: pull.Admitted, queue: ConsumeQueue, serializer: Serializer,
        signed: Signed | None,
    ) -> Prepared:  # fmt: skip
        requests, wanted = self._requests, checked.wanted
        suggest = requests.replicas.suggest(checked.group, -1)
        found, missed = (
            head_of(self._compiled, checked, suggest, status, serializer)
            for status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)
        )
        names = header.topic, header.consumer_group, header.queue_id
        prepared: Prepared = self._compiled.pull_answers.Prepared(
            self._generation.number, checked.until, queue, checked.topic, checked.group, names, found, missed
        )
        prepared.commits = header.sys_flag & pull.COMMIT_OFFSET != 0
        prepared.most, prepared.most_bytes = pull.limits(header)
        prepared.codes, prepared.signed = wanted.codes, signed
        if wanted.expression is not None:
            prepared.wants, prepared.terms = wanted.expression.wants, wanted.expression.terms
        filtered = wanted.codes is not None or wanted.expression is not None
        prepared.scan = scan_units(requests.store.config, prepared.most) if filtered else prepared.most
        return prepared

    def _learn_signer(self, conn: Connection, command: Command, header: PullMessageRequest) -> Signed | None:
        """Keep who signed the pull that was found last, and of what; None when nobody did who may, or only the gate can
        tell."""
        assert self._signers is not None, "nobody signs"
        text = text_of_pull(command)
        if text is None:
            return None
        signed = Signed(command.ext.get(ACCESS_KEY, "").encode(), text, (header.topic, header.consumer_group))
        self._signers.learn(conn, command, header, signed.permit)
        return signed if self._is_admitted(signed, conn) else None
