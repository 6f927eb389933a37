"""The UTM parameters of a campaign's or a flow step's links: their settings, stored when it goes live, and its preview.

`content/designs/utm.py` adds them to the links.
"""

from typing import Any

from appliance.audience.filters import compiler
from appliance.content.designs.utm import LinkTagger, resolve
from appliance.settings import config
from appliance.storage.models import NESTED_STEP_KEYS, Account, Campaign, Experiment, Flow, Template, Variant

_VARIANTS = "abcde"


def build_campaign_utm(campaign: Campaign) -> dict[str, Any] | None:
    """Return the UTM settings and values to store with a campaign's messages, or None without parameters.

    `build_tagger` reads them. The campaign's own settings replace those of the account.
    """
    values = {"campaign.name": campaign.name, "campaign.id": str(campaign.id), "channel": campaign.channel}
    is_test = Variant.select().join(Experiment).where(Experiment.campaign == campaign.id, Variant.number > 1).exists()
    if is_test:
        values["variant"] = _VARIANTS[0]
    return _build_snapshot(campaign.account, campaign.utm, values)


def build_step_utm(flow: Flow, account: Account, step: dict[str, Any]) -> dict[str, Any] | None:
    """Return the UTM settings and values to store with the messages of a flow's step, or None without parameters.

    `build_tagger` reads them. A transactional step has none. The step's own settings replace those of the account.
    """
    if step["transactional"]:
        return None
    channel = "sms" if step["type"] == "sms" else "email"
    values = {"campaign.name": flow.name, "campaign.id": str(flow.id), "channel": channel, "step": str(step["id"])}
    return _build_snapshot(account, step.get("utm"), values)


def _build_snapshot(account: Account, own: dict[str, Any] | None, values: dict[str, str]) -> dict[str, Any] | None:
    settings = account.utm if own is None else own
    if not settings:
        return None
    values["account.name"] = account.name
    own_urls = {"own_url": config.base_url(config.current()), "public_url": account.public_url or ""}
    return {"settings": settings, "values": values, **own_urls}


def build_tagger(snapshot: dict[str, Any] | None, variant: int | None = None) -> LinkTagger | None:
    """Return the tagger of links, or None if there are no parameters; `variant` is the number of a variant."""
    if snapshot is None:
        return None
    values = dict(snapshot["values"])
    if variant is not None and "variant" in values:
        values["variant"] = _VARIANTS[variant - 1]
    parameters = resolve(snapshot["settings"], values)
    own_urls = tuple(url for url in (snapshot["own_url"], snapshot.get("public_url")) if url)
    return LinkTagger(parameters, own_urls) if parameters else None


def find_template_tagger(template: Template | None) -> LinkTagger | None:
    """Return the tagger of a template's links with the present settings; None without a campaign or step."""
    if template is None or template.flow_id is None:
        return None
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id)
    if campaign is not None:
        variant = Variant.get_or_none(Variant.template == template.id)
        return build_tagger(build_campaign_utm(campaign), None if variant is None else variant.number)
    flow = Flow.get_by_id(template.flow_id)
    steps = compiler.walk(flow.steps, NESTED_STEP_KEYS)
    step = next((step for step in steps if step.get("template_id") == template.id), None)
    return None if step is None else build_tagger(build_step_utm(flow, Account.get_by_id(flow.account_id), step))
