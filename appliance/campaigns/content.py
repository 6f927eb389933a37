"""The content of campaigns and flow steps: changes of templates (docs/decisions.md#2), and the preview of a campaign.

Content changes over the API, from another template, and from pasted HTML.

A user who may not send, such as an author, can neither change, reschedule nor stop a scheduled campaign. An API key
without `campaigns:send` can change the content of a scheduled campaign but not reschedule it. A test key can change
only scheduled campaigns that test keys sent. What a test flow or test campaign sends can be changed only with
`contacts:read` (T45 in docs/threats.md).
"""

from collections.abc import Callable, Container
from typing import Any

from appliance.accounts import agents
from appliance.accounts.audit import Actor
from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, preflight, store, variants
from appliance.campaigns.states import check_template_change
from appliance.content import brand as brands
from appliance.content.designs import links, markup
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import agent_drafts, revisions, starters, template_edits, translations, validation
from appliance.content.templates import store as templates
from appliance.content.templates.revisions import to_document
from appliance.content.templates.store import PreparedContent
from appliance.content.templates.template_edits import Texts
from appliance.content.templates.validation import TemplateWrite
from appliance.core.errors import Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext, gettext_noop, gettext_stored
from appliance.flows.store import TEST_FLOW_REFUSED, is_new_draft
from appliance.sending.messages import compose, languages, merge_tags, preview, section_conditions, senders, utm_links
from appliance.storage.models import Account, Campaign, Contact, Flow, Template
from appliance.storage.transactions import require_write_transaction

# Changes over the API of a standalone template, or of the template of a campaign or flow step.

_TEST_KEY_REFUSED = gettext_noop("A test key cannot change a live flow.")
_CONTENT_OF = gettext_stored("Content of %(name)s", revisions.HISTORY)
_PASTED = gettext_stored("Pasted HTML", revisions.HISTORY)
_LIVE_FLOW = gettext_noop("This flow is live; only a user who may send can change its content.")


def update_template(
    account_id: int, template_id: int, request: TemplateWrite, by: Actor, prepared: PreparedContent | None = None
) -> Template:
    """Update a template for an actor.

    The user, or the user who created the API key, is recorded as the last editor, so that they cannot approve their own
    change made over the API. Raises what `templates.update` raises, and NotAllowed if the actor may not change a live
    flow or scheduled campaign.
    """

    def write(user_id: int | None) -> Template:
        return templates.update(account_id, template_id, request, user_id, prepared=prepared)

    return _edit(account_id, template_id, by, write)


def set_translation(
    account_id: int, template_id: int, language: str, texts: Texts, by: Actor, prepared: PreparedContent | None = None,
    read_at: int | None = None,
) -> Template:  # fmt: skip
    """Set texts of a translation for an actor, as `update_template`.

    Raises what `template_edits.set_texts` raises, with the errors at `texts.` and the text id.
    """

    def write(user_id: int | None) -> Template:
        return template_edits.set_texts(
            account_id, template_id, language, texts, user_id, prefix="texts.", prepared=prepared, read_at=read_at
        )

    return _edit(account_id, template_id, by, write)


def remove_translation(
    account_id: int, template_id: int, language: str, by: Actor, prepared: PreparedContent | None = None
) -> Template:
    """Remove a language from a template for an actor; raises as `update_template` and `template_edits.remove`."""

    def write(user_id: int | None) -> Template:
        return template_edits.remove(account_id, template_id, language, user_id, prepared=prepared)

    return _edit(account_id, template_id, by, write)


def _edit(account_id: int, template_id: int, by: Actor, write: Callable[[int | None], Template]) -> Template:
    """Change a template by `write`, and record who edited its campaign or flow.

    `write` gets the id of the user to record.
    """
    require_write_transaction()
    _require_access(account_id, template_id, by)
    row = templates.get(account_id, template_id)
    previous_revision = row.revision
    # For a step, no user id is passed, because an edit by a user would remain a draft until it is published.
    template = write(by.user_id if row.action_id is None else None)
    if template.agent != by.is_agent and (not by.is_agent or template.revision != previous_revision):
        agent_drafts.mark(template, by.is_agent)
    if by.person_id is not None and template.revision != previous_revision:
        if row.action_id is not None:
            Flow.update(edited_by=by.person_id).where(Flow.id == row.flow_id).execute()
        Campaign.update(edited_by=by.person_id).where(Campaign.flow == row.flow_id).execute()
    return template


