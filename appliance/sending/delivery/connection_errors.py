"""Explain in plain words why a connection of any protocol failed, and what to do about it."""

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Literal, NamedTuple

from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.delivery.smtp_client import ConnectionLost, ReplyTimeout

CauseName = Literal[
    "refused", "timed_out", "unknown_name", "no_name_server", "no_route", "closed", "certificate", "tls", "login",
    "busy", "rejected", "",
]  # fmt: skip


class Cause(NamedTuple):
    """The cause of a failed connection; `message` says what happened, `help` what to do next (may be empty)."""

    name: CauseName
    message: str
    help: str = ""


_CHECK_PORT = gettext_noop("check host and port, and that the server is running")
_CHECK_FIREWALL = gettext_noop("check host and port, and that no firewall blocks the port")
_CONNECTION_REFUSED = Cause(
    "refused", gettext_noop("connection refused, nothing is listening on this port"), _CHECK_PORT
)
_CHECK_ENCRYPTION = gettext_noop("check that the port and the encryption belong together")
_CLOSED = Cause("closed", gettext_noop("the server closed the connection"), _CHECK_ENCRYPTION)
_NO_ROUTE = Cause(
    "no_route", gettext_noop("there is no route to this host"), gettext_noop("check the network of this machine")
)
_NOT_TLS = Cause(
    "tls",
    gettext_noop("the server does not speak TLS on this port"),
    gettext_noop("TLS usually belongs to port 465, STARTTLS to port 587"),
)
LOGIN_REJECTED = Cause(
    "login", gettext_noop("the server rejected the login"), gettext_noop("check user name and password")
)
BUSY = Cause(
    "busy", gettext_noop("the server takes no connections at the moment"), gettext_noop("try again in a few minutes")
)
CONNECTION_REJECTED = Cause(
    "rejected", gettext_noop("the server rejected the connection"), gettext_noop("its answer says why")
)
# Errors are stored in English, and translated where they are shown.
_TIMED_OUT = gettext_noop("timed out")
_TIMED_OUT_AFTER = gettext_stored("timed out after %(seconds)s s")
_UNTRUSTED = gettext_stored("its certificate is not trusted (%(reason)s)")
_HANDSHAKE_FAILED = gettext_stored("the TLS handshake failed (%(reason)s)")
_UNKNOWN_NAME = Cause(
    "unknown_name", gettext_noop("DNS does not know this host name"), gettext_noop("check the spelling of the host")
)
_NO_NAME_SERVER = Cause(
    "no_name_server",
    gettext_noop("the DNS server did not answer"),
    gettext_noop("check the DNS servers of this machine"),
)


def explain_failure(error: BaseException, seconds: float | None = None) -> Cause:
    """Return the cause of a failed connection, found in an exception and the exceptions that it was raised from.

    `seconds` is the timeout that applied; only the message about a timeout contains it. If the cause is unknown,
    `name` is empty and `message` is the text of the exception.
    """
    chain = list(_walk_causes(error))
    for cause_error in chain:
        if (cause := _find_cause(cause_error)) is not None:
            return cause
    if any(isinstance(cause_error, TimeoutError) or "Timeout" in type(cause_error).__name__ for cause_error in chain):
        text = _TIMED_OUT_AFTER % {"seconds": f"{seconds:g}"} if seconds else _TIMED_OUT
        return Cause("timed_out", text, _CHECK_FIREWALL)
    return Cause("", _error_text(error))


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then its causes, contexts and group members, each once.

    Libraries wrap exceptions of the operating system in other exceptions.
    """
    seen_ids: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen_ids:
            continue
        seen_ids.add(id(current))
        yield current
        waiting += [linked for linked in (current.__cause__, current.__context__) if linked is not None]
        waiting += current.exceptions if isinstance(current, BaseExceptionGroup) else []


def _find_cause(error: BaseException) -> Cause | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        help = gettext_noop("use the host name that the certificate is for, or have its certificate renewed")
        return Cause("certificate", _UNTRUSTED % {"reason": error.verify_message}, help)
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return _NOT_TLS
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return Cause("tls", _HANDSHAKE_FAILED % {"reason": reason}, _CHECK_ENCRYPTION)
    if isinstance(error, ReplyTimeout):
        return Cause("timed_out", str(error), _CHECK_FIREWALL)
    if isinstance(error, ConnectionLost):
        return Cause("closed", str(error), _CHECK_ENCRYPTION)
    if isinstance(error, socket.gaierror):
        return _NO_NAME_SERVER if error.errno == socket.EAI_AGAIN else _UNKNOWN_NAME
    if isinstance(error, ConnectionRefusedError) or getattr(error, "errno", None) == errno.ECONNREFUSED:
        return _CONNECTION_REFUSED
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return _CLOSED
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return _NO_ROUTE
    return None


def _error_text(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
