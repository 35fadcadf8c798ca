"""Flags of servers for TLS: the original's keys, as a `-c` file has them. Passwords of keys stand in files alone: who
looks at the list of processes would read them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from perseid.base.options import Doc
from perseid.security.tls_settings import TlsConfig, flag_of


def _key(field: str) -> str:
    key = next(one.metadata["key"] for one in dataclasses.fields(TlsConfig) if one.name == field)
    assert isinstance(key, str)
    return key


def _doc(field: str, text: str) -> Doc:
    return Doc(text, flags=(flag_of(_key(field)),))


@dataclass(frozen=True, slots=True)
class TlsFlags:
    """Each wins over the file's key of its name. Fields are named as those of `TlsConfig`, after `tls_`."""

    tls_mode: Annotated[
        str | None, _doc("mode", "disabled, permissive or enforcing: whether TLS is refused, accepted or required.")
    ] = None
    tls_config_file: Annotated[str | None, _doc("config_file", "A tls.properties file.")] = None
    tls_server_certificate: Annotated[str | None, _doc("server_certificate", "This server's certificate, PEM.")] = None
    tls_server_key: Annotated[str | None, _doc("server_key", "Its key, PEM.")] = None
    tls_need_client_auth: Annotated[
        str | None, _doc("need_client_auth", "none, optional or require: certificates of clients.")
    ] = None
    tls_auth_client: Annotated[str | None, _doc("auth_client", "true: verify the certificates of clients.")] = None
    tls_server_trust: Annotated[str | None, _doc("server_trust", "CAs of clients, PEM.")] = None
    tls_enable: Annotated[str | None, _doc("enable", "true: connect to other nodes with TLS.")] = None
    tls_client_certificate: Annotated[
        str | None, _doc("client_certificate", "The certificate to show to other nodes, PEM.")
    ] = None
    tls_client_key: Annotated[str | None, _doc("client_key", "Its key, PEM.")] = None
    tls_auth_server: Annotated[str | None, _doc("auth_server", "true: verify other nodes' certificates.")] = None
    tls_client_trust: Annotated[str | None, _doc("client_trust", "CAs of other nodes, PEM.")] = None

    def given(self) -> dict[str, str]:
        """Key → value of those that are set."""
        values = {one.name.removeprefix("tls_"): getattr(self, one.name) for one in dataclasses.fields(self)}
        return {_key(name): value for name, value in values.items() if value is not None}
