"""Secrets at rest: encrypted and authenticated with AES-256-GCM, each bound to the name that it belongs to."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable

from perseid.base.errors import StoreError

KEY_BYTES = 32
_NONCE_BYTES = 12


class Sealer:
    """Seals with one key. `random_bytes` gives so many bytes that were never given before."""

    def __init__(self, key: bytes, random_bytes: Callable[[int], bytes]) -> None:
        assert len(key) == KEY_BYTES, f"a key of {len(key)} bytes"
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # not where there are no users

        self._cipher = AESGCM(key)
        self._random_bytes = random_bytes

    def seal(self, name: str, secret: str) -> str:
        """The secret of `name`, to be stored."""
        nonce = self._random_bytes(_NONCE_BYTES)
        return b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), name.encode())).decode()

    def unseal(self, name: str, sealed: str) -> str:
        """What was sealed for `name`. StoreError when it was sealed with another key, for another name, or changed."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = b64decode(sealed, validate=True)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, NotBase64, ValueError):
            raise StoreError(
                f"the secret of user {name} can't be decrypted: it was stored with another key than that of "
                "authSecretKeyFile, or the file was changed"
            ) from None
