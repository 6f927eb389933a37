"""A message as it goes over the wire: the bytes that were kept of it, or the same made anew."""

from appliance.content.designs.merge import MergeError
from appliance.core.errors import SenderRefused
from appliance.sending.messages import ledger, secret_values, texts
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import Workshop
from appliance.storage.models import Message
from appliance.storage.open import rows, scalar

# What is too large to be read by anybody is cut
_MAX_BYTES = 2_000_000


class Gone(Exception):
    """There is nothing that could be shown, and why."""


def source(account_id: int, message_id: int) -> bytes:
    """Return the bytes of a message; raises NotFound, or Gone with the reason why there are none."""
    row = ledger.get(account_id, message_id)
    if row.recipient_key is None:
        raise Gone("its recipient was erased, and what was written to them with that")
    if secret_values.hides(row):
        raise Gone("it holds a link that is for its recipient alone")
    for kept in ("SELECT content FROM repeat WHERE message_id = ?", "SELECT source FROM captured WHERE message_id = ?"):
        found = scalar(kept, (message_id,))
        if found is not None:
            return bytes(found)[:_MAX_BYTES]
    [claim] = [Claim._make(one) for one in rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (message_id,))]
    try:
        return Workshop().prepare(claim).envelope.content[:_MAX_BYTES]
    except SenderRefused as refused:
        raise Gone(f"nobody may send it: {refused}") from None
    except (MergeError, ValueError) as broken:
        words = broken.words() if isinstance(broken, MergeError) else str(broken)
        raise Gone(f"it cannot be made: {words}") from None


def said(account_id: int, message_id: int) -> str:
    """Return what a message says, as HTML; raises NotFound, or Gone with the reason why it cannot be shown."""
    row = ledger.get(account_id, message_id)
    try:
        filled = Workshop().view(row)
    except (MergeError, ValueError, SenderRefused) as broken:
        raise Gone(broken.words() if isinstance(broken, MergeError) else str(broken)) from None
    return filled.html if row.channel == "email" else texts.page(filled.text)


def judged(row: Message) -> str | None:
    """Return the class of a refusal that came back for a message, if one did."""
    found = scalar("SELECT kind FROM returned WHERE message_id = ? ORDER BY id DESC LIMIT 1", (row.id,))
    return None if found is None else str(found)
