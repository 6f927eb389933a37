"""Webhooks: other programs that are told what happens, what they answered, and telling them once more."""

import asyncio
from collections.abc import Mapping
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import clock, errors, fields
from appliance.events import kinds, log
from appliance.sending.delivery import safe_http
from appliance.storage.work import call, commit
from appliance.webhooks import deliveries, store, trial
from appliance.webhooks.deliveries import DeliveryQuery, ReplayFailed
from appliance.webhooks.store import WebhookPatch, WebhookQuery, WebhookWrite
from appliance.webhooks.trial import WebhookTest
from ui import once, rights, together, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.together import Part

pages = Pages("ui_webhooks", url_prefix="/settings/webhooks")
_MONTH_MS = 30 * 86_400_000
_GROUPS = {
    "email": "Email", "sms": "SMS", "consent": "Consent", "contact": "People", "audience": "Lists and segments",
    "flow": "Flows", "campaign": "Campaigns and settings",
}  # fmt: skip
STATUSES = {
    "pending": ("sched", "Waiting"), "delivered": ("done", "Delivered"), "failed": ("failed", "Given up"),
    "cancelled": ("stopped", "Cancelled"),
}  # fmt: skip
_NAMES = "Names of events have small letters, digits and _, like order_paid."
_OFF = {
    "failing": "It failed for three days, so we switched it off.",
    "gone": "It answered 410, gone for good, so we switched it off.",
}


