"""Write a mail as the bytes to send, without the standard library's writer.

That writer refolds headers and turns a long List-Unsubscribe URL into encoded words, which breaks one-click
unsubscribing, and it takes a millisecond a message. Here every value is encoded for its header, bodies are
quoted-printable, every line ends in CRLF and no line begins with a dot.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

_ATOM = re.compile(r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*$")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,76}")
_PLAIN_NAME, _AT_SIGN = re.compile(r"""(?!.*=\?)[] !#-+.\-/0-9=?@A-Z[^_`a-z{|}~-]*"""), re.compile("[@＠﹫]")
_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LINE_START = re.compile(rb"(?m)^(\.|From )")
_MAX_ENCODED_WORD_BYTES = 45  # 60 characters of base64, as an encoded word may have 75 characters (RFC 2047, 2)
# A line has at most 998 characters (RFC 5322, 2.1.1), of which the name of the header takes some
_MAX_UNFOLDED_CHARACTERS = 900
SOFT_BREAK = b"=\r\n"
# A line has at most 76 characters, of which the last is left for the soft break (RFC 2045, 6.7, rule 5)
_MAX_LINE_CHARACTERS = 75

# `=_` cannot occur in quoted-printable text, so the same boundary is safe for all mails
_BOUNDARY = "=_campanero"
_PART_HEADERS = 'Content-Type: text/{}; charset="utf-8"\r\nContent-Transfer-Encoding: quoted-printable\r\n'
_PLAIN_HEADERS = ("MIME-Version: 1.0\r\n" + _PART_HEADERS.format("plain") + "\r\n").encode()
_TEXT_PART_HEADERS = (
    f'MIME-Version: 1.0\r\nContent-Type: multipart/alternative;\r\n boundary="{_BOUNDARY}"\r\n\r\n'
    f"--{_BOUNDARY}\r\n{_PART_HEADERS.format('plain')}\r\n"
).encode()
_HTML_PART_HEADERS = f"\r\n--{_BOUNDARY}\r\n{_PART_HEADERS.format('html')}\r\n".encode()
_CLOSING_BOUNDARY = f"\r\n--{_BOUNDARY}--\r\n".encode()
# No boundary is the start of another, so that a program that compares only the start finds the right one.
_MIXED_BOUNDARY, _RELATED_BOUNDARY = "=_mixed_campanero", "=_related_campanero"
# A line has at most 78 characters, of which a parameter's name takes some (RFC 2231, section 3)
_MAX_PARAMETER_CHARACTERS = 60
# RFC 2231, section 7: characters of extended values that need no encoding
_UNENCODED, _CHARSET = "!#$&+-.^_`|~", "utf-8''"


class Part(NamedTuple):
    """An attached file; with `content_id` it is an inline image of the HTML. `content` is encoded (`encode_base64`)."""

    filename: str
    content_type: str
    content_id: str | None
    content: bytes


class Mail(NamedTuple):
    """The contents of a mail to one recipient.

    `date` is in seconds since 1970. `sender`, `subject` and bodies of type `str` are encoded when the mail is written;
    other header values and bodies of type `bytes` must be encoded already. With `html=None` the mail is plain text.
    """

    message_id: str
    date: float
    sender: tuple[str | None, str]  # name, address
    recipient: str
    subject: str
    text: str | bytes
    html: str | bytes | None
    reply_to: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    shared: bytes = b""  # headers that all mails of a campaign have, as written by `write_headers`
    is_single_spaced: bool = False  # whether the function `is_single_spaced` is true of both bodies
    attachments: tuple[Part, ...] = ()  # of a mail with HTML


def write(mail: Mail) -> bytes:
    """Return a mail as the bytes to send, without a DKIM signature.

    Raises ValueError if a header has an invalid name, or a line break that is not part of folding.
    """
    headers = (
        ("To", mail.recipient),
        ("Message-ID", f"<{mail.message_id}>"),
        ("Subject", _encode_subject(mail.subject)),
        *((("Reply-To", mail.reply_to),) if mail.reply_to else ()),
        *mail.headers,
    )
    head = _write_origin(int(mail.date), *mail.sender) + write_headers(headers) + mail.shared
    if mail.html is None:
        return b"".join((head, _PLAIN_HEADERS, _encode_body(mail.text)))
    if mail.attachments:
        return b"".join((head, b"MIME-Version: 1.0\r\n", *_build_parts(mail)))
    return b"".join(
        (
            head,
            _TEXT_PART_HEADERS,
            _encode_body(mail.text),
            _HTML_PART_HEADERS,
            _encode_body(mail.html),
            _CLOSING_BOUNDARY,
        )
    )


def is_ascii(written: bytes) -> bool:
    """Return whether a mail of `write` without attachments is ASCII; its bodies are, and so are most headers."""
    return written[: written.index(b"\r\n\r\n")].isascii()


