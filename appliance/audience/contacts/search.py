"""Search contacts by words, and fetch pages of large audiences without reading all contacts.

Words match prefixes of names, of email addresses and their parts, and of the digits of phone numbers. A page is read
from an index that has the order of the page, so that nothing is sorted; a page in the second half is read from the end.
Reading in the order of an index is fast if a large part of all contacts matches. A small result is selected and sorted
instead, which costs less. Totals are cached until the next write.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.audience.segments import members
from appliance.core import addresses
from appliance.core.errors import NotAllowed
from appliance.core.i18n import gettext
from appliance.storage import masking
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Channel, Contact
from appliance.storage.models.account import NAME_ORDER

_WORD = re.compile(r"[^\W_]+")
_PHONE_LIKE = re.compile(r"^[\d\s+().\-/]{3,}$")
_MAX_WORDS = 12
_MATCH = "contact_search MATCH :words"
WRITE_SQL = "INSERT OR REPLACE INTO contact_search (rowid, names, email, phone) VALUES (?, ?, ?, ?)"
DELETE_SQL = "DELETE FROM contact_search WHERE rowid = ?"
# The condition that a contact id matches `:words`, a query of `build_query`; it follows the column of the id.
MATCH_CONDITION = f"IN (SELECT rowid FROM contact_search WHERE {_MATCH})"
# The statement that adds the plain contacts of an import (`imports/row_writer.py`), with ids from `:base` on.
FILL_FROM_IMPORT_SQL = (
    "INSERT INTO contact_search (rowid, names, email, phone) SELECT :base + n, trim(coalesce(first_name, '') || ' ' || "
    "coalesce(last_name, '')), value, '' FROM temp.import_plain ORDER BY n"
)


def build_query(text: str) -> str | None:
    """Return an FTS5 query for a search text, or None if the text has no words.

    Up to `_MAX_WORDS` words are used. Each is quoted, so that users cannot write operators of the query language.
    Raises NotAllowed where contact data is masked: by searching for more and more letters, a user could read it.
    """
    if masking.is_active():
        raise NotAllowed(gettext("Your role sees masked contact data, so it cannot search by name or address."))
    if _PHONE_LIKE.match(text):
        digits = re.sub(r"\D", "", text)
        return f'"{digits}"*' if digits else None
    words = _WORD.findall(text.lower())[:_MAX_WORDS]
    return " ".join(f'"{word}"*' for word in words) or None


def index_contact(contact: Contact, channels: list[Channel]) -> None:
    """Write the names and addresses of a contact to the search index, in the current transaction."""
    run(
        WRITE_SQL,
        index_row(
            contact.id, (contact.first_name, contact.last_name), [(channel.kind, channel.value) for channel in channels]
        ),
    )


def index_row(
    contact_id: int, names: tuple[str | None, ...], addresses: list[tuple[str, str]]
) -> tuple[int, str, str, str]:
    """Return the index row of a contact, as the parameters of `WRITE_SQL`; `addresses` are (kind, value)."""
    return (
        contact_id,
        " ".join(name for name in names if name),
        " ".join(value for kind, value in addresses if kind == "email"),
        " ".join(value.lstrip("+") for kind, value in addresses if kind == "phone"),
    )


def remove_from_index(contact_id: int) -> None:
    """Remove a contact from the search index, in the current transaction."""
    run(DELETE_SQL, (contact_id,))


def rank_matches(query: str, account_id: int | None, limit: int) -> list[tuple[int, float]]:
    """Return up to `limit` contacts that match `query` as (id, score), unordered; the best match has the lowest score.

    `query` is from `build_query`. `account_id=None` means the contacts of all accounts.
    """
    params = {"words": query, "account": account_id}
    return rows(
        f"SELECT s.rowid, bm25(contact_search) FROM {_from_clause(account_id)} WHERE {_MATCH} LIMIT {limit}", params
    )


def count_matches(query: str, account_id: int | None) -> int:
    """Return the number of contacts that match `query`; the parameters are as in `rank_matches`."""
    params = {"words": query, "account": account_id}
    return int(scalar(f"SELECT count(*) FROM {_from_clause(account_id)} WHERE {_MATCH}", params))


def newest_matches(query: str | None, account_id: int | None, offset: int, limit: int) -> list[int]:
    """Return a page of the ids of contacts that match `query`, highest id first.

    The parameters are as in `rank_matches`; a `query` of None matches no contact.
    """
    matches = rows(
        f"SELECT s.rowid FROM {_from_clause(account_id)} WHERE {_MATCH} "
        "ORDER BY s.rowid DESC LIMIT :limit OFFSET :offset",
        {"words": query, "account": account_id, "limit": limit, "offset": offset},
    )
    return [row[0] for row in matches]


def matches_between(query: str | None, low: int, high: int) -> set[int]:
    """Return the ids from `low` to `high` of contacts that match a `query` of `build_query`, in all accounts."""
    sql = "SELECT rowid FROM contact_search WHERE contact_search MATCH ? AND rowid BETWEEN ? AND ?"
    return {row[0] for row in rows(sql, (query, low, high))}


def _from_clause(account_id: int | None) -> str:
    joined = "" if account_id is None else " JOIN contact c ON c.id = s.rowid AND c.account_id = :account"
    return f"contact_search s{joined}"


def merge_index_pages(pages: int) -> None:
    """Merge up to `pages` pages of the index, which removes the words of deleted contacts from them."""
    run("INSERT INTO contact_search (contact_search, rank) VALUES ('merge', ?)", (-pages,))


# A search with more matches is listed newest first instead of best first.
MAX_RANKED = 2000
_CHUNK = 2000
# A smaller result is selected and sorted instead of being read in the order of an index.
_SMALL_RESULT = 2000
# The approximate cost of sorting a row, relative to reading a row in the order of an index.
_SORT_COST = 2


class Order(NamedTuple):
    """An order of contacts: its column of `c`, the index in this order (None if there is none), and its direction."""

    column: str
    index_name: str | None
    is_descending: bool = True

    def order_by(self, direction: str) -> str:
        """Return the terms of ORDER BY for a direction, `DESC` or `ASC`; equal values are ordered by the contact id."""
        return f"{self.column} {direction}, c.id {direction}"

    @property
    def source(self) -> str:
        """Return the table for a FROM clause, with the hint to use `index_name`, or no index if it is None."""
        return f"contact c {f'INDEXED BY {self.index_name}' if self.index_name else 'NOT INDEXED'}"


NEWEST = Order("c.created_at", "contact_account_id_created_at_id")
ORDERS = {
    "created": NEWEST,
    "updated": Order("c.updated_at", "contact_account_id_updated_at"),
    "seen": Order("c.last_interacted_at", None),
    "name": Order(f"{NAME_ORDER} COLLATE NOCASE", "contact_name_order", False),
}  # fmt: skip


def page_of_all(account_id: int, offset: int, limit: int, order: Order = NEWEST) -> tuple[list[int], int]:
    """Return a page of the ids of all contacts of an account, sorted by `order`, and the total."""
    count = members.count_contacts(account_id)
    return _page_from_nearer_end(count, offset, limit, lambda direction, skip, page_size: _select_ids(
        f"SELECT c.id FROM {order.source} WHERE c.account_id = ? ORDER BY {order.order_by(direction)} LIMIT ? OFFSET ?",
        account_id, page_size, skip,
    ), order.is_descending), count  # fmt: skip


def page_of_list(
    account_id: int, list_id: int, count: int, offset: int, limit: int, order: Order = NEWEST
) -> list[int]:
    """Return a page of the ids of a list's members, sorted by `order`; `count` is the number of members."""
    if count <= 0:
        return []
    passed = (min(offset, max(count - offset, 0)) + limit) * members.count_contacts(account_id) / count
    if order.index_name and passed < count * _SORT_COST:
        sql = (
            f"SELECT c.id FROM {order.source} WHERE c.account_id = ?2 "
            "AND EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = ?1 AND m.contact_id = c.id) "
        )
    else:
        sql = (
            "SELECT c.id FROM membership m CROSS JOIN contact c ON c.id = m.contact_id "
            "WHERE m.contact_list_id = ?1 AND c.account_id = ?2 "
        )
    return _page_from_nearer_end(count, offset, limit, lambda direction, skip, page_size: _select_ids(
        f"{sql} ORDER BY {order.order_by(direction)} LIMIT ?3 OFFSET ?4", list_id, account_id, page_size, skip
    ), order.is_descending)  # fmt: skip


