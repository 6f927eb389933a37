"""The inbox of capture mode: every message as a mail client would show it, every SMS as a phone."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import store as contacts
from appliance.core import errors, fields
from appliance.events import log
from appliance.sending.messages import capture_inbox
from appliance.sending.messages import ledger as messages
from appliance.sending.sms import gsm
from appliance.storage.work import call, commit
from appliance.tracking import phones, simulating
from appliance.tracking.simulating import Simulate
from ui import mail, rights, view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_inbox", url_prefix="/inbox")
VIEWS = {
    "email": (
        ("html", "Email"), ("text", "Text"), ("source", "Source"), ("headers", "Headers"), ("events", "What happened"),
    ),
    "sms": (("phone", "Phone"), ("events", "What happened")),
}  # fmt: skip
CHANNELS = (("", "All"), ("email", "Email"), ("sms", "SMS"))
# What may happen to a message: icon, words, and what was said once it has
PLAYS = {
    "open": ("mail-open", "They open it", "Opened."),
    "click": ("mouse-pointer-click", "They click a link", "Clicked."),
    "reply": ("reply", "They reply", "Replied."),
    "unsubscribe": ("ban", "They unsubscribe", "Unsubscribed."),
    "complain": ("circle-alert", "They call it spam", "Called spam."),
    "soft_bounce": ("circle-alert", "Their mailbox is full", "Came back: the mailbox is full."),
    "bounce": ("circle-alert", "They do not exist", "Came back: there is no such recipient."),
}
PHONE_PLAYS = {
    "deliver": ("check", "It arrives", "Delivered."),
    "click": ("mouse-pointer-click", "They follow a link", "Clicked."),
    "stop": ("ban", "They write STOP", "They wrote STOP."),
    "start": ("undo-2", "They write START", "They wrote START."),
    "help": ("reply", "They write HELP", "They wrote HELP."),
    "soft_bounce": ("circle-alert", "Their phone is off", "Not delivered: the phone could not be reached."),
    "bounce": ("circle-alert", "The number does not exist", "Not delivered: there is no such number."),
    "fail": ("circle-alert", "The network loses it", "Not delivered, for no reason that is known."),
}


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The list, and nothing opened yet."""
    return await _show(request, visit, None)


@pages.get("/<captured_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """The list, and one message opened."""
    return await _show(request, visit, captured_id)


@pages.get("/<captured_id:int>/html", name="html")
@signed_in
async def html(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """The message's HTML as a document of its own, which cannot reach this page."""
    opened = await call(_opened, visit.account_id, captured_id)
    return mail.frame(opened["html"] or opened["text"] or "")


@pages.post("/clear", name="clear")
@signed_in
async def clear(request: Request, visit: Visit) -> HTTPResponse:
    """Throw away what was captured."""

    def verb() -> None:
        capture_inbox.clear(visit.account_id)
        audit.note(visit.by, visit.account_id, "capture_clear", None)

    await commit(verb)
    view.say(request, "The inbox is empty.")
    return view.go(request, "/inbox")


@pages.post("/<captured_id:int>/simulate", name="simulate")
@signed_in
async def simulate(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """Let something happen to a message, by the way it really comes."""
    form = Form.of(request)
    row = await call(capture_inbox.get, visit.account_id, captured_id)
    # The button of a link says by itself that it is clicked
    action = "click" if form["link"] else form["action"]
    raw: dict[str, Any] = {"action": action}
    raw |= {"link": number(form["link"])} if form["link"] else {}
    raw |= {"text": form["text"]} if action == "reply" and form["text"] else {}
    try:
        asked = fields.read(Simulate, raw)
        await simulating.perform(await call(simulating.plan, visit.account_id, captured_id, asked))
    except errors.Invalid as refused:
        said = _refusal(refused)
    else:
        told = (PHONE_PLAYS if row.channel == "sms" else PLAYS).get(action, ("", "", "They wrote back."))[2]
        said = f"{told} What follows from it is done, as if it were real."
    if view.is_part(request):
        return await _show(request, visit, captured_id, said)
    view.say(request, said)
    return view.go(request, f"/inbox/{captured_id}")


async def _show(request: Request, visit: Visit, captured_id: int | None, said: str = "") -> HTTPResponse:
    search = (request.args.get("search") or "").strip()[:255]
    channel = request.args.get("channel") or ""
    channel = channel if channel in VIEWS else ""
    opened = await call(_opened, visit.account_id, captured_id) if captured_id is not None else None
    found = await call(
        capture_inbox.page,
        visit.account_id,
        number(request.args.get("page")),
        50,
        search or None,
        channel=channel or None,
    )
    seen = f"{found.rows[0].id if found.rows else 0}.{found.total}"
    if view.is_part(request) and request.args.get("seen") == seen:
        # The list asks by itself whether there is more
        return HTTPResponse(status=204)
    views = VIEWS[opened["row"].channel if opened is not None else "email"]
    chosen = request.args.get("view") or ("text" if opened and not opened["sms"] and not opened["html"] else "")
    return view.page(
        request, "inbox/index.html", found=found, search=search, channel=channel, channels=CHANNELS, opened=opened,
        seen=seen,
        views=views, view=chosen if chosen in dict(views) else views[0][0], said=said,
        keep={"search": search, "channel": channel, "page": found.page if found.page > 1 else ""},
        plays=PHONE_PLAYS if opened is not None and opened["sms"] is not None else PLAYS,
        may_write=rights.may(visit.user.role, "POST", "/inbox"),
        may_empty=rights.may(visit.user.role, "POST", "/inbox/clear"),
    )  # fmt: skip


def _opened(account_id: int, captured_id: int) -> dict[str, Any]:
    row = capture_inbox.get(account_id, captured_id)
    found = {"row": row, **capture_inbox.parts(row), "message": None, "links": [], "events": [], "person": None}
    if found["sms"] is not None:
        found["thread"] = phones.thread(row)
        found["forcing"] = gsm.named(found["sms"].forcing) if found["sms"].forcing else None
    if row.message_id is None:
        return found
    try:
        message = messages.get(account_id, row.message_id)
    except errors.NotFound:
        return found
    asked = log.EventQuery(resource_uid=f"message:{message.id}", limit=50)
    found |= {
        "message": message, "links": simulating.clickable(message), "events": log.page(account_id, asked).rows,
    }  # fmt: skip
    people = contacts.by_ids([message.contact_id]) if message.contact_id else []
    found["person"] = people[0] if people else None
    for event in found["events"]:
        event.who = None
    return found


def _refusal(refused: errors.Invalid) -> str:
    """Return why something cannot happen to a message."""
    if "link" in refused.fields:
        return "This message has no link that leads through us."
    return "Write what they answer." if "text" in refused.fields else "This cannot happen to this message."
