"""Checks of the public addresses of accounts: each leads to this installation, with a certificate browsers trust."""

import http.client
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from appliance.accounts import public_urls
from appliance.accounts.accounts import FIRST_ACCOUNT_ID
from appliance.certificates import store
from appliance.core.crypto import EXPIRES_SOON_DAYS
from appliance.core.i18n import gettext, translate_stored
from appliance.ops.doctor.checks import Finding
from appliance.sending.delivery import connection_errors
from appliance.settings import config
from appliance.storage.database import rows

_CHECK = "account address"
_TIMEOUT_SECONDS = 5.0
# The time limit for a whole response, because an account's address may lead to a server that sends a byte now and then.
_MAX_RESPONSE_SECONDS = 10.0
_MAX_BYTES = 200
_NUMBER_BITS = 46


def check_addresses(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Request each public address of an account as a browser would, and compare the returned proof.

    For the first account, which belongs to the operator, the addresses of all accounts are checked.
    """
    sql = "SELECT id, public_url FROM account WHERE public_url IS NOT NULL AND (?1 IS NULL OR id = ?1) ORDER BY id"
    for number, url in rows(sql, (None if account_id == FIRST_ACCOUNT_ID else account_id,)):
        if urlsplit(url).hostname == config.base_host(config.current()):
            words = gettext("account %(id)s: %(url)s is the base_url of the installation", id=number, url=url)
            yield Finding("warn", _CHECK, words, f"campanero account address {number} --url none")
        else:
            yield _check_address(number, url)


def _check_address(account_id: int, url: str) -> Finding:
    values = {"id": account_id, "url": url}
    number = secrets.randbits(_NUMBER_BITS)
    try:
        answer, days_left = _request(url, f"{public_urls.PROOF_PATH}{number}")
    except ssl.SSLCertVerificationError as error:
        reason = _read_issuer_error(url) or error.verify_message
        words = gettext(
            "account %(id)s: browsers do not trust the certificate of %(url)s: %(reason)s", reason=reason, **values
        )
        return Finding("fail", _CHECK, words)
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError):
            reason = translate_stored(connection_errors.explain_failure(error).message)
        words = gettext(
            "account %(id)s: %(url)s cannot be reached from this machine: %(reason)s", reason=reason, **values
        )
        return Finding("warn", _CHECK, words)
    if not secrets.compare_digest(answer, public_urls.prove(number).encode()):
        words = gettext(
            "account %(id)s: %(url)s leads to another server, or the proxy does not pass its name on", **values
        )
        return Finding("fail", _CHECK, words)
    if days_left is None:
        return Finding("ok", _CHECK, gettext("account %(id)s: %(url)s answers", **values))
    words = gettext(
        "account %(id)s: %(url)s answers; its certificate is valid for %(days)s days", days=days_left, **values
    )
    return Finding("warn" if days_left < EXPIRES_SOON_DAYS else "ok", _CHECK, words)


def _read_issuer_error(url: str) -> str:
    """Return why the CA has not issued the certificate of an address; "" if none was requested."""
    settings = config.current()
    if settings.tls.certificate != config.AUTO:
        return ""
    return store.load(Path(settings.data_dir), urlsplit(url).hostname or "").error


def _request(url: str, path: str) -> tuple[bytes, int | None]:
    """Return the beginning of the body at a path, and the days until the certificate expires (None for http).

    Raises OSError or http.client.HTTPException. Redirects are not followed.
    """
    parts = urlsplit(url)
    is_encrypted = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_encrypted else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    timer = threading.Timer(_MAX_RESPONSE_SECONDS, _end_connection, (connection,))
    timer.daemon = True
    try:
        connection.connect()
        timer.start()
        days_left = None
        if isinstance(connection.sock, ssl.SSLSocket):
            certificate = connection.sock.getpeercert() or {}
            ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
            days_left = (ends - datetime.now(UTC)).days
        connection.request("GET", path)
        response = connection.getresponse()
        return (response.read(_MAX_BYTES) if response.status == 200 else b""), days_left
    finally:
        timer.cancel()
        connection.close()


def _end_connection(connection: http.client.HTTPConnection) -> None:
    """End a connection from another thread: reads on it continue as if the other side had closed it."""
    with suppress(OSError, AttributeError):  # It may be closed already.
        connection.sock.shutdown(socket.SHUT_RDWR)
