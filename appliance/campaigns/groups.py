"""The people of a draft one by one: who gets it, and each group that does not, to look through before a send."""

from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from appliance.audience.contacts import search
from appliance.audience.contacts import store as contacts
from appliance.audience.segments import explain as segments
from appliance.campaigns import audience, store
from appliance.campaigns.findings import transport
from appliance.core.errors import Invalid
from appliance.core.fields import PageQuery, Short
from appliance.core.pagination import Page
from appliance.sending.messages import sms_rules
from appliance.storage.models import Campaign
from appliance.storage.open import fetch_one, rows, scalar
from appliance.storage.work import snapshot

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


# Says of one person why they get a campaign, got it or did not, part by part of its audience.


class AudiencePart(Struct):
    """A list or segment of the audience, and whether the person is in it now."""

    kind: Literal["list", "segment", "excluded_list", "excluded_segment"]
    id: int
    name: str
    matches: bool


class CampaignExplained(Struct):
    """Whether a person is in the audience, what keeps their message back if so, and what became of it.

    Once a campaign is sent its audience is what was written down then; `parts` say how things stand now.
    """

    campaign_id: int
    contact_id: int
    in_audience: bool
    skip_reason: str | None
    message_id: int | None
    status: str | None
    sentence: str
    parts: list[AudiencePart]


def explain(account_id: int, campaign_id: int, contact_id: int) -> CampaignExplained:
    """Explain one person's place in a campaign; raises NotFound, or Invalid for a contact that is not there."""
    with snapshot():
        campaign = store.get(account_id, campaign_id)
        if not rows("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (account_id, contact_id)):
            raise Invalid({"contact_id": ["must exist"]})
        found = fetch_one(
            "SELECT id, status, skip_reason FROM message WHERE campaign_id = ? AND contact_id = ?",
            (campaign_id, contact_id),
        )
        if found is not None:
            inside, (message_id, status, reason) = True, found
        else:
            inside, reason = (False, None) if campaign.started_at else _now(campaign, contact_id)
            message_id = status = None
        return CampaignExplained(
            campaign_id, contact_id, inside, reason, message_id, status, _sentence(campaign, inside, status, reason),
            _parts(campaign, contact_id),
        )  # fmt: skip


def _now(campaign: Campaign, contact_id: int) -> tuple[bool, str | None]:
    """Return whether somebody would get a draft, and what keeps it back."""
    people = audience.of(campaign)
    found = fetch_one(
        f"SELECT why, channel FROM ({audience.members(people)}) WHERE contact = :one",
        {**people.parameters, "kind": audience.kind(campaign), "one": contact_id},
    )
    if found is None:
        return False, None
    if found[0] is not None or campaign.channel != "sms":
        return True, found[0]
    number = str(scalar("SELECT key FROM channel WHERE id = ?", (found[1],)))
    return True, sms_rules.foreseen(campaign.account_id, contact_id, number, transport(campaign))


def _parts(campaign: Campaign, contact_id: int) -> list[AudiencePart]:
    asked, parameters = audience.parts(campaign)
    made = []
    for kind, number, sql in asked:
        found = fetch_one(f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :one", {**parameters, "one": contact_id})
        name = segments.called(campaign.account_id, "segment" if kind.endswith("segment") else "list", number)
        shown: Any = kind
        made.append(AudiencePart(shown, number, name, bool(found and found[0])))
    return made


def _sentence(campaign: Campaign, inside: bool, status: str | None, reason: str | None) -> str:
    if status is not None:
        return f"Their message is {status}{f': {reason}' if reason else ''}."
    if campaign.started_at:
        return "They were not in the audience when the campaign was sent."
    if not inside:
        return "They are not in the audience."
    return f"They are in the audience, and get nothing: {reason}." if reason else "They get it if it is sent now."
