"""A template for a campaign: it gets a copy of its own, which nobody who changes the template touches."""

from typing import Any

from appliance import brand as brands
from appliance.campaigns import store
from appliance.db.work import writing
from appliance.errors import Invalid, NotFound
from appliance.tables import Campaign
from appliance.templates import starters
from appliance.templates import store as templates

_CONTENT = ("body", "design")
# Written only where the campaign says nothing yet: somebody has thought about them
_WORDS = ("subject", "preheader")


def take(account_id: int, campaign_id: int, source: int | str, user_id: int | None = None) -> Campaign:
    """Put the content of a template, or of a starter by its key, into a draft; raises NotFound, Invalid."""
    writing()
    campaign = store.get(account_id, campaign_id)
    name, found = _starter(account_id, source) if isinstance(source, str) else _template(account_id, source)
    values: dict[str, Any] = {key: templates.kept(key, found.get(key)) for key in _CONTENT}
    if not isinstance(source, str) and found["channel"] != campaign.channel:
        raise Invalid({"template": ["is for the other channel"]})
    if campaign.channel == "email":
        values |= {key: found[key] for key in _WORDS if found.get(key) and not getattr(campaign.template, key)}
    templates.write(campaign.template, values, user_id, label=f"Content of {name}"[:200], begins=True)
    # Its approval was taken back by that: what was read before knows nothing of it
    store.touch(store.get(account_id, campaign_id))
    return store.get(account_id, campaign_id)


def paste(account_id: int, campaign_id: int, html: str, user_id: int | None = None) -> Campaign:
    """Let HTML that was made elsewhere be what a draft says; raises NotFound, Invalid."""
    writing()
    campaign = store.get(account_id, campaign_id)
    if campaign.channel != "email":
        raise Invalid({"body": ["is for the other channel"]})
    values = {"body": templates.kept("body", html), "design": templates.kept("design", None)}
    templates.write(campaign.template, values, user_id, label="Pasted HTML", begins=True)
    store.touch(campaign)
    return store.get(account_id, campaign_id)


def _template(account_id: int, template_id: int) -> tuple[str, dict[str, Any]]:
    row = templates.get(account_id, template_id)
    return row.name or templates.UNTITLED, {**templates.document(row), "channel": row.channel}


def _starter(account_id: int, key: str) -> tuple[str, dict[str, Any]]:
    one = starters.find(brands.look(brands.get(account_id)), key)
    if one is None:
        raise NotFound
    return one.label, {"body": None, "design": one.design, "subject": one.subject, "preheader": one.preheader}
