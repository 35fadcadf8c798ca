# The C types of deliveries.py, for Cython.

cimport cython
from perseid.core.batch cimport Batch, Target

cdef long long PLAIN_SYS_FLAGS
cdef Py_ssize_t MAX_PROPERTIES_BYTES, TIMES_BYTES
cdef Py_ssize_t FLAG_AT, RECORD_SYS_FLAG_AT, BORN_AT, BORN_HOST_AT, STORE_HOST_AT, RECONSUMED_AT
cdef const unsigned char[::1] TAKEN_MS, DELIVERED_MS, END, NOTHING


cdef class Deliveries(Batch):
    cdef const unsigned char[::1] _timer_topic
    cdef Py_ssize_t _real_at, _real_end
    cdef long long _real_queue_id, _out_ms

    @cython.locals(end=cython.longlong)
    cpdef long long deliver(self, object record, long long precision_ms, long long taken_ms) except -1
    @cython.locals(target=Target)
    cdef long long _deliver(self, Py_ssize_t total, long long precision_ms, long long taken_ms) except -1
    cdef bint _is_one(self, Py_ssize_t total) noexcept
    cdef long long _stored(self, Target target) except -1
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_ours(self) noexcept
    cdef int _read_rest(self) except -1
    @cython.locals(n=Py_ssize_t)
    cdef int _append_times(self, long long taken_ms) noexcept
    cdef bint _read_empty(self, Py_ssize_t at, Py_ssize_t size) noexcept
    @cython.locals(known=cython.int)
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _tells_times(self, Py_ssize_t at, Py_ssize_t size) noexcept
