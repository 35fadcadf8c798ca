# The C types of edits.py, for Cython.

cimport cython
from perseid.core.redirects cimport Sends

cdef Py_ssize_t ADDED_BYTES, MAX_PROPERTIES_BYTES, MAX_NUMBER_BYTES


cdef class EditedSends(Sends):
    cdef list _own_spans
    cdef unsigned char[::1] _number_text
    cdef bint _is_edited, _has_own, _has_check_point

    cdef bint _read_properties(self) noexcept
    cdef bint _may_edit(self) noexcept
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _is_own(self, Py_ssize_t at, Py_ssize_t size) noexcept
    @cython.locals(name=bytes, begin=Py_ssize_t, end=Py_ssize_t)
    cdef int _append_own(self) noexcept
    cdef Py_ssize_t _stop_of(self, Py_ssize_t at) noexcept
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _value_of(self, bytes name) noexcept
    cdef int _set_number(self, bytes name, long long number) noexcept
    @cython.locals(at=Py_ssize_t, i=Py_ssize_t, size=Py_ssize_t)
    cdef int _set(self, bytes name, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t end) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef int _drop(self, bytes name) noexcept
    @cython.locals(i=Py_ssize_t, count=Py_ssize_t, by=Py_ssize_t)
    cdef int _move(self, Py_ssize_t begin, Py_ssize_t to) noexcept
