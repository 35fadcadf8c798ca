# The C types of redirects.py, for Cython.

cimport cython
from perseid.core.batch cimport Batch, Target

cdef Py_ssize_t MAX_PROPERTIES_BYTES, ADDED_BYTES, MAX_HANDLE_BYTES
cdef unsigned int SYS_FLAG
cdef long long ABSOLUTE, PREPARED, PLAIN_SYS_FLAGS
cdef const unsigned char[::1] OUT_MS, TRANSACTION_ID, REAL_TOPIC, REAL_QID, END, VERSION, SPACE
cdef const unsigned char[::1] HANDLE_JSON, HANDLE_BINARY
cdef bytes BASE64


cdef class Sends(Batch):
    cdef const unsigned char[::1] _broker_name
    cdef readonly list halves
    cdef public long long halves_left
    cdef dict _names
    cdef Target _timer_target, _half_target
    cdef long long _precision_ms, _max_delay_ms, _unit_ms, _number_said, _out_ms
    cdef bint _is_reserved, _is_half, _is_prepared
    cdef unsigned char[::1] _handle
    cdef Py_ssize_t _handle_end

    cpdef set_times(self, long long precision_ms, long long max_delay_ms)
    cpdef learn_name(self, Target target, Py_ssize_t most)
    cpdef redirect(self, Target timer_target, Target half_target)
    cdef bint _read_properties(self) noexcept
    @cython.locals(at_ms=cython.longlong)
    cdef bint _read_time(self) noexcept
    cdef bint _read_field(self, unsigned int letter, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(unit_ms=cython.longlong)
    cdef bint _read_empty(self, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _is_reserved_name(self, Py_ssize_t at, Py_ssize_t size) noexcept
    @cython.locals(target=Target)
    cdef Target _target(self)
    @cython.locals(target=Target)
    cdef Target _name_of_send(self)
    @cython.locals(n=Py_ssize_t)
    cdef int _append_own(self) noexcept
    cdef bint _put(self, Target target, Py_ssize_t body, Py_ssize_t end) except -1
    @cython.locals(n=Py_ssize_t, value=Py_ssize_t)
    cdef Py_ssize_t _put_handle(self, Py_ssize_t at) noexcept
    @cython.locals(n=Py_ssize_t, bits=cython.uint, i=Py_ssize_t)
    cdef Py_ssize_t _put_base64(self, Py_ssize_t at) noexcept