class _Parts(together.Parts):
    """What a webhook hears of is one thing, whether its events were ticked or typed."""

    def value(self, form: Form, key: str) -> Any:
        """Return what a form says in a part; everything is the empty list."""
        return super().value(form, key) if key == "Address" else sorted(set(_events(form)))

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return what a part is."""
        return super().words(form, key, known) if key == "Address" else ", ".join(self.value(form, key)) or "everything"


_PARTS = _Parts(Part("Address", ("url",)), Part("What it hears of", ("which", "events", "own"), True))


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """All of them."""
    query = WebhookQuery(page=number(request.args.get("page")), limit=50)
    found = await call(store.page, visit.account_id, query)
    return view.page(request, "webhooks/index.html", found=found, shown=_shown(visit), state=_state, may=_may(visit))


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form."""
    return await _form(request, visit, Form({"which": "all"}), None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a webhook, and show its secret once."""
    form = Form.of(request)
    try:
        made, secret = await commit(store.create, visit.account_id, _read(WebhookWrite, form), visit.by)
    except errors.Invalid as refused:
        return await _form(request, visit, _taken(form, refused), None, 422)
    once.keep(visit.session.id, "webhook", (made.id, secret))
    return view.go(request, f"/settings/webhooks/{made.id}")


@pages.get("/<webhook_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """One webhook: its address, its state, and the log of what it was told."""
    return await _show(request, visit, webhook_id)


@pages.get("/<webhook_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """The form with what is set."""
    found = await call(store.get, visit.account_id, webhook_id)
    return await _form(request, visit, together.opened(_kept(found), _PARTS), found, 200)


@pages.post("/<webhook_id:int>", name="update")
@signed_in
@together.meeting
async def update(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Keep what was changed."""
    form = Form.of(request)
    found = await call(store.get, visit.account_id, webhook_id)
    together.meet(form, _PARTS, _kept(found))
    if form.met:
        return await _form(request, visit, form, found, 409)
    try:
        args = (store.update, visit.account_id, webhook_id, _read(WebhookPatch, form), visit.by)
        await commit(together.still, form, _PARTS, lambda: _kept(store.get(*args[1:3])), *args)
    except errors.Invalid as refused:
        return await _form(request, visit, _taken(form, refused), found, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/switch", name="switch")
@signed_in
async def switch(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Switch a webhook on or off."""
    wanted = Form.of(request)["enabled"] == "yes"
    await commit(store.update, visit.account_id, webhook_id, WebhookPatch(enabled=wanted), visit.by)
    view.say(request, "Switched on: it hears of what happens from now on." if wanted else "Switched off.")
    return view.go(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/secret", name="secret")
@signed_in
async def secret(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Give it another secret, and show it once."""
    _, fresh = await commit(store.rotate_secret, visit.account_id, webhook_id, visit.by)
    once.keep(visit.session.id, "webhook", (webhook_id, fresh))
    return view.go(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/test", name="test")
@signed_in
async def test(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Send an invented event now, and say what was answered."""
    webhook, event = await call(trial.prepare, visit.account_id, webhook_id, WebhookTest())
    await asyncio.to_thread(safe_http.load)
    outcome = await trial.send(webhook, event)
    return await _show(request, visit, webhook_id, outcome)


@pages.post("/<webhook_id:int>/again", name="again")
@signed_in
async def again(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Send one delivery once more, or all that were given up."""
    form = Form.of(request)
    if form["delivery"]:
        await commit(deliveries.replay, visit.account_id, webhook_id, number(form["delivery"], 0, 2**53))
        view.say(request, "It is sent once more.")
        return view.go(request, f"/settings/webhooks/{webhook_id}")
    count = bite = await commit(deliveries.replay_failed, visit.account_id, webhook_id, ReplayFailed())
    while bite == deliveries.BITE:
        bite = await commit(deliveries.replay_failed, visit.account_id, webhook_id, ReplayFailed())
        count += bite
    view.say(request, f"{words.count(count, 'delivery is', 'deliveries are')} sent once more.")
    return view.go(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Delete a webhook with its log."""
    gone = await commit(store.delete, visit.account_id, webhook_id, visit.by)
    view.say(request, f"{store.host(gone)} is told nothing any more.")
    return view.go(request, "/settings/webhooks")


def _may(visit: Visit) -> bool:
    return rights.may(visit.user.role, "POST", "/settings/webhooks")


def _secret(visit: Visit, webhook_id: int) -> str | None:
    """Return the secret that this person has just made, for the one time that it is shown."""
    kept = once.take(visit.session.id, "webhook")
    return str(kept[1]) if isinstance(kept, tuple) and kept[0] == webhook_id else None


def _shown(visit: Visit) -> Any:
    """Return how an address is shown: whole, or its host alone to who may not change it."""
    return (lambda row: row.url) if _may(visit) else store.host


def _state(row: Any) -> tuple[str, str]:
    if not row.enabled:
        return "stopped", "Switched off" if not row.disabled_reason else "Switched off by us"
    return ("failed", "Failing") if row.failing_since else ("done", "On")


def _kept(row: Any) -> Form:
    return Form({"url": row.url, "which": "some" if row.events else "all", "own": ""}, {"events": list(row.events)})


def _events(form: Form) -> list[str]:
    own = [name.strip() for name in form["own"].replace("\n", ",").split(",") if name.strip()]
    return [] if form["which"] == "all" else [*form.all("events"), *own]


def _raw(form: Form) -> dict[str, Any]:
    chosen = _events(form)
    if form["which"] != "all" and not chosen:
        form.wrong("which", "Choose at least one event, or everything.")
    if any(kinds.fault(name) == "is invalid" for name in chosen):
        form.wrong("own", _NAMES)
    return {"url": form["url"], "events": chosen}


def _read(kind: Any, form: Form) -> Any:
    """Read what a form asks for; raises Invalid, also for what is noted at the form already."""
    asked = fields.read(kind, _raw(form))
    if form.errors:
        raise errors.Invalid({})
    return asked


def _taken(form: Form, refused: errors.Invalid) -> Form:
    """Note what is wrong, in words about the form."""
    if any(path.startswith("events") for path in refused.fields):
        form.wrong("own", _NAMES)
    if "url" in refused.fields:
        form.wrong("url", "Write an address that other programs can be reached at, like https://example.com/hook.")
    if "base" in refused.fields:
        form.wrong("base", words.sentence(refused.fields["base"][0]))
    return form


async def _form(request: Request, visit: Visit, form: Form, webhook: Any, status: int) -> HTTPResponse:
    if not _may(visit):
        raise errors.NotAllowed("Webhooks are made and changed by owners and admins.")
    counts = await call(log.counts, visit.account_id, clock.now_ms() - _MONTH_MS)
    own = sorted({name for name in [*counts, *form.all("events")] if name not in kinds.RESERVED and name != store.ALL})
    groups = [
        (label, [(kind.name, words.event(kind.name)[2]) for kind in kinds.KINDS if kind.group == group])
        for group, label in _GROUPS.items()
    ]
    if own:
        groups.insert(0, ("Your own", [(name, name) for name in own]))
    return view.page(request, "webhooks/form.html", status, form=form, webhook=webhook, groups=groups)


async def _show(request: Request, visit: Visit, webhook_id: int, tested: Any = None) -> HTTPResponse:
    status = request.args.get("status") or ""
    raw = {"page": number(request.args.get("page")), "limit": 50}
    asked = fields.read(DeliveryQuery, raw | ({"status": status} if status in STATUSES else {}))

    def read() -> tuple[Any, Any]:
        found = store.get(visit.account_id, webhook_id)
        return found, deliveries.page(visit.account_id, webhook_id, asked)

    found, told = await call(read)
    return view.page(
        request, "webhooks/show.html", webhook=found, told=told, status=status if status in STATUSES else "",
        statuses=STATUSES, secret=_secret(visit, webhook_id), tested=tested, state=_state(found),
        why_off=_OFF.get(found.disabled_reason or ""), shown=_shown(visit)(found), host=store.host(found),
        may=_may(visit),
    )  # fmt: skip
