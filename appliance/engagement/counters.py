"""What opens and clicks by people come to: on the message, its contact, and the address they prove to be somebody's.

`opened_at` and `clicked_at` are of the first one that no machine made; a click is an open too, for who follows a link
has seen the mail, with or without its pictures. A contact's counts are of messages: opens and clicks never outnumber
what was sent.
"""

from appliance import clock
from appliance.db.open import connection, one
from appliance.engagement.robots import HUMAN, Seen, Verdict
from appliance.messages.targets import Found

_CONTACT = (
    "UPDATE contact SET email_open_count = email_open_count + ?1, email_click_count = email_click_count + ?2, "
    "email_last_opened_at = max(coalesce(email_last_opened_at, 0), ?3), "
    "email_last_clicked_at = iif(?4, max(coalesce(email_last_clicked_at, 0), ?3), email_last_clicked_at), "
    "last_interacted_at = max(coalesce(last_interacted_at, 0), ?3) WHERE id = ?5"
)
_VERIFIED = (
    "UPDATE channel SET verified_at = ?, updated_at = ? WHERE account_id = ? AND contact_id = ? AND kind = 'email' "
    "AND verified_at IS NULL AND key = (SELECT recipient_key FROM message WHERE id = ?)"
)


def now() -> int:
    """Answer the moment, in milliseconds."""
    return clock.now_ms()


def count(found: Found, seen: Seen, verdict: Verdict) -> None:
    """Count one open or click that no machine made."""
    here = connection()
    clicked = seen.kind == "click"
    before = one("SELECT opened_at, clicked_at, contact_id FROM message WHERE id = ?", (found.message_id,))
    if before is None:
        return
    is_first_open, is_first_click = before[0] is None, clicked and before[1] is None
    if is_first_open or is_first_click:
        here.execute(
            "UPDATE message SET opened_at = coalesce(opened_at, ?1), clicked_at = iif(?2, coalesce(clicked_at, ?1), "
            "clicked_at), updated_at = ?3 WHERE id = ?4",
            (seen.at, clicked, now(), found.message_id),
        )
    contact_id = before[2]
    if found.test or contact_id is None:
        return
    here.execute(_CONTACT, (is_first_open, is_first_click, seen.at, clicked, contact_id))
    if clicked and verdict.verdict == HUMAN:
        here.execute(_VERIFIED, (seen.at, now(), found.account_id, contact_id, found.message_id))
