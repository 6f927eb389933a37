"""The conversation with one person by SMS: what was said, an answer, and what an unclear answer was taken for."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import store
from appliance.core import errors
from appliance.inbound.conversations import reading, writing
from appliance.inbound.conversations.reading import Seen
from appliance.storage.work import call, commit
from ui import talk, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit

pages = Pages("ui_conversation", url_prefix="/contacts")
_REFUSED = {
    "recipient_suppressed": "They may not be written to: nothing was sent.",
    "transactional_disabled": "Single messages are switched off in this account: nothing was sent.",
}


@pages.get("/<contact_id:int>/conversation", name="show")
@signed_in
async def show(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """All that was said, a part at a time."""
    return await _show(request, visit, contact_id, None, 200)


@pages.post("/<contact_id:int>/conversation", name="say")
@signed_in
@one_press
async def say(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Send an answer; the words that were typed stay where they are if it cannot be sent."""
    form = Form.of(request)
    form.need("text", "Write what you want to say.")
    try:
        if not form.errors:
            once = form["once"][:32] or None
            await commit(writing.say, visit.account_id, contact_id, form["text"], once)
    except errors.Invalid as refused:
        said = _REFUSED.get(refused.reason or "")
        if said:
            form.wrong("text", said)
        else:
            form.take(refused, {"base": "text"})
    if form.errors:
        return await _show(request, visit, contact_id, form, 422)
    if view.is_part(request):
        return await _show(request, visit, contact_id, None, 200)
    view.say(request, "Your answer is on its way.")
    return view.go(request, _back(request, contact_id))


@pages.post("/<contact_id:int>/conversation/parts", name="parts")
@signed_in
async def weigh(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """What the words that are being typed take; nothing is kept."""
    await call(store.get, visit.account_id, contact_id)
    takes = await call(writing.weigh, visit.account_id, Form.of(request)["text"])
    return view.fragment(request, "contacts/parts.html", takes=takes)


@pages.post("/<contact_id:int>/conversation/seen", name="seen")
@signed_in
async def seen(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Take an answer in other words for a refusal, or not."""
    form = Form.of(request)
    await call(store.get, visit.account_id, contact_id)
    meant = form["opt_out"] == "yes"
    incoming = number(form["incoming"], 0, 2**53)
    heard = await call(reading.get, visit.account_id, incoming)
    if heard.contact_id not in (None, contact_id):
        raise errors.NotFound
    await commit(reading.see, visit.account_id, incoming, Seen(meant), visit.actor)
    if view.is_part(request):
        return await _show(request, visit, contact_id, None, 200)
    view.say(request, "They get no more SMS." if meant else "Noted: they may be written to as before.")
    return view.go(request, _back(request, contact_id))


def _back(request: Request, contact_id: int) -> str:
    whole = Form.of(request)["from"] == "conversation"
    return f"/contacts/{contact_id}/conversation" if whole else f"/contacts/{contact_id}#conversation"


async def _show(request: Request, visit: Visit, contact_id: int, form: Form | None, status: int) -> HTTPResponse:
    page = number(request.args.get("page"))

    def read() -> tuple[Any, talk.Talk | None]:
        contact = store.get(visit.account_id, contact_id)
        return contact, talk.of(visit.account_id, contact, page, form)

    contact, found = await call(read)
    return view.page(
        request, "contacts/conversation.html", status, contact=contact, talk=found, name=words.name(contact)
    )
