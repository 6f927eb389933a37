"""Read an email that a program submits by SMTP: check its headers, and remove those that recipients must not get.

The rest of the email stays as it came, byte for byte. Headers that different programs would read in different ways are
refused, because the From address that is checked must be the one that recipients see (RFC 5322, RFC 6409).
"""

import email
import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from appliance.core import addresses, mime_text
from appliance.sending.messages import attachments, links
from appliance.sending.messages.message_request import UNSAFE_HEADERS
from appliance.sending.messages.sender_headers import Malformed, parse_mailboxes

# The headers of a message, and its lines. A message of 36 MB in base64 has half a million lines.
MAX_HEADER_BYTES, MAX_HEADERS, MAX_LINES = 262_144, 1_000, 1_000_000
# Parts that contain parts, which programs parse recursively.
MAX_COMPOSITE_PARTS = 100
# Headers of parts with the name of a file; most files have two.
MAX_FILE_NAMES = 1_000
# A header that describes a part: the email package takes time with the square of its parameters (T20).
MAX_PART_FIELD_BYTES, MAX_PARAMETERS = 4_096, 64
# A message that passed through more servers is in a loop (RFC 5321, 6.3).
MAX_RECEIVED_HEADERS = 50
MAX_TAGS, MAX_TAG_CHARACTERS, MAX_DATA_BYTES = 10, 100, 16_384
_MAX_SUBJECT_CHARACTERS = 998
CLASS_HEADER, TAG_HEADER, DATA_HEADER = "x-campanero-class", "x-campanero-tag", "x-campanero-data"
# RFC 5322, 3.6.8 and 4.5: a field name, which obsolete syntax allows spaces after.
_FIELD = re.compile(rb"([!-9;-~]{1,76})[ \t]*:")
_COMPOSITE = re.compile(rb"content-type[ \t]*:[ \t\r\n]*(?:multipart|message)/", re.IGNORECASE)
# One search of a large email would keep all other threads waiting until it ends.
_SLICE_BYTES = 1_048_576
# RFC 2046, 5.1.1: the line between parts, of up to 70 characters. RFC 2231, 4: it may have a charset before it.
_BOUNDARY = re.compile(
    rb"""boundary\*?[ \t]{0,9}=[ \t]{0,9}"?(?:[\w-]{0,20}'[\w-]{0,20}')?([^"\r\n;]{1,70})"?""", re.IGNORECASE
)
_PART_FIELD = re.compile(
    rb"content-(?:type|disposition|transfer-encoding|id)[ \t]*:[^\r\n]*(?:\r\n[ \t][^\r\n]*)*", re.IGNORECASE
)
_MULTIPART = re.compile(rb"[ \t\r\n]*multipart/", re.IGNORECASE)
# A line that may be one between parts: a boundary, `--` after the last part, and spaces.
_DELIMITER = re.compile(rb"\r\n--([^\r\n]{1,100})")
_MAX_DELIMITERS = 10_000
# The recipient must not get these, or they would name recipients and messages that are not counted here.
_REMOVED = frozenset(("bcc", "resent-bcc", "return-path")) | UNSAFE_HEADERS
# In marketing email the service sets these headers itself (`compose.build_marketing_headers`).
_OWN_IN_MARKETING = frozenset((
    "list-unsubscribe", "list-unsubscribe-post", "list-id", "feedback-id", "precedence", "auto-submitted",
    "x-auto-response-suppress",
))  # fmt: skip
_ONCE = ("from", "sender", "message-id", "date", "subject", CLASS_HEADER, DATA_HEADER)


class FileRefused(Malformed):
    """The email has a file of a type that mail servers reject."""

    reply_code = "552 5.7.0"


class RawEmail(NamedTuple):
    """An email to send as it is. `content` has no headers of `_REMOVED`; its lines end in CRLF.

    `senders` are the addresses of From and Sender, empty without a From header. `visible` are the normal forms of the
    addresses in To and Cc, by header. `message_id` has no brackets; None means that the header is missing.
    `repeat_hash` is equal for a repeated submission, None without a Message-ID.
    """

    content: bytes
    senders: tuple[str, ...]
    subject: str
    message_id: str | None
    repeat_hash: bytes | None
    has_date: bool
    is_marketing: bool
    tags: dict[str, Any] | None
    data: dict[str, Any]
    visible: dict[str, frozenset[str]]


