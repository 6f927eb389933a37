"""The content of a variant of a campaign: its own fields, and those of the campaign where it has none.

Each variant after the first has a template, in which an empty field means that of the campaign's template. `body` and
`design` belong together.
"""

from collections.abc import Sequence
from typing import Any

from appliance.content.templates.revisions import to_document
from appliance.content.templates.store import is_empty
from appliance.storage.models import Campaign, Template, Variant

TEXT_FIELDS = ("subject", "preheader", "from_name", "from_email", "reply_to")
CONTENT_FIELDS = (*TEXT_FIELDS, "body", "design")


def list_own_fields(template: Template) -> list[str]:
    """Return the fields that the template of a variant has itself: names of `TEXT_FIELDS`, and `content`."""
    own = [name for name in TEXT_FIELDS if getattr(template, name) is not None]
    return own if is_empty(template) else [*own, "content"]


def complete(template: Template, campaign_template: Template) -> Template:
    """Return the template of a variant with its complete content, as an object that must not be saved."""
    return Template(
        id=template.id, account=template.account_id, flow=template.flow_id, channel=campaign_template.channel,
        revision=template.revision, created_at=template.created_at,
        updated_at=max(template.updated_at, campaign_template.updated_at),
        **join_documents(campaign_template, template),
    )  # fmt: skip


def complete_if_variant(template: Template) -> Template:
    """Return a template, with the complete content if it is that of a variant of a campaign (`complete`)."""
    if template.flow_id is None or template.action_id is not None:
        return template
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id)
    if campaign is None or campaign.template_id == template.id:
        return template
    is_variant = Variant.select().where(Variant.template == template.id, Variant.number > 1).exists()
    return complete(template, campaign.template) if is_variant else template


def join_documents(campaign_template: Template, template: Template) -> dict[str, Any]:
    """Return the complete content of a variant, as a revision stores it.

    The translations of each text come from the template that has the text.
    """
    document, own_document, own = to_document(campaign_template), to_document(template), list_own_fields(template)
    names = [name for name in own if name != "content"]
    if "content" in own:
        names += ["body", "design"]
    return document | {name: own_document[name] for name in names} | {
        "translations": _join_translations(document["translations"], own_document["translations"], names)
    }  # fmt: skip


def _join_translations(base: dict[str, Any], own: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return translations by language and text id: those of `own` for the texts of the fields `names`, else `base`."""

    def is_own(text_id: str) -> bool:
        return (text_id if text_id in CONTENT_FIELDS else "body") in names

    return {
        language: {
            **{key: text for key, text in (base.get(language) or {}).items() if not is_own(key)},
            **{key: text for key, text in (own.get(language) or {}).items() if is_own(key)},
        }
        for language in dict.fromkeys((*base, *own))
    }
