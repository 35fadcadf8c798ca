# The C types of columns.py, for Cython.

cimport cython
from perseid.core.stored cimport Stored

cdef Py_ssize_t HEAD_BYTES, START_BYTES, MAX_START_BYTES, MAX_NAMES, MAX_HOSTS
cdef long long ENTRY_MAGIC, TIME_MIN, TIME_MAX
cdef int TOPIC, BODY, PROPERTIES, NAMES, HOSTS, IDS, STAMPS, COMPRESSED
cdef const unsigned char[::1] NOTHING, ID_NAME, STAMP_NAME


@cython.final
cdef class Text:
    cdef readonly int[::1] ends
    cdef readonly unsigned char[::1] data
    cdef readonly Py_ssize_t count, size

    @cython.locals(data="unsigned char[::1]")
    cdef int room(self, Py_ssize_t more) except -1
    @cython.locals(ends="int[::1]")
    cdef int room_for(self, Py_ssize_t texts) except -1
    cdef int put(self, const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t)
    cdef int add(self, bytes text) except -1
    cdef int cut(self, Py_ssize_t count) except -1


@cython.final
cdef class Columns(Stored):
    cdef readonly Py_ssize_t count, checked
    cdef readonly long long[::1] longs
    cdef readonly int[::1] ints, maps
    cdef readonly unsigned char[::1] has_keys, has_tags, has_ids
    cdef readonly Text topics, bodies, keys, tags, born_hosts, store_hosts, names, values, ids, stamps
    cdef Py_ssize_t _head_bytes, _rows
    cdef int _wanted
    cdef unsigned int _compressed
    cdef object _host
    cdef list _topics
    cdef dict _hosts
    cdef bytes _born_raw, _born_text, _store_raw, _store_text
    cdef long long _time_low, _time_high, _low, _high
    cdef bint _all_topics, _keep, _compare

    cpdef begin(self)
    cdef Text _again(self, Text texts)
    @cython.locals(total=Py_ssize_t, found=Py_ssize_t)
    cpdef Py_ssize_t sound(self, object data, Py_ssize_t at, long long base) except -2
    @cython.locals(total=Py_ssize_t, found=Py_ssize_t)
    cpdef Py_ssize_t find(self, object data, Py_ssize_t at, Py_ssize_t stop, long long base) except -2
    @cython.locals(total=Py_ssize_t, places=list, ends=list)
    cpdef tuple marks(self, object data, Py_ssize_t at, Py_ssize_t stop, long long base)
    @cython.locals(d="const unsigned char[::1]", i=Py_ssize_t)
    cdef Py_ssize_t _magic_from(self, Py_ssize_t at, Py_ssize_t stop) noexcept
    cdef bint _sound(self, Py_ssize_t at, Py_ssize_t total, long long base) noexcept
    cdef bint _entry(self, Py_ssize_t at, Py_ssize_t total, long long base) noexcept
    @cython.locals(size=Py_ssize_t)
    cdef bint _stands(self, Py_ssize_t at, Py_ssize_t total, long long base) noexcept
    @cython.locals(total=Py_ssize_t)
    cpdef Py_ssize_t read(self, object data, Py_ssize_t at, Py_ssize_t stop, long long base) except -2
    @cython.locals(texts=list, total=Py_ssize_t)
    cpdef take(self, object data, Py_ssize_t at, long long base, bytes topic, bytes body, bytes properties)
    @cython.locals(row=Py_ssize_t, i=Py_ssize_t)
    cpdef hole(self, long long place)
    @cython.locals(stored=cython.longlong, i=Py_ssize_t)
    cdef bint _chosen(self, long long base) except -1
    @cython.locals(record=Py_ssize_t, stored=cython.longlong, born=cython.longlong)
    cdef bint _plain(self, Py_ssize_t at) except -1
    cdef int _room(self, Py_ssize_t topic, Py_ssize_t body, Py_ssize_t properties) except -1
    @cython.locals(record=Py_ssize_t, row=Py_ssize_t, rows=Py_ssize_t, stored=cython.longlong, born=cython.longlong)
    cdef int _numbers(self, Py_ssize_t at) except -1
    cdef int _texts(
        self, const unsigned char[::1] t, Py_ssize_t topic_at, Py_ssize_t topic_end,
        const unsigned char[::1] b, Py_ssize_t body_at, Py_ssize_t body_end,
    ) except -1
    cdef int _addresses(self) except -1
    @cython.locals(text=bytes)
    cdef bytes _address(self, bytes raw)
    @cython.locals(
        first=Py_ssize_t, row=Py_ssize_t, keys_at=Py_ssize_t, keys_end=Py_ssize_t, tags_at=Py_ssize_t,
        tags_end=Py_ssize_t, id_at=Py_ssize_t, id_end=Py_ssize_t, stamp_at=Py_ssize_t, stamp_end=Py_ssize_t,
        stop=Py_ssize_t, split=Py_ssize_t, whole=bint,
    )
    cdef bint _put_properties(self, const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(names=Text, begin=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_new(self, Py_ssize_t first, const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end) noexcept


@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _copy(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t begin, Py_ssize_t count
) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _equal(
    unsigned char[::1] a, Py_ssize_t at, const unsigned char[::1] b, Py_ssize_t begin, Py_ssize_t count
) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _same(const unsigned char[::1] d, Py_ssize_t at, Py_ssize_t end, const unsigned char[::1] text) noexcept
