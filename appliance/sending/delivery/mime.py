"""Writes a mail as the bytes that go over the wire, headers by hand.

The standard library's writer refolds headers and turns a long List-Unsubscribe URL into encoded words, which ends
one-click unsubscribing; and it takes a millisecond a message. Here every value is encoded for the header it stands in,
bodies are quoted-printable, every line ends in CRLF and no line begins with a dot.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import NamedTuple

_ATOM = re.compile(r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*$")
_NAME = re.compile(r"[A-Za-z0-9-]{1,76}")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LINE_START = re.compile(rb"(?m)^(\.|From )")
_WORD_BYTES = 45  # 60 characters of base64: an encoded word stays under 75 (RFC 2047, section 2)
SOFT_BREAK = b"=\r\n"
# Of the 76 characters of a line (RFC 2045, 6.7, rule 5) the last is for the soft break
_WIDTH = 75

# `=_` cannot occur in quoted-printable text, so one boundary serves all
_MARK = "=_campanero"
_PART = 'Content-Type: text/{}; charset="utf-8"\r\nContent-Transfer-Encoding: quoted-printable\r\n'
_SINGLE = ("MIME-Version: 1.0\r\n" + _PART.format("plain") + "\r\n").encode()
_TEXT = (
    f'MIME-Version: 1.0\r\nContent-Type: multipart/alternative;\r\n boundary="{_MARK}"\r\n\r\n'
    f"--{_MARK}\r\n{_PART.format('plain')}\r\n"
).encode()
_HTML = f"\r\n--{_MARK}\r\n{_PART.format('html')}\r\n".encode()
_END = f"\r\n--{_MARK}--\r\n".encode()


class Mail(NamedTuple):
    """A mail before it is written: decoded values, one recipient; bodies that are bytes are encoded already."""

    message_id: str
    date: float
    sender: tuple[str | None, str]  # name, address
    recipient: str
    subject: str
    text: str | bytes
    html: str | bytes | None
    reply_to: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    shared: bytes = b""  # headers of all mails of a campaign, as `head` wrote them
    is_single_spaced: bool = False  # both bodies, as `is_single_spaced` says


def write(mail: Mail) -> bytes:
    """Write a mail; raises ValueError if a header could not be written safely."""
    headers = [
        ("Date", _date(int(mail.date))),
        ("From", mailbox(*mail.sender)),
        ("To", mail.recipient),
        ("Message-ID", f"<{mail.message_id}>"),
        ("Subject", unstructured("Subject", mail.subject)),
    ]
    if mail.reply_to:
        headers.append(("Reply-To", mail.reply_to))
    headers += mail.headers
    above = head(headers) + mail.shared
    if mail.html is None:
        return b"".join((above, _SINGLE, _body(mail.text)))
    return b"".join((above, _TEXT, _body(mail.text), _HTML, _body(mail.html), _END))


def head(headers: Iterable[tuple[str, str]]) -> bytes:
    """Write headers as they stand on the wire; raises ValueError for one that could become two (trust, T07)."""
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        # What is left after folding must be one header: the last look before the wire
        if _BREAKS.search(value.replace("\r\n ", "")):
            raise ValueError(f"{name} holds a line break")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()


@lru_cache(maxsize=8)
def _date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC))


def _body(body: str | bytes) -> bytes:
    return body if isinstance(body, bytes) else quoted_printable(body)


def quoted_printable(text: str) -> bytes:
    """Encode a body so that no line is long, begins with a dot or `From `, or ends in space (RFC 2045, 6.7)."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    encoded = binascii.b2a_qp(plain, istext=True).replace(b"\n", b"\r\n")
    encoded = _LINE_START.sub(lambda found: b"=%02X" % found[0][0] + found[0][1:], encoded)
    return encoded if encoded.endswith(b"\r\n") else encoded + b"\r\n"


def fragment(text: str) -> bytes:
    """Encode a piece of a body so that any other piece may stand before it and behind it.

    It ends where a line ends: after its own last one, or with a soft break, which says nothing (RFC 2045, 6.7, rule 5).
    """
    if not text:
        return b""
    encoded = binascii.b2a_qp(text.encode("utf-8", "replace"), istext=True).replace(b"\n", b"\r\n")
    encoded = _LINE_START.sub(lambda found: b"=%02X" % found[0][0] + found[0][1:], encoded)
    if encoded.endswith(b"\r\n"):
        return encoded
    last = len(encoded) - (encoded.rfind(b"\n") + 1)
    if last > _WIDTH:
        cut = len(encoded) - 8
        cut -= 1 if encoded[cut - 1 : cut] == b"=" else 2 if encoded[cut - 2 : cut - 1] == b"=" else 0
        rest = _LINE_START.sub(lambda found: b"=%02X" % found[0][0] + found[0][1:], encoded[cut:])
        encoded = encoded[:cut] + SOFT_BREAK + rest
    return encoded + SOFT_BREAK


def is_single_spaced(encoded: bytes) -> bool:
    """Return whether a body, or a piece of one that ends where a line ends, has no white space but single spaces within
    lines: then nothing in it has to be changed before it is signed (RFC 6376, 3.4.4)."""
    return b"\t" not in encoded and b"  " not in encoded and b" \r\n" not in encoded


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


@lru_cache(maxsize=64)
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
