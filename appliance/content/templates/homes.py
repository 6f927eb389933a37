"""What a template is for: kept by itself, what a campaign says, or what a step of a flow says."""

from typing import Literal

from msgspec import Struct

from appliance.content.templates import store
from appliance.core.errors import NotFound
from appliance.storage.models import Campaign, Flow, Template


class Home(Struct):
    """Where a template belongs, how that is called, and why it may not be changed there, if it may not."""

    kind: Literal["template", "campaign", "flow"]
    id: int
    name: str
    step: int | None = None
    phase: str = ""
    is_locked: bool = False


def of(template: Template) -> Home:
    """Return where a template belongs; raises NotFound where that was deleted."""
    if template.flow_id is None:
        return Home("template", template.id, template.name or store.UNTITLED)
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id, Campaign.template == template.id)
    if campaign is not None:
        if campaign.deleted_at is not None:
            raise NotFound
        return Home("campaign", campaign.id, campaign.name, None, campaign.phase, not store.is_editable(campaign))
    flow = Flow.get_by_id(template.flow_id)
    if flow.deleted_at is not None or template.removed_at is not None:
        raise NotFound
    return Home("flow", flow.id, flow.name, template.action_id, flow.status)


def of_campaign(account_id: int, campaign_id: int) -> Template:
    """Return what a campaign says; raises NotFound."""
    found = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    )
    if found is None:
        raise NotFound
    return store.get(account_id, found.template_id)


def of_step(account_id: int, flow_id: int, action_id: int) -> Template:
    """Return what a step of a flow says; raises NotFound."""
    found: Template | None = (
        Template.select()
        .join(Flow, on=(Template.flow == Flow.id))
        .where(
            Template.account == account_id, Template.flow == flow_id, Template.action_id == action_id,
            Template.removed_at.is_null(), Flow.deleted_at.is_null(), ~Flow.hidden,
        )
        .first()
    )  # fmt: skip
    if found is None:
        raise NotFound
    return found
