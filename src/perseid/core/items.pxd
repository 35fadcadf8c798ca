# The C types of items.py, for Cython.

cimport cython

cdef Py_ssize_t START_BYTES, ID_DIGITS, DIGEST_DIGITS, MOST_DIGITS, LONG_BODY_BYTES, MIN_ITEM_BYTES, MAX_BYTES
cdef unsigned int ALL_BITS
cdef const unsigned char[::1] WAIT, HEX_ID, HEX_DIGEST
cdef unsigned int[::1] TABLE


@cython.final
cdef class Lane:
    cdef readonly long long sequence, first
    cdef readonly Py_ssize_t waiting, size
    cdef readonly unsigned int digest
    cdef const unsigned char[::1] _unique, _stamp
    cdef unsigned char[::1] _data, _digits

    @cython.locals(
        length=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t, number=cython.longlong, total=Py_ssize_t,
        data="unsigned char[::1]",
    )
    cpdef bint put(
        self, object raw, const unsigned char[::1] b, Py_ssize_t body, Py_ssize_t body_end,
        const unsigned char[::1] t, Py_ssize_t tail, Py_ssize_t tail_end, Py_ssize_t most, Py_ssize_t room,
    ) except -1
    @cython.locals(data="unsigned char[::1]")
    cdef int _room(self, Py_ssize_t more) except -1
    @cython.locals(crc=cython.uint)
    cdef unsigned int _crc(
        self, object raw, const unsigned char[::1] b, Py_ssize_t body, Py_ssize_t body_end,
        const unsigned char[::1] t, Py_ssize_t tail, Py_ssize_t tail_end,
    ) except? 1


@cython.locals(lane=Lane, bodies="const unsigned char[::1]")
cpdef Py_ssize_t spread(
    list lanes, const int[::1] where, const int[::1] body_ends, object raw, const int[::1] tail_ends,
    const unsigned char[::1] tails, Py_ssize_t at, Py_ssize_t rows, Py_ssize_t most, Py_ssize_t room,
) except -1
cdef unsigned int _crc(unsigned int crc, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
cdef int _put_int(unsigned char[::1] data, Py_ssize_t at, Py_ssize_t number) noexcept
cdef Py_ssize_t _put_hex(
    unsigned char[::1] data, Py_ssize_t at, long long number, int digits, const unsigned char[::1] alphabet
) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _copy(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t end
) noexcept
