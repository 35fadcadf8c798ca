"""Pulls, the quick way: one that repeats an earlier one but for its numbers is answered without reading it anew.

The ordinary handler is the reference. After it has answered a pull, the pull is *prepared*: what the checks came to,
for as long as nothing that they look at has changed. That ends with the *generation* (`kernel.generation`): each
request that may change something of that begins a new one, and so do a connection that closed and the housekeeping.
Topic, group and queue are compared besides, since a send or a pull may create them.

Where pulls have to be signed, each one's signature is checked besides (`signers`).

Left to the ordinary handler: pulls of static topics, what is not found (it waits, or is refused), what has to be
fetched, answers longer than GATHER_BYTES, pulls at the second port, and all pulls while an operator's reset of an
offset waits to be taken up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.broker.consume import pull
from perseid.broker.fast_path.signers import Signers, text_of_pull
from perseid.broker.kernel.request import VIP_LISTENER, Connection, Request
from perseid.core.layout import UNIT_BYTES
from perseid.security.signature import ACCESS_KEY
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.reading import SPAN_BYTES, scan_units, window
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
    from perseid.core.pulls import Pulls as CorePulls

PULL_HINT = b'11,"'
"""What stands behind `{"code":` in a pull, at byte 16 of a frame."""
BINARY_PULL_HINT = (11).to_bytes(2, "big")
"""What a binary header begins with, at byte 8 of a frame."""
MAX_PREPARED = 20_000
"""Of one broker. When there are more, all are learnt anew."""
GATHER_BYTES = 64 * 1024
"""Records up to this size together are copied into one piece; above it, copying costs more than sending pieces."""
_SAMPLE = (1_111_111_111, 2_222_222_222, 3_333_333_333)


class Signed(NamedTuple):
    """Who signs a pull, of what (with places for commit and queue offset), and what it has to be permitted."""

    user: bytes
    text: bytes
    permit: tuple[str, str]


class PreparedPull:
    """What the checks of one pull came to."""

    __slots__ = (
        "checked", "commits", "generation", "header", "key", "limits", "queue", "serializer", "signed", "suggest",
        "text",
    )  # fmt: skip

    def __init__(
        self, generation: int, suggest: int, header: PullMessageRequest, checked: pull.Admitted, queue: ConsumeQueue
    ) -> None:
        self.header = header
        self.checked = checked
        self.queue = queue
        self.generation = generation
        self.key = header.topic, header.queue_id
        self.limits = pull.limits(header)
        self.suggest = suggest
        self.commits = header.sys_flag & pull.COMMIT_OFFSET != 0
        self.serializer = Serializer.JSON
        self.text = b""
        """The frame up to the header's end in JSON, with places for next, first and last offset and opaque."""
        self.signed: Signed | None = None
        """Where pulls have to be signed."""

    def answer_in(self, serializer: Serializer) -> PreparedPull:
        """Make the text of its answers."""
        self.serializer = serializer
        if serializer == Serializer.JSON:
            text = self.head(0, *_SAMPLE).replace(b"%", b"%%")
            for number in _SAMPLE:
                text = text.replace(b"%d" % number, b"%d")
            self.text = text.replace(b'"opaque":0,', b'"opaque":%d,')[8:]
        return self

    def head(
        self, opaque: int, next_offset: int, low: int, high: int, status: ReadStatus = ReadStatus.FOUND
    ) -> bytes:
        """An answer up to its records."""
        header = PullMessageResponse(
            suggest_which_broker_id=self.suggest,
            next_begin_offset=next_offset,
            min_offset=low,
            max_offset=high,
            topic_sys_flag=self.checked.topic.topic_sys_flag,
            group_sys_flag=self.checked.group.group_sys_flag,
        )
        return response_head(opaque, pull.CODES[status], header, remark=status.name, serializer=self.serializer)


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
        self._pulls: CorePulls = compiled.pulls.Pulls(signers is not None)

    @staticmethod
    def may_be(data: Buffer, at: int) -> bool:
        """Does a frame look like a pull?"""
        return data[at + 16 : at + 20] == PULL_HINT or data[at + 8 : at + 10] == BINARY_PULL_HINT

    def take(self, conn: Connection, data: Buffer, at: int) -> int:
        """Answer the pull whose frame begins at `at`, if it can be done quickly: where the frame ends, else `at`."""
        requests, pulls = self._requests, self._pulls
        prepared: PreparedPull | None = pulls.find(data, at)
        if prepared is None or not self._is_good(prepared, conn) or not self._is_admitted(prepared.signed, conn):
            return at
        queue, offset, config = prepared.queue, pulls.queue_offset, requests.store.config
        low, high = queue.min, queue.shown
        if not low <= offset < high:
            return at
        log, codes, expression = requests.store.log, prepared.checked.wanted.codes, prepared.checked.wanted.expression
        hot_from = log.end - config.hot_bytes
        most, most_bytes = prepared.limits
        wants, work = None if expression is None else expression.wants, requests.holds.work
        if wants is not None and work.left <= 0:
            return at
        terms = 0 if expression is None else expression.terms
        scan = most if codes is None and wants is None else scan_units(config, most)
        if hot_from > 0 and queue.segments.cold(offset * UNIT_BYTES, scan * UNIT_BYTES):
            return at
        units = queue.units(offset, scan)
        if not units:
            return at
        recent = window(log, config, units, most, most_bytes)
        if recent is None:
            return at
        records, first, most, most_bytes = recent
        if wants is not None and first < hot_from:  # any of them may be looked at
            records = records[:SPAN_BYTES]
            if log.segments.cold(first, len(records)):
                return at
        most_work = work.left - work.floor()
        pulls.gather(units, records, first, most, most_bytes, GATHER_BYTES, codes, wants, terms, most_work)
        work.left -= pulls.work
        if pulls.scanned == 0:
            return at
        if pulls.count and first < hot_from and log.segments.cold(first, pulls.reach):
            return at
        self._answer(prepared, conn, offset + pulls.scanned, low, high)
        self._roads.fast[RequestCode.PULL_MESSAGE] += 1
        return pulls.end

    def _answer(self, prepared: PreparedPull, conn: Connection, next_offset: int, low: int, high: int) -> None:
        requests, pulls, header = self._requests, self._pulls, prepared.header
        group, (topic, queue_id) = header.consumer_group, prepared.key
        if prepared.commits and pulls.commit_offset >= 0:
            step = requests.settings.current.consumer_offset_update_version_step
            requests.offsets.commit(topic, group, queue_id, pulls.commit_offset, requests.turn.now, step)
        if pulls.count == 0:
            requests.stats.missed()
            head = prepared.head(pulls.opaque, next_offset, low, high, ReadStatus.NO_MATCHED_MESSAGE)
            requests.turn.write(conn.id, pulls.frame(head))
            return
        requests.stats.got(group, topic, pulls.count)
        requests.offsets.pulled(topic, group, queue_id, next_offset)
        if prepared.text:
            text = prepared.text % (next_offset, low, high, pulls.opaque)
            head = b"\0\0\0\0" + len(text).to_bytes(4, "big") + text
        else:
            head = prepared.head(pulls.opaque, next_offset, low, high)
        requests.turn.write(conn.id, pulls.frame(head))

    def _is_good(self, prepared: PreparedPull, conn: Connection) -> bool:
        """Would the checks of the ordinary handler come to the same?"""
        requests, checked = self._requests, prepared.checked
        return (
            prepared.generation == self._generation.number
            and requests.turn.now < checked.until
            and conn.listener != VIP_LISTENER
            and requests.store.queues.get(*prepared.key) is prepared.queue
            and requests.topics.rows.get(prepared.header.topic) is checked.topic
            and requests.groups.rows.get(prepared.header.consumer_group) is checked.group
            and not requests.offsets.resets_wait
        )

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
    def key(self) -> bytes:
        """Of the frame that `take` left to the ordinary handler; `b""` when it can't be prepared."""
        return self._pulls.key

    def learn(self, key: bytes, conn: Connection, command: Command) -> None:
        """Prepare a pull that the ordinary handler has answered, if it may be."""
        requests = self._requests
        if command.code != RequestCode.PULL_MESSAGE or command.flag or conn.listener == VIP_LISTENER:
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
            suggest = requests.replicas.suggest(checked.group, -1)
            prepared = PreparedPull(self._generation.number, suggest, header, checked, queue)
            prepared.signed = signed
            self._pulls.learn(key, prepared.answer_in(command.serializer), MAX_PREPARED)

    def _learn_signer(self, conn: Connection, command: Command, header: PullMessageRequest) -> Signed | None:
        """Keep who signed the pull that was found last, and of what; None when nobody did who may, or only the gate can
        tell."""
        assert self._signers is not None
        text = text_of_pull(command)
        if text is None:
            return None
        signed = Signed(command.ext.get(ACCESS_KEY, "").encode(), text, (header.topic, header.consumer_group))
        self._signers.learn(conn, command, header, signed.permit)
        return signed if self._is_admitted(signed, conn) else None
