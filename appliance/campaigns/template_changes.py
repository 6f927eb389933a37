"""Changes of a template's content: over the API, from another template, and from pasted HTML (docs/decisions.md#2).

A user who may not send, such as an author, can neither change, reschedule nor stop a scheduled campaign. An API key
without `campaigns:send` can change the content of a scheduled campaign but not reschedule it. A test key can change
only scheduled campaigns that test keys sent.
"""

from typing import Any

from appliance.accounts.audit import Actor
from appliance.campaigns import store
from appliance.campaigns.store import check_template_change
from appliance.content import brand as brands
from appliance.content.templates import revisions, starters, validation
from appliance.content.templates import store as templates
from appliance.content.templates.store import PreparedContent
from appliance.content.templates.validation import TemplateWrite
from appliance.core.errors import Invalid, NotAllowed, NotFound
from appliance.storage.models import Campaign, Flow, Template
from appliance.storage.transactions import require_write_transaction

# Changes over the API of a standalone template, or of the template of a campaign or flow step.

_TEST_KEY_REFUSED = "A test key cannot change a live flow."
_LIVE_FLOW = "This flow is live; only a user who may send can change its content."


def update_template(
    account_id: int, template_id: int, request: TemplateWrite, by: Actor, prepared: PreparedContent | None = None
) -> Template:
    """Update a template for an actor.

    A user is recorded as the last editor, so that they cannot approve their own change made over the API. Raises what
    `templates.update` raises, and NotAllowed if the actor may not change a live flow or scheduled campaign.
    """
    require_write_transaction()
    _require_access(account_id, template_id, by)
    row = templates.get(account_id, template_id)
    if row.action_id is None:
        return templates.update(account_id, template_id, request, by.user_id, prepared=prepared)
    previous_revision = row.revision
    # No user id is passed, because an edit by a user would remain a draft until it is published.
    template = templates.update(account_id, template_id, request, prepared=prepared)
    if by.user_id is not None and template.revision != previous_revision:
        Flow.update(edited_by=by.user_id).where(Flow.id == row.flow_id).execute()
    return template


def _require_access(account_id: int, template_id: int, by: Actor) -> None:
    """Raise NotAllowed if the template is used by a live flow or scheduled campaign that `by` may not change."""
    if by.is_test or (by.user_id is not None and not by.can_send):
        live = (Flow.account == account_id) & (Flow.status == "active") & ~Flow.hidden & Flow.deleted_at.is_null()
        live &= (Template.id == template_id) & (~Flow.test if by.is_test else True)
        if Flow.select().join(Template, on=(Template.flow == Flow.id)).where(live).exists():
            raise (
                NotAllowed(_TEST_KEY_REFUSED) if by.is_test else NotAllowed(_LIVE_FLOW, required_scope="campaigns:send")
            )
    check_template_change(account_id, template_id, by)


# Content copied into a campaign; later changes of its source do not affect the campaign.

_CONTENT_FIELDS = ("body", "design")
# Fields that are copied only if they are empty in the campaign, so that its author's text is not overwritten.
_TEXT_FIELDS = ("subject", "preheader")


def apply_template(account_id: int, campaign_id: int, source: int | str, user_id: int | None = None) -> Campaign:
    """Copy the content of a template (by its id) or a starter (by its key) into a campaign.

    An email campaign without a subject or preheader also gets that of the template or starter. Raises NotFound for an
    unknown campaign, template or starter, Invalid if the template is for the other channel or the campaign is locked,
    and NotAllowed if the campaign is scheduled and the user may not send.
    """
    require_write_transaction()
    _copy_content(store.get(account_id, campaign_id).template, source, user_id)
    # The write withdrew the approval, so the campaign is read again before it is saved.
    store.mark_changed(store.get(account_id, campaign_id))
    return store.get(account_id, campaign_id)


def apply_template_to_step(
    account_id: int, flow_id: int, step_id: int, source: int | str, user_id: int | None = None
) -> Template:
    """Copy the content of a template (by its id) or a starter (by its key) into a step of a flow, as `apply_template`.

    Raises NotFound for an unknown step, template or starter, and Invalid if the template is for the other channel.
    """
    require_write_transaction()
    template = templates.get_step_template(account_id, flow_id, step_id)
    _copy_content(template, source, user_id)
    return template


def _copy_content(template: Template, source: int | str, user_id: int | None) -> None:
    account_id = template.account_id
    name, content = _read_starter(account_id, source) if isinstance(source, str) else _read_template(account_id, source)
    values: dict[str, Any] = {key: validation.normalize_field(key, content.get(key)) for key in _CONTENT_FIELDS}
    if not isinstance(source, str) and content["channel"] != template.channel:
        raise Invalid({"template": ["is for the other channel"]})
    if template.channel == "email":
        values |= {key: content[key] for key in _TEXT_FIELDS if content.get(key) and not getattr(template, key)}
    templates.write(template, values, user_id, label=f"Content of {name}"[:200], starts_over=True)


def paste_html(account_id: int, campaign_id: int, html: str, user_id: int | None = None) -> Campaign:
    """Replace the body and design of an email campaign with HTML.

    Raises NotFound, Invalid if the campaign is SMS or locked, and NotAllowed if it is scheduled and the user may not
    send.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    if campaign.channel != "email":
        raise Invalid({"body": ["is for the other channel"]})
    values = {"body": validation.normalize_field("body", html), "design": validation.normalize_field("design", None)}
    templates.write(campaign.template, values, user_id, label="Pasted HTML", starts_over=True)
    store.mark_changed(campaign)
    return store.get(account_id, campaign_id)


def _read_template(account_id: int, template_id: int) -> tuple[str, dict[str, Any]]:
    row = templates.get(account_id, template_id)
    return row.name or templates.UNTITLED, {**revisions.to_document(row), "channel": row.channel}


def _read_starter(account_id: int, key: str) -> tuple[str, dict[str, Any]]:
    starter = starters.find_starter(brands.build_look(brands.get(account_id)), key)
    if starter is None:
        raise NotFound
    return starter.label, {
        "body": None,
        "design": starter.design,
        "subject": starter.subject,
        "preheader": starter.preheader,
    }
