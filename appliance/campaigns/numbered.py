"""The links of a campaign as they are numbered when it goes live: stable, whatever brand and design become later."""

from collections.abc import Sequence

from appliance.content import brand as brands
from appliance.content.designs.links import Link
from appliance.content.templates.store import document
from appliance.sending.messages import compose, texts
from appliance.storage.models import Campaign
from appliance.storage.models import Link as LinkRow
from appliance.storage.open import run
from appliance.storage.work import writing

_AT_ONCE = 500


def keep(campaign: Campaign) -> None:
    """Write the links of what a campaign says now, in place of those it had; raises MergeError."""
    writing()
    drop(campaign.id)
    found = [
        {"account": campaign.account_id, "campaign": campaign.id, "template": campaign.template_id,
         "number": one.number, "url": one.href, "words": one.words}
        for one in _links(campaign)
    ]  # fmt: skip
    for start in range(0, len(found), _AT_ONCE):
        LinkRow.insert_many(found[start : start + _AT_ONCE]).execute()


def _links(campaign: Campaign) -> Sequence[Link]:
    if campaign.channel == "sms":
        return texts.links(campaign.template.body)
    look = brands.look(brands.get(campaign.account_id))
    # Checked, and so compiled, before: what was compiled last is kept
    source = compose.source_of(document(campaign.template), look, campaign.account.locale, marketing=True)
    return compose.compile_source(source).links


def drop(campaign_id: int) -> None:
    """Forget the links of a campaign that did not go out."""
    writing()
    run("DELETE FROM link WHERE campaign_id = ?", (campaign_id,))
