"""The inbox of capture mode: every message as a mail client would show it, every SMS as a phone."""

from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import errors, fields
from appliance.db.work import call, commit
from appliance.engagement import phones, simulating
from appliance.engagement.simulating import Simulate
from appliance.messages import captured
from appliance.sms import gsm
from appliance.tables import Message
from ui import mail, view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Visit

pages = Blueprint("ui_inbox", url_prefix="/inbox")
VIEWS = ("html", "text", "source", "headers")
# What may happen to a message: icon, words, and what was said once it has
PLAYS = {
    "open": ("mail-open", "They open it", "Opened."),
    "click": ("mouse-pointer-click", "They click the first link", "Clicked."),
    "reply": ("reply", "They reply", "Replied."),
    "unsubscribe": ("ban", "They unsubscribe", "Unsubscribed."),
    "complain": ("circle-alert", "They call it spam", "Called spam."),
    "soft_bounce": ("circle-alert", "Their mailbox is full", "Came back: the mailbox is full."),
    "bounce": ("circle-alert", "They do not exist", "Came back: there is no such recipient."),
}
PHONE_PLAYS = {
    "deliver": ("check", "It arrives", "Delivered."),
    "click": ("mouse-pointer-click", "They follow the first link", "Clicked."),
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
    await commit(captured.clear, visit.account_id)
    view.say(request, "The inbox is empty.")
    return view.go(request, "/inbox")


@pages.post("/<captured_id:int>/simulate", name="simulate")
@signed_in
async def simulate(request: Request, visit: Visit, captured_id: int) -> HTTPResponse:
    """Let something happen to a message, by the way it really comes."""
    form = Form.of(request)
    action, words = form["action"], form.text("text")
    row = await call(captured.get, visit.account_id, captured_id)
    try:
        asked = fields.read(Simulate, {"action": action, **({"text": words} if action == "reply" and words else {})})
        await simulating.perform(await call(simulating.plan, visit.account_id, captured_id, asked))
    except errors.Invalid as refused:
        view.say(request, _refusal(refused))
    else:
        said = (PHONE_PLAYS if row.channel == "sms" else PLAYS).get(action, ("", "", "They wrote back."))[2]
        view.say(request, f"{said} What follows from it is done, as if it were real.")
    return view.go(request, f"/inbox/{captured_id}")


async def _show(request: Request, visit: Visit, captured_id: int | None) -> HTTPResponse:
    search = (request.args.get("search") or "").strip()[:255]
    opened = await call(_opened, visit.account_id, captured_id) if captured_id is not None else None
    chosen = request.args.get("view") or ("html" if opened is None or opened["html"] else "text")
    found = await call(captured.page, visit.account_id, number(request.args.get("page")), 50, search or None)
    return view.page(
        request, "inbox/index.html", found=found, search=search, opened=opened,
        view=chosen if chosen in VIEWS else "html", page_number=found.page,
        plays=PHONE_PLAYS if opened is not None and opened["sms"] is not None else PLAYS,
    )  # fmt: skip


def _opened(account_id: int, captured_id: int) -> dict[str, Any]:
    row = captured.get(account_id, captured_id)
    found = {"row": row, **captured.parts(row)}
    if found["sms"] is not None:
        found["thread"] = phones.thread(row)
        found["forcing"] = gsm.named(found["sms"].forcing) if found["sms"].forcing else None
        found["message"] = Message.get_or_none(Message.id == row.message_id)
    return found


def _refusal(refused: errors.Invalid) -> str:
    """Say why something cannot happen to a message."""
    if "link" in refused.fields:
        return "This message has no link that leads through us."
    return "Write what they answer." if "text" in refused.fields else "This cannot happen to this message."
