# The C types of texts.py, for Cython.

cimport cython
from perseid.core.signers cimport SignedReader

cdef Py_ssize_t MAX_PROPERTIES_BYTES, MAX_TEXT_BYTES, SPARE_BYTES
cdef int HIGH, LOW, BEHIND


cdef class TextReader(SignedReader):
    cdef const unsigned char[::1] _own
    cdef unsigned char[::1] _q
    cdef Py_ssize_t _q_end, _said_end
    cdef bint _is_escaped

    cdef Py_ssize_t _past_spaces(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(c=int)
    cdef Py_ssize_t _value_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(n=Py_ssize_t, most=Py_ssize_t, c=cython.uchar, code=int, i=int)
    cdef Py_ssize_t _unescape(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(c=int)
    cdef int _escape(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(low=int, code=int)
    cdef int _escaped_unit(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(number=int, digit=int, i=Py_ssize_t)
    cdef int _hex_number(self, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t _put_character(self, Py_ssize_t n, int code) noexcept
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t, bits=cython.uchar)
    cdef bint _take_properties(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t _put_apart(self, Py_ssize_t at) noexcept


cdef unsigned char _hex(unsigned char c) noexcept
