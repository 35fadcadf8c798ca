# The C types of pull_answers.py, for Cython.

cimport cython
from perseid.core.properties cimport Properties
from perseid.core.pulls cimport Pulls

cdef Py_ssize_t UNIT_BYTES, MAX_PLACES, COPY_BYTES, PIECES_BYTES, SPAN_BYTES
cdef long long EXTENDED_MAX, TERM_WORK
cdef int NEXT, LOW, OPAQUE, HEADER_BINARY


cdef class Head:
    cdef const unsigned char[::1] _data
    cdef long long[::1] _ends, _numbers
    cdef Py_ssize_t _count, _ext_at

    @cython.locals(
        at=Py_ssize_t, begin=Py_ssize_t, ext=Py_ssize_t, value=cython.longlong, binary=bint, i=Py_ssize_t,
        number=cython.longlong, start=Py_ssize_t,
    )
    cdef Py_ssize_t put(
        self, unsigned char[::1] out, long long opaque, long long next_offset, long long low, long long high,
        Py_ssize_t total,
    ) noexcept


cdef class Prepared:
    cdef readonly long long generation, until
    cdef readonly object queue, topic, group
    cdef readonly str topic_name, group_name
    cdef readonly object queue_id
    cdef readonly tuple key
    cdef readonly Head found, missed
    cdef public bint commits
    cdef public int code
    cdef public Py_ssize_t most, most_bytes, scan
    cdef public object codes, wants, signed
    cdef public long long terms, pulls, messages, misses


cdef class Limits:
    cdef long long hot_from, memory_from, log_end
    cdef Py_ssize_t most, most_bytes


cdef class Answers(Pulls):
    cdef dict _queues, _topics, _groups
    cdef object _admits, _commit, _pulled, _log, _view
    cdef readonly list out, uncounted
    cdef readonly long long work, reach
    cdef readonly Py_ssize_t count, scanned, total
    cdef long long _generation, _now, _base
    cdef Limits _limits
    cdef const unsigned char[::1] _window, _units
    cdef Properties _properties
    cdef long long[::1] _places, _sizes
    cdef bytearray _head_bytes
    cdef unsigned char[::1] _made

    cpdef begin(self, long long generation, long long now, object log, Limits limits)
    cpdef let_go(self)
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t take(self, object data, Py_ssize_t at, long long work_left, long long most_work) except -1
    @cython.locals(low=cython.longlong, high=cython.longlong, limit=cython.longlong, offset=cython.longlong)
    cdef bint _answer(self, Prepared one, long long most_work) except -1
    @cython.locals(
        limits=Limits, is_hot=bint, first=cython.longlong, room=cython.longlong, most=Py_ssize_t, most_bytes=Py_ssize_t
    )
    cdef bint _find_records(
        self, Prepared one, long long offset, long long count, long long most_work
    ) except -1
    cdef bint _open_window(self, long long first) except -1
    @cython.locals(
        end=cython.longlong, base=cython.longlong, spent=cython.longlong, start=cython.longlong, size=cython.longlong,
        code=cython.longlong, at=Py_ssize_t,
    )
    cdef bint _gather(
        self, Prepared one, long long first, long long room, Py_ssize_t most, Py_ssize_t most_bytes, long long most_work
    ) except -1
    @cython.locals(made=bytearray)
    cdef Py_ssize_t _put(self, Py_ssize_t size) except -1
    @cython.locals(at=Py_ssize_t, number=Py_ssize_t)
    cdef Py_ssize_t _fill(self, unsigned char[::1] out, Py_ssize_t size) noexcept
    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, number=Py_ssize_t)
    cdef Py_ssize_t _put_pieces(self) except -1


@cython.locals(first=cython.uint)
cdef unsigned int _int_at(const unsigned char[::1] data, Py_ssize_t at) noexcept
@cython.locals(number=cython.longlong)
cdef long long _long_at(const unsigned char[::1] data, Py_ssize_t at) noexcept
cdef Py_ssize_t _put_int(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
@cython.locals(rest=cython.longlong, end=Py_ssize_t, i=Py_ssize_t)
cdef Py_ssize_t _put_digits(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _copy(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t count
) noexcept
