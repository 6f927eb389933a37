"""What a mail of ours tells its recipient alone: put in as it leaves, never kept, never shown to anybody else.

Whoever may read the messages of an account would otherwise choose a new password for its owner.
"""

from typing import Any

from appliance.accounts import passwords
from appliance.sending.messages.ledger import Claim
from appliance.settings import config
from appliance.storage.models import Message, User
from appliance.storage.open import fetch_one

RESET, LIVES_MS = "reset", 30 * 60 * 1000
# In the `data` of a mail of ours: for whom its link opens something
KEY = "reset_user_id"
_OF_OURS = (
    "SELECT 1 FROM message m JOIN message_content c ON c.message_id = m.id WHERE m.id = ? AND m.source_type = 'system' "
    f"AND json_extract(c.data, '$.{KEY}') IS NOT NULL"
)


def data(message: Message, said: dict[str, Any]) -> dict[str, Any]:
    """Return the `data` of a message as it leaves; the same at every attempt, and as it was where nothing is secret."""
    number = said.get(KEY)
    if message.source_type != "system" or number is None or message.provider == "capture":
        return said
    user = User.get_or_none(User.id == number, User.disabled_at.is_null())
    if user is None:
        return said
    secret = passwords.make_pass(RESET, user, message.created_at + LIVES_MS)
    return {**said, "link": f"{config.base_url(config.current())}/reset/{secret}"}


def hides(row: Claim | Message) -> bool:
    """Return whether the bytes of a message are for its recipient alone."""
    return row.source_type == "system" and fetch_one(_OF_OURS, (row.id,)) is not None
