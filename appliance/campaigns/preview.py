"""The preview of a campaign for one recipient, rendered by the functions that render sent messages."""

from typing import Any

from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, preflight, store
from appliance.content import brand as brands
from appliance.content.designs import markup
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates.revisions import to_document
from appliance.sending.messages import compose, merge_tags, preview, senders
from appliance.storage.models import Account, Campaign, Contact


def render_preview(account_id: int, campaign_id: int, contact_id: int | None = None) -> dict[str, Any]:
    """Render a campaign for a contact, by default the first recipient, or a sample person if there is none.

    Unsubscribe, preferences and view links are `#`. Keys: `subject`, `preview_text`, `html`, `text`, `contact` (None
    for the sample person), `sms` (parts and alphabet) and `lengths` (of an email's fields). `from_name` and
    `from_email` are missing if the template does not render; then `error` says why. Raises NotFound.
    """
    campaign = store.get(account_id, campaign_id)
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
        return preview | _render_sms(campaign, account, merge_values)
    document = to_document(campaign.template)
    try:
        content = compose.compile_message(
            compose.build_source(document, brands.build_look(brand), account.locale, marketing=True)
        )
        show_values = merge_tags.get_show_values(account_id, contact.id if contact else None, content.conditions)
        filled = compose.fill(content, merge_values | show_values)
        lengths = compose.measure_lengths(document, merge_values | show_values)
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


def _render_sms(campaign: Campaign, account: Account, merge_values: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a preview that differ for SMS; `sms` has the parts and the characters that force UCS-2."""
    body = campaign.template.body
    try:
        text = preview.fill_sms_preview(account.id, body, merge_values, True, campaign.tracking, campaign.name)
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
