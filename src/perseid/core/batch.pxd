# The C types of batch.py, for Cython.

cimport cython
from perseid.core.sends cimport SendReader

cdef long long MAGIC_V1, INT_MAX, SIGN, MASK
cdef Py_ssize_t MAX_PROPERTIES_BYTES, HOST_BYTES, FIXED_BYTES, UNIT_BYTES, KEY_BYTES, ENTRY_BYTES, ITEM_BYTES, ID_BYTES
cdef Py_ssize_t NUMBERS_BYTES, START_BYTES, START_UNITS, KEEP_BYTES, MAX_ID_BYTES, MAX_MESSAGES
cdef Py_ssize_t HEAD_BYTES, MIN_BYTES, CRC_AT, QUEUE_ID_AT, SYS_FLAG_AT, FLAG_AT, BODY_SIZE_AT
cdef long long ENTRY_MAGIC
cdef Py_ssize_t OPAQUE_AT, EXT_BYTES_AT, HEADER_BYTES
cdef int PART_BITS, HEADER_JSON
cdef long long HEADER_BINARY
cdef bytes HEX, SMALL_HEX, SHORT_ESCAPES
cdef int COUNTER_DIGITS, MAX_QUOTED_BYTES
cdef Py_ssize_t ADDED_BYTES
cdef const unsigned char[::1] INDEXED_TAG, NOTHING, UNIQUE_KEY


cdef class Target:
    cdef readonly object queue, row
    cdef readonly str topic
    cdef readonly tuple key
    cdef readonly long long queue_id, count, first
    cdef public long long taken, taken_bytes, requests
    cdef const unsigned char[::1] name
    cdef unsigned int seed
    cdef long long room
    cdef bytearray buffer
    cdef unsigned char[::1] space

    @cython.locals(before=bytes)
    cpdef grow(self, Py_ssize_t units)


