"""What a way out is given: a message in its envelope, and where to connect."""

from collections.abc import Mapping
from typing import NamedTuple

from appliance.core import addresses
from appliance.core.errors import Permanent


class Envelope(NamedTuple):
    """A finished message with its two envelope addresses, as ASCII or, where the next hop takes it, UTF-8."""

    mail_from: str
    rcpt_to: str
    content: bytes
    is_stuffed: bool = False  # no line of it begins with a dot


class Server(NamedTuple):
    """Where and how to connect; timeouts in seconds."""

    host: str
    port: int
    tls: str  # none, offered, starttls, tls
    username: str = ""
    password: str = ""
    helo: str = ""
    connect_timeout: float = 30.0
    command_timeout: float = 300.0
    reply_timeout: float = 600.0
    most_messages: int = 100
    address: str = ""  # where it is known to be, so that its name is not looked up again


def stuffed(content: bytes) -> bytes:
    """Make content safe for DATA: a line that begins with a dot gets another (RFC 5321, 4.5.2)."""
    if content.startswith(b"."):
        content = b"." + content
    if b"\n." in content:
        content = content.replace(b"\n.", b"\n..")
    return content if content.endswith(b"\r\n") else content + b"\r\n"


def transaction(envelope: Envelope, offers: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """Write MAIL, RCPT and DATA for a server that offers these extensions; raises Permanent for what it cannot take."""
    sender = addresses.ascii_form(envelope.mail_from) or envelope.mail_from
    recipient = addresses.ascii_form(envelope.rcpt_to) or envelope.rcpt_to
    words = [f"MAIL FROM:<{sender}>"]
    if not (sender + recipient).isascii():
        if "SMTPUTF8" not in offers:
            raise Permanent("the next hop does not take this address (no SMTPUTF8)", 553, "5.6.7")
        words.append("SMTPUTF8")
        if "8BITMIME" in offers:
            words.append("BODY=8BITMIME")  # the header of such a message holds its addresses as they are
    if "SIZE" in offers:
        size = len(envelope.content)
        limit = offers["SIZE"]
        if limit.isdigit() and 0 < int(limit) < size:
            raise Permanent(f"the next hop takes no more than {limit} bytes", 552, "5.3.4")
        words.append(f"SIZE={size}")
    return f"{' '.join(words)}\r\n".encode(), f"RCPT TO:<{recipient}>\r\n".encode(), b"DATA\r\n"
