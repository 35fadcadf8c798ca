"""What the core and the plain Python beside it both have to know: sizes in files, what makes a send plain, columns.

The layout of records and entries is the wire's (`wire.record`, `wire.dledger`, `wire.batch`): the core imports it.
"""

from perseid.wire.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK

UNIT_BYTES = 20
"""A unit of a consume queue."""
EXTENDED_MAX = -(1 << 31) - 1
"""A tag code at or below it tells no tag: it is a place in a consume queue extension, which Perseid does not read. Its
message is wanted whatever tags are asked for, as the original has it where an extension is gone: clients look again."""
KEY_BYTES, ENTRY_BYTES = 12, 20
"""Of an index entry: hash and offset, and as its file has it."""
HEADER_JSON, HEADER_BINARY = 0, 1
"""The serializer's number in a frame's header word (remoting.md §2)."""
HEADER_BYTES = 21
"""Of a binary header, before its ext fields."""
PART_BITS = 10
"""Slots of an index are written out in parts of 1024: a page of the file."""

INDEXED_TAG = "T#"
"""A tag in the index is a key with this before it (5.5.0, from the golden store)."""
PLAIN_SYS_FLAGS = SYS_COMPRESSED | SYS_COMPRESSION_MASK
"""Compressed, and how: what a plain message may say of itself."""

ADDED_BYTES = 200
"""Of the properties that a redirected send gets, at most, but for its unique key and the broker's own."""
MAX_ID_BYTES = 256
"""Of a unique key; a message with a longer one is not plain."""
MAX_NAMES = 64
"""Properties of a message without a unique key, whose names are compared with one another; more are not plain."""

MAX_TEXT_BYTES = 1 << 16
"""Of the values that a request's signature is of; one with more is left to the gate."""
APART = -1
"""In the place of where such a value begins: it stands elsewhere (`SignedReader`)."""

CUT_OPAQUE, CUT_OFFSET, CUT_HANDLE, CUT_BORN_TIME, CUT_SIGNED = 1, 2, 4, 8, 16
"""What is cut out of a request of POP; CUT_SIGNED is its signature."""

LONG_COLUMNS = (
    "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "preparedTransactionOffset", "term",
)  # fmt: skip
INT_COLUMNS = ("queueId", "sysFlag", "flag", "reconsumeTimes", "size", "bodyCrc")
"""Columns of numbers, in the order in which they stand in `longs` and `ints` of `core.columns`."""
TOPIC, BODY, PROPERTIES, NAMES, HOSTS, IDS, STAMPS = 1, 2, 4, 8, 16, 32, 64
"""What is copied into columns: NAMES are keys and tags, IDS those that clients gave, STAMPS tell repeats."""
ANYWHERE = -(2**62)
"""In the place of where some records begin in a log, when that is not known."""
TIME_MIN, TIME_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, in milliseconds."""
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

WITHIN, AT_BEGIN, AT_END = 0, 1, 2
"""Where in a property a text is looked for."""
TERM_WORK = 128
"""What a term of an expression costs besides the bytes of the properties in which it looks, as so many of them."""

NEXT, LOW, HIGH, OPAQUE = range(4)
"""The numbers in the header of a pull's answer: the next offset, the queue's first and last one, and the opaque."""
