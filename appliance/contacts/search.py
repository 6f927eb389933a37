"""Finds contacts by what people type: prefixes of names, of e-mail and its parts, digits of phones."""

import re

from appliance.db.open import run
from appliance.tables import Channel, Contact

_WORD = re.compile(r"[^\W_]+")
_PHONE_LIKE = re.compile(r"^[\d\s+().\-/]{3,}$")
_MOST_WORDS = 12


def match(text: str) -> str | None:
    """Turn any text into a query that FTS5 takes; None if it holds nothing to look for.

    Every word is quoted, so that no operator of the query language can be written by a stranger.
    """
    if _PHONE_LIKE.match(text):
        digits = re.sub(r"\D", "", text)
        return f'"{digits}"*' if digits else None
    words = _WORD.findall(text.lower())[:_MOST_WORDS]
    return " ".join(f'"{word}"*' for word in words) or None


def index(contact: Contact, channels: list[Channel]) -> None:
    """Write a contact's words anew, in the running transaction."""
    names = " ".join(part for part in (contact.first_name, contact.last_name) if part)
    emails = " ".join(channel.value for channel in channels if channel.kind == "email")
    phones = " ".join(channel.key.lstrip("+") for channel in channels if channel.kind == "phone")
    run(
        "INSERT OR REPLACE INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, ?)",
        (contact.id, names, emails, phones),
    )


def forget(contact_id: int) -> None:
    """Take a contact's words out."""
    run("DELETE FROM contact_search WHERE rowid = ?", (contact_id,))
