"""The outbox: what waits, is tried again, was refused or is in doubt, whatever it belongs to; and one message whole."""

from collections.abc import Callable
from typing import Any, cast

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.core import errors
from appliance.events.log import EventQuery
from appliance.sending.delivery import classes
from appliance.sending.messages import ledger, manual_decisions, open_messages, raw_message, status_line
from appliance.storage.work import call, commit
from ui import mail, people, rights, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages import activity
from ui.session import Pages, Visit

pages = Pages("ui_outbox", url_prefix="/outbox")
# State: its words, what it means, and what is said where there is none
STATES = {
    "waiting": ("Waiting", "Not handed over yet; the first to go stands first.", "Nothing waiting."),
    "retrying": ("Trying again", "Tried before, and refused for the time being.", "Nothing is tried again."),
    "sending": ("In hand", "Being handed over at this moment.", "Nothing is in hand."),
    "failed": ("Refused", "The other side refused these for good.", "Nothing was refused."),
    "uncertain": (
        "In doubt",
        "The connection ended before the answer: these may have arrived.",
        "Nothing is in doubt.",
    ),
}
_AT_ONCE = 200
# Of a message with large pictures nobody reads more
_SHOWN = 300_000


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Messages by their state; the one that has something in it that needs a person is shown first."""
    counts = await call(open_messages.counts, visit.account_id)
    state = request.args.get("state") or ""
    if state not in STATES:
        state = "waiting"
    page = number(request.args.get("page"))
    found = await call(open_messages.page, visit.account_id, cast(Any, state), page, 50, counts[cast(Any, state)])
    known = await call(people.by_id, {row.contact_id for row in found.rows if row.contact_id})
    standing = await call(status_line.look, visit.account_id)
    return view.page(
        request, "outbox/index.html", counts=counts, state=state, states=STATES, found=found, known=known,
        standing=standing, may_send=_may_send(visit), moving=standing.state == "busy",
    )  # fmt: skip


@pages.get("/<message_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
    """One message: where it stands and what was answered; then what happened since, what it says, or its bytes."""
    row = await call(ledger.get, visit.account_id, message_id)
    known = await call(people.by_id, {row.contact_id} if row.contact_id else set())
    chosen = request.args.get("view") if request.args.get("view") in ("message", "source") else "events"
    kind = await call(raw_message.judged, row)
    said: dict[str, Any] = {"events": [], "source": "", "gone": ""}
    if chosen == "events":
        query = EventQuery(limit=50, resource_uid=f"message:{row.id}")
        said["events"] = (await call(activity.load, visit.account_id, query)).rows
    if chosen == "source":
        try:
            content = await call(raw_message.source, visit.account_id, message_id)
            said["source"] = content[:_SHOWN].decode(errors="replace")
        except raw_message.Gone as gone:
            said["gone"] = words.sentence(str(gone))
    return view.page(
        request, "outbox/show.html", row=row, who=known.get(row.contact_id), view=chosen, where=_state(row),
        meant=classes.BY_NAME.get(kind or ""), may_send=_may_send(visit), **said,
    )  # fmt: skip


@pages.get("/<message_id:int>/html", name="html")
@signed_in
async def html(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
    """What a message says, as a document of its own, which cannot reach this page."""
    try:
        filled = await call(raw_message.said, visit.account_id, message_id)
    except raw_message.Gone as gone:
        return mail.broken(str(gone))
    return mail.frame(filled)


@pages.post("/retry", name="retry")
@signed_in
async def retry(request: Request, visit: Visit) -> HTTPResponse:
    """Send those chosen again, or all that are in this state."""
    form = Form.of(request)
    state = "uncertain" if form["state"] == "uncertain" else "failed"
    again = 0
    if form["all"]:
        before = 2**62
        while ids := await call(open_messages.ids, visit.account_id, cast(Any, state), before, _AT_ONCE):
            again += await commit(manual_decisions.retry_these, visit.account_id, ids, visit.actor)
            before = ids[-1]
    elif chosen := form.ids("message")[:1000]:
        again = await commit(manual_decisions.retry_these, visit.account_id, chosen, visit.actor)
    if again:
        await commit(audit.note, visit.by, visit.account_id, "messages_retry", None, {"messages": again})
    said = f"On its way again: {words.count(again, 'message', 'messages')}."
    view.say(request, said if again else "Nothing was chosen that can be sent again.")
    return view.go(request, f"/outbox?state={state}")


def _one(name: str, verb: Callable[[int, int, str], Any], done: str) -> None:
    """Register a button of one message."""

    @pages.post(f"/<message_id:int>/{name}", name=f"one_{name}")
    @signed_in
    async def act(request: Request, visit: Visit, message_id: int) -> HTTPResponse:
        await call(ledger.get, visit.account_id, message_id)
        try:
            told = (f"message_{name}", verb, visit.account_id, message_id, visit.actor)
            await commit(audit.noting, visit.by, *told)
        except errors.Invalid as refused:
            reasons = {"recipient_suppressed": "They may not be written to any more.",
                       "invalid_transition": "It has moved on meanwhile. This is how it stands."}  # fmt: skip
            view.say(request, reasons.get(refused.reason or "", words.sentence(refused.message)))
        else:
            view.say(request, done)
        return view.go(request, f"/outbox/{message_id}")


_one("retry", manual_decisions.retry, "On its way again.")
_one("assume", manual_decisions.assume_sent, "Counted as sent.")
_one("cancel", manual_decisions.cancel, "Taken back. It will not leave.")


def _state(row: Any) -> str:
    """Return under which state a message stands in the outbox, or nothing."""
    if row.status in ("queued", "held"):
        return "retrying" if row.attempts else "waiting"
    return row.status if row.status in STATES else ""


def _may_send(visit: Visit) -> bool:
    return rights.may(visit.user.role, "POST", "/outbox/retry")
