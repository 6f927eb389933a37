"""Writes a mail as the bytes that go over the wire, headers by hand.

The standard library's writer refolds headers and turns a long List-Unsubscribe URL into encoded words, which ends
one-click unsubscribing; and it takes a millisecond a message. Here every value is encoded for the header it stands in,
bodies are quoted-printable, every line ends in CRLF and no line begins with a dot.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NamedTuple

_ATOM = re.compile(r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*$")
_NAME = re.compile(r"[A-Za-z0-9-]{1,76}")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LINE_START = re.compile(rb"(?m)^(\.|From )")
_WORD_BYTES = 45  # 60 characters of base64: an encoded word stays under 75 (RFC 2047, section 2)


class Mail(NamedTuple):
    """A mail before it is written: decoded values, one recipient."""

    message_id: str
    date: float
    sender: tuple[str | None, str]  # name, address
    recipient: str
    subject: str
    text: str
    html: str | None
    reply_to: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def write(mail: Mail) -> bytes:
    """Write a mail; raises ValueError if a header could not be written safely."""
    headers = [
        ("Date", format_datetime(datetime.fromtimestamp(mail.date, UTC))),
        ("From", mailbox(*mail.sender)),
        ("To", mail.recipient),
        ("Message-ID", f"<{mail.message_id}>"),
        ("Subject", unstructured("Subject", mail.subject)),
    ]
    if mail.reply_to:
        headers.append(("Reply-To", mail.reply_to))
    headers += mail.headers
    headers.append(("MIME-Version", "1.0"))
    text = quoted_printable(mail.text)
    if mail.html is None:
        headers += _part_headers("plain")
        body = text
    else:
        mark = "=_" + mail.message_id.partition("@")[0][-24:]
        headers.append(("Content-Type", f'multipart/alternative;\r\n boundary="{mark}"'))
        body = b"".join(
            [_part(mark, "plain", text), _part(mark, "html", quoted_printable(mail.html)), f"--{mark}--\r\n".encode()]
        )
    return _head(headers) + b"\r\n" + body


def _head(headers: list[tuple[str, str]]) -> bytes:
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        # What is left after folding must be one header: the last look before the wire (trust, T07)
        if _BREAKS.search(value.replace("\r\n ", "")):
            raise ValueError(f"{name} holds a line break")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()


def _part_headers(subtype: str) -> list[tuple[str, str]]:
    return [
        ("Content-Type", f'text/{subtype}; charset="utf-8"'),
        ("Content-Transfer-Encoding", "quoted-printable"),
    ]


def _part(mark: str, subtype: str, body: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in _part_headers(subtype))
    return f"--{mark}\r\n{head}\r\n".encode() + body + b"\r\n"


def quoted_printable(text: str) -> bytes:
    """Encode a body so that no line is long, begins with a dot or `From `, or ends in space (RFC 2045, 6.7)."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    encoded = binascii.b2a_qp(plain, istext=True).replace(b"\n", b"\r\n")
    encoded = _LINE_START.sub(lambda found: b"=%02X" % found[0][0] + found[0][1:], encoded)
    return encoded if encoded.endswith(b"\r\n") else encoded + b"\r\n"


def unstructured(name: str, value: str) -> str:
    """Encode the value of a header that is free text (RFC 5322, 3.6.5), folded under 78 characters."""
    value = _BREAKS.sub(" ", value).strip()
    if value.isascii() and "=?" not in value and all(len(word) < 900 for word in value.split(" ")):
        return _fold(value, len(name) + 2)
    return encoded_words(value, len(name) + 2)


def _fold(value: str, used: int) -> str:
    lines, line = [], ""
    room = 76 - used
    for word in value.split(" "):
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line, room = word, 75
        else:
            line = f"{line} {word}" if line or lines else word
    lines.append(line)
    return "\r\n ".join(lines)


def encoded_words(value: str, used: int) -> str:
    """Encode a value as RFC 2047 words, cut between characters; `used` columns of the first line are taken."""
    words, part = [], b""
    room = (64 - used) // 4 * 3
    for character in value:
        raw = character.encode("utf-8", "replace")
        if len(part) + len(raw) > room:
            words.append(part)
            part, room = b"", _WORD_BYTES
        part += raw
    words.append(part)
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(word).decode()}?=" for word in words)


def mailbox(name: str | None, address: str) -> str:
    """Write a display name with its address (RFC 5322, 3.4): an atom, a quoted string, or encoded words."""
    name = _BREAKS.sub(" ", name or "").strip()
    if not name:
        return address
    if name.isascii() and "=?" not in name:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        shown = name if _ATOM.match(name) and "=" not in name else f'"{escaped}"'
        return f"{shown} <{address}>" if len(shown) + len(address) < 70 else f"{shown}\r\n <{address}>"
    return f"{encoded_words(name, 6)}\r\n <{address}>"