def create_template(
    account_id: int, request: TemplateWrite, by: Actor, prepared: PreparedContent | None = None
) -> Template:
    """Create a standalone template for an actor, and store whether it is an agent; raises as `templates.create`."""
    template = templates.create(account_id, request, prepared=prepared)
    if by.is_agent:
        agent_drafts.mark(template, True)
    return template


def _require_access(account_id: int, template_id: int, by: Actor) -> None:
    """Raise NotAllowed if the template is used by a live flow or scheduled campaign that `by` may not change.

    An agent changes only the templates of drafts, and standalone templates that an agent created and nothing has sent.
    """
    if by.is_agent:
        _require_agent_access(account_id, template_id, by)
    live = (Flow.account == account_id) & (Flow.status == "active") & ~Flow.hidden & Flow.deleted_at.is_null()
    live &= Template.id == template_id
    flow = Flow.select().join(Template, on=(Template.flow == Flow.id)).where(live).first()
    if flow is not None:
        if by.is_test and not flow.test:
            raise NotAllowed(gettext(_TEST_KEY_REFUSED))
        if not by.is_test and not by.can_change_live:
            raise NotAllowed(gettext(_LIVE_FLOW), required_scope="campaigns:send")
        if flow.test and not by.can_read_contacts:
            raise NotAllowed(gettext(TEST_FLOW_REFUSED), required_scope="contacts:read")
    check_template_change(account_id, template_id, by)


def _require_agent_access(account_id: int, template_id: int, by: Actor) -> None:
    row = templates.get(account_id, template_id)
    # A program may send single messages with any other template, by its id.
    if agent_drafts.was_sent(template_id) or (row.flow_id is None and not row.agent):
        raise agents.refuse_change()
    flow = Flow.get_or_none(Flow.id == row.flow_id, ~Flow.hidden) if row.flow_id is not None else None
    if flow is not None:
        agents.require_draft(flow, by, is_new_draft(flow) and flow.deleted_at is None)


# Content copied into a campaign; later changes of its source do not affect the campaign.

_CONTENT_FIELDS = ("body", "design")
# Fields that are copied only if they are empty in the campaign, so that its author's text is not overwritten.
_TEXT_FIELDS = ("subject", "preheader")


def apply_template(account_id: int, campaign_id: int, source: int | str, user_id: int | None = None) -> Campaign:
    """Copy the content of a template (by its id) or a starter (by its key) into a campaign.

    An email campaign without a subject or preheader also gets the template's or starter's. Raises NotFound for an
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
        raise Invalid({"template": [gettext("is for the other channel")]})
    if template.channel == "email":
        values |= {key: content[key] for key in _TEXT_FIELDS if content.get(key) and not getattr(template, key)}
    values["translations"] = _copy_translations(template, content, values)
    templates.write(template, values, user_id, label=(_CONTENT_OF % {"name": name})[:200], starts_over=True)


def _copy_translations(template: Template, content: dict[str, Any], copied: Container[str]) -> dict[str, Any]:
    """Return the translations of copied content and of the fields that the template keeps."""

    def is_kept(text_id: str) -> bool:
        return "/" not in text_id and text_id not in copied

    source: dict[str, Any] = content.get("translations") or {}
    return {
        language: {
            **{name: text for name, text in (template.translations.get(language) or {}).items() if is_kept(name)},
            **{name: text for name, text in (source.get(language) or {}).items() if not is_kept(name)},
        }
        for language in (*source, *(tag for tag in template.translations if tag not in source))
    }


def paste_html(account_id: int, campaign_id: int, html: str, user_id: int | None = None) -> Campaign:
    """Replace the body and design of an email campaign with HTML.

    Raises NotFound, Invalid if the campaign is SMS or locked, and NotAllowed if it is scheduled and the user may not
    send.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    if campaign.channel != "email":
        raise Invalid({"body": [gettext("is for the other channel")]})
    values = {"body": validation.normalize_field("body", html), "design": validation.normalize_field("design", None)}
    templates.write(campaign.template, values, user_id, label=_PASTED, starts_over=True)
    # The write withdrew the approval, so the campaign is read again before it is saved.
    store.mark_changed(store.get(account_id, campaign_id))
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
        **starter.email._asdict(),
    }


# The preview for one recipient is rendered by the functions that render sent messages.


