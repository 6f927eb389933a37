"""Answers of recipients: somebody is there, and reads."""

from appliance.core import clock
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.storage.open import fetch_one, run
from appliance.storage.work import writing


def record(message_id: int, source: str) -> bool:
    """Write that a message was answered, which proves its address (docs/decisions.md#9); False if it is not there."""
    writing()
    found = fetch_one(f"SELECT {COLUMNS} FROM message WHERE id = ? AND recipient_key IS NOT NULL", (message_id,))
    if found is None:
        return False
    row, now = Claim._make(found), clock.now_ms()
    ledger.record(row, f"{row.channel}_replied", {"source": source})
    if not row.test:
        contact = "(SELECT contact_id FROM message WHERE id = ?)"
        run(f"UPDATE contact SET last_interacted_at = ? WHERE id = {contact}", (now, row.id))
        run(
            f"UPDATE channel SET verified_at = ?, updated_at = ? WHERE verified_at IS NULL AND contact_id = {contact} "
            "AND kind = ? AND key = ?",
            (now, now, row.id, row.kind, row.recipient_key),
        )
    return True
