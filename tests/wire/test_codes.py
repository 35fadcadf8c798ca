"""The numbers of the protocol."""

from enum import IntEnum
from typing import Any

import pytest

from perseid.wire import codes
from perseid.wire.command import encode_request


@pytest.mark.parametrize("kind", [codes.RequestCode, codes.ResponseCode, codes.Language, codes.Version])
def test_no_number_stands_twice(kind: type[IntEnum]) -> None:
    assert len(kind) == len(kind.__members__), "an enum makes the second name of a number an alias in silence"


def test_we_speak_as_5_5_0(vectors: Any) -> None:
    java = bytes.fromhex(vectors["remoting"]["route_req_json"]["frame"])
    assert b'"version":513' in java and b'"version":513' in encode_request(105, 0)
    assert codes.Version.V5_5_0 == codes.VERSION
