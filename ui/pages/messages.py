"""The outbox with its messages, and the test inbox of captured messages, where events can be simulated."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit, public_urls
from appliance.audience.contacts import store as contacts
from appliance.campaigns import store as campaigns
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.events import log
from appliance.events.log import EventQuery
from appliance.inbound import simulation
from appliance.inbound.simulation import SimulateEventRequest
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import (
    attachments,
    capture_inbox,
    delivery_status,
    ledger,
    links,
    message_source,
    retries,
)
from appliance.sending.sms import segments
from appliance.storage.transactions import commit, fetch, render
from ui import formats, view
from ui.forms import Form, lookups, parse_id, parse_int
from ui.guard import signed_in
from ui.pages import activity
from ui.session import Pages, Visit
from ui.transport_labels import get_provider_label

pages = Pages("ui_messages")

# The label of each state, its explanation, and the text shown if no message is in it.
OUTBOX_STATES = {
    "waiting": (
        pgettext_noop("messages", "Queued"), gettext_noop("Not sent yet, in sending order."),
        gettext_noop("No queued messages"),
    ),
    "retrying": (
        pgettext_noop("messages", "Retrying"), gettext_noop("Temporarily rejected; retried automatically."),
        gettext_noop("No messages are being retried"),
    ),
    "sending": (
        pgettext_noop("messages", "Sending"), gettext_noop("Being sent right now."),
        gettext_noop("No messages are being sent"),
    ),
    "failed": (
        pgettext_noop("messages", "Failed"), gettext_noop("Rejected by the mail server or SMS provider."),
        gettext_noop("No failed messages"),
    ),
    "uncertain": (
        pgettext_noop("messages", "Unconfirmed"),
        gettext_noop("The connection closed before the messages were confirmed, so they may have been delivered."),
        gettext_noop("No unconfirmed messages"),
    ),
}  # fmt: skip
_RETRY_CHUNK = 200
# The source of a message is cut to this size when it is shown.
_MAX_SOURCE_BYTES = 300_000


@pages.get("/outbox", strict_slashes=False)
@signed_in("messages:read")
async def show_outbox(request: Request, visit: Visit) -> HTTPResponse:
    """Show the messages in the state that the query selects, by default the waiting messages."""
    counts = await fetch(delivery_status.count_outbox, visit.account_id)
    state = request.args.get("state") or ""
    if state not in OUTBOX_STATES:
        state = "waiting"
    page = parse_int(request.args.get("page"))
    rows = await fetch(
        delivery_status.list_outbox, visit.account_id, cast(Any, state), page, 50, counts[cast(Any, state)]
    )
    contacts_by_id = await fetch(lookups.contacts_by_id, {row.contact_id for row in rows.rows if row.contact_id})
    queue_summary = await fetch(delivery_status.read_summary, visit.account_id)
    return view.render(
        request, "outbox/index.html", counts=counts, state=state, page=rows, contacts_by_id=contacts_by_id,
        states={
            key: (pgettext("messages", label), *map(gettext, texts)) for key, (label, *texts) in OUTBOX_STATES.items()
        },
        queue_summary=queue_summary, may_send=_can_send(visit), moving=queue_summary.state == "busy",
    )  # fmt: skip


@pages.get("/outbox/<message_id:int>")
@signed_in("messages:read")
async def show_message(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
    """Show a message: its state, the server's response, and its events, content or source."""
    row = await fetch(ledger.get, visit.account_id, message_id)
    contacts_by_id = await fetch(lookups.contacts_by_id, {row.contact_id} if row.contact_id else set())
    tab = request.args.get("view") if request.args.get("view") in ("message", "source") else "events"
    kind = await fetch(message_source.get_bounce_class, row)
    values: dict[str, Any] = {"events": [], "source": "", "source_error": ""}
    if tab == "events":
        query = EventQuery(limit=50, resource_uid=f"message:{row.id}")
        values["events"] = (await fetch(activity.load_events, visit.account_id, query)).rows
    data = await fetch(_load_data, row)
    values["tags"] = _list_tags(row.tags or {})
    values["data"] = data if visit.can("contacts:write") else links.hide_recipient_links(data)
    if tab == "source":
        try:
            content = attachments.hide_contents(await render(message_source.get_source, visit.account_id, message_id))
            source = content[:_MAX_SOURCE_BYTES].decode(errors="replace")
            values["source"] = source if visit.can("contacts:write") else links.hide_recipient_links(source)
        except message_source.NotReproducible as error:
            values["source_error"] = formats.sentence(str(error))
    return view.render(
        request, "outbox/show.html", row=row, contact=contacts_by_id.get(row.contact_id), view=tab,
        where=_outbox_state(row), provider_label=get_provider_label(row.provider),
        meant=bounce_classes.CLASSES_BY_NAME.get(kind or ""), may_send=_can_send(visit),
        copies=await fetch(ledger.list_copies, row), files=await fetch(attachments.list_files, row.id),
        kinds={"to": gettext("To"), "cc": gettext("Cc"), "bcc": gettext("Bcc")}, **values,
    )  # fmt: skip


