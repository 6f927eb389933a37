"""Says of one person why they get a campaign, got it or did not, part by part of its audience."""

from typing import Any, Literal

from msgspec import Struct

from appliance.campaigns import audience, store
from appliance.campaigns.findings import transport
from appliance.db.open import one, rows, scalar
from appliance.db.work import snapshot
from appliance.errors import Invalid
from appliance.messages import sms_rules
from appliance.segments import explain as segments
from appliance.tables import Campaign


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
        found = one(
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
    found = one(
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
        found = one(f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :one", {**parameters, "one": contact_id})
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
