"""What the state files have in common: a data version and a table under the original's names (store.md §9)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from perseid.base.errors import RequestRefused, StoreError
from perseid.wire.bodies import DataVersion
from perseid.wire.body import Body

T = TypeVar("T", bound="SavedTable")


class SavedTable(Body):
    """The base of the files' forms."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)

    @classmethod
    def read(cls: type[T], text: bytes, path: str) -> T:
        """The file's text, fastjson's liberties included; StoreError when it is not such a file."""
        try:
            return cls.from_json(text)
        except RequestRefused as refused:
            raise StoreError(f"{path} can't be taken up: {refused.remark}; repair it, or remove it") from None