def page_of_filtered(
    condition: str, parameters: dict[str, Any], offset: int, limit: int, *, by_time: bool, count: int | None = None,
    order: Order = NEWEST,
) -> tuple[list[int], int]:  # fmt: skip
    """Return a page of the ids of the contacts `c` that match a condition, sorted by `order`, and the total.

    `by_time` says that the condition compares only times, for which SQLite may choose an index. Otherwise the matches
    are counted by reading all contacts, once after each write, and the page is read from the nearer end. If `count` is
    given, it is used as the total and may be slightly outdated; the page is then read from the beginning. Raises
    Invalid if counting takes too long.
    """
    table = "contact c" if by_time else "contact c NOT INDEXED"
    is_exact = count is None
    if count is None:
        count = members.cached_count(f"SELECT count(*) FROM {table} WHERE {condition}", parameters)
    source = "contact c" if by_time or count < _SMALL_RESULT else order.source

    def fetch_ids(way: str, skip: int, page_size: int) -> list[int]:
        matching = rows(
            f"SELECT c.id FROM {source} WHERE {condition} ORDER BY {order.order_by(way)} LIMIT :limit OFFSET :skip",
            {**parameters, "limit": page_size, "skip": skip},
        )
        return [row[0] for row in matching]

    if is_exact:
        return _page_from_nearer_end(count, offset, limit, fetch_ids, order.is_descending), count
    return fetch_ids("DESC" if order.is_descending else "ASC", offset, limit), count


