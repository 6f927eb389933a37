"""Checks of the certificates of the listeners: files of the operator, and those of an ACME CA."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from appliance.certificates import issuer, store
from appliance.certificates.store import State
from appliance.core import clock, crypto
from appliance.core.errors import ConfigError
from appliance.core.i18n import gettext
from appliance.ops.doctor.checks import Finding, describe_process
from appliance.settings import config
from appliance.settings.schema import Config

_TLS_TIMEOUT_SECONDS = 5.0
_HTTPS_PORT = 443


def check_certificates(directory: Path) -> Iterator[Finding]:
    """Check the certificate of each listener that has one, and the port at which an ACME CA validates its names."""
    settings = config.current()
    state = store.load(directory) if store.uses_auto(settings) else None
    for setting in config.list_certificate_settings():
        certificate = config.get_value(settings, setting)
        listen = settings.listen if setting == "tls.certificate" else ""
        if certificate == config.AUTO and state is not None:
            yield _check_issued(setting, settings, state, listen)
        elif certificate:
            key = config.get_value(settings, setting.removesuffix("certificate") + "key")
            yield _check_certificate(setting, certificate, key, listen)
    if state is not None and describe_process(directory):
        yield _check_http_port(settings)


def _check_issued(setting: str, settings: Config, state: State, listen: str) -> Finding:
    """Report when the certificate of the CA expires and is renewed, and why the last attempt failed, if it did."""
    facts = store.read_facts(state)
    next_attempt = clock.iso(issuer.find_next_attempt(settings, state, store.wanted_names(settings)))
    if facts is None or facts.validity_error or not issuer.find_renewal(settings, state, store.wanted_names(settings)):
        if not state.error:
            words = gettext("the CA has not issued a certificate yet; the service asks for it when it runs")
            return Finding("warn", setting, words)
        words = gettext(
            "the CA issued no certificate: %(reason)s; next attempt at %(next)s", reason=state.error, next=next_attempt
        )
        return Finding("fail", setting, words)
    words = gettext("valid for %(days_left)s days", days_left=facts.days_left)
    if state.error:
        reason = gettext(
            "%(words)s, but not renewed: %(reason)s; next attempt at %(next)s",
            words=words, reason=state.error, next=next_attempt,
        )  # fmt: skip
        return Finding("fail" if facts.days_left < crypto.EXPIRES_SOON_DAYS else "warn", setting, reason)
    if listen and _serves_other_certificate(listen, facts.der):
        return Finding(
            "warn", setting, gettext("%(words)s, but the service uses a different one: see its log", words=words)
        )
    return Finding("ok", setting, gettext("%(words)s; renewed at %(next)s", words=words, next=next_attempt))


def _check_http_port(settings: Config) -> Finding:
    """Report whether the listener for plain http answers, and which ports of the host name the CA must reach."""
    listen, host = settings.acme.http_listen, config.base_host(settings)
    if listen and _answers_http(listen):
        words = gettext("%(address)s answers; the CA connects to port 80 of %(host)s", address=listen, host=host)
        return Finding("ok", "acme.http_listen", words)
    if settings.tls.certificate:
        words = gettext(
            "does not listen, so the CA must reach %(address)s at port 443 of %(host)s",
            address=settings.listen, host=host,
        )  # fmt: skip
        is_usual = settings.listen.endswith(f":{_HTTPS_PORT}")
        return Finding("ok" if is_usual and not listen else "warn", "acme.http_listen", words)
    words = gettext("does not listen, so a proxy must pass on /.well-known/acme-challenge/ of %(host)s", host=host)
    return Finding("warn", "acme.http_listen", words)


def _answers_http(listen: str) -> bool:
    """Return whether the listener for plain http answers on this machine."""
    try:
        with socket.create_connection(config.reachable_address(listen), _TLS_TIMEOUT_SECONDS) as plain:
            plain.sendall(b"GET /.well-known/acme-challenge/- HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return plain.recv(100).startswith(b"HTTP/1.1 404 ")
    except OSError:
        return False


def _check_certificate(setting: str, certificate: str, key: str, listen: str) -> Finding:
    """Check one certificate file: key, validity, and with `listen` also its host names and use by the service.

    `listen` is the address at which the running service serves this certificate to browsers.
    """
    try:
        crypto.load_tls_context(setting, certificate, key)
        certificate_facts = crypto.read_certificate(setting, certificate)
    except (OSError, ConfigError) as error:
        return Finding("fail", setting, str(error).removeprefix(f"{setting}: "))
    if certificate_facts.validity_error:
        return Finding("fail", setting, f"{certificate}: {certificate_facts.validity_error}")
    words, host = (
        gettext("valid for %(days_left)s days", days_left=certificate_facts.days_left),
        config.base_host(config.current()),
    )
    if listen and not certificate_facts.covers(host):
        names = ", ".join(certificate_facts.host_names) or gettext("no host")
        return Finding(
            "warn",
            setting,
            gettext(
                "%(words)s, but issued for %(names)s: browsers reject it at %(host)s",
                words=words,
                names=names,
                host=host,
            ),
        )
    if listen and _serves_other_certificate(listen, certificate_facts.der):
        return Finding(
            "warn", setting, gettext("%(words)s, but the service uses a different one: see its log", words=words)
        )
    if certificate_facts.days_left < crypto.EXPIRES_SOON_DAYS:
        return Finding(
            "warn",
            setting,
            gettext("%(words)s; replace it with a new one, which is loaded without a restart", words=words),
        )
    return Finding("ok", setting, gettext("%(words)s; a new one is loaded without a restart", words=words))


def _serves_other_certificate(listen: str, binary: bytes) -> bool:
    """Return whether the service at `listen` serves a different certificate than `binary` (DER).

    Return False if the service cannot be reached.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(config.reachable_address(listen), _TLS_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain) as safe,
        ):
            return safe.getpeercert(binary_form=True) != binary
    except OSError:
        return False
