"""Why a connection failed, in plain words: what happened and what to do about it, whichever protocol it was for."""

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Literal, NamedTuple

from appliance.sending.delivery.offered import Lost, NoAnswer

Name = Literal[
    "refused", "timed_out", "unknown_name", "no_name_server", "no_route", "closed", "certificate", "tls", "login",
    "busy", "rejected", "",
]  # fmt: skip


class Cause(NamedTuple):
    """A cause of failure by its name, what happened, and what to do next."""

    name: Name
    words: str
    help: str = ""


_PORT = "check host and port, and that the server is running"
_FIREWALL = "check host and port, and that no firewall blocks the port"
_REFUSED = Cause("refused", "connection refused, nothing is listening on this port", _PORT)
_ENCRYPTION = "check that the port and the encryption belong together"
_CLOSED = Cause("closed", "the server closed the connection", _ENCRYPTION)
_NO_ROUTE = Cause("no_route", "there is no route to this host", "check the network of this machine")
_NOT_TLS = Cause(
    "tls", "the server does not speak TLS on this port", "TLS usually belongs to port 465, STARTTLS to port 587"
)
LOGIN = Cause("login", "the server rejected the login", "check user name and password")
BUSY = Cause("busy", "the server takes no connections at the moment", "try again in a few minutes")
REJECTED = Cause("rejected", "the server rejected the connection", "its answer says why")
_UNKNOWN_NAME = Cause("unknown_name", "DNS does not know this host name", "check the spelling of the host")
_NO_NAME_SERVER = Cause("no_name_server", "the DNS server did not answer", "check the DNS servers of this machine")


def of(error: BaseException, seconds: float | None = None) -> Cause:
    """Return the cause of a failed connection; `seconds` is how long was waited for it."""
    chain = list(_chain(error))
    for one in chain:
        if (cause := _known(one)) is not None:
            return cause
    if any(isinstance(one, TimeoutError) or "Timeout" in type(one).__name__ for one in chain):
        return Cause("timed_out", f"timed out{f' after {seconds:g} s' if seconds else ''}", _FIREWALL)
    return Cause("", _plain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from: libraries wrap what the system said."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else []


def _known(error: BaseException) -> Cause | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        help = "use the host name that the certificate is for, or have its certificate renewed"
        return Cause("certificate", f"its certificate is not trusted ({error.verify_message})", help)
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return _NOT_TLS
        words = (error.reason or str(error)).replace("_", " ").lower()
        return Cause("tls", f"the TLS handshake failed ({words})", _ENCRYPTION)
    if isinstance(error, NoAnswer):
        return Cause("timed_out", str(error), _FIREWALL)
    if isinstance(error, Lost):
        return Cause("closed", str(error), _ENCRYPTION)
    if isinstance(error, socket.gaierror):
        return _NO_NAME_SERVER if error.errno == socket.EAI_AGAIN else _UNKNOWN_NAME
    if isinstance(error, ConnectionRefusedError) or getattr(error, "errno", None) == errno.ECONNREFUSED:
        return _REFUSED
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return _CLOSED
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return _NO_ROUTE
    return None


def _plain(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
