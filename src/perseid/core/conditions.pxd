# The C types of conditions.py, for Cython.

cimport cython
from perseid.core.properties cimport Properties

cdef Py_ssize_t MAX_DIGITS
cdef int WITHIN, AT_BEGIN


cdef object _long(str text)
cdef str _without_zeros(str text)
cdef object _double(str text)
cdef object _hexadecimal(str text)
cdef object _same(object one, object other)
cpdef object order(object one, object other)
@cython.locals(first=tuple, second=tuple)
cdef object _double_sign(double one, double other)
cdef tuple _place(double value)


cdef class Part:
    cpdef object result(self, object ask)
    cpdef bint wants(self, object ask) except -1


cdef class Constant(Part):
    cdef object _value


cdef class Named(Part):
    cdef str _name
    cdef bytes _key
    @cython.locals(found=Properties)
    cpdef object result(self, object ask)


cdef class Said(Part):
    cdef Part _part


cdef class Compared(Part):
    cdef Part _left, _right
    cdef tuple _signs


cdef class Equal(Part):
    cdef Part _left, _right


cdef class Not(Part):
    cdef Part _part


cdef class Junction(Part):
    cdef tuple _parts
    cdef object _decides
    @cython.locals(is_open=bint, part=Part)
    cpdef object result(self, object ask)


cdef class IsNull(Part):
    cdef Part _part


cdef class Negative(Part):
    cdef Part _part


cdef class OneOf(Part):
    cdef Part _part
    cdef frozenset _strings
    cdef object _wanted


cdef class Text(Part):
    cdef Part _part
    cdef str _text
    cdef bytes _key, _bytes


cdef class Says(Text):
    @cython.locals(found=Properties, said=int)
    cpdef object result(self, object ask)


cdef class TextTest(Text):
    cdef int _where
    cdef object _wanted
    @cython.locals(found=Properties, said=int)
    cpdef object result(self, object ask)
    cdef bint _holds(self, str value) except -1
