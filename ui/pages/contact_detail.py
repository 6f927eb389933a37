"""The page of one contact: consent, lists, data, events, messages, SMS conversation, and merging."""

import secrets
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.audience import time_zones
from appliance.audience.contacts import removal, store, timeline, write
from appliance.content.designs.merge_limits import MergeError
from appliance.core import errors, validation
from appliance.core.domain_typos import suggest_address
from appliance.core.i18n import gettext, gettext_noop, pgettext
from appliance.events import log
from appliance.imports import store as imports
from appliance.inbound import sms_conversations
from appliance.inbound.sms_conversations import ConversationLine, OptOutReview
from appliance.sending.messages import ledger, links
from appliance.sending.messages.compose import SmsPreview
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage.models import Channel, Contact
from appliance.storage.transactions import commit, fetch, render, render_for
from appliance.tracking import unsubscribes
from ui import formats, view
from ui.forms import Form, list_params, lookups, parse_id, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import local_times

pages = Pages("ui_contact_detail", url_prefix="/contacts")


LINES_PER_PAGE = 30


class Conversation(NamedTuple):
    """A page of the SMS conversation with a contact, oldest line first.

    `number` is the phone channel of the contact or None, and `older_page` the number of the page with older lines or
    None. `sms` is the size of the reply in the form as SMS.
    """

    contact: Contact
    number: Channel | None
    lines: list[ConversationLine]
    total: int
    older_page: int | None
    form: Form
    sms: SmsPreview

    @staticmethod
    def is_outgoing(line: ConversationLine) -> bool:
        """Return whether a line is a message that the service sent."""
        return line.message is not None

    @staticmethod
    def line_text(line: ConversationLine) -> str:
        """Return the text of a line, or a note that the text is no longer stored."""
        return line.body or gettext("The text of this message is no longer stored.")

    @staticmethod
    def find_unseen_refusal(line: ConversationLine) -> Any:
        """Return the incoming message of a line if it is a possible opt-out that is not reviewed yet, else None."""
        incoming = line.incoming
        return incoming if incoming is not None and incoming.kind == "refusal" and incoming.seen_at is None else None


def load_conversation(visit: Visit, contact: Contact, page: int = 1, form: Form | None = None) -> Conversation | None:
    """Return a page of the conversation with a contact, or None if there is neither a phone number nor a message."""
    account_id = visit.account_id
    rows = sms_conversations.list_conversation(account_id, contact.id, page, LINES_PER_PAGE)
    lines = rows.rows if visit.can("contacts:write") else sms_conversations.hide_links(rows.rows)
    number = sms_conversations.find_phone_channel(contact)
    if number is None and not rows.total:
        return None
    # The random token in the form makes sending the reply idempotent.
    form = form or Form({"once": secrets.token_hex(8)})
    older = page + 1 if page < rows.pages else None
    sms = sms_conversations.measure_text(account_id, form["text"])
    return Conversation(contact, number, list(reversed(lines)), rows.total, older, form, sms)


_SEND_ERRORS = {
    "recipient_suppressed": gettext_noop("This contact is suppressed. Nothing was sent."),
    "transactional_disabled": gettext_noop("Transactional messages are turned off in this account. Nothing was sent."),
}


