"""TLS as a layer of bytes, signatures, users and policies: no socket, no clock."""
