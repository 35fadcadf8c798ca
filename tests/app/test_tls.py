"""TLS of a server process: what its settings say, and certificates that change while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perseid.app import broker, process
from perseid.app import tls as tls_app
from perseid.app.access import warn_if_ha_is_open
from perseid.app.tls import ProcessTls
from perseid.base import config
from perseid.base.config import Setting
from perseid.base.errors import ConfigError
from perseid.broker.access.config import AccessOptions
from perseid.net.driver import Listener
from perseid.security.certificates import client_context
from perseid.security.tls import ClientSide, Mode, State, Tls
from perseid.security.tls_settings import Chosen, TlsConfig, flag_of, read
from pki import PASSWORD, files


def settings(given: Mapping[str, str]) -> dict[str, Setting]:
    return {key: Setting(key, value, "here") for key, value in given.items()}


def chosen(**given: str) -> Chosen:
    """Keys with `_` for their dots."""
    return read(settings({key.replace("_", "."): value for key, value in given.items()}), {})


def server(name: str = "server", **more: str) -> Chosen:
    own = files().own(name)
    return chosen(tls_server_certPath=own.certificate, tls_server_keyPath=own.key, **more)


def subject(tls: ProcessTls, *, verify: bool = True, listener: str = "main") -> str:
    """Of the certificate that a client is shown now."""
    context = client_context(trust=files().ca, verify=verify)
    ours = Tls.dialled(ClientSide(lambda: context), "localhost:1")
    side = tls.secure({listener: Listener()})[listener].tls
    assert side is not None
    theirs = Tls.accepted(side)
    while ours.state is not State.OPEN:
        theirs.received(ours.outgoing())
        ours.received(theirs.outgoing())
    return ours.certificate


# ---- settings ----


def test_without_a_word_both_are_taken_and_nobody_is_dialled_with_tls() -> None:
    told = chosen()
    assert (told.mode, told.dial, told.made, told.warnings) == (Mode.PERMISSIVE, False, True, ())


def test_an_enforcing_node_dials_with_tls_unless_told_otherwise() -> None:
    assert server(tls_server_mode="enforcing").dial
    assert not server(tls_server_mode="enforcing", useTLS="false").dial
    assert chosen(useTLS="true").dial and chosen(tls_enable="true").dial


def test_a_named_certificate_is_used_unless_test_mode_is_asked_for() -> None:
    assert not server().made
    told = server(tls_test_mode_enable="true")
    assert told.made and "tls.server.certPath has no effect" in told.warnings[0]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"tls.server.certPath is set and tls.server.keyPath is not"):
        chosen(tls_server_certPath="a.pem")
    with pytest.raises(ConfigError, match=r"the certificate of this server"):
        chosen(tls_server_mode="enforcing", tls_test_mode_enable="false")
    told = chosen(tls_test_mode_enable="false")
    assert told.mode is Mode.DISABLED and "TLS is not taken" in told.warnings[0]
    with pytest.raises(ConfigError, match=r"needs tls.server.trustCertPath"):
        ProcessTls(server(tls_server_authClient="true", tls_server_need_client_auth="REQUIRE"))


def test_a_certificate_that_any_would_do_for_is_not_asked_for() -> None:
    told = server(tls_server_need_client_auth="require")
    assert "no effect without tls.server.authClient=true" in told.warnings[0]
    assert subject(ProcessTls(told)) == "CN=server"


def test_tls_properties_win_but_for_what_is_not_looked_for_there() -> None:
    own, other = settings({"tls.server.keyPath": "a", "tls.server.mode": "disabled"}), {
        "tls.server.keyPath": "b", "tls.server.certPath": "c", "tls.server.mode": "enforcing",
    }  # fmt: skip
    told = read(own, settings(other))
    assert told.mode is Mode.DISABLED and told.keys.server_key == "b"


def test_settings_come_from_a_nodes_file_a_properties_file_and_flags(tmp_path: Path) -> None:
    (tmp_path / "tls.properties").write_text("tls.server.need.client.auth=optional\ntls.server.certPath=x\n")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"tls.server.keyPath=y\ntls.config.file={tmp_path}/tls.properties\ntls.server.mode=disabled\n")
    told = broker.load(conf, flags={"tls.server.mode": "enforcing"}).tls
    assert (told.mode, told.keys.server_key, told.keys.server_certificate) == (Mode.ENFORCING, "y", "x")
    assert told.keys.need_client_auth == "optional"
    conf.write_text("tls.config.file=/there/is/none\n")
    with pytest.raises(ConfigError, match=r"/there/is/none: can't be read"):
        broker.load(conf)


def test_toml_has_them_in_a_table_or_in_quotes() -> None:
    text = (
        '[tls.server]\nmode = "enforcing"\nneed.client.auth = "none"\n[tls]\n"client.keyPath" = "k"\n[other]\nx = 1\n'
    )
    found = config.read(text, "a.toml")
    assert found["tls.server.mode"] == Setting("tls.server.mode", "enforcing", "a.toml:2")
    assert found["tls.client.keyPath"].value == "k" and found["tls.server.need.client.auth"].value == "none"
    assert found["x"].value == "1"


def test_a_password_is_shown_to_nobody_and_kept_in_files() -> None:
    keys = TlsConfig(server_key_password=PASSWORD)
    assert PASSWORD not in config.to_text(keys) and "tls.server.keyPassword=******" in config.to_text(keys)
    assert f"tls.server.keyPassword={PASSWORD}\n" in config.to_file(keys)


def test_flags_are_named_as_the_keys() -> None:
    assert flag_of("tls.server.keyPath") == "--tls-server-key-path"
    assert flag_of("tls.server.need.client.auth") == "--tls-server-need-client-auth"


# ---- certificates ----


def test_an_encrypted_key_needs_its_password() -> None:
    assert subject(ProcessTls(server("encrypted", tls_server_keyPassword=PASSWORD))) == "CN=encrypted"
    with pytest.raises(ConfigError, match=r"encrypted.key: the key is encrypted, and its password is missing"):
        ProcessTls(server("encrypted"))
    with pytest.raises(ConfigError, match=r"its password is not this one") as error:
        ProcessTls(server("encrypted", tls_server_keyPassword=PASSWORD + "x"))
    assert PASSWORD not in str(error.value)


def test_files_that_can_not_be_used_stop_the_start(tmp_path: Path) -> None:
    own, other = files().own("server"), files().own("client")
    with pytest.raises(ConfigError, match=r"the key is not this certificate's"):
        ProcessTls(chosen(tls_server_certPath=own.certificate, tls_server_keyPath=other.key))
    with pytest.raises(ConfigError, match=r"/none: can't be read: No such file"):
        ProcessTls(chosen(tls_server_certPath=own.certificate, tls_server_keyPath="/none"))
    torn = tmp_path / "torn.pem"
    torn.write_bytes(Path(own.certificate).read_bytes()[:300])
    with pytest.raises(ConfigError, match=r"torn.pem with the key .*: can't be used: .*; PEM files are wanted"):
        ProcessTls(chosen(tls_server_certPath=str(torn), tls_server_keyPath=own.key))
    with pytest.raises(ConfigError, match=r"torn.pem: holds no certificates in PEM"):
        ProcessTls(chosen(useTLS="true", tls_client_authServer="true", tls_client_trustCertPath=str(torn)))
    with pytest.raises(ConfigError, match=r"tls.protocols=SSLv3: SSLv3: TLSv1.2 or TLSv1.3 is wanted"):
        ProcessTls(server(tls_protocols="SSLv3"))
    with pytest.raises(ConfigError, match=r"tls.ciphers=NONE-SUCH: OpenSSL has none of them"):
        ProcessTls(server(tls_ciphers="NONE-SUCH"))


def test_ciphers_may_have_javas_names() -> None:
    made = ProcessTls(server(tls_protocols="TLSv1.2", tls_ciphers="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))
    assert subject(made) == "CN=server"
    assert made._made.server is not None
    names = [one["name"] for one in made._made.server.get_ciphers() if one["protocol"] == "TLSv1.2"]
    assert names == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


def test_the_ha_port_demands_tls_with_ha_tls_alone() -> None:
    def mode(told: Chosen) -> Mode:
        return ProcessTls(told).ha_listener().mode

    assert mode(chosen()) is Mode.PERMISSIVE
    assert mode(server(tls_server_mode="enforcing")) is Mode.PERMISSIVE
    assert mode(server(haTls="true")) is Mode.ENFORCING
    assert mode(chosen(tls_server_mode="disabled")) is Mode.DISABLED
    assert set(ProcessTls(server(haTls="true", useTLS="true")).dials()) == {"", "ha"}
    assert set(ProcessTls(server(tls_server_mode="disabled", haTls="true")).dials()) == {"ha"}


CERTIFIES = {"tls_server_authClient": "true", "tls_server_need_client_auth": "optional"}


def test_ports_of_members_take_certificates_alone_where_clients_are_asked_for_them() -> None:
    def certified(told: Chosen) -> dict[str, bool]:
        made = ProcessTls(told).secure({name: Listener() for name in ("main", "ha", "dledger")})
        return {name: one.tls is not None and one.tls.certified for name, one in made.items()}

    asks = {**CERTIFIES, "tls_server_trustCertPath": files().ca}
    nobody = {"main": False, "ha": False, "dledger": False}
    assert certified(server(haTls="true", useTLS="true")) == certified(server(**asks)) == nobody
    assert certified(server(**asks, haTls="true")) == {**nobody, "ha": True}
    assert certified(server(**asks, useTLS="true")) == {**nobody, "dledger": True}
    assert certified(server(**asks, haTls="true", tls_server_mode="disabled")) == nobody
    assert certified(server(**asks, haTls="true", tls_test_mode_enable="true")) == nobody


def test_a_member_without_a_certificate_to_show_is_told() -> None:
    asks = {**CERTIFIES, "tls_server_trustCertPath": files().ca, "haTls": "true"}
    assert "this one has none to show: set tls.client.certPath" in server(**asks).warnings[-1]
    own = files().own("client")
    assert "none to show" not in str(
        server(**asks, tls_client_certPath=own.certificate, tls_client_keyPath=own.key).warnings
    )
    assert "slaves without TLS are taken" in server(haTls="true", tls_server_mode="disabled").warnings[-1]


def test_an_open_ha_port_is_told_where_requests_have_to_be_signed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(text: str) -> bool:
        conf = tmp_path / "broker.conf"
        conf.write_text(f"authenticationEnabled=true\nnamesrvAddr=127.0.0.1:9876\n{text}")
        loaded = broker.load(conf)
        caplog.clear()
        warn_if_ha_is_open("0.0.0.0", loaded.ha_port, loaded.access, members_alone=loaded.knows_slaves)
        return "HA port 0.0.0.0:10912: whoever reaches it may copy all messages" in caplog.text

    mutual = "tls.server.authClient=true\ntls.server.need.client.auth=require\n"
    mutual += "".join(f"tls.server.{key}={files().path(name)}\n" for key, name in FILES.items())
    controlled = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n"
    assert told("") and told("haTls=true\n") and told(mutual) and told(controlled + "checkPeerAddresses=false\n")
    assert not told(mutual + "haTls=true\n") and not told(controlled)
    caplog.clear()
    warn_if_ha_is_open("127.0.0.1", 10912, AccessOptions(authentication_enabled=True), members_alone=False)
    warn_if_ha_is_open("0.0.0.0", 10912, AccessOptions(), members_alone=False)
    assert not caplog.records


FILES = {"certPath": "server.pem", "keyPath": "server.key", "trustCertPath": "ca.pem"}


def test_a_certificate_of_our_own_is_made_when_it_is_needed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    made = ProcessTls(chosen(), ["192.0.2.7"])
    assert not caplog.records
    assert subject(made, verify=False) == "" and subject(made, verify=False) == ""
    (record,) = caplog.records
    assert "a certificate of our own making" in record.getMessage()


def test_a_start_without_tls_does_not_import_what_makes_certificates() -> None:
    code = "import sys, perseid.cli.servers; print('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.fixture
def renewed(tmp_path: Path) -> Path:
    """A folder with a certificate that a test may replace."""
    for ending in ("pem", "key"):
        shutil.copy(files().path(f"server.{ending}"), tmp_path / f"own.{ending}")
    return tmp_path


def of(folder: Path) -> Chosen:
    return chosen(tls_server_certPath=str(folder / "own.pem"), tls_server_keyPath=str(folder / "own.key"))


def put(folder: Path, name: str) -> None:
    for ending in ("pem", "key"):
        shutil.copy(files().path(f"{name}.{ending}"), folder / "next")
        os.replace(folder / "next", folder / f"own.{ending}")


def test_certificates_that_change_are_read_again(renewed: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = ProcessTls(of(renewed))
    before = tls._made.server
    tls.look()
    assert tls._made.server is before, "nothing has changed"
    put(renewed, "client")
    with caplog.at_level(logging.INFO):
        tls.look()
    assert "the certificates were read again" in caplog.text and tls._made.server is not before
    put(renewed, "server")
    tls.look()
    assert subject(tls) == "CN=server"


def test_a_new_file_that_can_not_be_used_keeps_the_old_certificate(
    renewed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ProcessTls(of(renewed))
    (renewed / "own.pem").write_text("torn")
    tls.look()
    assert "the certificates stay as they were: " in caplog.text and subject(tls) == "CN=server"
    caplog.clear()
    tls.look()
    assert not caplog.records, "it is said once"
    (renewed / "own.pem").unlink()
    tls.look()
    assert "own.pem: can't be read" in caplog.text and subject(tls) == "CN=server"
    put(renewed, "encrypted")
    tls.look()
    assert "its password is missing" in caplog.text and subject(tls) == "CN=server"


def test_a_process_looks_each_second_and_at_sighup(renewed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_app, "LOOK_S", 0.01)
    tls = ProcessTls(of(renewed))

    async def main() -> None:
        said = asyncio.Event()
        monkeypatch.setattr(tls_app.log, "info", lambda text: said.set())
        following = process.follow(tls)
        assert following is not None
        put(renewed, "server")
        await asyncio.wait_for(said.wait(), 10)
        monkeypatch.setattr(tls_app, "LOOK_S", 1000)
        said.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(said.wait(), 10)
        following.cancel()

    asyncio.run(main())
    assert process.follow(ProcessTls(chosen())) is None
