# The C types of signers.py, for Cython.

cimport cython
from perseid.core.scan cimport Scanner

cdef Py_ssize_t BLOCK_BYTES, SIGNATURE_BYTES, MAX_PIECES, MAX_TEXT_BYTES, PIECE_NUMBERS, APART
cdef bytes BASE64


cdef class Signer:
    cdef readonly bytes name
    cdef readonly set permits
    cdef bytes topic
    cdef object _inner, _outer

    cpdef bytes digest(self, object text, object body)
    cpdef bint has_signed(self, bytes text, bytes signature) except -1


cdef class SignedReader(Scanner):
    cdef bint _must_sign
    cdef dict _signers
    cdef Signer _signer
    cdef long long[::1] _pieces
    cdef Py_ssize_t _pieces_count, _user_at, _user_end, _signature_at, _signature_end
    cdef bytearray _text
    cdef unsigned char[::1] _text_space

    cdef int _begin_pieces(self) noexcept
    @cython.locals(size=Py_ssize_t, n=Py_ssize_t, order=int, i=Py_ssize_t)
    cdef bint _add_piece(self, Py_ssize_t name, Py_ssize_t name_end, Py_ssize_t value, Py_ssize_t value_end) noexcept
    cdef int _order(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t other, Py_ssize_t other_end) noexcept
    cdef Py_ssize_t _put_apart(self, Py_ssize_t at) noexcept
    @cython.locals(n=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, p=Py_ssize_t)
    cdef Py_ssize_t _put_text(self) noexcept
    @cython.locals(size=Py_ssize_t, signer=Signer, wanted=bytes)
    cdef bint _is_admitted(self, Py_ssize_t topic, Py_ssize_t topic_end) except -1
    @cython.locals(signer=Signer)
    cdef Signer _found_signer(self)
    @cython.locals(at=Py_ssize_t, i=Py_ssize_t, different=cython.uint, bits=cython.uint)
    cdef bint _says_digest(self, bytes digest) noexcept