def parse(content: bytes, recipient_count: int = 1) -> RawEmail:
    """Return a submitted email, ready to be stored. Raises Malformed.

    The addresses in To and Cc are read only for an email to more than one recipient.
    """
    _require_lines(content)
    head, body = _split(content)
    fields = _parse_fields(head)
    values: dict[str, list[bytes]] = {}
    for name, field in fields:
        values.setdefault(name, []).append(field[field.index(b":") + 1 :].strip(b" \t\r\n"))
    for name in _ONCE:
        if len(values.get(name, ())) > 1:
            raise Malformed(f"The header {name.title()} may occur only once")
    if len(values.get("received", ())) > MAX_RECEIVED_HEADERS:
        raise Malformed("The message is in a loop: it passed through too many servers")
    _require_accepted_files(content)
    is_marketing = _parse_class(values.get(CLASS_HEADER))
    remaining = [field for name, field in fields if not _is_removed(name, field, is_marketing)]
    if len(remaining) < len(fields):
        content = b"".join((*remaining, b"\r\n", body))
    return RawEmail(
        content,
        tuple(address for name in ("from", "sender") if name in values for address in parse_mailboxes(values[name][0])),
        decode_text(_first(values, "subject"))[:_MAX_SUBJECT_CHARACTERS],
        _clean_message_id(_first(values, "message-id")),
        _hash_repeated(values, body),
        bool(_first(values, "date")),
        is_marketing,
        _parse_tags(values.get(TAG_HEADER, ())),
        _parse_data(_first(values, DATA_HEADER)),
        {name: _read_addresses(values.get(name, ())) for name in ("to", "cc")} if recipient_count > 1 else {},
    )


def list_names(content: bytes) -> set[str]:
    """Return the names of the headers of a stored email, in lower case."""
    return {name for name, _ in _parse_fields(_split(content)[0])}


def find_message_id(content: bytes) -> str | None:
    """Return the Message-ID of a stored email without brackets, or None if it has none."""
    for name, field in _parse_fields(_split(content)[0]):
        if name == "message-id":
            return _clean_message_id(field.partition(b":")[2])
    return None


def _clean_message_id(value: bytes) -> str | None:
    return value.decode("utf-8", "replace").strip("<> \t\r\n") or None


def _hash_repeated(values: dict[str, list[bytes]], body: bytes) -> bytes | None:
    """Return the hash by which a repeated submission is recognized, None without a Message-ID.

    It is the hash of the body, and of the headers that describe the content and the sender; other headers may change on
    the way here. The boundaries of a multipart email are left out, because some programs choose new ones when they
    write an email again.
    """
    message_id = _clean_message_id(_first(values, "message-id"))
    if message_id is None:
        return None
    body, kind = b"\r\n" + body, _first(values, "content-type")
    if _MULTIPART.match(kind):
        body, kind = _drop_boundaries(body, kind)
    hashed = hashlib.blake2b(digest_size=16)
    names = ("from", "subject", "content-transfer-encoding", CLASS_HEADER, DATA_HEADER)
    for part in (message_id.encode("utf-8", "replace"), *(_first(values, name) for name in names), kind, body):
        hashed.update(b"%d " % len(part))
        hashed.update(part)
    return hashed.digest()


def _drop_boundaries(body: bytes, kind: bytes) -> tuple[bytes, bytes]:
    """Return body and Content-Type without the boundaries that delimit parts, where they are declared and used.

    The body is read once, whatever number of boundaries it declares, and only to `_MAX_DELIMITERS` of its lines.
    """
    declared = {match[1] for part in (kind, body) for match in _find_boundaries(part)}
    used, pieces, position = set[bytes](), list[bytes](), 0
    for match in islice(_DELIMITER.finditer(body), _MAX_DELIMITERS):
        boundary = match[1].rstrip(b" \t")
        if boundary not in declared:
            boundary = boundary.removesuffix(b"--")
        if boundary in declared:
            used.add(boundary)
            pieces.append(body[position : match.start(1)])
            position = match.start(1) + len(boundary)
    kind, dropped = (_drop_declared(part, used) for part in (kind, b"".join((*pieces, body[position:]))))
    return dropped, kind


def _drop_declared(part: bytes, boundaries: set[bytes]) -> bytes:
    pieces, position = list[bytes](), 0
    for match in _find_boundaries(part):
        if match[1] in boundaries:
            pieces += (part[position : match.start()], b"boundary=")
            position = match.end()
    return b"".join((*pieces, part[position:]))


