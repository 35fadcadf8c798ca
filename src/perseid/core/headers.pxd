# The C types of headers.py, for Cython.

cimport cython
from perseid.core.texts cimport TextReader

cdef long long PLAIN_SYS_FLAGS, INT_MIN, INT_MAX
cdef Py_ssize_t HEADER_BYTES, APART, NULL
cdef unsigned int REQUIRED
cdef tuple LONG_NAMES, WORDS
cdef unsigned int FIRST_LETTER, FIELDS, TOPIC, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUMED, MANY
cdef unsigned int QUEUE_NUMS, MOST_RECONSUMED


cdef class HeaderReader(TextReader):
    cdef bint _is_batch
    cdef Py_ssize_t _topic_at, _topic_end
    cdef long long _code, _flag, _opaque, _queue_id, _sys_flag, _born, _message_flag, _reconsumed
    cdef unsigned int _fields

    cdef bint _read_header(self) noexcept
    cdef bint _is_send(self) noexcept
    @cython.locals(p=Py_ssize_t, name=Py_ssize_t, size=Py_ssize_t, fields=Py_ssize_t, fields_end=Py_ssize_t)
    cdef bint _read_json(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(stop=Py_ssize_t, p=Py_ssize_t)
    cdef Py_ssize_t _member(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(number=cython.longlong, is_code=bint, is_number=bint)
    cdef Py_ssize_t _read_member(self, Py_ssize_t name, Py_ssize_t size, Py_ssize_t p, Py_ssize_t end) noexcept
    @cython.locals(word=bytes)
    cdef Py_ssize_t _word(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _bare_end(self, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t _past_fields(self, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(name=Py_ssize_t)
    cdef Py_ssize_t _read_fields(self, Py_ssize_t p, Py_ssize_t end) noexcept
    @cython.locals(letter=cython.uint, stop=Py_ssize_t, begin=Py_ssize_t)
    cdef Py_ssize_t _read_json_field(
        self, Py_ssize_t name, Py_ssize_t name_end, Py_ssize_t at, Py_ssize_t end
    ) noexcept
    @cython.locals(at=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t, letter=cython.uint)
    cdef bint _read_binary(self) noexcept
    cdef bint _first(self, unsigned int letter) noexcept
    @cython.locals(number=cython.longlong)
    cdef bint _read_field(self, unsigned int letter, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(size=Py_ssize_t, i=cython.uint)
    cdef unsigned int _letter(self, Py_ssize_t at, Py_ssize_t end) noexcept
