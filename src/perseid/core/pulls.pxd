# The C types of pulls.py, for Cython.

cimport cython
from perseid.core.properties cimport Properties
from perseid.core.scan cimport Scanner

cdef Py_ssize_t HEADER_BYTES, UNIT_BYTES, MAX_KEY_BYTES, MAX_PLACES, TERM_WORK
cdef int HEADER_JSON, OPAQUE, QUEUE_OFFSET, COMMIT_OFFSET, SIGNATURE, ALL
cdef long long INT_MIN, INT_MAX, EXTENDED_MAX


cdef class Pulls(Scanner):
    cdef readonly Py_ssize_t end, count, scanned
    cdef readonly long long work, reach, opaque, queue_offset, commit_offset
    cdef readonly bytes key, signature
    cdef bint _must_sign
    cdef Py_ssize_t _signature_at, _signature_end
    cdef dict _prepared
    cdef int _found, _wanted
    cdef Py_ssize_t _key_end, _total
    cdef unsigned char[::1] _key
    cdef const unsigned char[::1] _window
    cdef long long[::1] _places, _sizes
    cdef Properties _properties

    cpdef learn(self, bytes key, object prepared, Py_ssize_t most)
    @cython.locals(total=Py_ssize_t, is_one=bint)
    cpdef object find(self, object data, Py_ssize_t at)
    cdef bint _read_pull(self, Py_ssize_t at, Py_ssize_t total) noexcept
    @cython.locals(p=Py_ssize_t, stop=Py_ssize_t, depth=int, number=int, c=cython.uchar)
    cdef bint _read_json(self) noexcept
    cdef Py_ssize_t _read_number(self, Py_ssize_t p, int number) noexcept
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _read_signature(self, Py_ssize_t p) noexcept
    cdef bint _take_signature(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t, number=int)
    cdef bint _read_binary(self) noexcept
    cdef int _which(self, Py_ssize_t at, Py_ssize_t size, int depth) noexcept
    @cython.locals(value=cython.longlong)
    cdef bint _take_number(self, int number, Py_ssize_t at) noexcept
    @cython.locals(i=Py_ssize_t, n=Py_ssize_t)
    cdef Py_ssize_t _keep(self, Py_ssize_t begin, Py_ssize_t end) noexcept
    @cython.locals(
        total=Py_ssize_t, at=Py_ssize_t, end=cython.longlong, start=cython.longlong, size=cython.longlong,
        code=cython.longlong,
    )
    cpdef bint gather(
        self, object units, const unsigned char[::1] window, long long base, Py_ssize_t most, Py_ssize_t most_bytes,
        Py_ssize_t piece_bytes, object codes, object wants=*, long long terms=*, long long most_work=*,
    ) except -1
    cdef bint _nothing(self) noexcept
    @cython.locals(size=Py_ssize_t, made=bytearray)
    cpdef bytearray frame(self, bytes head)
    @cython.locals(number=Py_ssize_t, i=Py_ssize_t, begin=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _fill(self, unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] window) noexcept
