# The C types of stored.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t PHYSICAL_OFFSET_AT, STORE_TIMESTAMP_AT, SYS_FLAG_AT, MIN_BYTES, FIXED_V4, V6_MORE, SHORT_MAX
cdef long long MAGIC_V1, MAGIC_V2, INT_MAX
cdef int BORN_V6, STORE_V6


cdef class Stored(Scanner):
    cdef Py_ssize_t _most_bytes, _record, _size, _topic_at, _topic_end, _properties_at, _properties_end, _stored_at

    @cython.locals(size=Py_ssize_t, magic=cython.longlong, p=Py_ssize_t, flags=cython.uint)
    cdef bint _parts(self, Py_ssize_t at, Py_ssize_t left, long long place) noexcept
    @cython.locals(crc=cython.uint)
    cdef bint _matches(self) except -1
    @cython.locals(d="const unsigned char[::1]", high=cython.uint, c=cython.uint, more=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_utf8(self, Py_ssize_t at, Py_ssize_t end) noexcept