def _find_boundaries(part: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the first declarations of boundaries, at most `MAX_COMPOSITE_PARTS`."""
    for start in islice(_find_word(part, b"boundary"), MAX_COMPOSITE_PARTS):
        if match := _BOUNDARY.match(part, start):
            yield match


def _find_word(content: bytes, word: bytes) -> Iterator[int]:
    """Yield the positions of a word, which is given in lower case, whatever its case is in the content."""
    for start in range(0, len(content), _SLICE_BYTES):
        piece = content[start : start + _SLICE_BYTES + len(word) - 1].lower()
        position = piece.find(word)
        while position >= 0:
            yield start + position
            position = piece.find(word, position + 1)


def decode_text(value: bytes) -> str:
    """Return the text of a header with its encoded words decoded (RFC 2047), as far as they can be decoded."""
    text = mime_text.decode_words(value.decode("utf-8", "replace").replace("\r\n", ""))
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _require_lines(content: bytes) -> None:
    """Raise Malformed for a bare CR or LF, by which a second message could be hidden (T33), and for zero bytes."""
    line_count = content.count(b"\r\n")
    if content.count(b"\n") != line_count or content.count(b"\r") != line_count:
        raise Malformed("Bare CR or LF is not allowed in a message")
    if b"\0" in content:
        raise Malformed("Zero bytes are not allowed in a message")
    if line_count > MAX_LINES:
        raise Malformed("The message has too many lines")
    if content.count(b"/") > MAX_COMPOSITE_PARTS:
        lines = chain((0,), (position + 1 for position in _find_word(content, b"\ncontent-type")))
        composite = (line for line in lines if _COMPOSITE.match(content, line))
        if next(islice(composite, MAX_COMPOSITE_PARTS, None), None) is not None:
            raise Malformed("The message has too many nested parts")


def _require_accepted_files(content: bytes) -> None:
    """Raise FileRefused for a file that the API also refuses, even if it is in an attached email.

    Raises Malformed for a header of a part that cannot be read in a bounded time.
    """
    names = 0
    for position in chain((0,), (position + 1 for position in _find_word(content, b"\ncontent-"))):
        field = _PART_FIELD.match(content, position)
        if field is None:
            continue
        if len(field[0]) > MAX_PART_FIELD_BYTES or field[0].count(b";") > MAX_PARAMETERS:
            raise Malformed("A Content-Type or Content-Disposition header is too long")
        if b"name" not in field[0].lower():
            continue
        names += 1
        if names > MAX_FILE_NAMES:
            raise Malformed("The message has too many files")
        if extension := attachments.find_blocked_extension(_read_file_name(field[0])):
            raise FileRefused(f"The message has a file of a type that mail servers reject (.{extension})")


def _read_file_name(field: bytes) -> str:
    return decode_text(mime_text.read_filename(email.message_from_bytes(field)).encode())


def _split(content: bytes) -> tuple[bytes, bytes]:
    """Return the headers, each with its line end, and the body."""
    if content.startswith(b"\r\n"):
        raise Malformed("The message has no header")
    head, separator, body = content.partition(b"\r\n\r\n")
    if len(head) > MAX_HEADER_BYTES:
        raise Malformed("The headers of the message are too long")
    return (head + b"\r\n" if separator else content), body


def _parse_fields(head: bytes) -> list[tuple[str, bytes]]:
    """Return name, in lower case, and bytes of each header."""
    fields: list[tuple[str, bytes]] = []
    for line in head.split(b"\r\n")[:-1]:
        if line[:1] in (b" ", b"\t"):
            # Some programs take a line of spaces for the end of the headers.
            if not fields or not line.strip():
                raise Malformed("The headers of the message cannot be read")
            name, field = fields[-1]
            fields[-1] = (name, field + line + b"\r\n")
            continue
        match = _FIELD.match(line)
        if match is None:
            raise Malformed("The headers of the message cannot be read")
        fields.append((match[1].decode().lower(), line + b"\r\n"))
    if len(fields) > MAX_HEADERS:
        raise Malformed("The message has too many headers")
    return fields


def _first(values: dict[str, list[bytes]], name: str) -> bytes:
    return values[name][0] if name in values else b""


def _is_removed(name: str, field: bytes, is_marketing: bool) -> bool:
    if name in _REMOVED or name.startswith("x-campanero-") or (is_marketing and name in _OWN_IN_MARKETING):
        return True
    if name in ("message-id", "date") and not field.partition(b":")[2].strip(b"<> \t\r\n"):
        return True  # An empty one is missing, and added.
    return name == "list-unsubscribe" and links.may_name_message(field.decode("utf-8", "replace"))


def _parse_class(written: Sequence[bytes] | None) -> bool:
    word = written[0].lower() if written else b"transactional"
    if word not in (b"marketing", b"transactional"):
        raise Malformed("X-Campanero-Class must be marketing or transactional")
    return word == b"marketing"


def _parse_tags(written: Sequence[bytes]) -> dict[str, Any] | None:
    tags = [tag for value in written if (tag := decode_text(value))]
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARACTERS for tag in tags):
        raise Malformed(f"X-Campanero-Tag: at most {MAX_TAGS} tags of {MAX_TAG_CHARACTERS} characters")
    return {"tag": tags[0] if len(tags) == 1 else tags} if tags else None


def _parse_data(written: bytes) -> dict[str, Any]:
    if not written:
        return {}
    if len(written) > MAX_DATA_BYTES:
        raise Malformed(f"X-Campanero-Data has more than {MAX_DATA_BYTES} bytes")
    try:
        return msgspec.json.decode(decode_text(written), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise Malformed("X-Campanero-Data must be a JSON object") from None


def _read_addresses(written: Sequence[bytes]) -> frozenset[str]:
    """Return the addresses in To or Cc in lower case; they never decide who gets the email.

    Raises Malformed if they cannot be read.
    """
    text = ", ".join(value.decode("utf-8", "replace").replace("\r\n", "") for value in written)
    try:
        return frozenset(address.lower() for _, address in addresses.read_mailboxes(text))
    except ValueError:
        raise Malformed("The addresses in To or Cc cannot be read") from None