@pages.get("/<contact_id:int>/conversation")
@signed_in(access.FULL_SCOPE)
async def show_conversation(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show a page of the SMS conversation with a contact."""
    return await _render_conversation(request, visit, contact_id, None, 200)


@pages.post("/<contact_id:int>/conversation")
@signed_in("messages:send")
@ignore_double_submit
async def send_reply(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Send an SMS reply; if the reply is rejected, the form keeps the text."""
    form = Form.from_request(request)
    form.require("text", gettext("Enter a message."))
    try:
        if not form.errors:
            once = form["once"][:32] or None
            await commit(sms_conversations.send_reply, visit.account_id, contact_id, form["text"], once)
    except errors.Invalid as error:
        text = _SEND_ERRORS.get(error.reason or "")
        if text:
            form.add_error("text", gettext(text))
        else:
            form.add_errors(error, {"base": "text"})
    if form.errors:
        return await _render_conversation(request, visit, contact_id, form, 422)
    if view.is_partial(request):
        return await _render_conversation(request, visit, contact_id, None, 200)
    view.flash(request, gettext("Your message is being sent."))
    return view.redirect(request, _conversation_url(request, contact_id))


@pages.post("/<contact_id:int>/conversation/parts")
@signed_in("contacts:write")
async def count_parts(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show how many SMS parts the text in the form takes."""
    await fetch(store.get, visit.account_id, contact_id)
    sms = await fetch(sms_conversations.measure_text, visit.account_id, Form.from_request(request)["text"])
    return view.render_fragment(request, "contacts/parts.html", sms=sms)


@pages.post("/<contact_id:int>/conversation/seen")
@signed_in("contacts:write")
async def mark_seen(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Mark an incoming SMS as reviewed, and opt the contact out if the user decided that it was an opt-out.

    Raises NotFound if the SMS is from another contact.
    """
    form = Form.from_request(request)
    await fetch(store.get, visit.account_id, contact_id)
    is_opt_out = form["opt_out"] == "yes"
    incoming = parse_id(form["incoming"])
    message = await fetch(sms_conversations.get_incoming, visit.account_id, incoming)
    if message.contact_id not in (None, contact_id):
        raise errors.NotFound
    await commit(sms_conversations.mark_seen, visit.account_id, incoming, OptOutReview(is_opt_out), visit.actor_id)
    if view.is_partial(request):
        return await _render_conversation(request, visit, contact_id, None, 200)
    view.flash(
        request,
        gettext("Unsubscribed from SMS.") if is_opt_out else gettext("Reviewed. The subscription is unchanged."),
    )
    return view.redirect(request, _conversation_url(request, contact_id))


def _conversation_url(request: Request, contact_id: int) -> str:
    is_conversation_page = Form.from_request(request)["from"] == "conversation"
    return f"/contacts/{contact_id}/conversation" if is_conversation_page else f"/contacts/{contact_id}#conversation"


async def _render_conversation(
    request: Request, visit: Visit, contact_id: int, form: Form | None, status: int
) -> HTTPResponse:
    page = parse_int(request.args.get("page"))

    def read() -> tuple[Any, Conversation | None]:
        contact = store.get(visit.account_id, contact_id)
        return contact, load_conversation(visit, contact, page, form)

    contact, conversation = await render_for(visit.account_id, read)
    return view.render(
        request,
        "contacts/conversation.html",
        status,
        contact=contact,
        conversation=conversation,
        name=formats.contact_name(contact),
    )


_EVENTS_PER_PAGE, _MAX_MESSAGES, _MAX_CONSENTS = 40, 8, 100
# The groups by which the events of a contact can be filtered.
_EVENT_GROUPS = (
    ("messages", gettext_noop("Messages")), ("consent", gettext_noop("Consent")),
    ("person", gettext_noop("Lists and data")), ("flows", gettext_noop("Flows")),
    ("own", gettext_noop("Custom events")),
)  # fmt: skip


# Labels of messages that belong neither to a campaign nor to a flow.
_SOURCE_LABELS = {
    "transactional": gettext_noop("Transactional message"), "test": gettext_noop("Test message"),
    "system": gettext_noop("System message"),
}  # fmt: skip


def _source_label(source_type: str) -> str:
    return gettext(_SOURCE_LABELS[source_type]) if source_type in _SOURCE_LABELS else source_type.capitalize()


@pages.get("/<contact_id:int>")
@signed_in("contacts:read")
async def show_contact(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show a contact: addresses with consent, lists, data, events and messages."""
    kind = request.args.get("kind") or ""
    kind = kind if kind in dict(_EVENT_GROUPS) else ""
    row = await render_for(
        visit.account_id, _load_contact, visit, contact_id, kind, parse_int(request.args.get("page"))
    )
    return view.render(
        request, "contacts/show.html", kind=kind, **row,
        kinds=[("", pgettext("activity", "All")), *((key, gettext(label)) for key, label in _EVENT_GROUPS)],
        may_write=visit.can("contacts:write"), source_label=_source_label,
    )  # fmt: skip


def _load_contact(visit: Visit, contact_id: int, kind: str, page: int) -> dict[str, Any]:
    account_id = visit.account_id
    contact = store.get(account_id, contact_id)
    evidence = list(timeline.fetch_evidence(account_id, contact_id, limit=_MAX_CONSENTS).rows)
    events = timeline.fetch_events(account_id, contact_id, kind, page, _EVENTS_PER_PAGE)
    subjects = lookups.email_subjects(events.rows)
    for event in events.rows:
        event.subject = subjects.get(event.resource_uid, "")
    local_zone = time_zones.find_zones(account_id, [contact_id])[contact_id]
    return {
        "contact": contact,
        "local_zone": local_zone,
        "zone_source": local_times.describe_source(local_zone.source),
        "events": events,
        "lists": lookups.list_contact_lists(account_id),
        "wants_erasure": unsubscribes.has_open_request(account_id, contact_id),
        "evidence": {
            channel.value: [row for row in evidence if row.address == channel.value] for channel in contact.channels
        },
        "suggestions": {
            channel.value: suggest_address(channel.value) for channel in contact.channels if channel.kind == "email"
        },
        "actors": timeline.fetch_actor_names(account_id, evidence),
        "messages": ledger.list_messages(account_id, ledger.MessageQuery(contact_id=contact_id, limit=_MAX_MESSAGES)),
        "flows": timeline.fetch_live_runs(account_id, contact_id),
        "alike": timeline.find_similar_contacts(account_id, contact_id),
        "tags": write.tags_of(contact.data),
        "headings": imports.list_data_labels(account_id),
        "conversation": load_conversation(visit, contact),
    }


@pages.post("/<contact_id:int>/consent")
@signed_in("contacts:write")
async def change_consent(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Subscribe or unsubscribe one address of a contact; the request is recorded as evidence."""
    form = Form.from_request(request)
    is_subscribed = form["subscribed"] == "yes"
    raw = {"channels_attributes": [{"id": parse_id(form["channel"]), "subscribed": is_subscribed}]}
    body = validation.read(store.ContactPatch, raw)
    update = await commit(write.update, visit.account_id, contact_id, body, visit.evidence())
    if is_subscribed and update.kept_opt_out:
        view.flash(request, gettext("This contact unsubscribed, and stays unsubscribed until they subscribe again."))
    else:
        view.flash(
            request, gettext("Subscribed.") if is_subscribed else gettext("Unsubscribed. Campaigns skip this address.")
        )
    return view.redirect(request, f"/contacts/{contact_id}")


@pages.get("/<contact_id:int>/messages/<message_id:int>")
@signed_in(access.FULL_SCOPE)
async def show_message(request: Request, visit: Visit, contact_id: int, message_id: int) -> HTTPResponse:
    """Show a message to a contact, and the events of the message."""
    context = await render(_load_message, visit.account_id, contact_id, message_id)
    if context["filled"] is not None and not visit.can("contacts:write"):
        text = links.hide_recipient_links(context["filled"].text or "")
        context["filled"] = context["filled"]._replace(text=text)
    return view.render(request, "contacts/message.html", source_label=_source_label, **context)


@pages.get("/<contact_id:int>/messages/<message_id:int>/html")
@signed_in(access.FULL_SCOPE)
async def show_message_html(request: Request, visit: Visit, contact_id: int, message_id: int) -> HTTPResponse:
    """Show the HTML of a message, as a document for the frame of its page."""
    context = await render(_load_message, visit.account_id, contact_id, message_id)
    if context["filled"] is None:
        return view.render_email_error(
            gettext("it could not be rendered for this contact, or its content is no longer stored")
        )
    html = context["filled"].html or view.sms_html(context["filled"].text or "")
    return view.render_email(html if visit.can("contacts:write") else links.hide_recipient_links(html))


def _load_message(account_id: int, contact_id: int, message_id: int) -> dict[str, Any]:
    contact = store.get(account_id, contact_id)
    row = ledger.get(account_id, message_id)
    if row.contact_id != contact.id:
        raise errors.NotFound
    try:
        filled = MessagePreparer().fill_again(row)
    except MergeError:
        filled = None
    query = log.EventQuery(limit=100, resource_uid=f"message:{row.id}")
    return {"contact": contact, "row": row, "filled": filled, "events": log.list_events(account_id, query).rows}


# Merging two contacts.

_MAX_CANDIDATES = 20


@pages.get("/<contact_id:int>/merge")
@signed_in("contacts:write")
async def review_merge(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Show contacts to merge this contact with, or, with a contact chosen, both contacts and the result."""
    return await _render_merge(request, visit, contact_id, parse_id(request.args.get("with")), Form(), 200)


@pages.post("/<contact_id:int>/merge")
@signed_in("contacts:write")
async def merge_contacts(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Merge two contacts. Where both have a name or a data field, the value of the kept contact wins."""
    form = Form.from_request(request)
    other_id = parse_id(form["with"])
    stored, deleted = (other_id, contact_id) if form["keep"] == "other" else (contact_id, other_id)
    try:
        await fetch(store.get, visit.account_id, contact_id)
        args = (removal.merge, visit.account_id, stored, deleted, visit.evidence())
        details = {"merged_contact_id": deleted}
        contact = await commit(audit.run_and_record, visit.actor, "contact_merge", *args, data=details)
    except errors.Invalid:
        form.add_error("base", gettext("That contact no longer exists. Select another."))
        return await _render_merge(request, visit, contact_id, 0, form, 422)
    view.flash(request, gettext("Contacts merged into “%(name)s”.", name=formats.contact_name(contact)))
    return view.redirect(request, f"/contacts/{contact.id}")


async def _render_merge(
    request: Request, visit: Visit, contact_id: int, other_id: int, form: Form, status: int
) -> HTTPResponse:
    raw, search = list_params(request, _MAX_CANDIDATES)
    context = await fetch(_load_merge, visit.account_id, contact_id, other_id, raw)
    return view.render(request, "contacts/merge.html", status, form=form, search=search, **context)


def _load_merge(account_id: int, contact_id: int, other_id: int, raw: dict[str, Any]) -> dict[str, Any]:
    contact = store.get(account_id, contact_id)
    other_contact = next(iter(store.fetch_by_ids([other_id])), None) if other_id and other_id != contact_id else None
    return {
        "contact": contact,
        "other": other_contact if other_contact and other_contact.account_id == account_id else None,
        "alike": timeline.find_similar_contacts(account_id, contact_id),
        "matches": store.fetch_page(account_id, validation.read(store.ContactQuery, raw))
        if raw.get("search")
        else None,
        "lists": {row.id: row.name for row in lookups.list_contact_lists(account_id)},
    }
