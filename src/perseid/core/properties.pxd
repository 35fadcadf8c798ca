# The C types of properties.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t FIXED_V4, V6_MORE, FLAGS_AT
cdef int BORN_V6, STORE_V6, AT_BEGIN, AT_END
cdef long long MAGIC_V1


cdef class Properties(Scanner):
    cdef Py_ssize_t _at, _to, _from, _till

    cpdef look_into(self, object window)
    cpdef let_go(self)
    @cython.locals(end=Py_ssize_t, p=Py_ssize_t, flags=int, length=Py_ssize_t)
    cpdef bint record(self, Py_ssize_t at, Py_ssize_t size) except -1
    cpdef Py_ssize_t size(self) noexcept
    cpdef object value(self, bytes key)
    cpdef int says(self, bytes key, bytes text) except -2
    @cython.locals(size=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, at=Py_ssize_t)
    cpdef int has(self, bytes key, bytes text, int where) except -2
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, found=bint)
    cdef bint _find(self, bytes key) noexcept
    @cython.locals(text=bytearray, i=Py_ssize_t)
    cdef str _text(self, Py_ssize_t begin, Py_ssize_t size)
