"""The words of a template over the interface: of one by itself, of a campaign's, and of a step of a flow."""

from typing import Any

from appliance.accounts.acting import By
from appliance.campaigns import edit_rights, store
from appliance.content import brand as brands
from appliance.content.templates import starters
from appliance.content.templates import store as templates
from appliance.content.templates.requests import TemplateWrite
from appliance.core.errors import Invalid, NotAllowed, NotFound
from appliance.storage.models import Campaign, Flow, Template
from appliance.storage.work import writing

_TEST = "a test key changes no flow that is live for real"
_LIVE = "the flow is live: what it says is changed by those who may send"


def update(account_id: int, template_id: int, request: TemplateWrite, by: By) -> Template:
    """Change a template by whoever asks; raises as `templates.update`, and NotAllowed for what is live or armed.

    A person is noted as who wrote it last, so that nobody approves of what they wrote a moment ago with a token.
    """
    writing()
    _refuse(account_id, template_id, by)
    row = templates.get(account_id, template_id)
    if row.action_id is None:
        return templates.update(account_id, template_id, request, by.user_id)
    before = row.revision
    # As a program's: what people write in a browser waits until they publish it
    done = templates.update(account_id, template_id, request)
    if by.user_id is not None and done.revision != before:
        Flow.update(edited_by=by.user_id).where(Flow.id == row.flow_id).execute()
    return done


def _refuse(account_id: int, template_id: int, by: By) -> None:
    """Raise NotAllowed for words that people get without anybody sending them, where `by` may not send."""
    if by.test or (by.user_id is not None and not by.sends):
        live = (Flow.account == account_id) & (Flow.status == "active") & ~Flow.hidden & Flow.deleted_at.is_null()
        live &= (Template.id == template_id) & (~Flow.test if by.test else True)
        if Flow.select().join(Template, on=(Template.flow == Flow.id)).where(live).exists():
            raise NotAllowed(_TEST) if by.test else NotAllowed(_LIVE, required_scope="campaigns:send")
    edit_rights.words(account_id, template_id, by)


# A template for a campaign: it gets a copy of its own, which nobody who changes the template touches.

_CONTENT = ("body", "design")
# Written only where the campaign says nothing yet: somebody has thought about them
_WORDS = ("subject", "preheader")


def take_template(account_id: int, campaign_id: int, source: int | str, user_id: int | None = None) -> Campaign:
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


def paste_html(account_id: int, campaign_id: int, html: str, user_id: int | None = None) -> Campaign:
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
