"""Explain why a connection failed and what to do about it, in plain words and for any protocol."""

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Literal, NamedTuple

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


_CHECK_PORT = "check host and port, and that the server is running"
_CHECK_FIREWALL = "check host and port, and that no firewall blocks the port"
_CONNECTION_REFUSED = Cause("refused", "connection refused, nothing is listening on this port", _CHECK_PORT)
_CHECK_ENCRYPTION = "check that the port and the encryption belong together"
_CLOSED = Cause("closed", "the server closed the connection", _CHECK_ENCRYPTION)
_NO_ROUTE = Cause("no_route", "there is no route to this host", "check the network of this machine")
_NOT_TLS = Cause(
    "tls", "the server does not speak TLS on this port", "TLS usually belongs to port 465, STARTTLS to port 587"
)
LOGIN_REJECTED = Cause("login", "the server rejected the login", "check user name and password")
BUSY = Cause("busy", "the server takes no connections at the moment", "try again in a few minutes")
CONNECTION_REJECTED = Cause("rejected", "the server rejected the connection", "its answer says why")
_UNKNOWN_NAME = Cause("unknown_name", "DNS does not know this host name", "check the spelling of the host")
_NO_NAME_SERVER = Cause("no_name_server", "the DNS server did not answer", "check the DNS servers of this machine")


def explain_failure(error: BaseException, seconds: float | None = None) -> Cause:
    """Return the cause of a failed connection from an exception and the exceptions that it was raised from.

    `seconds`, the timeout that applied, is only named in the message. An unknown cause has an empty name.
    """
    chain = list(_walk_causes(error))
    for cause_error in chain:
        if (cause := _find_cause(cause_error)) is not None:
            return cause
    if any(isinstance(cause_error, TimeoutError) or "Timeout" in type(cause_error).__name__ for cause_error in chain):
        return Cause("timed_out", f"timed out{f' after {seconds:g} s' if seconds else ''}", _CHECK_FIREWALL)
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
        help = "use the host name that the certificate is for, or have its certificate renewed"
        return Cause("certificate", f"its certificate is not trusted ({error.verify_message})", help)
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return _NOT_TLS
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return Cause("tls", f"the TLS handshake failed ({reason})", _CHECK_ENCRYPTION)
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
