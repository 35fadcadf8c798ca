# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Signatures of requests (`security/signature.py`), checked where the request is read.

    Signer         a user, with all that its secret makes of SHA-1 before a message is known, and what it may do
    SignedReader   gathers a request's fields in the order of their names, and asks its signer

The core only says yes: a request that it knows to be signed by somebody who may. Whatever else there is (who is
unknown, a signature that differs, a permission that nobody looked at yet) is left to the gate, which says why not.

SHA-1 is OpenSSL's, by `hashlib`: with the processor's own instructions it takes a sixth of what plain C does.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from hmac import compare_digest

from perseid.base.machine import Buffer
from perseid.core.layout import APART, MAX_TEXT_BYTES
from perseid.core.scan import Scanner

compiled = not __file__.endswith(".py")

BLOCK_BYTES = 64
"""Of SHA-1: a key is filled up to it, a longer one is hashed."""
SIGNATURE_BYTES = 28
"""Of SHA-1's 20 in base64."""
MAX_PIECES = 64
"""Fields of a request; one with more is left to the gate."""
PIECE_NUMBERS = 4
"""Where name and value begin and end."""
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Signer:
    """A user that may do some things from one address, as long as neither users nor policies change."""

    def __init__(self, name: bytes, secret: bytes) -> None:
        self.name = name
        self.permits: set[object] = set()
        """What it may do: topics to which it may send, as bytes, and whatever else the caller puts here."""
        self.topic = b""
        """The last one of them that was sent to."""
        key = (sha1(secret).digest() if len(secret) > BLOCK_BYTES else secret).ljust(BLOCK_BYTES, b"\0")
        self._inner = sha1(bytes([byte ^ 0x36 for byte in key]))
        self._outer = sha1(bytes([byte ^ 0x5C for byte in key]))

    def digest(self, text: Buffer, body: Buffer) -> bytes:
        """HMAC-SHA1 of a request's values and its body."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()

    def has_signed(self, text: bytes, signature: bytes) -> bool:
        """Is this its signature of a request without a body, whose values these are?"""
        return compare_digest(b64encode(self.digest(text, b"")), signature)


class SignedReader(Scanner):
    """Reads requests that have to be signed, if `signed`; others are read as by any scanner."""

    def __init__(self, signed: bool) -> None:
        super().__init__()
        self._must_sign = signed
        self._signers: dict[bytes, Signer] = {}
        self._signer: Signer | None = None
        """The last one that was found."""
        self._pieces = memoryview(bytearray(8 * PIECE_NUMBERS * MAX_PIECES)).cast("q")
        self._pieces_count = 0
        self._text = bytearray(MAX_TEXT_BYTES if signed else 0)
        self._text_space = memoryview(self._text)
        self._user_at = self._user_end = self._signature_at = self._signature_end = -1

    def _begin_pieces(self) -> None:
        """A header's fields follow."""
        self._pieces_count = 0
        self._user_at = self._signature_at = -1

    def _add_piece(self, name: int, name_end: int, value: int, value_end: int) -> bool:
        """Take in a field; False when there is one of its name, or one that only the gate knows what to do with."""
        size, n = name_end - name, PIECE_NUMBERS * self._pieces_count
        order = 0
        if size == 9 and self._is(name, size, b"Signature"):
            if self._signature_at >= 0:
                return False
            self._signature_at, self._signature_end = value, value_end
            return True
        if size == 9 and self._is(name, size, b"AccessKey"):
            self._user_at, self._user_end = value, value_end
        elif size == 17 and self._is(name, size, b"_UNIQUE_KEY_QUERY"):
            return False
        if self._pieces_count == MAX_PIECES:
            return False
        while n > 0:
            order = self._order(name, name_end, self._pieces[n - 4], self._pieces[n - 3])
            if order >= 0:
                break
            for i in range(n, n + PIECE_NUMBERS):
                self._pieces[i] = self._pieces[i - PIECE_NUMBERS]
            n -= PIECE_NUMBERS
        self._pieces[n], self._pieces[n + 1] = name, name_end
        self._pieces[n + 2], self._pieces[n + 3] = value, value_end
        self._pieces_count += 1
        return n == 0 or order > 0

    def _order(self, at: int, end: int, other: int, other_end: int) -> int:
        """Which of two names, of ASCII, is the greater one: below 0 the other, 0 when they are the same."""
        while at < end and other < other_end:
            if self._d[at] != self._d[other]:
                return 1 if self._d[at] > self._d[other] else -1
            at += 1
            other += 1
        return 1 if at < end else -1 if other < other_end else 0

    def _put_apart(self, at: int) -> int:
        """Write the value that stands elsewhere into the text; where it ends, -1 when there is no room."""
        return at

    def _put_text(self) -> int:
        """Write the values in the order of their names; how long they are, -1 when that is too long."""
        n = value = end = 0
        for i in range(2, PIECE_NUMBERS * self._pieces_count, PIECE_NUMBERS):
            value, end = self._pieces[i], self._pieces[i + 1]
            if value == APART:
                n = self._put_apart(n)
                if n < 0:
                    return -1
                continue
            if end - value > MAX_TEXT_BYTES - n:
                return -1
            for p in range(value, end):
                self._text_space[n] = self._d[p]
                n += 1
        return n

    def _is_admitted(self, topic: int, topic_end: int) -> bool:
        """Is the frame that was read signed by somebody who may send to this topic?"""
        size = 0
        signer = self._found_signer()
        if signer is None or topic == topic_end or self._signature_end - self._signature_at != SIGNATURE_BYTES:
            return False
        if not self._is(topic, topic_end - topic, signer.topic):
            wanted = bytes(self._raw[topic:topic_end])
            if wanted not in signer.permits:
                return False
            signer.topic = wanted
        size = self._put_text()
        if size < 0:
            return False
        return self._says_digest(signer.digest(self._text[:size], self._raw[self._body : self._end]))

    def _found_signer(self) -> Signer | None:
        """By whom the frame says that it is signed, if that is somebody who may do anything."""
        signer = self._signer
        if self._user_at < 0 or self._signature_at < 0:
            return None
        if signer is None or not self._is(self._user_at, self._user_end - self._user_at, signer.name):
            signer = self._signers.get(bytes(self._raw[self._user_at : self._user_end]))
            self._signer = signer
        return signer

    def _says_digest(self, digest: bytes) -> bool:
        """Is the signature this one in base64? All of it is compared, whatever differs."""
        at = self._signature_at
        different = bits = 0
        for i in range(0, 18, 3):
            bits = digest[i] << 16 | digest[i + 1] << 8 | digest[i + 2]
            different |= self._d[at] ^ BASE64[bits >> 18]
            different |= self._d[at + 1] ^ BASE64[bits >> 12 & 63]
            different |= self._d[at + 2] ^ BASE64[bits >> 6 & 63]
            different |= self._d[at + 3] ^ BASE64[bits & 63]
            at += 4
        bits = digest[18] << 8 | digest[19]
        different |= self._d[at] ^ BASE64[bits >> 10]
        different |= self._d[at + 1] ^ BASE64[bits >> 4 & 63]
        different |= self._d[at + 2] ^ BASE64[bits << 2 & 63]
        different |= self._d[at + 3] ^ 61
        return different == 0