def render_preview(
    account_id: int, campaign_id: int, contact_id: int | None = None, language: str | None = None, variant: int = 1
) -> dict[str, Any]:
    """Render a campaign for a contact, by default the first recipient, or a sample person if there is none.

    The text is in the contact's language, or in `language` if that is given. `variant` is the number of a variant of
    an A/B test. Unsubscribe, preferences and view links
    are `#`. Raises NotFound. Keys: `subject`, `preview_text`, `html`, `text`, `contact` (None for the sample person),
    `sms` (`compose.describe_sms`, None for an email), `lengths` (of an email's fields), and `error` (why the template
    does not render, or None). If there is no error, the keys `from_name` (None for SMS) and `from_email` (an SMS's
    sender) are added.
    """
    campaign = store.get(account_id, campaign_id)
    snapshot = campaign.pinned.get("utm") if campaign.pinned else utm_links.build_campaign_utm(campaign)
    if variant > 1:
        if campaign.setup is None:
            raise NotFound
        campaign = variants.build_view(campaign, variants.get_variant(campaign.setup, variant))
    tagger = utm_links.build_tagger(snapshot, variant)
    account = Account.get_by_id(account_id)
    contact = contacts.get(account_id, contact_id) if contact_id is not None else find_sample_contact(campaign)
    brand = brands.get(account_id)
    merge_values = {
        **merge_tags.get_contact_values(contact, None if contact else "anna@example.org"),
        **merge_tags.get_account_values(account, brand),
        "campaign": {"name": campaign.name}, "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#",
    }  # fmt: skip
    if contact is None:
        merge_values |= {"first_name": "Anna", "last_name": "Example"}
        merge_values["contact"] |= {"first_name": "Anna", "last_name": "Example"}
    preview: dict[str, Any] = {
        "subject": "", "preview_text": "", "html": "", "text": "", "sms": None, "error": None, "contact": contact,
        "lengths": None,
    }  # fmt: skip
    if campaign.channel == "sms":
        return preview | _render_sms(campaign, account, merge_values, contact, language)
    document = to_document(campaign.template)
    choice = languages.choose_for_preview(
        document, contact.language if contact is not None else None, account.locale, language
    )
    try:
        source = languages.build_source(document, brands.build_look(brand), account.locale, choice)
        content = compose.tag_links(compose.compile_message(source), tagger)
        show_values = section_conditions.get_show_values(
            account_id, contact.id if contact else None, content.conditions
        )
        filled = compose.fill(content, merge_values | show_values)
        translated = translations.translate_document(document, choice.translation)
        lengths = compose.measure_lengths(translated, merge_values | show_values)
    except MergeError as error:
        return preview | {"error": error.describe()}
    # A draft without content still has a footer, which must not appear as the preview text.
    preview_text = markup.extract_preview_text(filled.html) if preflight.has_content(document) else ""
    return preview | {
        "subject": filled.subject, "preview_text": preview_text, "html": filled.html, "text": filled.text,
        "lengths": lengths,
        "from_name": filled.from_name or account.email_from_name or account.name,
        "from_email": preflight.get_sender(campaign, account)["email"],
    }  # fmt: skip


def _render_sms(
    campaign: Campaign, account: Account, merge_values: dict[str, Any], contact: Contact | None, language: str | None
) -> dict[str, Any]:
    """Return the keys of a preview that differ for SMS; `sms` has the parts and the characters that force UCS-2.

    If a merge tag cannot be filled in, `error` is the only key.
    """
    document = to_document(campaign.template)
    body = preview.translate_for_preview(account.id, document, contact, language, "sms")["body"]
    try:
        text = preview.fill_sms_preview(
            account.id, body, merge_values, True, campaign.tracking, campaign.name,
            language or (contact.language if contact is not None else None),
        )  # fmt: skip
    except MergeError as error:
        return {"error": error.describe()}
    return {
        "text": text.body, "sms": compose.describe_sms(text), "from_name": None,
        "html": compose.render_sms_page(text.body),
        "from_email": senders.resolve_sms(account, merge_values["contact"].get("phone") or ""),
    }  # fmt: skip


def find_sample_contact(campaign: Campaign) -> Contact | None:
    """Return the first recipient, whose values previews show, or None if there are no recipients yet."""
    if not audience.is_set(campaign):
        return None
    first_id = audience.find_first_recipient(campaign)
    return next(iter(contacts.fetch_by_ids([first_id])), None) if first_id is not None else None


def list_bare_links(campaign: Campaign) -> list[str]:
    """Return the addresses without `https://` in a tracked SMS, each once, whose clicks are not tracked."""
    if campaign.channel != "sms" or not campaign.tracking:
        return []
    return list(dict.fromkeys(place.address for place in links.find_bare_links(campaign.template.body or "")))
