# The C types of levels.py, for Cython.

cimport cython
from perseid.core.batch cimport Target
from perseid.core.edits cimport EditedSends

cdef Py_ssize_t MAX_NUMBER_DIGITS
cdef long long NONE


cdef class LevelledSends(EditedSends):
    cdef tuple _waits_ms
    cdef list _levels
    cdef long long _level, _priority
    cdef bint _is_ordered

    cpdef set_waits(self, tuple waits_ms)
    cpdef set_level(self, Py_ssize_t level, Target target)
    cdef bint _read_properties(self) noexcept
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _read_level(self, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(target=Target, last=cython.longlong)
    cdef Target _target(self)
    cdef int _append_own(self) noexcept
    @cython.locals(wait_ms=cython.longlong)
    cdef long long _tag_code(self) noexcept