cdef class Batch(SendReader):
    cdef readonly list touched
    cdef readonly long long last, taken, index, ids_given
    cdef public long long took_10, took_310, took_320
    cdef long long _term, _prepared
    cdef Py_ssize_t _entry_head
    cdef dict _targets, _rows, _queues
    cdef bint _may_order
    cdef long long _now, _at, _limit
    cdef Py_ssize_t _most_bytes, _answer_bytes
    cdef const unsigned char[::1] _host, _born_host
    cdef const unsigned char[::1] _answer_0, _answer_1, _answer_2, _answer_3, _answer_4, _answer_5
    cdef const unsigned char[::1] _binary_0, _binary_1, _binary_2, _binary_3, _binary_4
    cdef unsigned char[::1] _records, _answers, _entries, _id
    cdef Py_ssize_t _records_end, _answers_end, _entries_end, _id_end
    cdef Py_ssize_t _size, _properties_at, _properties_end
    cdef object _ids
    cdef const unsigned char[::1] _id_head
    cdef long long _id_counter

    cpdef learn(self, Target target, Py_ssize_t most)
    cdef int _know(self, dict targets, Target target, Py_ssize_t most) except -1
    @cython.locals(target=Target)
    cdef Target _target(self)
    @cython.locals(target=Target, size=Py_ssize_t, i=Py_ssize_t)
    cdef Target _named(self, dict targets, const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end)
    cdef bint _begin_target(self, Target target) except -1
    cpdef look_into(self, dict rows, object queues)
    cpdef give_ids(self, object ids)
    cpdef begin(self, long long now, long long log_end, long long limit, bint may_order)
    cpdef begin_entries(self, long long index, long long term)
    @cython.locals(total=Py_ssize_t, end=Py_ssize_t)
    cpdef Py_ssize_t take(self, object data, Py_ssize_t at, const unsigned char[::1] born_host, dict signers) except -2
    cpdef bytes answers(self)
    @cython.locals(target=Target)
    cpdef clear(self)
    @cython.locals(target=Target, begin=cython.longlong)
    cdef Py_ssize_t _frame(self, Py_ssize_t at, Py_ssize_t total) except -2
    @cython.locals(is_given=bint)
    cdef bint _put_single(self, Target target) except -1
    cdef int _keep_id(self) noexcept
    @cython.locals(n=Py_ssize_t, counter=cython.longlong, i=int)
    cdef bint _give_id(self) except -1
    @cython.locals(most=Py_ssize_t)
    cdef int _make_room(self, Target target) except -1
    @cython.locals(size=Py_ssize_t, head=Py_ssize_t, crc=cython.uint)
    cdef bint _put(self, Target target, Py_ssize_t body, Py_ssize_t end) except -1
    @cython.locals(
        at=cython.longlong, count=cython.longlong, taken_bytes=cython.longlong, last=cython.longlong,
        index=cython.longlong,
        records_end=Py_ssize_t, entries_end=Py_ssize_t, p=Py_ssize_t,
    )
    cdef bint _put_batch(self, Target target) except -1
    @cython.locals(body=Py_ssize_t, left=Py_ssize_t, size=Py_ssize_t, body_bytes=Py_ssize_t, p=Py_ssize_t)
    cdef Py_ssize_t _put_item(self, Target target, Py_ssize_t at) except -2
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _put_head(self, Py_ssize_t size) noexcept
    @cython.locals(at=Py_ssize_t, name=Py_ssize_t)
    cdef Py_ssize_t _put_record(
        self, Target target, Py_ssize_t size, Py_ssize_t body, Py_ssize_t end, unsigned int crc
    ) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _put_unit(self, Target target, Py_ssize_t size) noexcept
    @cython.locals(code=cython.longlong)
    cdef long long _tag_code(self) noexcept
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, seed=cython.uint)
    cdef Py_ssize_t _put_entries(self, Target target) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _put_entry(self, unsigned int key_hash) noexcept
    cdef Py_ssize_t _add(
        self, unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t end
    ) noexcept
    cdef Py_ssize_t _add_number(self, unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
    @cython.locals(left=Py_ssize_t, p=Py_ssize_t)
    cdef bint _parts(self, Py_ssize_t at, Py_ssize_t total, long long known_flags) noexcept
    @cython.locals(taken=cython.int)
    cdef int _take_indexed(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(crc=cython.uint)
    cdef bint _is_sound(self, Py_ssize_t at) except -1
    @cython.locals(most=Py_ssize_t)
    cdef int _answer(self, Target target, long long begin) except -1
    @cython.locals(host=Py_ssize_t, number=cython.longlong, i=Py_ssize_t, byte=cython.uchar)
    cdef Py_ssize_t _put_ids(self, Target target, Py_ssize_t at, long long begin) noexcept
    cdef Py_ssize_t _put_handle(self, Py_ssize_t at) noexcept
    @cython.locals(first=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t _put_json_answer(self, Target target, long long begin) noexcept
    @cython.locals(first=Py_ssize_t, at=Py_ssize_t, value=Py_ssize_t)
    cdef Py_ssize_t _put_binary_answer(self, Target target, long long begin) noexcept


@cython.locals(first=Py_ssize_t)
cdef Py_ssize_t _get_int(const unsigned char[::1] d, Py_ssize_t at) noexcept
cdef Py_ssize_t _put_int(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
cdef Py_ssize_t _put_long(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
@cython.locals(rest=cython.longlong, end=Py_ssize_t)
cdef Py_ssize_t _put_digits(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _copy(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t count
) noexcept
@cython.locals(i=Py_ssize_t, c=cython.uchar)
cdef Py_ssize_t _put_quoted(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t count
) noexcept
cdef unsigned char[::1] _longer(unsigned char[::1] old, Py_ssize_t least)
@cython.locals(unit=cython.uint)
cdef unsigned int _hash(const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end, unsigned int seed) noexcept
@cython.locals(key=cython.ulonglong)
cdef unsigned long long _target_key(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end, long long queue_id
) noexcept
@cython.locals(
    used=Py_ssize_t, count=Py_ssize_t, slots=Py_ssize_t, slot=Py_ssize_t, previous=cython.longlong, at=Py_ssize_t,
    i=Py_ssize_t,
)
cpdef Py_ssize_t insert(
    const unsigned char[::1] entries, int[::1] table, unsigned char[::1] changed, long long first, long long diff,
    unsigned char[::1] out,
) except -1
