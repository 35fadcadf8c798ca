"""An address as records and message ids carry it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from perseid.base.errors import LocalProtocolError


class Host(NamedTuple):
    """An IP address (4 or 16 bytes) and a port."""

    ip: bytes
    port: int

    def __str__(self) -> str:
        """`1.2.3.4:5` or `[::1]:5`."""
        if len(self.ip) == 4:
            a, b, c, d = self.ip
            return f"{a}.{b}.{c}.{d}:{self.port}"
        return f"[{ip_address(self.ip)}]:{self.port}"


NOWHERE = Host(b"\0\0\0\0", 0)


def host_from(address: str) -> Host:
    """Read `1.2.3.4:5`, `[::1]:5` or `fe80:0:0:0:0:0:0:1:5`; LocalProtocolError when it is none of them."""
    text, _, port = address.rpartition(":")
    text = text.removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        number = int(port)
        ip = ip_address(text).packed
    except ValueError:
        raise LocalProtocolError(f"not an address of the form ip:port: {address!r}") from None
    if not 0 <= number <= 65535:
        raise LocalProtocolError(f"not a port number in {address!r}")
    return Host(ip, number)
