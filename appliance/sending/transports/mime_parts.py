"""Divide a finished email into the parts that APIs with their own JSON ask for."""

import email
import email.header
import email.utils
import re
from email.message import Message
from typing import NamedTuple

_FOLD = re.compile(r"\r?\n[ \t]+")
# Headers with a field of their own in every API, or that describe or sign our bytes, which the provider replaces.
_OTHER_HEADERS = frozenset((
    "from", "to", "cc", "bcc", "subject", "reply-to", "sender", "date", "return-path", "received", "mime-version",
    "dkim-signature", "message-id",
))  # fmt: skip


class Mailbox(NamedTuple):
    """A display name, which may be empty, and an address."""

    name: str
    address: str

    def format(self) -> str:
        """Return the mailbox as text, with the name in quotes; line breaks cannot occur."""
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{self.address}>' if self.name else self.address


class Attachment(NamedTuple):
    """A file of an email; one with a `content_id` (without brackets) is shown inside of the HTML."""

    name: str
    content_type: str
    content: bytes
    content_id: str | None


class EmailParts(NamedTuple):
    """The parts of an email; `headers` are those that no API has a field for."""

    sender: Mailbox
    reply_to: Mailbox | None
    subject: str
    text: str
    html: str | None
    headers: tuple[tuple[str, str], ...]
    attachments: tuple[Attachment, ...]


def parse_parts(content: bytes) -> EmailParts:
    """Return the parts of an email that `delivery/mime.py` has written, with decoded texts."""
    message = email.message_from_bytes(content)
    bodies: dict[str, str] = {}
    attachments = []
    for part in message.walk():
        if part.is_multipart():
            continue
        kind, data = part.get_content_type(), part.get_payload(decode=True)
        assert isinstance(data, bytes)
        if kind in ("text/plain", "text/html") and part.get_content_disposition() is None and kind not in bodies:
            bodies[kind] = data.decode(part.get_content_charset() or "utf-8", "replace").replace("\r\n", "\n")
        else:
            attachments.append((part, kind, data))
    html = bodies.get("text/html")
    return EmailParts(
        _to_mailbox(message["From"]) or Mailbox("", ""), _to_mailbox(message["Reply-To"]),
        _decode(message["Subject"]), bodies.get("text/plain", ""), html,
        tuple(
            (name, _FOLD.sub(" ", str(value)))
            for name, value in message.items()
            if name.lower() not in _OTHER_HEADERS and not name.lower().startswith("content-")
        ),
        tuple(_to_attachment(*attachment, html or "") for attachment in attachments),
    )  # fmt: skip


def _to_attachment(part: Message, kind: str, data: bytes, html: str) -> Attachment:
    content_id = str(part["Content-ID"] or "").strip().strip("<>")
    is_inline = bool(content_id) and f"cid:{content_id}" in html
    return Attachment(part.get_filename() or "attachment", kind, data, content_id if is_inline else None)


def _decode(value: str | None) -> str:
    """Return the text of a header whose encoded words are decoded (RFC 2047)."""
    return str(email.header.make_header(email.header.decode_header(_FOLD.sub(" ", str(value or "")))))


def _to_mailbox(value: str | None) -> Mailbox | None:
    name, address = email.utils.parseaddr(_FOLD.sub(" ", str(value or "")))
    return Mailbox(_decode(name), address) if address else None
