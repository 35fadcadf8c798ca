# The C types of sends.py, for Cython.

cimport cython
from perseid.core.headers cimport HeaderReader

cdef Py_ssize_t MAX_PROPERTIES_BYTES, MAX_DIGITS, MAX_NAMES
cdef tuple CHANGING_NAMES


cdef class SendReader(HeaderReader):
    cdef bint _sync, _has_empty, _no_wait
    cdef Py_ssize_t _unique_at, _unique_end, _tag_at, _tag_end, _keys_at, _keys_end

    cdef bint _read_send(self) noexcept
    cdef bint _end_properties(self) noexcept
    @cython.locals(n=Py_ssize_t, i=Py_ssize_t)
    cdef int _append_own(self) noexcept
    @cython.locals(n=Py_ssize_t, at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t)
    cdef bint _read_properties(self) noexcept
    cdef bint _read_empty(self, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t, changing=bytes)
    cdef bint _is_changing(self, Py_ssize_t at, Py_ssize_t size) noexcept
    @cython.locals(n=Py_ssize_t, at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef int _leave_out_empty(self) noexcept
    @cython.locals(at=Py_ssize_t, count=Py_ssize_t)
    cdef bint _has_repeated(self) noexcept
    @cython.locals(p=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_named_before(self, Py_ssize_t at) noexcept
    @cython.locals(number=cython.longlong, i=Py_ssize_t)
    cdef long long _digits(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _says(self, Py_ssize_t at, bytes text) noexcept
