"""Why one contact gets, got or does not get a campaign, with each list and segment of the audience."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.audience.segments import explain as segments
from appliance.campaigns import store
from appliance.campaigns.audience import build_audience, build_parts, get_channel_kind, select_members
from appliance.campaigns.findings import find_transport
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.sending.messages import sms_rules
from appliance.storage.database import fetch_one, rows, scalar
from appliance.storage.models import Campaign
from appliance.storage.transactions import snapshot


class AudiencePart(Struct):
    """A list or segment of the audience, and whether the contact is in it now."""

    kind: Annotated[Literal["list", "segment", "excluded_list", "excluded_segment"], Meta(description="kind")]
    id: Annotated[int, Meta(description="id of the list or segment")]
    name: str
    matches: Annotated[bool, Meta(description="whether the contact belongs to it now")]


class AudienceExplanation(Struct):
    """Why one contact gets, got or does not get a campaign.

    The audience of a sent campaign is its snapshot; `parts` describe the membership at the time of the request.
    """

    campaign_id: Annotated[int, Meta(description="id of the campaign")]
    contact_id: Annotated[int, Meta(description="id of the contact")]
    in_audience: Annotated[bool, Meta(description="whether the contact is in the audience")]
    skip_reason: (
        Annotated[str, Meta(description="why a message to the contact would be skipped; null if it would not")] | None
    )
    message_id: int | None
    status: Annotated[str, Meta(description="status of the contact's message; null if there is none")] | None
    sentence: str
    parts: Annotated[list[AudiencePart], Meta(description="results for each list and segment of the audience")]


def explain_contact(account_id: int, campaign_id: int, contact_id: int) -> AudienceExplanation:
    """Return why a contact gets, got or does not get a campaign.

    Raises NotFound for an unknown campaign, and Invalid for an unknown contact.
    """
    with snapshot():
        campaign = store.get(account_id, campaign_id)
        if not rows("SELECT 1 FROM contact WHERE account_id = ? AND id = ?", (account_id, contact_id)):
            raise Invalid({"contact_id": [gettext("must exist")]})
        row = fetch_one(
            "SELECT id, status, skip_reason FROM message WHERE campaign_id = ? AND contact_id = ?",
            (campaign_id, contact_id),
        )
        if row is not None:
            inside, (message_id, status, reason) = True, row
        else:
            inside, reason = (False, None) if campaign.started_at else _evaluate_now(campaign, contact_id)
            message_id = status = None
        return AudienceExplanation(
            campaign_id, contact_id, inside, reason, message_id, status, _summarize(campaign, inside, status, reason),
            _explain_parts(campaign, contact_id),
        )  # fmt: skip


def _evaluate_now(campaign: Campaign, contact_id: int) -> tuple[bool, str | None]:
    """Return (is_member, skip reason or None) of a contact, for the audience that a draft has now."""
    audience = build_audience(campaign)
    row = fetch_one(
        f"SELECT why, channel FROM ({select_members(audience)}) WHERE contact = :contact_id",
        {**audience.parameters, "kind": get_channel_kind(campaign), "contact_id": contact_id},
    )
    if row is None:
        return False, None
    if row[0] is not None or campaign.channel != "sms":
        return True, row[0]
    number = str(scalar("SELECT key FROM channel WHERE id = ?", (row[1],)))
    return True, sms_rules.predict_refusal(campaign.account_id, contact_id, number, find_transport(campaign))


def _explain_parts(campaign: Campaign, contact_id: int) -> list[AudiencePart]:
    conditions, parameters = build_parts(campaign)
    parts = []
    for kind, part_id, sql in conditions:
        row = fetch_one(
            f"SELECT ({sql}) IS TRUE FROM contact c WHERE c.id = :contact_id", {**parameters, "contact_id": contact_id}
        )
        name = segments.fetch_name(campaign.account_id, "segment" if kind.endswith("segment") else "list", part_id)
        part_kind: Any = kind
        parts.append(AudiencePart(part_kind, part_id, name, bool(row and row[0])))
    return parts


def _summarize(campaign: Campaign, inside: bool, status: str | None, reason: str | None) -> str:
    if status is not None:
        return f"Their message is {status}{f': {reason}' if reason else ''}."
    if campaign.started_at:
        return "They were not in the audience when the campaign was sent."
    if not inside:
        return "They are not in the audience."
    return f"They are in the audience, and get nothing: {reason}." if reason else "They get it if it is sent now."
