# The C types of sends.py, for Cython.

cimport cython
from perseid.core.signers cimport SignedReader

cdef long long PLAIN_SYS_FLAGS, INT_MIN, INT_MAX
cdef Py_ssize_t MAX_PROPERTIES_BYTES, HEADER_BYTES, MAX_DIGITS, MAX_TEXT_BYTES, APART
cdef int HEADER_JSON
cdef unsigned int REQUIRED
cdef tuple CHANGING_NAMES, LONG_NAMES
cdef unsigned int FIRST_LETTER, FIELDS, TOPIC, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUMED, UNIT_MODE, MANY
cdef unsigned int QUEUE_NUMS, MOST_RECONSUMED


cdef class SendReader(SignedReader):
    cdef bint _sync, _is_batch
    cdef const unsigned char[::1] _own
    cdef unsigned char[::1] _q
    cdef Py_ssize_t _q_end, _topic_at, _topic_end
    cdef Py_ssize_t _unique_at, _unique_end, _tag_at, _tag_end, _keys_at, _keys_end
    cdef long long _code, _flag, _opaque, _queue_id, _sys_flag, _born, _message_flag, _reconsumed
    cdef unsigned int _fields

    cdef bint _read_send(self) noexcept
    @cython.locals(p=Py_ssize_t, name=Py_ssize_t, size=Py_ssize_t, number=cython.longlong)
    cdef bint _read_json(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t, letter=cython.uint)
    cdef bint _read_binary(self) noexcept
    cdef bint _first(self, unsigned int letter) noexcept
    @cython.locals(name=Py_ssize_t, stop=Py_ssize_t, letter=cython.uint)
    cdef Py_ssize_t _read_fields(self, Py_ssize_t p, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong)
    cdef bint _read_field(self, unsigned int letter, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(size=Py_ssize_t, i=cython.uint)
    cdef unsigned int _letter(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(n=Py_ssize_t, most=Py_ssize_t, c=cython.uchar)
    cdef Py_ssize_t _unescape(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(n=Py_ssize_t)
    cdef bint _take_properties(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t _put_apart(self, Py_ssize_t at) noexcept
    @cython.locals(n=Py_ssize_t, i=Py_ssize_t)
    cdef int _append_own(self) noexcept
    cdef bint _end_properties(self) noexcept
    @cython.locals(n=Py_ssize_t, at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t)
    cdef bint _read_properties(self) noexcept
    @cython.locals(i=Py_ssize_t, changing=bytes)
    cdef bint _read_property(self, Py_ssize_t at, Py_ssize_t size, Py_ssize_t value, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong, i=Py_ssize_t)
    cdef long long _digits(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(i=Py_ssize_t)
    cdef bint _says(self, Py_ssize_t at, bytes text) noexcept


cdef unsigned char _hex(unsigned char c) noexcept
