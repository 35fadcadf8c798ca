# The C types of entries.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t HEAD_BYTES, UNIT_BYTES, CRC_BYTES, TEXT_BYTES, START_BYTES, KEEP_BYTES, MAX_ENTRIES
cdef long long ENTRY_MAGIC, INT_MAX
cdef unsigned int INVALID
cdef const unsigned char[::1] LETTERS, VALUES, BATCH, BODY, BODY_CRC, CHAIN_CRC, CHANNEL, INDEX, MAGIC, POS, SIZE, TERM


cdef class Entries(Scanner):
    cdef readonly Py_ssize_t count, taken
    cdef readonly long long index, pos, term
    cdef long long _next, _at
    cdef unsigned char[::1] _out
    cdef Py_ssize_t _out_end

    @cython.locals(at=Py_ssize_t, total=Py_ssize_t)
    cpdef bytes text(self, object data, Py_ssize_t most)
    @cython.locals(at=Py_ssize_t, total=Py_ssize_t, crcs=list)
    cpdef tuple derive(self, object data)
    cdef bytes _found(self)
    @cython.locals(new="unsigned char[::1]")
    cdef int _room(self, Py_ssize_t more) except -1
    @cython.locals(size=Py_ssize_t)
    cdef bint _head_at(self, Py_ssize_t at, Py_ssize_t total) noexcept
    cdef Py_ssize_t _put_text(self, Py_ssize_t at) noexcept
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _put_unit(self, Py_ssize_t at) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t _copy(self, Py_ssize_t to, Py_ssize_t at, Py_ssize_t count) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t _say(self, const unsigned char[::1] text) noexcept
    @cython.locals(rest=cython.longlong, end=Py_ssize_t)
    cdef Py_ssize_t _put_digits(self, long long number) noexcept
    @cython.locals(to=Py_ssize_t, word=cython.uint)
    cdef Py_ssize_t _encode(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(at=Py_ssize_t, total=Py_ssize_t)
    cpdef bytes parse(self, object data)
    @cython.locals(
        head=Py_ssize_t, size=Py_ssize_t, channel=cython.longlong, index=cython.longlong, pos=cython.longlong,
        term=cython.longlong,
    )
    cdef Py_ssize_t _parse_one(self, Py_ssize_t at, Py_ssize_t total) noexcept
    cdef Py_ssize_t _put_head(
        self, Py_ssize_t at, long long size, long long channel, long long index, long long pos, long long term
    ) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t _put_number(self, Py_ssize_t at, Py_ssize_t count, long long number) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _says(self, Py_ssize_t at, Py_ssize_t total, const unsigned char[::1] text) noexcept
    @cython.locals(number=cython.longlong)
    cdef long long _member(self, Py_ssize_t at, Py_ssize_t total, const unsigned char[::1] name) noexcept
    @cython.locals(to=Py_ssize_t, wrong=cython.uint, word=cython.uint, a=cython.uint, b=cython.uint)
    cdef Py_ssize_t _decode(self, Py_ssize_t at, Py_ssize_t total) noexcept
