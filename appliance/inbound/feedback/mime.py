"""Reads mail of strangers with the standard library's parser, within limits that are checked before it begins.

What is too large, too deep or of too many parts is nobody's report and is not read; nothing that comes in raises.
"""

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from email.parser import HeaderParser
from itertools import islice

MAX_BYTES, MAX_DEPTH, MAX_PARTS = 1024 * 1024, 10, 50
# Each line may begin a header, each blank one a block, each line of dashes a part: time goes by their number
_MAX_LINES, _MAX_BLANK, _MAX_LINES_OF_DASHES = 30_000, 3_000, 500
_MAX_TYPE_BYTES, _MAX_HEAD_CHARACTERS, _MAX_HEADERS = 2_000, 50_000, 300
ORIGINALS = ("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers")
ADDRESS = re.compile(r"[^\s<>;,()\"\[\]:]{1,64}@[^\s<>;,()\"\[\]:@]{1,255}")
_TYPES = re.compile(rb"^content-[a-z-]{1,40}:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
_NESTS = re.compile(rb"multipart/|message/", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-?8|us-ascii|ascii|iso-8859-\d{1,2}|windows-125\d|cp125\d|koi8-[ru]|iso-2022-(?:jp|kr)|shift_jis|euc-(?:jp|kr)|"
    r"gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)


def parse(raw: bytes) -> Message | None:
    """Read a mail as far as the limits go, or return None for one that is too large, too deep or of too many parts.

    What a report says stands before the message that it brings back, so the end of that may be cut off.
    """
    if len(raw) > MAX_BYTES:
        return None
    mail = message_from_bytes(_within_limits(raw))
    return mail if len(list(parts(mail, MAX_PARTS + 1))) <= MAX_PARTS and _depth(mail) <= MAX_DEPTH else None


def _within_limits(raw: bytes) -> bytes:
    """Return the beginning of a mail that holds no more than the limits allow."""
    for text, most in ((b"\n", _MAX_LINES), (b"\n\r\n", _MAX_BLANK), (b"\n--", _MAX_LINES_OF_DASHES)):
        if raw.count(text) > most:
            places = (match.start() for match in re.finditer(re.escape(text), raw))
            raw = raw[: next(islice(places, most, None))]
    nests = 0
    for header in _TYPES.finditer(raw):
        # Counted in headers alone: the addresses of links hold such words too
        nests += bool(_NESTS.search(header[0]))
        if len(header[0]) > _MAX_TYPE_BYTES or nests > 2 * MAX_PARTS:
            return raw[: header.start()]
    return raw


def parts(mail: Message, most: int = MAX_PARTS, into_messages: bool = True) -> Iterator[Message]:
    """Walk a mail and its parts, outermost first, so many at most; into messages it holds only if asked to."""
    waiting = [mail]
    for _ in range(most):
        if not waiting:
            return
        part = waiting.pop(0)
        yield part
        if into_messages or part.get_content_maintype() != "message":
            waiting = _inside(part) + waiting


def _depth(mail: Message) -> int:
    deepest, waiting = 0, [(mail, 1)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth <= MAX_DEPTH:
            waiting += [(one, depth + 1) for one in _inside(part)]
    return deepest


def _inside(part: Message) -> list[Message]:
    """Return the parts of a part. Words are asked for as bytes only: else the library reads them with any codec that
    the mail names, and some of those raise or take for ever."""
    payload = part.get_payload() if part.is_multipart() else []
    return [one for one in payload if isinstance(one, Message)] if isinstance(payload, list) else []


def first(mail: Message, *types: str) -> Message | None:
    """Return the first part of one of these types.

    What a message says that somebody attached, be it a report, is not what the mail says: people forward mail.
    """
    return next((part for part in parts(mail, into_messages=False) if part.get_content_type() in types), None)


def header(part: Message, name: str) -> str:
    """Return a header as one line of text, not decoded; empty if there is none."""
    return " ".join(str(part.get(name, "")).split())[:_MAX_TYPE_BYTES]


def text(part: Message) -> str:
    """Return the words of a part; of one that holds others (a report's fields, a mail) the source."""
    if part.is_multipart():
        found = "\n\n".join(_source(one) for one in _inside(part))
        return _decoded(found, header(part, "Content-Transfer-Encoding").lower())
    return words(_bytes(part), str(part.get_content_charset() or "utf-8")).replace("\r\n", "\n")


def words(raw: bytes, charset: str) -> str:
    """Read bytes in a charset that mail is written in; an unknown one is taken for UTF-8."""
    return raw.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", "replace")


def _bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def original(mail: Message) -> list[tuple[str, str]]:
    """Return the headers of the message that a mail brings back, names in lower case; empty if it brings none."""
    part = first(mail, *ORIGINALS)
    if part is None:
        return []
    inside = next(iter(_inside(part)), None)
    if inside is None or not inside.keys():
        inside = HeaderParser().parsestr(text(part).lstrip("\n")[:_MAX_HEAD_CHARACTERS])
    found = [(name.lower(), " ".join(str(value).split())) for name, value in inside.raw_items()]
    return [(name, value[:_MAX_TYPE_BYTES]) for name, value in found[:_MAX_HEADERS]]


def _source(part: Message) -> str:
    lines = [f"{name}: {value}" for name, value in part.raw_items()]
    inside = "\n\n".join(_source(one) for one in _inside(part))
    if not part.is_multipart():
        inside = _bytes(part).decode("utf-8", "replace")
    return "\n".join(lines).replace("\r\n", "\n") + "\n\n" + inside.replace("\r\n", "\n")


def _decoded(source: str, encoding: str) -> str:
    """Decode the source of a part that holds others, which no standard allows to be encoded."""
    try:
        match encoding:
            case "base64":
                raw = base64.b64decode("".join(source.split()))
            case "quoted-printable":
                raw = quopri.decodestring(source.encode())
            case _:
                return source
    except (binascii.Error, ValueError):
        return source
    return raw.decode("utf-8", "replace").replace("\r\n", "\n")


def blocks(fields: str) -> list[dict[str, str]]:
    """Cut a report's fields into its blocks: names in lower case, the first of each name, folded lines joined."""
    found: list[dict[str, str]] = []
    fresh, last = True, ""
    for line in fields.split("\n")[:2_000]:
        if not line.strip():
            fresh = True
            continue
        if line[0] in " \t" and found and last and not fresh:
            found[-1][last] = f"{found[-1][last]} {line.strip()}"[:4_000]
            continue
        name, colon, value = line.partition(":")
        if not colon or " " in name.strip():
            continue
        if fresh:
            found.append({})
            fresh = False
        last = name.strip().lower()
        found[-1].setdefault(last, value.strip()[:4_000])
    return [block for block in found if block]
