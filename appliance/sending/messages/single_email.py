"""An email that is not a message of a campaign or flow: a single email, or one of a bulk email.

`prepare.MessagePreparer` compiles it, and caches the content that the emails of a bulk email share.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.core import addresses
from appliance.sending.delivery import mime
from appliance.sending.messages.compose import CompiledMessage, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from appliance.sending.messages.links import LINK_NAMES
from appliance.sending.messages.shared_content import SharedContent
from appliance.storage.database import fetch_one
from appliance.storage.models import Account, Message


class SingleEmail(NamedTuple):
    """The content of an email that is not a message of a campaign or flow, with the headers that are its own.

    `to` is the To header, and `first_recipient` the address of `to`, if it has several recipients; else both are None.
    `attachments` are the parts of its files.
    """

    shared: SharedContent
    headers: tuple[tuple[str, str], ...]
    to: str | None = None
    first_recipient: str | None = None
    attachments: tuple[mime.Part, ...] = ()
    tracks_unknown: bool = False  # whether opens of recipients without a contact are tracked, too


class CompiledEmail(NamedTuple):
    """The compiled content of a single email, or of all emails of a bulk email.

    `values` are those of the merge tags that do not depend on the recipient.
    """

    content: CompiledMessage
    encoded: EncodedMessage
    encoded_tracked: EncodedMessage | None
    values: dict[str, Any]
    base_url: str  # of the account


class BulkRow(NamedTuple):
    """The columns of one email of a bulk email, without the shared content (`_BULK_ROW`); headers and data are JSON."""

    bulk_id: int
    sender: str | None
    reply_to: str | None
    headers: str
    data: str
    has_attachments: bool
    tracks_opens: bool


# Read without Peewee, which takes several times as long as everything else that one of thousands of emails needs.
_BULK_ROW = (
    "SELECT c.bulk_id, m.sender, m.reply_to, c.headers, c.data, c.has_attachments, c.tracks_opens "
    "FROM message_content c JOIN message m ON m.id = c.message_id WHERE c.message_id = ? AND c.bulk_id NOT NULL"
)


def fetch_bulk_row(message_id: int) -> BulkRow | None:
    """Return the columns of one email of a bulk email, or None for any other email."""
    columns = fetch_one(_BULK_ROW, (message_id,))
    return None if columns is None else BulkRow._make(columns)


def build_sender(account: Account, email: str | None, reply_to: str | None) -> Sender:
    """Return the sender of a single email; its From name may be replaced by that of its content."""
    return Sender(email or "", account.email_from_name or account.name, reply_to or account.email_reply_to)


def build_shared(email: CompiledEmail, sender: Sender, data: dict[str, Any], shown_as: int | None) -> SharedContent:
    """Return a single email as content of its own, with `data` of the request; `shown_as` as in `MessageContent`."""
    return SharedContent(
        email.content,
        email.encoded,
        email.encoded_tracked,
        sender,
        email.values | {"data": data},
        headers=b"",
        address_kinds=frozenset({"phone"}),
        link_names=LINK_NAMES,
        sample_contact_id=shown_as,
        base_url=email.base_url,
    )


def build_recipient_headers(copies: Sequence[Message]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the To header and, if there is one, the Cc header of a message to several recipients.

    They have all addresses of `to` and `cc`, except those of erased recipients, and never one of `bcc`. A message
    without either has an empty group as its To header (RFC 5322, section 3.4).
    """
    shown: dict[str, list[str]] = {"to": [], "cc": []}
    for copy in copies:
        if copy.recipient and copy.kind in shown:
            shown[copy.kind].append(addresses.to_ascii(copy.recipient) or copy.recipient)
    to = ",\r\n ".join(shown["to"]) or "undisclosed-recipients:;"
    return to, ((("Cc", ",\r\n ".join(shown["cc"])),) if shown["cc"] else ())
