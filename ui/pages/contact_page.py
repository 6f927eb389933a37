"""One person: what they agreed to and when, lists, tags and data, what happened, and the messages they got."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import requests, store, tags, timeline, write
from appliance.content.designs.merge import MergeError
from appliance.core import errors, fields
from appliance.events import log
from appliance.sending.messages import ledger as messages
from appliance.sending.messages.prepare import Workshop
from appliance.storage.work import call, commit
from appliance.tracking import erasing
from ui import mail, people, rights, talk, view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_contact_page", url_prefix="/contacts")
_SHOWN, _MESSAGES, _EVIDENCE = 40, 8, 100
# What to look for among what happened
_KINDS = (
    ("", "Everything"), ("messages", "Messages"), ("consent", "Consent"), ("person", "Lists and data"),
    ("flows", "Flows"), ("own", "Your events"),
)  # fmt: skip


@pages.get("/<contact_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """One person: addresses and consent, lists, data, what happened."""
    kind = request.args.get("kind") or ""
    kind = kind if kind in dict(_KINDS) else ""
    found = await call(_all_about, visit.account_id, contact_id, kind, number(request.args.get("page")))
    return view.page(
        request, "contacts/show.html", kind=kind, kinds=_KINDS, **found,
        may_write=rights.may(visit.user.role, "POST", f"/contacts/{contact_id}"),
    )  # fmt: skip


def _all_about(account_id: int, contact_id: int, kind: str, page: int) -> dict[str, Any]:
    contact = store.get(account_id, contact_id)
    evidence = list(timeline.consents(account_id, contact_id, limit=_EVIDENCE).rows)
    return {
        "contact": contact,
        "events": timeline.story_page(account_id, contact_id, kind, page, _SHOWN),
        "lists": people.all_lists(account_id),
        "wants_erasure": erasing.is_open(account_id, contact_id),
        "evidence": {one.value: [row for row in evidence if row.address == one.value] for one in contact.channels},
        "actors": timeline.actors(account_id, evidence),
        "messages": messages.page(account_id, messages.MessageQuery(contact_id=contact_id, limit=_MESSAGES)),
        "flows": timeline.live_runs(account_id, contact_id),
        "alike": timeline.alike(account_id, contact_id),
        "tags": tags.of(contact.data),
        "talk": talk.of(account_id, contact),
    }


@pages.post("/<contact_id:int>/consent", name="consent")
@signed_in
async def consent(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Opt one address of a person in or out, with this act as the evidence."""
    form = Form.of(request)
    wanted = form["subscribed"] == "yes"
    raw = {"channels_attributes": [{"id": number(form["channel"], 0), "subscribed": wanted}]}
    asked = fields.read(requests.ContactPatch, raw)
    done = await commit(write.update, visit.account_id, contact_id, asked, people.evidence(visit))
    if wanted and done.kept_opt_out:
        view.say(request, "They asked not to be written to, and that stays until they say otherwise.")
    else:
        view.say(request, "Subscribed." if wanted else "Unsubscribed. Campaigns will skip this address.")
    return view.go(request, f"/contacts/{contact_id}")


@pages.get("/<contact_id:int>/messages/<message_id:int>", name="message")
@signed_in
async def message(request: Request, visit: Visit, contact_id: int, message_id: int) -> HTTPResponse:
    """A message that a person got: as it looked, and what became of it."""
    found = await call(_message, visit.account_id, contact_id, message_id)
    return view.page(request, "contacts/message.html", **found)


@pages.get("/<contact_id:int>/messages/<message_id:int>/html", name="message_html")
@signed_in
async def message_html(request: Request, visit: Visit, contact_id: int, message_id: int) -> HTTPResponse:
    """The email itself, for the frame of its page."""
    found = await call(_message, visit.account_id, contact_id, message_id)
    if found["filled"] is None:
        return mail.broken("it could not be rendered for this person, or its content is no longer kept")
    return mail.frame(found["filled"].html or mail.text(found["filled"].text or ""))


def _message(account_id: int, contact_id: int, message_id: int) -> dict[str, Any]:
    contact = store.get(account_id, contact_id)
    row = messages.get(account_id, message_id)
    if row.contact_id != contact.id:
        raise errors.NotFound
    try:
        filled = Workshop().view(row)
    except MergeError:
        filled = None
    query = log.EventQuery(limit=100, resource_uid=f"message:{row.id}")
    return {"contact": contact, "row": row, "filled": filled, "events": log.page(account_id, query).rows}
