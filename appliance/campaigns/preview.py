"""A campaign's message as one person would get it, by the same functions that send it."""

from typing import Any

from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, preflight, store
from appliance.content import brand as brands
from appliance.content.designs import plaintext
from appliance.content.designs.merge import MergeError
from appliance.content.templates.store import document
from appliance.sending.messages import compose, sample_render, sms_senders, texts, values
from appliance.storage.models import Account, Campaign, Contact


def render(account_id: int, campaign_id: int, contact_id: int | None = None) -> dict[str, Any]:
    """Render a campaign for a contact, else for the first of its audience, else for somebody invented.

    Its links lead nowhere. Faults of the template are answered as `error`, not raised; raises NotFound.
    """
    campaign = store.get(account_id, campaign_id)
    account = Account.get_by_id(account_id)
    contact = _person(campaign, contact_id)
    brand = brands.get(account_id)
    filled_in = {
        **values.of_contact(contact, None if contact else "anna@example.org"),
        **values.of_account(account, brand),
        "campaign": {"name": campaign.name}, "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#",
    }  # fmt: skip
    if contact is None:
        filled_in |= {"first_name": "Anna", "last_name": "Example"}
        filled_in["contact"] |= {"first_name": "Anna", "last_name": "Example"}
    answer: dict[str, Any] = {
        "subject": "", "preview_text": "", "html": "", "text": "", "sms": None, "error": None, "contact": contact,
        "lengths": None,
    }  # fmt: skip
    if campaign.channel == "sms":
        return answer | _text(campaign, account, filled_in)
    said = document(campaign.template)
    try:
        content = compose.compile_source(compose.source_of(said, brands.look(brand), account.locale, marketing=True))
        shown = values.shown(account_id, contact.id if contact else None, content.conditions)
        filled = compose.fill(content, filled_in | shown)
        lengths = compose.lengths(said, filled_in | shown)
    except MergeError as error:
        return answer | {"error": error.words()}
    # A draft without content has its footer, which is not what an inbox would show
    line = plaintext.inbox_line(filled.html) if preflight.is_written(said) else ""
    return answer | {
        "subject": filled.subject, "preview_text": line, "html": filled.html, "text": filled.text, "lengths": lengths,
        "from_name": filled.from_name or account.email_from_name or account.name,
        "from_email": preflight.sender_of(campaign, account)["email"],
    }  # fmt: skip


def _text(campaign: Campaign, account: Account, filled_in: dict[str, Any]) -> dict[str, Any]:
    """Fill a campaign's SMS, with what it takes: parts, alphabet, and what forces that."""
    body = campaign.template.body
    try:
        worded = sample_render.text(account.id, body, filled_in, True, campaign.tracking, campaign.name)
    except MergeError as error:
        return {"error": error.words()}
    return {
        "text": worded.body, "sms": texts.shown(worded), "from_name": None,
        "html": texts.page(worded.body),
        "from_email": sms_senders.resolve(account, filled_in["contact"].get("phone") or ""),
    }  # fmt: skip


def _person(campaign: Campaign, contact_id: int | None) -> Contact | None:
    if contact_id is not None:
        return contacts.get(campaign.account_id, contact_id)
    if not audience.is_set(campaign):
        return None
    found = audience.first_person(campaign)
    return next(iter(contacts.by_ids([found])), None) if found is not None else None
