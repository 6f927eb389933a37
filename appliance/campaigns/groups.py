"""The people of a draft one by one: who gets it, and each group that does not, to look through before a send."""

from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from appliance.campaigns import audience, store
from appliance.contacts import search
from appliance.contacts import store as contacts
from appliance.db.open import rows, scalar
from appliance.fields import PageQuery, Short
from appliance.pages import Page
from appliance.tables import Campaign

LEFT_OUT = "left_out"
_FARTHEST = 2**53


class GroupQuery(PageQuery):
    """Whom of a draft's people to show: by why they do not get it (else those who do), by words, without a name."""

    why: Short | UnsetType = UNSET
    search: Short | UnsetType = UNSET
    nameless: bool | UnsetType = UNSET


class Neighbours(NamedTuple):
    """Somebody among those who get a campaign: how many there are, which one this is, and who is next to them."""

    total: int
    position: int
    before: int | None
    after: int | None


def page(account_id: int, campaign_id: int, query: GroupQuery) -> Page:
    """List people of a campaign's audience, in the order in which they were added; raises NotFound."""
    campaign = store.get(account_id, campaign_id)
    why = query.why if isinstance(query.why, str) else None
    sql, parameters = _left_out(campaign) if why == LEFT_OUT else _by_reason(campaign, why)
    if isinstance(query.search, str) and query.search.strip():
        words = search.match(query.search)
        sql += f" AND contact {search.FOUND}" if words else ""
        parameters["words"] = words
    if query.nameless is True:
        sql += " AND contact IN (SELECT id FROM contact WHERE account_id = :account AND coalesce(first_name, '') = '')"
    limit = query.size()
    offset = min((query.page - 1) * limit, _FARTHEST)
    total = int(scalar(f"SELECT count(*) FROM ({sql})", parameters))
    found = rows(f"{sql} ORDER BY contact LIMIT :limit OFFSET :skip", {**parameters, "limit": limit, "skip": offset})
    return Page(contacts.by_ids([row[0] for row in found]), total, query.page, limit)


def neighbours(campaign: Campaign, contact_id: int) -> Neighbours:
    """Return where somebody stands among those who get a campaign, and who comes before and after."""
    sql, parameters = _by_reason(campaign, None)
    values = {**parameters, "at": contact_id}
    total, position, before, after = rows(
        "SELECT count(*), count(*) FILTER (WHERE contact <= :at), max(CASE WHEN contact < :at THEN contact END), "
        f"min(CASE WHEN contact > :at THEN contact END) FROM ({sql})",
        values,
    )[0]
    return Neighbours(total, position, before, after)


def left_out(campaign: Campaign) -> int:
    """Count who would be in the audience, were nobody left out on purpose."""
    sql, parameters = _left_out(campaign)
    return int(scalar(f"SELECT count(*) FROM ({sql})", parameters)) if audience.excludes(campaign) else 0


def _by_reason(campaign: Campaign, why: str | None) -> tuple[str, dict[str, Any]]:
    people = audience.of(campaign)
    parameters = {**people.parameters, "kind": audience.kind(campaign)}
    if why:
        parameters["why"] = why
    asked = "= :why" if why else "IS NULL"
    return f"SELECT contact FROM ({audience.members(people)}) WHERE why {asked}", parameters


def _left_out(campaign: Campaign) -> tuple[str, dict[str, Any]]:
    whole, kept = audience.of(campaign, whole=True), audience.of(campaign)
    return (
        f"SELECT id AS contact FROM ({whole.sql}) WHERE id NOT IN ({kept.sql})",
        {**whole.parameters, **kept.parameters},
    )
