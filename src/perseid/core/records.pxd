# The C types of records.py, for Cython.

cimport cython
from perseid.core.batch cimport Batch, Target

cdef long long SHOWN_SYS_FLAGS
cdef Py_ssize_t MIN_BYTES, HEAD_BYTES
cdef long long ENTRY_MAGIC
cdef Py_ssize_t QUEUE_OFFSET_AT, PHYSICAL_AT, STORED_AT


cdef class Records(Batch):
    cdef readonly list times
    cdef long long _time

    cpdef follow(self, object queues)
    cdef bint _begin_target(self, Target target) except -1
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t read(self, object data, Py_ssize_t at, long long offset, long long limit) except -2
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t read_entries(self, object data, Py_ssize_t at, long long offset, long long limit) except -2
    cpdef finish(self)
    cdef bint _entry(self, Py_ssize_t at, Py_ssize_t total) noexcept
    @cython.locals(target=Target)
    cdef bint _record(self, Py_ssize_t at, Py_ssize_t total) except -1
    cdef int _put_time(self, long long stored) except -1
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
