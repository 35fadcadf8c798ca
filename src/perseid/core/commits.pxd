# The C types of commits.py, for Cython.

cimport cython
from perseid.core.deliveries cimport Deliveries
from perseid.core.batch cimport Target

cdef long long COMMITTED, MAX_QUEUE_ID
cdef Py_ssize_t MAX_PROPERTIES_BYTES, QUEUE_OFFSET_AT, PHYSICAL_AT
cdef const unsigned char[::1] NOTHING


cdef class Commits(Deliveries):
    cdef const unsigned char[::1] _group, _key
    cdef bint _is_groups, _is_keys

    @cython.locals(end=cython.longlong)
    cpdef long long commit(
        self, object record, long long physical_offset, long long queue_offset, const unsigned char[::1] group,
        const unsigned char[::1] key
    ) except -1
    @cython.locals(target=Target)
    cdef long long _commit(self, Py_ssize_t total, long long physical_offset, long long queue_offset) except -1
    @cython.locals(at=Py_ssize_t, stop=Py_ssize_t, n=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t)
    cdef bint _copy_properties(self) noexcept
    @cython.locals(p=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_copied(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong)
    cdef bint _is_of_half(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_value(self, const unsigned char[::1] text, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _is_odd(self, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
