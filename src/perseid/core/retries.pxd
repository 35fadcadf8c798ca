# The C types of retries.py, for Cython.

cimport cython
from perseid.core.batch cimport Target
from perseid.core.levels cimport LevelledSends

cdef unsigned int MOST_RECONSUMED
cdef bytes PREFIX
cdef Py_ssize_t PREFIX_BYTES
cdef long long UNLIMITED, NEVER


cdef class RetrySends(LevelledSends):
    cdef object _limit_of
    cdef dict _limits
    cdef long long _most_reconsumed
    cdef bint _is_retry

    cpdef set_limits(self, object limit_of)
    cpdef begin(self, long long now, long long log_end, long long limit, bint may_order)
    cdef bint _read_send(self) noexcept
    cdef bint _read_field(self, unsigned int letter, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint _read_properties(self) noexcept
    @cython.locals(target=Target)
    cdef Target _target(self)
    cdef long long _limit_by(self, str topic) except? -2
