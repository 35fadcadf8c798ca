# The C types of timed.py, for Cython.

cimport cython
from perseid.core.batch cimport Batch, Lane

cdef Py_ssize_t MAX_PROPERTIES_BYTES, WORDS_BYTES, MAX_HANDLE_BYTES
cdef long long ABSOLUTE
cdef const unsigned char[::1] OUT_MS, REAL_TOPIC, REAL_QID, END, VERSION, SPACE, HANDLE_JSON, HANDLE_BINARY
cdef bytes BASE64


cdef class TimedSends(Batch):
    cdef const unsigned char[::1] _broker_name
    cdef dict _timed
    cdef Lane _timer_lane
    cdef long long _precision_ms, _max_delay_ms, _unit_ms, _number_said, _out_ms
    cdef bint _is_reserved
    cdef unsigned char[::1] _words
    cdef Py_ssize_t _words_end

    cpdef set_times(self, long long precision_ms, long long max_delay_ms)
    cpdef learn_timed(self, Lane lane, Lane timer_lane, Py_ssize_t most)
    cdef bint _read_properties(self) noexcept
    @cython.locals(at_ms=cython.longlong)
    cdef bint _read_time(self) noexcept
    @cython.locals(unit_ms=cython.longlong)
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    cdef bint _is_word(self, Py_ssize_t at, Py_ssize_t size) noexcept
    @cython.locals(lane=Lane)
    cdef Lane _lane(self)
    @cython.locals(n=Py_ssize_t)
    cdef int _append_own(self) noexcept
    @cython.locals(n=Py_ssize_t, value=Py_ssize_t)
    cdef Py_ssize_t _put_handle(self, Py_ssize_t at) noexcept
    @cython.locals(n=Py_ssize_t, bits=cython.uint, i=Py_ssize_t)
    cdef Py_ssize_t _put_base64(self, Py_ssize_t at) noexcept
