"""What a way out is given: a message in its envelope, and where to connect."""

from typing import NamedTuple


class Envelope(NamedTuple):
    """A finished message with its two envelope addresses, as ASCII or, where the next hop takes it, UTF-8."""

    mail_from: str
    rcpt_to: str
    content: bytes


class Server(NamedTuple):
    """Where and how to connect; timeouts in seconds."""

    host: str
    port: int
    tls: str  # none, starttls, tls
    username: str = ""
    password: str = ""
    helo: str = ""
    connect_timeout: float = 30.0
    reply_timeout: float = 600.0
    most_messages: int = 100


def stuffed(content: bytes) -> bytes:
    """Make content safe for DATA: a line that begins with a dot gets another (RFC 5321, 4.5.2)."""
    if content.startswith(b"."):
        content = b"." + content
    if b"\n." in content:
        content = content.replace(b"\n.", b"\n..")
    return content if content.endswith(b"\r\n") else content + b"\r\n"
