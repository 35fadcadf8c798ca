# The C types of pulls.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t HEADER_BYTES, MAX_KEY_BYTES, MAX_MEMBERS
cdef int HEADER_JSON, OPAQUE, QUEUE_OFFSET, COMMIT_OFFSET, SIGNATURE, ALL
cdef long long INT_MIN, INT_MAX


cdef class Pulls(Scanner):
    cdef readonly Py_ssize_t end
    cdef readonly long long opaque, queue_offset, commit_offset
    cdef public tuple keys
    cdef readonly bytes signature
    cdef bint _must_sign
    cdef Py_ssize_t _signature_at, _signature_end
    cdef dict _prepared
    cdef int _found, _wanted
    cdef Py_ssize_t _key_end
    cdef bytearray _key_bytes
    cdef unsigned char[::1] _key, _spare
    cdef Py_ssize_t _members
    cdef long long[::1] _begins, _ends

    cpdef learn(self, bytes key, object prepared, Py_ssize_t most)
    @cython.locals(total=Py_ssize_t)
    cpdef object find(self, object data, Py_ssize_t at)
    @cython.locals(key=bytes)
    cdef object _find(self, Py_ssize_t at, Py_ssize_t total)
    cdef bint _read_pull(self, Py_ssize_t at, Py_ssize_t total) noexcept
    @cython.locals(p=Py_ssize_t, depth=int, c=cython.uchar)
    cdef bint _read_json(self) noexcept
    cdef Py_ssize_t _begin_members(self, int depth) noexcept
    cdef Py_ssize_t _end_member(self, bint more) noexcept
    @cython.locals(
        moved=bint, first=Py_ssize_t, last=Py_ssize_t, i=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t,
        order=int, to=Py_ssize_t, p=Py_ssize_t,
    )
    cdef bint _sort_members(self) noexcept
    @cython.locals(c=cython.uchar, d=cython.uchar)
    cdef int _compare(self, Py_ssize_t a, Py_ssize_t a_end, Py_ssize_t b, Py_ssize_t b_end) noexcept
    @cython.locals(stop=Py_ssize_t, number=int)
    cdef Py_ssize_t _read_text(self, Py_ssize_t p, int depth) noexcept
    @cython.locals(c=cython.uchar)
    cdef Py_ssize_t _value_end(self, Py_ssize_t at) noexcept
    cdef bint _is_name(self, Py_ssize_t at) noexcept
    @cython.locals(quoted=bint, c=cython.uchar)
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