def _build_parts(mail: Mail) -> list[bytes]:
    """Return the head and the parts of a mail with attachments.

    The HTML and its inline images are `multipart/related`, inside of `multipart/alternative` beside the text, inside of
    `multipart/mixed` beside the other files. An outer level that would have a single part is left out.
    """
    text = [_PART_HEADERS.format("plain").encode(), b"\r\n", _encode_body(mail.text)]
    html = [_PART_HEADERS.format("html").encode(), b"\r\n", _encode_body(mail.html or "")]
    inline = [_build_file(part) for part in mail.attachments if part.content_id]
    files = [_build_file(part) for part in mail.attachments if not part.content_id]
    if inline:
        html = _join_parts("related", _RELATED_BOUNDARY, [html, *inline], ';\r\n type="text/html"')
    content = _join_parts("alternative", _BOUNDARY, [text, html])
    return _join_parts("mixed", _MIXED_BOUNDARY, [content, *files]) if files else content


def _join_parts(subtype: str, boundary: str, parts: list[list[bytes]], parameters: str = "") -> list[bytes]:
    joined = [f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"{parameters}\r\n'.encode()]
    for part in parts:
        joined += [f"\r\n--{boundary}\r\n".encode(), *part]
    return [*joined, f"\r\n--{boundary}--\r\n".encode()]


def _build_file(part: Part) -> list[bytes]:
    head = f"Content-Type: {part.content_type}{format_parameter('name', part.filename)}\r\n"
    if part.content_id:
        head += f"Content-ID: <{part.content_id}>\r\n"
    disposition = "inline" if part.content_id else "attachment"
    head += f"Content-Disposition: {disposition}{format_parameter('filename', part.filename)}\r\n"
    return [head.encode(), b"Content-Transfer-Encoding: base64\r\n\r\n", part.content]


def encode_base64(content: bytes) -> bytes:
    """Return content as base64 in lines of 76 characters that end in CRLF (RFC 2045, 6.8)."""
    return base64.encodebytes(content).replace(b"\n", b"\r\n")


def format_parameter(name: str, value: str) -> str:
    """Return a parameter of a header, with the semicolon and the folding before it.

    A value that is not ASCII, or too long for a line, is an extended value (RFC 2231). Control characters become
    spaces.
    """
    value = _LINE_BREAKS.sub(" ", value)
    if value.isascii() and "=?" not in value and len(value) <= _MAX_PARAMETER_CHARACTERS:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f';\r\n {name}="{escaped}"'
    chunks, chunk = list[str](), ""
    for character in value:
        encoded = quote(character, safe=_UNENCODED, errors="replace")
        if len(chunk) + len(encoded) > _MAX_PARAMETER_CHARACTERS:
            chunks.append(chunk)
            chunk = ""
        chunk += encoded
    if not chunks:
        return f";\r\n {name}*={_CHARSET}{chunk}"
    return "".join(
        f";\r\n {name}*{number}*={'' if number else _CHARSET}{piece}" for number, piece in enumerate([*chunks, chunk])
    )


def write_headers(headers: Sequence[tuple[str, str]]) -> bytes:
    """Return headers as bytes; values must be encoded and folded already.

    Raises ValueError if a name is invalid, or if a line break in a value could start another header (docs/threats.md).
    """
    for name, _ in headers:
        if not _is_header_name(name):
            raise ValueError(f"{name!r} is not a header name")
    # A folded line is allowed; any other line break would start another header. No later check follows
    values = "|".join([value for _, value in headers]).replace("\r\n ", "")
    if not values.isprintable() and _LINE_BREAKS.search(values):  # the first test is the faster one
        name = next(name for name, value in headers if _LINE_BREAKS.search(value.replace("\r\n ", "")))
        raise ValueError(f"{name} contains a line break")
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode()


@lru_cache(maxsize=64)
def _write_origin(seconds: int, name: str | None, address: str) -> bytes:
    """Return the headers Date and From, which many messages have in common."""
    return write_headers((("Date", format_date(seconds)), ("From", format_mailbox(name, address))))


@lru_cache(maxsize=256)
def _is_header_name(name: str) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None


@lru_cache(maxsize=1_024)
def _encode_subject(subject: str) -> str:
    """Return the encoded subject; subjects repeat, because they contain at most a first name."""
    return encode_unstructured("Subject", subject)


@lru_cache(maxsize=8)
def format_date(seconds: int) -> str:
    """Return the value of a Date header for a time in seconds since 1970."""
    return format_datetime(datetime.fromtimestamp(seconds, UTC))


def _encode_body(body: str | bytes) -> bytes:
    return body if isinstance(body, bytes) else encode_quoted_printable(body)


def encode_quoted_printable(text: str) -> bytes:
    """Return a body as quoted-printable with CRLF line ends (RFC 2045, 6.7), with a line break at the end.

    No line exceeds 76 characters, begins with a dot or `From `, or ends in a space.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    encoded = binascii.b2a_qp(plain, istext=True).replace(b"\n", b"\r\n")
    encoded = _LINE_START.sub(lambda match: b"=%02X" % match[0][0] + match[0][1:], encoded)
    return encoded if encoded.endswith(b"\r\n") else encoded + b"\r\n"


def encode_fragment(text: str) -> bytes:
    """Return a part of a body as quoted-printable, which may be joined with any other encoded part.

    The result ends with the line break of the text, or with a soft break, which decodes to nothing (RFC 2045, 6.7,
    rule 5).
    """
    if not text:
        return b""
    encoded = binascii.b2a_qp(text.encode("utf-8", "replace"), istext=True).replace(b"\n", b"\r\n")
    encoded = _LINE_START.sub(lambda match: b"=%02X" % match[0][0] + match[0][1:], encoded)
    if encoded.endswith(b"\r\n"):
        return encoded
    last_line_length = len(encoded) - (encoded.rfind(b"\n") + 1)
    if last_line_length > _MAX_LINE_CHARACTERS:
        cut = len(encoded) - 8
        cut -= 1 if encoded[cut - 1 : cut] == b"=" else 2 if encoded[cut - 2 : cut - 1] == b"=" else 0
        tail = _LINE_START.sub(lambda match: b"=%02X" % match[0][0] + match[0][1:], encoded[cut:])
        encoded = encoded[:cut] + SOFT_BREAK + tail
    return encoded + SOFT_BREAK


def is_single_spaced(encoded: bytes) -> bool:
    """Return whether an encoded body, or a part of whole lines, has no tab, double space or space at a line end.

    Its whitespace is then already in the relaxed form of DKIM (RFC 6376, 3.4.4).
    """
    return b"\t" not in encoded and b"  " not in encoded and b" \r\n" not in encoded


def encode_unstructured(name: str, value: str) -> str:
    """Return the value of a free-text header (RFC 5322, 3.6.5), folded, as encoded words if it is not plain ASCII.

    A value with `=?` or with a word of `_MAX_UNFOLDED_CHARACTERS` or more is also written as encoded words. `name` is
    the name of the header, which takes up columns of the first line. Line breaks become spaces.
    """
    value = _LINE_BREAKS.sub(" ", value).strip()
    if value.isascii() and "=?" not in value and all(len(word) < _MAX_UNFOLDED_CHARACTERS for word in value.split(" ")):
        return _fold(value, len(name) + 2)
    return encode_words(value, len(name) + 2)


def _fold(value: str, used_columns: int) -> str:
    lines, line = [], ""
    room = 76 - used_columns
    for word in value.split(" "):
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line, room = word, 75
        else:
            line = f"{line} {word}" if line or lines else word
    lines.append(line)
    return "\r\n ".join(lines)


def encode_words(value: str, used: int) -> str:
    """Return a value as encoded words (RFC 2047), each on its own line and split only between characters.

    `used` is the number of columns that the header name takes up on the first line.
    """
    words, chunk = [], b""
    room = (64 - used) // 4 * 3
    for character in value:
        raw = character.encode("utf-8", "replace")
        if len(chunk) + len(raw) > room:
            words.append(chunk)
            chunk, room = b"", _MAX_ENCODED_WORD_BYTES
        chunk += raw
    words.append(chunk)
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(word).decode()}?=" for word in words)


@lru_cache(maxsize=64)
def format_mailbox(name: str | None, address: str) -> str:
    """Return the header value of a mailbox (RFC 5322, 3.4): the address, after its display name if it has one.

    The name is written as atoms, a quoted string or encoded words. The address follows on a folded line after encoded
    words, or if name and address together have 70 characters or more. A name of `_MAX_UNFOLDED_CHARACTERS` or more is
    written as encoded words.

    In a name whose end some programs do not find (`raw_mime`), `@` is written as `at`: such programs would read an
    address in a name such as `Café <boss@bank.example>`.
    """
    name = _LINE_BREAKS.sub(" ", name or "").strip()
    if not name:
        return address
    if not _PLAIN_NAME.fullmatch(name):
        name = _AT_SIGN.sub(" at ", name)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    display_name = name if _ATOM.match(name) and "=" not in name else f'"{escaped}"'
    if name.isascii() and "=?" not in name and len(display_name) < _MAX_UNFOLDED_CHARACTERS:
        return (
            f"{display_name} <{address}>"
            if len(display_name) + len(address) < 70
            else f"{display_name}\r\n <{address}>"
        )
    return f"{encode_words(name, 6)}\r\n <{address}>"
