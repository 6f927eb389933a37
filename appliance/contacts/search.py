"""Finds contacts by what people type: prefixes of names, of e-mail and its parts, digits of phones."""

import re

from appliance.db.open import run
from appliance.tables import Channel, Contact

_WORD = re.compile(r"[^\W_]+")
_PHONE_LIKE = re.compile(r"^[\d\s+().\-/]{3,}$")
_MOST_WORDS = 12
WRITE = "INSERT OR REPLACE INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, ?)"


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
    run(WRITE, entry(contact.id, (contact.first_name, contact.last_name), [(one.kind, one.value) for one in channels]))


def entry(
    contact_id: int, names: tuple[str | None, ...], addresses: list[tuple[str, str]]
) -> tuple[int, str, str, str]:
    """Answer the words of a contact, for `WRITE`; addresses are (kind, value)."""
    return (
        contact_id,
        " ".join(part for part in names if part),
        " ".join(value for kind, value in addresses if kind == "email"),
        " ".join(value.lstrip("+") for kind, value in addresses if kind == "phone"),
    )


def forget(contact_id: int) -> None:
    """Take a contact's words out."""
    run("DELETE FROM contact_search WHERE rowid = ?", (contact_id,))
