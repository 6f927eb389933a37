"""Finds contacts by what people type: prefixes of names, of e-mail and its parts, digits of phones."""

import re

from appliance.storage.models import Channel, Contact
from appliance.storage.open import rows, run, scalar

_WORD = re.compile(r"[^\W_]+")
_PHONE_LIKE = re.compile(r"^[\d\s+().\-/]{3,}$")
_MAX_WORDS = 12
_FOUND = "contact_search MATCH :words"
WRITE = "INSERT OR REPLACE INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, ?)"
FORGET = "DELETE FROM contact_search WHERE rowid = ?"
# Behind the id of a contact: whom `:words` find, which are what `match` answers
FOUND = f"IN (SELECT rowid FROM contact_search WHERE {_FOUND})"
# The plain people of an import, numbered from `:base` on
FILL = (
    "INSERT INTO contact_search (rowid, names, email, phone) SELECT :base + n, trim(coalesce(first_name, '') || ' ' || "
    "coalesce(last_name, '')), value, '' FROM temp.import_plain ORDER BY n"
)


def match(text: str) -> str | None:
    """Turn any text into a query that FTS5 takes; None if it holds nothing to look for.

    Every word is quoted, so that no operator of the query language can be written by a stranger.
    """
    if _PHONE_LIKE.match(text):
        digits = re.sub(r"\D", "", text)
        return f'"{digits}"*' if digits else None
    words = _WORD.findall(text.lower())[:_MAX_WORDS]
    return " ".join(f'"{word}"*' for word in words) or None


def index(contact: Contact, channels: list[Channel]) -> None:
    """Write a contact's words anew, in the running transaction."""
    run(WRITE, entry(contact.id, (contact.first_name, contact.last_name), [(one.kind, one.value) for one in channels]))


def entry(
    contact_id: int, names: tuple[str | None, ...], addresses: list[tuple[str, str]]
) -> tuple[int, str, str, str]:
    """Return the words of a contact, for `WRITE`; addresses are (kind, value)."""
    return (
        contact_id,
        " ".join(part for part in names if part),
        " ".join(value for kind, value in addresses if kind == "email"),
        " ".join(value.lstrip("+") for kind, value in addresses if kind == "phone"),
    )


def forget(contact_id: int) -> None:
    """Take a contact's words out."""
    run(FORGET, (contact_id,))


def ranked(words: str, account_id: int | None, most: int) -> list[tuple[int, float]]:
    """Return whom words find, of one account or of all, with how far each is from the best; at most so many."""
    asked = {"words": words, "account": account_id}
    return rows(f"SELECT s.rowid, bm25(contact_search) FROM {_of(account_id)} WHERE {_FOUND} LIMIT {most}", asked)


def number(words: str, account_id: int | None) -> int:
    """Return how many words find, of one account or of all."""
    asked = {"words": words, "account": account_id}
    return int(scalar(f"SELECT count(*) FROM {_of(account_id)} WHERE {_FOUND}", asked))


def newest(words: str | None, account_id: int | None, offset: int, limit: int) -> list[int]:
    """Return a page of those whom words find, of one account or of all, the last added first."""
    found = rows(
        f"SELECT s.rowid FROM {_of(account_id)} WHERE {_FOUND} ORDER BY s.rowid DESC LIMIT :limit OFFSET :offset",
        {"words": words, "account": account_id, "limit": limit, "offset": offset},
    )
    return [row[0] for row in found]


def between(words: str | None, low: int, high: int) -> set[int]:
    """Return whom words find among neighbouring ids."""
    found = "SELECT rowid FROM contact_search WHERE contact_search MATCH ? AND rowid BETWEEN ? AND ?"
    return {row[0] for row in rows(found, (words, low, high))}


def _of(account_id: int | None) -> str:
    joined = "" if account_id is None else " JOIN contact c ON c.id = s.rowid AND c.account_id = :account"
    return f"contact_search s{joined}"


def write_anew(pages: int) -> None:
    """Write some of the index anew: it keeps the words of who is gone until then."""
    run("INSERT INTO contact_search (contact_search, rank) VALUES ('merge', ?)", (-pages,))
