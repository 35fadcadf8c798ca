# The C types of batch.py, for Cython.

cimport cython

cdef long long MAGIC_V1, PLAIN_SYS_FLAGS, INT_MIN, INT_MAX, SIGN, MASK
cdef Py_ssize_t MAX_PROPERTIES_BYTES, MAX_DIGITS, HOST_BYTES, FIXED_BYTES, UNIT_BYTES, KEY_BYTES, ENTRY_BYTES
cdef Py_ssize_t NUMBERS_BYTES, START_BYTES, START_UNITS, KEEP_BYTES
cdef int PART_BITS
cdef unsigned int REQUIRED
cdef tuple ODD_NAMES, LONG_NAMES
cdef bytes HEX
cdef const unsigned char[::1] INDEXED_TAG, NOTHING


cdef class Lane:
    cdef readonly object queue, row
    cdef readonly str topic
    cdef readonly tuple key
    cdef readonly long long queue_id, count, first
    cdef public long long taken, taken_bytes
    cdef const unsigned char[::1] name
    cdef unsigned int seed
    cdef long long room
    cdef unsigned char[::1] space


cdef class Batch:
    cdef readonly list touched
    cdef readonly long long last, taken
    cdef dict _lanes, _rows, _queues
    cdef bint _sync, _may_order
    cdef long long _now, _at, _limit
    cdef Py_ssize_t _most_bytes, _answer_bytes
    cdef const unsigned char[::1] _host, _born_host, _own
    cdef const unsigned char[::1] _answer_0, _answer_1, _answer_2, _answer_3, _answer_4, _answer_5
    cdef unsigned char[::1] _records, _answers, _entries
    cdef Py_ssize_t _records_end, _answers_end, _entries_end
    cdef object _raw
    cdef const unsigned char[::1] _d
    cdef unsigned char[::1] _q
    cdef Py_ssize_t _q_end, _stop, _topic_at, _topic_end
    cdef Py_ssize_t _unique_at, _unique_end, _tag_at, _tag_end, _keys_at, _keys_end
    cdef long long _code, _flag, _opaque, _queue_id, _sys_flag, _born, _message_flag, _reconsumed
    cdef unsigned int _fields

    cpdef learn(self, Lane lane, Py_ssize_t most)
    @cython.locals(lane=Lane, size=Py_ssize_t, i=Py_ssize_t)
    cdef Lane _lane(self)
    cdef bint _begin_lane(self, Lane lane) except -1
    cpdef look_into(self, dict rows, object queues)
    cpdef begin(self, long long now, long long log_end, long long limit, bint may_order)
    @cython.locals(total=Py_ssize_t, end=Py_ssize_t)
    cpdef Py_ssize_t take(self, object data, Py_ssize_t at, const unsigned char[::1] born_host) except -2
    cpdef bytes answers(self)
    @cython.locals(lane=Lane)
    cpdef clear(self)
    @cython.locals(
        lane=Lane, length=Py_ssize_t, header=Py_ssize_t, body=Py_ssize_t, end=Py_ssize_t, name=Py_ssize_t,
        size=Py_ssize_t, crc=cython.uint, most=Py_ssize_t,
    )
    cdef Py_ssize_t _frame(self, Py_ssize_t at, Py_ssize_t total) except -2
    @cython.locals(p=Py_ssize_t, name=Py_ssize_t, size=Py_ssize_t, number=cython.longlong)
    cdef bint _read_header(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(name=Py_ssize_t, stop=Py_ssize_t, letter=cython.uint)
    cdef Py_ssize_t _read_fields(self, Py_ssize_t p, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong)
    cdef bint _read_field(self, unsigned int letter, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(size=Py_ssize_t, i=cython.uint)
    cdef unsigned int _letter(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(p=Py_ssize_t)
    cdef Py_ssize_t _name_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(c=cython.uchar)
    cdef Py_ssize_t _text_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong, begin=Py_ssize_t, negative=bint)
    cdef long long _number(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(n=Py_ssize_t, most=Py_ssize_t, c=cython.uchar)
    cdef Py_ssize_t _unescape(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _is(self, Py_ssize_t at, Py_ssize_t size, bytes text) noexcept
    @cython.locals(n=Py_ssize_t, at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t)
    cdef bint _read_properties(self) noexcept
    @cython.locals(i=Py_ssize_t, odd=bytes)
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _says(self, Py_ssize_t at, bytes text) noexcept
    @cython.locals(at=Py_ssize_t, name=Py_ssize_t)
    cdef Py_ssize_t _put_record(
        self, Lane lane, Py_ssize_t size, Py_ssize_t body, Py_ssize_t end, unsigned int crc
    ) noexcept
    @cython.locals(at=Py_ssize_t, code=cython.longlong)
    cdef Py_ssize_t _put_unit(self, Lane lane, Py_ssize_t size) noexcept
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, seed=cython.uint)
    cdef Py_ssize_t _put_entries(self, Lane lane) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _put_entry(self, unsigned int key_hash) noexcept
    @cython.locals(begin=Py_ssize_t, at=Py_ssize_t, shift=int)
    cdef Py_ssize_t _put_answer(self, Lane lane) noexcept


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
cdef unsigned char[::1] _longer(unsigned char[::1] old, Py_ssize_t least)
cdef unsigned int _hash(const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end, unsigned int seed) noexcept
@cython.locals(key=cython.ulonglong)
cdef unsigned long long _lane_key(
    const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end, long long queue_id
) noexcept
cdef unsigned char _hex(unsigned char c) noexcept
@cython.locals(
    used=Py_ssize_t, count=Py_ssize_t, slots=Py_ssize_t, slot=Py_ssize_t, previous=cython.longlong, at=Py_ssize_t,
    i=Py_ssize_t,
)
cpdef Py_ssize_t insert(
    const unsigned char[::1] entries, int[::1] table, unsigned char[::1] changed, long long first, long long diff,
    unsigned char[::1] out,
) except -1
@cython.locals(
    count=Py_ssize_t, total=Py_ssize_t, last=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t, offset=Py_ssize_t,
    size=Py_ssize_t, found=bytearray,
)
cpdef tuple gather(
    const unsigned char[::1] units, const unsigned char[::1] window, Py_ssize_t base, Py_ssize_t most,
    Py_ssize_t most_bytes, Py_ssize_t piece_bytes,
)
@cython.locals(at=Py_ssize_t, i=Py_ssize_t, offset=Py_ssize_t)
cdef Py_ssize_t _fill(
    unsigned char[::1] out, const unsigned char[::1] units, const unsigned char[::1] window, Py_ssize_t base,
    Py_ssize_t count,
) noexcept
