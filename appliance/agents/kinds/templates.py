"""The proposal to change a template that is in use."""

from typing import Any

import msgspec
from msgspec import UNSET

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.agents.differences import Difference, compare, flatten_content, flatten_translations
from appliance.agents.kinds import base
from appliance.agents.kinds.base import EmailChange, ProposalKind, Reach, References
from appliance.audience.segments.references import find_design_references
from appliance.campaigns import content
from appliance.content.templates import store, validation
from appliance.content.templates.revisions import to_document
from appliance.content.templates.validation import Content
from appliance.core.errors import Invalid
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.models import Campaign, Flow, Template


def describe_version(template: Template) -> str:
    """Return the version of a template and of the campaign or flow that it belongs to."""
    owner = _find_owner(template)
    state = [owner.status, owner.updated_at] if owner is not None else []
    return base.hash_version([template.revision, template.name, *state])


def _find_owner(template: Template) -> Campaign | Flow | None:
    """Return the campaign or flow that a template belongs to, or None for a stand-alone one."""
    flow = Flow.get_or_none(Flow.id == template.flow_id) if template.flow_id is not None else None
    campaign = Campaign.get_or_none(Campaign.flow == template.flow_id) if flow is not None and flow.hidden else None
    owner: Campaign | Flow | None = campaign if campaign is not None else flow
    return owner


def check(account_id: int, template_id: int, changes: Content) -> None:
    """Raise Invalid with all faults of the content, or if nothing would change."""
    if all(value is UNSET for value in msgspec.structs.astuple(changes)):
        raise Invalid({"changes": [gettext("can't be blank")]})
    try:
        store.validate(account_id, _to_write(changes), template_id)
    except Invalid as error:
        raise Invalid({f"changes.{name}": messages for name, messages in error.fields.items()}) from None


def _to_write(changes: Content) -> validation.TemplateWrite:
    return validation.TemplateWrite(**{name: getattr(changes, name) for name in Content.__struct_fields__})


def prepare(account_id: int, template_id: int, changes: Content) -> Any:
    """Return the content as `store.prepare` parsed it, for `carry_out`."""
    return store.prepare(account_id, _to_write(changes), template_id)


def carry_out(account_id: int, template_id: int, changes: Content, by: Actor, prepared: Any) -> None:
    """Change the template as a user does; raises what `content.update_template` raises."""
    args = (account_id, template_id, _to_write(changes), by, prepared)
    audit.run_and_record(by, "template_update", content.update_template, *args)


def compare_template(account_id: int, template_id: int, changes: Content) -> list[Difference]:
    """Return every value of the content that differs, and the campaign or flow that sends it.

    A translation is that of a section by its id, so a new design may lose some, or move them to other sections.
    """
    template = store.get(account_id, template_id)
    now = to_document(template)
    given = store.normalize_content(template, _to_write(changes))
    after = {**now, **given}
    after["translations"] = store.prune_translations(after, now, template.channel)
    differences = compare(
        flatten_content({name: now.get(name) for name in given}).merge(flatten_translations(now, template.channel)),
        flatten_content({**given}).merge(flatten_translations(after, template.channel)),
    )
    owner = _find_owner(template)
    uses = [show_hidden(owner.name)] if owner is not None and owner.name else []
    return [*differences, *(Difference(gettext("In use by"), name, name) for name in uses)]


def measure(account_id: int, template_id: int, changes: Content) -> Reach:
    """Return an empty Reach: the campaign or flow that uses the template decides whom it reaches."""
    return Reach()


def list_emails(account_id: int, template_id: int, changes: Content) -> list[EmailChange]:
    """Return the email before and after the change; nothing for an SMS."""
    template = store.get(account_id, template_id)
    if template.channel != "email":
        return []
    now = to_document(template)
    return [EmailChange("", now, {**now, **store.normalize_content(template, _to_write(changes))})]


def find_references(account_id: int, template_id: int, changes: Content) -> References:
    """Return the segments and lists that decide who sees the sections of the changed design."""
    given = store.normalize_content(store.get(account_id, template_id), _to_write(changes))
    return {*find_design_references(account_id, given.get("design"))}


CHANGE_TEMPLATE = ProposalKind(
    "change_template",
    gettext_noop("Change template"),
    "template",
    ("templates:read",),
    (),
    Content,
    store.get,
    describe_version,
    check,
    prepare,
    carry_out,
    compare_template,
    measure,
    list_emails,
    find_references,
    "/templates/{}/edit",
)
