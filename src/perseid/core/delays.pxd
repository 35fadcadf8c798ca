# The C types of delays.py, for Cython.

cimport cython
from perseid.core.batch cimport Target
from perseid.core.deliveries cimport Deliveries

cdef const unsigned char[::1] NOTHING


cdef class Delays(Deliveries):
    @cython.locals(end=cython.longlong)
    cpdef long long deliver_delayed(self, object record) except -1
    @cython.locals(target=Target)
    cdef long long _deliver_delayed(self, Py_ssize_t total) except -1
