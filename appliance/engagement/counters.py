"""What opens and clicks by people come to: on the message, its contact, and the address they prove to be somebody's.

`opened_at` and `clicked_at` are of the first one that no machine made; a click is an open too, for who follows a link
has seen the mail, with or without its pictures. A contact's counts are of messages: opens and clicks never outnumber
what was sent. Of SMS there are no opens, and a contact's counts, which are of mail, leave them out.
"""

from collections.abc import Sequence
from typing import Any

from appliance import clock
from appliance.db.dialect.texts import larger
from appliance.db.open import connection, rows
from appliance.engagement.bot_detection import HUMAN, Seen, Verdict
from appliance.messages.link_targets import Found

_MESSAGE = "UPDATE message SET opened_at = ?, clicked_at = ?, updated_at = ? WHERE id = ?"
_CONTACT = (
    "UPDATE contact SET email_open_count = email_open_count + ?1, email_click_count = email_click_count + ?2, "
    f"email_last_opened_at = {larger('coalesce(email_last_opened_at, 0)', '?3')}, "
    f"email_last_clicked_at = CASE WHEN ?4 THEN {larger('coalesce(email_last_clicked_at, 0)', '?4')} "
    f"ELSE email_last_clicked_at END, last_interacted_at = {larger('coalesce(last_interacted_at, 0)', '?3')} "
    "WHERE id = ?5"
)
_ALIVE = f"UPDATE contact SET last_interacted_at = {larger('coalesce(last_interacted_at, 0)', '?')} WHERE id = ?"
_VERIFIED = (
    "UPDATE channel SET verified_at = ?, updated_at = ? WHERE account_id = ? AND kind = ? AND key = ? "
    "AND contact_id = ? AND verified_at IS NULL"
)


def now() -> int:
    """Return the moment, in milliseconds."""
    return clock.now_ms()


class _Message:
    """What is known of a message, and what is to be written."""

    __slots__ = ("clicked_at", "contact_id", "key", "opened_at")

    def __init__(self, opened_at: int | None, clicked_at: int | None, contact_id: int | None, key: str | None) -> None:
        self.opened_at, self.clicked_at, self.contact_id, self.key = opened_at, clicked_at, contact_id, key


def count(counted: Sequence[tuple[Found, Seen, Verdict]]) -> None:
    """Count opens and clicks that no machine made."""
    if not counted:
        return
    ids = ",".join({str(found.message_id) for found, _, _ in counted})
    asked = "SELECT id, opened_at, clicked_at, contact_id, recipient_key FROM message WHERE id IN"
    messages = {row[0]: _Message(*row[1:]) for row in rows(f"{asked} ({ids})")}
    moment, here = now(), connection()
    marked: set[int] = set()
    contacts: list[tuple[Any, ...]] = []
    alive: list[tuple[Any, ...]] = []
    verified: list[tuple[Any, ...]] = []
    for found, seen, verdict in counted:
        message = messages[found.message_id]
        clicked, is_mail = seen.kind == "click", found.channel == "email"
        is_first_open, is_first_click = is_mail and message.opened_at is None, clicked and message.clicked_at is None
        if is_first_open:
            message.opened_at = seen.at
        if is_first_click:
            message.clicked_at = seen.at
        if is_first_open or is_first_click:
            marked.add(found.message_id)
        if found.test or message.contact_id is None:
            continue
        if is_mail:
            contacts.append((is_first_open, is_first_click, seen.at, seen.at if clicked else None, message.contact_id))
        else:
            alive.append((seen.at, message.contact_id))
        if clicked and verdict.verdict == HUMAN:
            kind = "email" if is_mail else "phone"
            verified.append((seen.at, moment, found.account_id, kind, message.key, message.contact_id))
    written = [(messages[one].opened_at, messages[one].clicked_at, moment, one) for one in sorted(marked)]
    here.executemany(_MESSAGE, written)
    here.executemany(_CONTACT, contacts)
    here.executemany(_ALIVE, alive)
    here.executemany(_VERIFIED, verified)
