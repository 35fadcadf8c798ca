# The C types of pops.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t MAX_KEY_BYTES, MAX_DIGITS
cdef int HEADER_JSON, CUT_OPAQUE, CUT_OFFSET, CUT_HANDLE, CUT_BORN_TIME, CUT_SIGNED, ACK
cdef long long INT_MIN, INT_MAX
cdef const unsigned char[::1] NO_RUN


cdef class Pops(Scanner):
    cdef readonly Py_ssize_t end, count
    cdef readonly long long opaque, offset, born_time
    cdef readonly int found
    cdef readonly list offsets
    cdef bytes _before, _behind
    cdef Py_ssize_t _frame_bytes, _header_bytes
    cdef Py_ssize_t _handle_at, _handle_end, _stem_end, _signature_at, _signature_end, _key_end, _room
    cdef unsigned char[::1] _key
    cdef const unsigned char[::1] _run_key, _run_stem
    cdef set _left
    cdef bytearray _answers

    @cython.locals(total=Py_ssize_t, is_one=bint)
    cpdef bytes find(self, object data, Py_ssize_t at)
    cpdef bytes handle(self, object data)
    cpdef bytes signature(self, object data)
    cpdef bint begin(self, object data, set left, Py_ssize_t room) except -1
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t take(self, object data, Py_ssize_t at) except -1
    @cython.locals(made=bytes)
    cpdef bytes answers(self)
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_of_run(self) noexcept
    @cython.locals(digits=bytes, size=Py_ssize_t)
    cdef int _answer(self) except -1
    cdef bint _read(self, Py_ssize_t at, Py_ssize_t total) noexcept
    @cython.locals(p=Py_ssize_t, kept=Py_ssize_t, begin=Py_ssize_t, depth=int, field=int, c=cython.uchar)
    cdef bint _read_json(self) noexcept
    cdef int _which(self, Py_ssize_t at, Py_ssize_t size, int depth) noexcept
    @cython.locals(end=Py_ssize_t, value=cython.longlong)
    cdef Py_ssize_t _cut(self, int field, Py_ssize_t p) noexcept
    @cython.locals(p=Py_ssize_t)
    cdef int _take_handle(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t, n=Py_ssize_t)
    cdef int _keep(self, Py_ssize_t begin, Py_ssize_t end) noexcept
