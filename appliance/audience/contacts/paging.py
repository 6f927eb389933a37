"""Pages of large audiences, quickly: the ways to them that do not read everybody.

An index in the order of the list gives a page without sorting; what lies past the middle is counted from the end. A
group that is a good part of all is met soon on that way; a small one is cheaper to sort. Totals are kept for as long as
nothing was written.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.audience.contacts import search
from appliance.audience.segments import people
from appliance.core import addresses
from appliance.storage.models.contact import NAME
from appliance.storage.open import rows, scalar

# More hits than this are nobody's search: they come newest first instead of best first
MAX_RANKED = 2000
_CHUNK = 2000
# Fewer are found again and sorted rather than met on the way
_FEW = 2000
# What a row costs to sort against a row passed on the way, about
_SORT_COST = 2


class Order(NamedTuple):
    """An order of contacts: its column of the contact `c`, the index that has it, and which way it goes."""

    column: str
    along: str | None
    down: bool = True

    def by(self, way: str) -> str:
        """Return the terms of ORDER BY for one way through it, `DESC` or `ASC`."""
        return f"{self.column} {way}, c.id {way}"

    @property
    def source(self) -> str:
        """Return the contacts as they are met on the way."""
        return f"contact c {f'INDEXED BY {self.along}' if self.along else 'NOT INDEXED'}"


NEWEST = Order("c.created_at", "contact_account_id_created_at_id")
ORDERS = {
    "created": NEWEST,
    "updated": Order("c.updated_at", "contact_account_id_updated_at"),
    "seen": Order("c.last_interacted_at", None),
    "name": Order(f"{NAME} COLLATE NOCASE", "contact_named", False),
}  # fmt: skip


def everybody(account_id: int, offset: int, limit: int, order: Order = NEWEST) -> tuple[list[int], int]:
    """Return a page of ids of all contacts, in an order, and how many there are."""
    count = people.total(account_id)
    return _cut(count, offset, limit, lambda way, skip, take: _ids(
        f"SELECT c.id FROM {order.source} WHERE c.account_id = ? ORDER BY {order.by(way)} LIMIT ? OFFSET ?",
        account_id, take, skip,
    ), order.down), count  # fmt: skip


def members(account_id: int, list_id: int, count: int, offset: int, limit: int, order: Order = NEWEST) -> list[int]:
    """Return a page of ids of a list that has `count` members, in an order."""
    if count <= 0:
        return []
    passed = (min(offset, max(count - offset, 0)) + limit) * people.total(account_id) / count
    if order.along and passed < count * _SORT_COST:
        sql = (
            f"SELECT c.id FROM {order.source} WHERE c.account_id = ?2 "
            "AND EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = ?1 AND m.contact_id = c.id) "
        )
    else:
        sql = (
            "SELECT c.id FROM membership m CROSS JOIN contact c ON c.id = m.contact_id "
            "WHERE m.contact_list_id = ?1 AND c.account_id = ?2 "
        )
    return _cut(count, offset, limit, lambda way, skip, take: _ids(
        f"{sql} ORDER BY {order.by(way)} LIMIT ?3 OFFSET ?4", list_id, account_id, take, skip
    ), order.down)  # fmt: skip


def filtered(
    where: str, parameters: dict[str, Any], offset: int, limit: int, *, by_time: bool, count: int | None = None,
    order: Order = NEWEST,
) -> tuple[list[int], int]:  # fmt: skip
    """Return a page of ids of the contacts `c` that a condition lets through, in an order, and how many there are.

    Conditions on times alone have an index each. Any other is counted by reading everybody once, as long as nothing is
    written only once, and its page is met on the way from the newest, or from the oldest where that is nearer. A
    `count` that is given may be a little old.
    """
    table = "contact c" if by_time else "contact c NOT INDEXED"
    exact = count is None
    if count is None:
        count = people.kept(f"SELECT count(*) FROM {table} WHERE {where}", parameters)
    source = "contact c" if by_time or count < _FEW else order.source

    def ask(way: str, skip: int, take: int) -> list[int]:
        found = rows(
            f"SELECT c.id FROM {source} WHERE {where} ORDER BY {order.by(way)} LIMIT :limit OFFSET :skip",
            {**parameters, "limit": take, "skip": skip},
        )
        return [row[0] for row in found]

    if exact:
        return _cut(count, offset, limit, ask, order.down), count
    return ask("DESC" if order.down else "ASC", offset, limit), count


def _ids(sql: str, *parameters: int) -> list[int]:
    return [row[0] for row in rows(sql, parameters)]


def _cut(
    count: int, offset: int, limit: int, ask: Callable[[str, int, int], list[int]], down: bool = True
) -> list[int]:
    """Ask for a page from the end that is nearer."""
    way, back = ("DESC", "ASC") if down else ("ASC", "DESC")
    if offset >= count:
        return []
    if offset <= count // 2:
        return ask(way, offset, limit)
    take = min(limit, count - offset)
    return ask(back, count - offset - take, take)[::-1]


def hits(account_id: int, text: str) -> tuple[list[int], int | None]:
    """Return whom some words find, best first, and None; or, of too many to rank, nobody and how many there are."""
    words = search.match(text)
    if words is None:
        return [], None
    addressed = _addresses(account_id, text)
    if addressed:
        return addressed, None
    only = _shared_by(account_id)
    found = search.ranked(words, only, MAX_RANKED + 1)
    if len(found) <= MAX_RANKED:
        return [row[0] for row in sorted(found, key=lambda row: (row[1], -row[0]))], None
    return [], search.number(words, only)


def _addresses(account_id: int, text: str) -> list[int]:
    """Return whose address begins with a text that looks like the beginning of one: all of it, to the last letter."""
    begin = addresses.sought(text) if "@" in text else ""
    if "@" not in begin[1:] or any(letter.isspace() for letter in begin):
        return []
    found = rows(
        "SELECT DISTINCT contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key >= ? AND key < ? "
        f"ORDER BY key LIMIT {MAX_RANKED}",
        (account_id, begin, begin + chr(0x10FFFF)),
    )
    return [row[0] for row in found]


def many_hits(account_id: int, text: str, offset: int = 0, limit: int = -1) -> list[int]:
    """Return a page of ids of a search that finds too many to rank, the last added first."""
    return search.newest(search.match(text), _shared_by(account_id), offset, limit)


def ordered(ids: list[int], offset: int, limit: int, order: Order = NEWEST) -> list[int]:
    """Return a page, in an order, of some contacts."""
    marks = ",".join("?" * len(ids))
    found = rows(
        f"SELECT c.id FROM contact c WHERE c.id IN ({marks}) ORDER BY {order.by('DESC' if order.down else 'ASC')} "
        "LIMIT ? OFFSET ?",
        [*ids, limit, offset],
    )
    return [row[0] for row in found]


def _shared_by(account_id: int) -> int | None:
    """Return the account if several share the search index; None if all that is found is its own."""
    return account_id if int(scalar("SELECT count(*) FROM account")) > 1 else None


def among_hits(account_id: int, text: str, offset: int, limit: int) -> list[int]:
    """Return a page, newest first, of a search that finds many: walk past everybody until enough are met."""
    words = search.match(text)
    found: list[int] = []
    last: tuple[int, int] = (2**62, 2**62)
    everywhere: set[int] | None = None
    while len(found) < offset + limit:
        part = rows(
            "SELECT created_at, id FROM contact WHERE account_id = ? AND (created_at, id) < (?, ?) "
            f"ORDER BY created_at DESC, id DESC LIMIT {_CHUNK}",
            (account_id, *last),
        )
        if not part:
            break
        low, high = min(row[1] for row in part), max(row[1] for row in part)
        if high - low < _CHUNK * 20:
            # Who was added together has neighbouring ids: only these are looked up
            near = search.between(words, low, high)
        else:
            near = everywhere = everywhere or set(many_hits(account_id, text))
        found += [row[1] for row in part if row[1] in near]
        last = part[-1]
    return found[offset : offset + limit]
