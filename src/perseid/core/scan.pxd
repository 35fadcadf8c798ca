# The C types of scan.py, for Cython.

cimport cython

cdef Py_ssize_t MAX_DIGITS, HEADER_BYTES, MAX_FRAME_BYTES
cdef int HEADER_BINARY
cdef long long SIGN_BIT
cdef const unsigned char[::1] NOTHING


cpdef Py_ssize_t complete(object buf, Py_ssize_t start=*) except -1
@cython.locals(total=Py_ssize_t, length=Py_ssize_t, word=Py_ssize_t)
cdef Py_ssize_t _whole(const unsigned char[::1] d, Py_ssize_t at) noexcept


cdef class Scanner:
    cdef object _raw
    cdef const unsigned char[::1] _d
    cdef Py_ssize_t _stop, _head, _body, _end
    cdef int _serializer

    cdef Py_ssize_t _look_at(self, object data) except -1
    cdef int _let_go(self) except -1
    @cython.locals(word=cython.uint)
    cdef bint _open(self, Py_ssize_t at, Py_ssize_t total) noexcept
    @cython.locals(first=cython.uint)
    cdef unsigned int _int(self, Py_ssize_t at) noexcept
    cdef long long _signed(self, Py_ssize_t at) noexcept
    cdef long long _long(self, Py_ssize_t at) noexcept
    cdef Py_ssize_t _short(self, Py_ssize_t at) noexcept
    @cython.locals(p=Py_ssize_t)
    cdef Py_ssize_t _name_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(c=cython.uchar)
    cdef Py_ssize_t _text_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong, begin=Py_ssize_t, negative=bint)
    cdef long long _number(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _is(self, Py_ssize_t at, Py_ssize_t size, bytes text) noexcept
    @cython.locals(at=Py_ssize_t)
    cdef bint _pairs(self) noexcept
    @cython.locals(first=int, second=int, left=Py_ssize_t, size=int)
    cdef int _character(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(size=int)
    cdef bint _is_utf8(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(
        name=Py_ssize_t, value=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, bits=cython.uchar
    )
    cdef Py_ssize_t _pair(self, Py_ssize_t at) noexcept
