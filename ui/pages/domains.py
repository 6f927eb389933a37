"""Sending domains: which there are, the records each needs, and what DNS says of them."""

import asyncio

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors, fields
from appliance.sending.domains import keys, records, store, verify
from appliance.sending.domains.records import Record
from appliance.storage.models import SendingDomain
from appliance.storage.work import call, commit
from ui import view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit

pages = Pages("ui_domains", url_prefix="/settings/domains")
_LIMIT = 50
# What each record does for the sender, and why it is worth the trouble
PURPOSES = {
    "ownership": ("Shows that the domain is yours", ""),
    "dkim": ("Signs your mail (DKIM)", "Receivers check with it that a message is from you and unchanged."),
    "dkim_next": ("Signs your mail next (DKIM)", "The new key takes over once this record is found."),
    "dkim_second": ("Signs your mail a second time (DKIM)", "A shorter kind of key that some receivers know already."),
    "dkim_previous": (
        "Signed your mail before (DKIM)", "Leave it for a week: mail on its way is still checked with it.",
    ),
    "return_path": ("Brings returned mail back", "So that addresses that do not exist are noticed and left out."),
    "spf": ("Allows our server to send (SPF)", "For the name returned mail comes to; your own SPF stays as it is."),
    "dmarc": (
        "Says what to do with forged mail (DMARC)",
        "Large mailbox providers want one. A stricter policy that you have already is right too.",
    ),
    "tracking": ("Lets links carry your name", "Instead of the name of this installation."),
}  # fmt: skip
_NAME_FAULTS = {
    "is invalid": "Write only the name, like example.com.",
    "is reserved": "This domain belongs to a mailbox provider. Add one of your own.",
    "has already been taken": "This domain is here already.",
}


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table of domains."""
    asked = fields.read(store.DomainQuery, {"page": number(request.args.get("page")), "limit": _LIMIT})
    found = await call(store.page, visit.account_id, asked)
    return view.page(
        request, "settings/domains.html", found=found, state=state, shown=records.show_domain, may=_may(visit)
    )


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form."""
    return view.page(request, "settings/domain_new.html", form=Form(), may=_may(visit))


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Add a domain and show its records."""
    form = Form.of(request)
    made = await add(request, visit, form)
    if made is None:
        return view.page(request, "settings/domain_new.html", 422, form=form, may=_may(visit))
    view.say(request, f"{records.show_domain(made.name)} is added. Now enter its records where you manage the domain.")
    return view.go(request, f"/settings/domains/{made.id}")


async def add(request: Request, visit: Visit, form: Form) -> SendingDomain | None:
    """Add the domain that a form names, with its keys; returns None with what is wrong noted in the form."""
    form.need("name", "Write the domain, like example.com.")
    if form.errors:
        return None
    try:
        asked = fields.read(store.DomainCreate, {"domain": {"name": form["name"]}})
        await call(store.read, visit.account_id, asked)
        pairs = await asyncio.to_thread(keys.generate)
        return await commit(store.create, visit.account_id, asked, pairs, visit.by)
    except errors.Invalid as refused:
        for message in refused.fields.get("domain.name", ["is invalid"]):
            form.wrong("name", _NAME_FAULTS.get(message, message))
        return None


@pages.get("/<domain_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """The records of a domain and how each was found."""
    return await _show(request, visit, domain_id, 200)


@pages.post("/<domain_id:int>/verify", name="check")
@signed_in
async def check(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Look the records up now."""
    asked = await call(lambda: verify.question(store.get(visit.account_id, domain_id).id))
    if asked is not None:
        await verify.check(asked)
    row = await call(store.get, visit.account_id, domain_id)
    view.say(request, {"verified": "Looked up. The domain is verified."}.get(row.status, "Looked up."))
    return view.go(request, f"/settings/domains/{domain_id}")


@pages.post("/<domain_id:int>/rotate", name="rotate")
@signed_in
async def rotate(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Make the next key."""
    await call(store.get, visit.account_id, domain_id)
    pairs = await asyncio.to_thread(keys.generate)
    await commit(store.rotate, visit.account_id, domain_id, pairs, visit.by)
    view.say(request, "The new key is made. Enter its record; it takes over once that is found.")
    return view.go(request, f"/settings/domains/{domain_id}")


@pages.post("/<domain_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Delete a domain with its keys."""
    try:
        gone = await commit(store.delete, visit.account_id, domain_id, visit.by)
    except errors.Invalid as refused:
        form = Form()
        used = ", ".join(str(one["name"]) for one in refused.extra["used_by"])
        form.wrong("base", f"Campaigns that are scheduled or sending are from this domain: {used}. Stop them first.")
        return await _show(request, visit, domain_id, 422, form)
    view.say(request, f"{records.show_domain(gone.name)} is deleted.")
    return view.go(request, "/settings/domains")


async def _show(request: Request, visit: Visit, domain_id: int, status: int, form: Form | None = None) -> HTTPResponse:
    row = await call(store.get, visit.account_id, domain_id)
    found = await call(records.of, row)
    needed = [one for one in found if one.required or one.purpose == "dkim_next"]
    return view.page(
        request, "settings/domain.html", status, row=row, form=form or Form(), may=_may(visit), state=state,
        shown=records.show_domain, needed=needed, others=[one for one in found if one not in needed], purposes=PURPOSES,
        zone=records.zone(found), look=look, host=records.link_host(), public=records.has_public_name(),
        listens=bool(request.app.ctx.config.inbound.listen), waits=any(one.purpose == "dkim_next" for one in found),
    )  # fmt: skip


def state(row: SendingDomain) -> tuple[str, str]:
    """Return how a domain is, as a colour and a word."""
    if row.status == "verified":
        return ("paused", "Needs attention") if row.attention else ("done", "Verified")
    return ("failed", "Failed") if row.status == "failed" else ("sched", "Waiting for DNS")


def look(record: Record) -> tuple[str, str]:
    """Return how a record was found, as a colour and a word."""
    if record.valid == "valid":
        return "done", "Found"
    if not record.value:
        return "paused", "Needs a public address"
    if record.valid == "unknown":
        return ("draft", "Not looked up yet") if record.checked_at is None else ("paused", "Could not be asked")
    missing = "failed" if record.required else "paused"
    return (missing, "Wrong") if record.found else (missing, "Not there")


def _may(visit: Visit) -> bool:
    return visit.user.role in ("owner", "admin")