def _select_ids(sql: str, *parameters: int) -> list[int]:
    return [row[0] for row in rows(sql, parameters)]


def _page_from_nearer_end(
    count: int, offset: int, limit: int, fetch: Callable[[str, int, int], list[int]], is_descending: bool = True
) -> list[int]:
    """Return a page of ids, read from the nearer end of a result with `count` rows.

    `fetch(direction, offset, limit)` reads ids; direction is `DESC` or `ASC`.
    """
    direction, reverse = ("DESC", "ASC") if is_descending else ("ASC", "DESC")
    if offset >= count:
        return []
    if offset <= count // 2:
        return fetch(direction, offset, limit)
    page_size = min(limit, count - offset)
    return fetch(reverse, count - offset - page_size, page_size)[::-1]


def search_ids(account_id: int, text: str) -> tuple[list[int], int | None]:
    """Return (ids, None) of a search, best match first, or ([], total) if more than `MAX_RANKED` contacts match.

    If the text looks like an email address, and contacts have addresses that begin with it, only the ids of those
    contacts are returned.
    """
    words = build_query(text)
    if words is None:
        return [], None
    addressed = _find_by_address_prefix(account_id, text)
    if addressed:
        return addressed, None
    searched_account = _account_if_shared(account_id)
    ranked = rank_matches(words, searched_account, MAX_RANKED + 1)
    if len(ranked) <= MAX_RANKED:
        return [row[0] for row in sorted(ranked, key=lambda row: (row[1], -row[0]))], None
    return [], count_matches(words, searched_account)


def _find_by_address_prefix(account_id: int, text: str) -> list[int]:
    """Return the ids of contacts with an email address that begins with `text`, if `text` looks like an address."""
    start = addresses.normalize_query(text) if "@" in text else ""
    if "@" not in start[1:] or any(letter.isspace() for letter in start):
        return []
    owners = rows(
        "SELECT DISTINCT contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key >= ? AND key < ? "
        f"ORDER BY key LIMIT {MAX_RANKED}",
        (account_id, start, start + chr(0x10FFFF)),
    )
    return [row[0] for row in owners]


def newest_matching_ids(account_id: int, text: str, offset: int = 0, limit: int = -1) -> list[int]:
    """Return a page of the ids of contacts that match a search text, highest id first.

    A `limit` of -1 returns all ids from `offset` on.
    """
    return newest_matches(build_query(text), _account_if_shared(account_id), offset, limit)


def page_of_ids(ids: list[int], offset: int, limit: int, order: Order = NEWEST) -> list[int]:
    """Return a page of `ids`, which are ids of contacts, sorted by `order`."""
    placeholders = ",".join("?" * len(ids))
    ordered = rows(
        f"SELECT c.id FROM contact c WHERE c.id IN ({placeholders}) "
        f"ORDER BY {order.order_by('DESC' if order.is_descending else 'ASC')} LIMIT ? OFFSET ?",
        [*ids, limit, offset],
    )
    return [row[0] for row in ordered]


def _account_if_shared(account_id: int) -> int | None:
    """Return the account id if the installation has several accounts, else None, which makes the search faster."""
    return account_id if int(scalar("SELECT count(*) FROM account")) > 1 else None


def scan_newest_matching(account_id: int, text: str, offset: int, limit: int) -> list[int]:
    """Return a page of the ids of contacts that match a search text, the most recently created contacts first.

    Contacts are read in this order until enough of them match, which is fast only for a search with many matches.
    """
    words = build_query(text)
    matching_ids: list[int] = []
    cursor: tuple[int, int] = (2**62, 2**62)
    all_matches: set[int] | None = None
    while len(matching_ids) < offset + limit:
        batch = rows(
            "SELECT created_at, id FROM contact WHERE account_id = ? AND (created_at, id) < (?, ?) "
            f"ORDER BY created_at DESC, id DESC LIMIT {_CHUNK}",
            (account_id, *cursor),
        )
        if not batch:
            break
        low, high = min(row[1] for row in batch), max(row[1] for row in batch)
        if high - low < _CHUNK * 20:
            # Contacts created at about the same time have adjacent ids, so only their range of ids is searched.
            matches = matches_between(words, low, high)
        else:
            matches = all_matches = all_matches or set(newest_matching_ids(account_id, text))
        matching_ids += [row[1] for row in batch if row[1] in matches]
        cursor = batch[-1]
    return matching_ids[offset : offset + limit]