def _list_tags(tags: dict[str, Any]) -> list[str]:
    """Return the tags of a message as texts: `campaign: spring`, or only the value of a tag of `X-Campanero-Tag`."""
    texts = []
    for name, value in tags.items():
        for item in value if isinstance(value, list) else [value]:
            text = item if isinstance(item, str) else msgspec.json.encode(item).decode()
            texts.append(text if name == "tag" else f"{name}: {text}")
    return texts


def _load_data(row: Any) -> str:
    """Return the data that a program sent with a message, as indented JSON; empty for none, and for our own emails."""
    content = ledger.get_content(row) if row.source_type != "system" else None
    if content is None or not content.data:
        return ""
    return msgspec.json.format(msgspec.json.encode(content.data), indent=2).decode()


@pages.get("/outbox/<message_id:int>/html")
@signed_in(access.FULL_SCOPE)
async def show_message_html(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
    """Show the content of a message as a document for a frame, so that it cannot reach the page around it."""
    try:
        filled = await render(message_source.get_html, visit.account_id, message_id)
    except message_source.NotReproducible as error:
        return view.render_email_error(str(error))
    filled = filled if visit.can("contacts:write") else links.hide_recipient_links(filled)
    return view.render_email(await fetch(attachments.show_inline_images, filled, message_id))


@pages.get("/outbox/<message_id:int>/files/<file_id:int>")
@signed_in(access.FULL_SCOPE)
async def download_file(request: Request, visit: Visit, message_id: int, file_id: int) -> HTTPResponse | None:
    """Download an attached file. It is never displayed, because it may contain anything."""
    file, content = await fetch(attachments.get_file, visit.account_id, message_id, file_id)
    return await view.stream_file(request, file.filename, "application/octet-stream", content)


@pages.post("/outbox/retry")
@signed_in("campaigns:send")
async def retry_selected(request: Request, visit: Visit) -> HTTPResponse:
    """Retry the selected messages, or all messages in the form's state (uncertain or failed)."""
    form = Form.from_request(request)
    state = "uncertain" if form["state"] == "uncertain" else "failed"
    again = 0
    if form["all"]:
        before_id = 2**62
        while ids := await fetch(
            delivery_status.list_outbox_ids, visit.account_id, cast(Any, state), before_id, _RETRY_CHUNK
        ):
            again += await commit(retries.retry_by_ids, visit.account_id, ids, visit.actor_id)
            before_id = ids[-1]
    elif message_ids := form.ids("message")[:1000]:
        again = await commit(retries.retry_by_ids, visit.account_id, message_ids, visit.actor_id)
    if again:
        await commit(audit.record, visit.actor, visit.account_id, "messages_retry", None, {"messages": again})
    message = ngettext("Sending %(num)s message again.", "Sending %(num)s messages again.", again)
    view.flash(request, message if again else gettext("None of the selected messages can be sent again."))
    return view.redirect(request, f"/outbox?state={state}")


def _add_message_action(name: str, verb: Callable[[int, int, str], Any], done: str) -> None:
    """Register the POST route of a button on the page of one message; `done` is the notice."""

    @pages.post(f"/outbox/<message_id:int>/{name}", name=f"one_{name}")
    @signed_in("campaigns:send")
    async def act(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
        await fetch(ledger.get, visit.account_id, message_id)
        try:
            args = (f"message_{name}", verb, visit.account_id, message_id, visit.actor_id)
            await commit(audit.run_and_record, visit.actor, *args)
        except errors.Invalid as error:
            reasons = {
                "recipient_suppressed": gettext("This contact is unsubscribed or suppressed."),
                "invalid_transition": gettext("The message’s status has changed. This page shows the current status."),
            }
            view.flash(request, reasons.get(error.reason or "", formats.sentence(error.message)))
        else:
            view.flash(request, gettext(done))
        return view.redirect(request, f"/outbox/{message_id}")


_add_message_action("retry", retries.retry, gettext_noop("Sending this message again."))
_add_message_action("assume", retries.assume_sent, gettext_noop("Marked as sent."))
_add_message_action("cancel", retries.cancel, gettext_noop("Message cancelled. It will not be sent."))


def _outbox_state(row: Any) -> str:
    """Return the outbox state of a message, or an empty string if the outbox does not list it."""
    if row.status in ("queued", "held"):
        return "retrying" if row.attempts else "waiting"
    return row.status if row.status in OUTBOX_STATES else ""


def _can_send(visit: Visit) -> bool:
    return visit.can("campaigns:send")


# The test inbox.

# The tabs of a captured message, by its channel: name and label.
MESSAGE_VIEWS = {
    "email": (
        ("html", gettext_noop("Email")), ("text", gettext_noop("Plain text")), ("source", gettext_noop("Source")),
        ("headers", gettext_noop("Headers")), ("events", gettext_noop("Activity")),
    ),
    "sms": (("phone", gettext_noop("Phone")), ("events", gettext_noop("Activity"))),
}  # fmt: skip
CHANNELS = (("email", gettext_noop("Email")), ("sms", gettext_noop("SMS")))
# The events that can be simulated: icon, label and notice.
EMAIL_SIMULATIONS = {
    "open": ("mail-open", gettext_noop("Open email"), gettext_noop("Open recorded.")),
    "click": ("mouse-pointer-click", gettext_noop("Click a link"), gettext_noop("Click recorded.")),
    "reply": ("reply", gettext_noop("Reply"), gettext_noop("Reply recorded.")),
    "unsubscribe": ("ban", gettext_noop("Unsubscribe"), gettext_noop("The contact is unsubscribed.")),
    "complain": ("circle-alert", gettext_noop("Report as spam"), gettext_noop("Spam complaint recorded.")),
    "soft_bounce": (
        "circle-alert", gettext_noop("Soft bounce (mailbox full)"), gettext_noop("Soft bounce recorded: mailbox full."),
    ),
    "bounce": (
        "circle-alert", gettext_noop("Hard bounce"), gettext_noop("Hard bounce recorded: the address does not exist."),
    ),
}  # fmt: skip
SMS_SIMULATIONS = {
    "deliver": ("check", gettext_noop("Deliver"), gettext_noop("Delivery recorded.")),
    "click": ("mouse-pointer-click", gettext_noop("Click a link"), gettext_noop("Click recorded.")),
    "stop": ("ban", gettext_noop("Reply STOP"), gettext_noop("STOP reply recorded.")),
    "start": ("undo-2", gettext_noop("Reply START"), gettext_noop("START reply recorded.")),
    "help": ("reply", gettext_noop("Reply HELP"), gettext_noop("HELP reply recorded.")),
    "soft_bounce": (
        "circle-alert", gettext_noop("Phone unreachable"), gettext_noop("Not delivered: the phone was unreachable."),
    ),
    "bounce": (
        "circle-alert", gettext_noop("Number does not exist"),
        gettext_noop("Not delivered: the number does not exist."),
    ),
    "fail": ("circle-alert", gettext_noop("Network error"), gettext_noop("Not delivered: unknown network error.")),
}  # fmt: skip


@pages.get("/inbox", strict_slashes=False)
@signed_in(access.FULL_SCOPE)
async def show_inbox(request: Request, visit: Visit) -> HTTPResponse:
    """Show the list of captured messages."""
    return await _render_inbox(request, visit, None)


@pages.get("/inbox/<captured_id:int>")
@signed_in(access.FULL_SCOPE)
async def show_captured(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """Show the list of captured messages, with one of them open."""
    return await _render_inbox(request, visit, captured_id)


@pages.get("/inbox/<captured_id:int>/html")
@signed_in(access.FULL_SCOPE)
async def show_captured_html(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """Show the HTML of a captured message as a document for a frame, so that it cannot reach the page around it."""
    opened = await fetch(_load_captured, visit.account_id, captured_id, visit.can("contacts:write"))
    html = opened["html"] or opened["text"] or ""
    return view.render_email(await fetch(attachments.show_inline_images, html, opened["row"].message_id))


@pages.post("/inbox/clear")
@signed_in("account:write")
async def clear_inbox(request: Request, visit: Visit) -> HTTPResponse:
    """Delete all captured messages of the account."""

    def write() -> None:
        capture_inbox.clear(visit.account_id)
        audit.record(visit.actor, visit.account_id, "capture_clear", None)

    await commit(write)
    view.flash(request, gettext("Test inbox emptied."))
    return view.redirect(request, "/inbox")


@pages.post("/inbox/<captured_id:int>/simulate")
@signed_in("events:write")
async def simulate_event(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """Simulate an event of a captured message by running the code that handles real events."""
    form = Form.from_request(request)
    row = await fetch(capture_inbox.get, visit.account_id, captured_id)
    # The buttons of links send no action: they are clicks.
    action = "click" if form["link"] else form["action"]
    raw: dict[str, Any] = {"action": action}
    raw |= {"link": parse_int(form["link"])} if form["link"] else {}
    raw |= {"text": form["text"]} if action == "reply" and form["text"] else {}
    try:
        filters = validation.read(SimulateEventRequest, raw)
        await simulation.perform_action(await fetch(simulation.prepare_action, visit.account_id, captured_id, filters))
    except errors.Invalid as error:
        message = _simulation_error(error)
    else:
        simulations = SMS_SIMULATIONS if row.channel == "sms" else EMAIL_SIMULATIONS
        message = gettext(simulations[action][2]) if action in simulations else gettext("Reply recorded.")
    if view.is_partial(request):
        return await _render_inbox(request, visit, captured_id, message)
    view.flash(request, message)
    return view.redirect(request, f"/inbox/{captured_id}")


async def _render_inbox(request: Request, visit: Visit, captured_id: int | None, text: str = "") -> HTTPResponse:
    search = (request.args.get("search") or "").strip()[:255]
    channel = request.args.get("channel") or ""
    channel = channel if channel in MESSAGE_VIEWS else ""
    campaign_id = parse_id(request.args.get("campaign"))
    campaign = await fetch(campaigns.get_row, visit.account_id, campaign_id) if campaign_id else None
    opened = (
        await fetch(_load_captured, visit.account_id, captured_id, visit.can("contacts:write"))
        if captured_id is not None
        else None
    )
    page = await fetch(
        capture_inbox.list_captured,
        visit.account_id,
        parse_int(request.args.get("page")),
        50,
        search or None,
        channel=channel or None,
        campaign_id=campaign_id or None,
    )
    inbox_version = f"{page.rows[0].id if page.rows else 0}.{page.total}"
    if view.is_partial(request) and request.args.get("seen") == inbox_version:
        # The list polls for new messages, and there are none.
        return HTTPResponse(status=204)
    views = MESSAGE_VIEWS[opened["row"].channel if opened is not None else "email"]
    tab = request.args.get("view") or ("text" if opened and not opened["sms"] and not opened["html"] else "")
    return view.render(
        request, "inbox/index.html", page=page, search=search, channel=channel, opened=opened,
        channels=[("", pgettext("messages", "All")), *((key, gettext(label)) for key, label in CHANNELS)],
        version=inbox_version,
        views=views, view=tab if tab in dict(views) else views[0][0], status_text=text,
        campaign=campaign,
        keep={"search": search, "channel": channel, "campaign": campaign_id or "",
              "page": page.page if page.page > 1 else ""},
        plays=SMS_SIMULATIONS if opened is not None and opened["sms"] is not None else EMAIL_SIMULATIONS,
        may_write=visit.can("events:write"),
        may_empty=visit.can("account:write"),
    )  # fmt: skip


def _load_captured(account_id: int, captured_id: int, can_write_contacts: bool) -> dict[str, Any]:
    row = capture_inbox.get(account_id, captured_id)
    context = {
        "row": row,
        **capture_inbox.get_parts(row, can_write_contacts),
        "message": None,
        "files": [],
        "links": [],
        "confirm_url": None,
        "events": [],
        "person": None,
    }
    if context["sms"] is not None:
        thread = simulation.get_thread(row)
        context["thread"] = (
            thread
            if can_write_contacts
            else [bubble._replace(text=links.hide_recipient_links(bubble.text)) for bubble in thread]
        )
        context["forcing"] = (
            segments.describe_character(context["sms"].forcing_character) if context["sms"].forcing_character else None
        )
    if row.message_id is None:
        return context
    try:
        message = ledger.get(account_id, row.message_id)
    except errors.NotFound:
        return context
    query = log.EventQuery(resource_uid=f"message:{message.id}", limit=50)
    if message.source_type == "system":
        context["confirm_url"] = links.find_confirmation_url(
            public_urls.fetch_base_url(account_id), context["text"] or context["html"] or ""
        )
    context |= {
        "message": message, "files": attachments.list_files(message.id), "links": simulation.list_links(message),
        "events": log.list_events(account_id, query).rows,
    }  # fmt: skip
    recipients = contacts.fetch_by_ids([message.contact_id]) if message.contact_id else []
    context["person"] = recipients[0] if recipients else None
    for event in context["events"]:
        event.who = None
    return context


def _simulation_error(error: errors.Invalid) -> str:
    """Return a sentence that says why an event of a message cannot be simulated."""
    if "link" in error.fields:
        return gettext("This message has no tracked links.")
    if "text" in error.fields:
        return gettext("Enter a reply.")
    return gettext("This message does not support this action.")
