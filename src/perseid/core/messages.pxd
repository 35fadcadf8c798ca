# The C types of messages.py, for Cython.

cimport cython
from perseid.core.stored cimport Stored

cdef Py_ssize_t MAGIC_AT, V1_END, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT, FIXED_V4, V6_MORE, RECONSUMED_BEFORE_BODY
cdef long long ANYWHERE
cdef unsigned int WRAPPED, BORN_V6, STORE_V6
cdef str RETRY_PREFIX, RETRY_TOPIC


@cython.final
cdef class Messages(Stored):
    cdef object _kind, _place, _queue
    cdef bytes _topic_raw
    cdef str _topic
    cdef long long _queue_id
    cdef bint _retried

    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t read(self, object data, Py_ssize_t at, list found) except -1
    cdef int _change_place(self, long long queue_id) except -1
    @cython.locals(raw=bytes, properties=dict)
    cdef object _message(self, Py_ssize_t at)


@cython.locals(at=Py_ssize_t)
cpdef bytes body_of(bytes raw)
@cython.locals(at=Py_ssize_t, end=Py_ssize_t, begin=Py_ssize_t, split=Py_ssize_t, found=dict)
cpdef dict properties_of(bytes raw)
@cython.locals(flags=cython.uint)
cdef Py_ssize_t _body_at(bytes raw) noexcept
cdef Py_ssize_t _int(bytes raw, Py_ssize_t at) noexcept
