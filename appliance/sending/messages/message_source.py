"""The source and the HTML of a message that was sent or will be, for people who look at it."""

from appliance.content.designs.merge_limits import MergeError
from appliance.core.errors import SenderRejected
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.messages import ledger
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage.database import scalar
from appliance.storage.models import Message

# The reasons why a message is not shown, in English
_MAY_NOT_SEND = gettext_stored("it may not be sent: %(reason)s")
_CANNOT_RENDER = gettext_stored("it cannot be rendered: %(reason)s")
# Larger sources are cut here, because no reader needs more.
MAX_SOURCE_BYTES = 2_000_000


class NotReproducible(Exception):
    """The content of a message cannot be shown; the exception's text is the reason, an English clause for `gettext`."""


def get_source(account_id: int, message_id: int) -> bytes:
    """Return up to `MAX_SOURCE_BYTES` of a message's source: as stored for a retry or captured, else rendered again.

    Raises NotFound, or NotReproducible if the message cannot be shown.
    """
    row = ledger.get(account_id, message_id)
    if row.recipient_key is None:
        raise NotReproducible(gettext_noop("its recipient was erased, and its content too"))
    if ledger.has_secret_link(row):
        raise NotReproducible(gettext_noop("it contains a link that is only for its recipient"))
    for sql in (
        "SELECT content FROM retry_payload WHERE message_id = ?",
        "SELECT source FROM captured_message WHERE message_id = ?",
    ):
        stored = scalar(sql, (message_id,))
        if stored is not None:
            return bytes(stored)[:MAX_SOURCE_BYTES]
    try:
        return MessagePreparer().prepare(ledger.get_row(message_id)).envelope.content[:MAX_SOURCE_BYTES]
    except SenderRejected as error:
        raise NotReproducible(_MAY_NOT_SEND % {"reason": error}) from None
    except (MergeError, ValueError) as error:
        reason = error.describe() if isinstance(error, MergeError) else str(error)
        raise NotReproducible(_CANNOT_RENDER % {"reason": reason}) from None


def get_html(account_id: int, message_id: int) -> str:
    """Return the HTML of an email, or of an SMS as a page, rendered again with the contact's present values.

    Raises NotFound, or NotReproducible if the message cannot be shown.
    """
    row = ledger.get(account_id, message_id)
    try:
        filled = MessagePreparer().fill_again(row)
    except (MergeError, ValueError, SenderRejected) as error:
        raise NotReproducible(error.describe() if isinstance(error, MergeError) else str(error)) from None
    return filled.html


def get_bounce_class(row: Message) -> str | None:
    """Return the name of the class of a message's bounce, or None if it did not bounce."""
    kind = scalar("SELECT kind FROM bounce WHERE message_id = ? ORDER BY id DESC LIMIT 1", (row.id,))
    return None if kind is None else str(kind)
