"""The pages of webhooks: the list, the form, the log of deliveries, and replays."""

import asyncio
from collections.abc import Mapping
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access
from appliance.core import clock, errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.events import log
from appliance.sending.delivery import safe_http
from appliance.storage.transactions import commit, fetch
from appliance.webhooks import queue, subscriptions, worker
from appliance.webhooks.queue import DeliveryQuery, ReplayFailedRequest
from appliance.webhooks.subscriptions import WebhookPatch, WebhookQuery, WebhookWrite
from appliance.webhooks.worker import WebhookTest
from ui import formats, forms, labels, session, view
from ui.forms import Form, FormPart, parse_id, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit

pages = Pages("ui_webhooks", url_prefix="/settings/webhooks")

_MONTH_MS = 30 * clock.DAY_MS
_GROUP_LABELS = {
    "email": gettext_noop("Email"), "sms": gettext_noop("SMS"), "consent": gettext_noop("Consent"),
    "contact": gettext_noop("Contacts"), "audience": gettext_noop("Lists and segments"),
    "flow": gettext_noop("Flows"), "campaign": gettext_noop("Campaigns and settings"),
}  # fmt: skip
STATUSES = {
    "pending": ("sched", pgettext_noop("delivery", "Queued")),
    "delivered": ("done", pgettext_noop("delivery", "Delivered")),
    "failed": ("failed", pgettext_noop("delivery", "Failed")),
    "cancelled": ("stopped", pgettext_noop("delivery", "Cancelled")),
}  # fmt: skip
_EVENT_NAME_ERROR = gettext_noop("Event names consist of lowercase letters, digits and _, such as order_paid.")
_DISABLED_REASONS = {
    "failing": gettext_noop("Turned off after failing for three days."),
    "gone": gettext_noop("Turned off because the server responded with 410 (permanently gone)."),
}


_URL_LABEL = gettext_noop("URL")


class _WebhookParts(forms.FormParts):
    """The parts of the webhook form, for edit conflicts; selected and entered events are one part."""

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part; for events the sorted names, where an empty list means all events."""
        return super().value(form, key) if key == _URL_LABEL else sorted(set(_read_events(form)))

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user."""
        if key == _URL_LABEL:
            return super().describe(form, key, names)
        return ", ".join(self.value(form, key)) or gettext("All events")


_FORM_PARTS = _WebhookParts(
    FormPart(_URL_LABEL, ("url",)), FormPart(gettext_noop("Events"), ("which", "events", "own"), True)
)


@pages.get("/", name="index", strict_slashes=False)
@signed_in(access.FULL_SCOPE)
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the webhooks of the account."""
    query = WebhookQuery(page=parse_int(request.args.get("page")), limit=50)
    page = await fetch(subscriptions.list_webhooks, visit.account_id, query)
    return view.render(
        request,
        "webhooks/index.html",
        page=page,
        format_url=_url_formatter(visit),
        state=_webhook_badge,
        may_edit=_can_edit(visit),
    )


@pages.get("/new", name="new")
@signed_in("account:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new webhook, with all events selected."""
    return await _render_form(request, visit, Form({"which": "all"}), None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in("account:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a webhook, and show its secret once."""
    form = Form.from_request(request)
    try:
        created, secret = await commit(
            subscriptions.create, visit.account_id, _parse_form(WebhookWrite, form), visit.actor
        )
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), None, 422)
    session.store_secret(visit.session.id, "webhook", (created.id, secret))
    return view.redirect(request, f"/settings/webhooks/{created.id}")


@pages.get("/<webhook_id:int>", name="show")
@signed_in(access.FULL_SCOPE)
async def show(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Show a webhook: its URL, state, and log of deliveries."""
    return await _render_webhook(request, visit, webhook_id)


@pages.get("/<webhook_id:int>/edit", name="edit")
@signed_in("account:write")
async def edit(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Show the form with the stored URL and events of a webhook."""
    webhook = await fetch(subscriptions.get, visit.account_id, webhook_id)
    return await _render_form(request, visit, forms.open_form(_build_form(webhook), _FORM_PARTS), webhook, 200)


@pages.post("/<webhook_id:int>", name="update")
@signed_in("account:write")
@forms.retry_on_change
async def update(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Save the form of a webhook."""
    form = Form.from_request(request)
    webhook = await fetch(subscriptions.get, visit.account_id, webhook_id)
    forms.merge_form(form, _FORM_PARTS, _build_form(webhook))
    if form.conflicts:
        return await _render_form(request, visit, form, webhook, 409)
    try:
        args = (subscriptions.update, visit.account_id, webhook_id, _parse_form(WebhookPatch, form), visit.actor)
        await commit(
            forms.write_if_unchanged,
            form,
            _FORM_PARTS,
            lambda: _build_form(subscriptions.get(*args[1:3])),
            *args,
        )
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), webhook, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/switch", name="switch")
@signed_in("account:write")
async def enable_or_disable(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Enable or disable a webhook."""
    is_enabled = Form.from_request(request)["enabled"] == "yes"
    await commit(subscriptions.update, visit.account_id, webhook_id, WebhookPatch(enabled=is_enabled), visit.actor)
    view.flash(request, gettext("Webhook turned on.") if is_enabled else gettext("Webhook turned off."))
    return view.redirect(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/secret", name="secret")
@signed_in("account:write")
async def rotate_secret(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Replace the secret of a webhook, and show the new secret once."""
    _, fresh = await commit(subscriptions.rotate_secret, visit.account_id, webhook_id, visit.actor)
    session.store_secret(visit.session.id, "webhook", (webhook_id, fresh))
    return view.redirect(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/test", name="test")
@signed_in("account:write")
async def send_test(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Send a test event to a webhook, and show the response."""
    webhook, event = await fetch(worker.prepare_test, visit.account_id, webhook_id, WebhookTest())
    await asyncio.to_thread(safe_http.preload)
    test_result = await worker.send_test(webhook, event)
    return await _render_webhook(request, visit, webhook_id, test_result)


@pages.post("/<webhook_id:int>/again", name="again")
@signed_in("account:write")
async def replay(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Repeat one delivery of a webhook, or all failed deliveries."""
    form = Form.from_request(request)
    if form["delivery"]:
        await commit(queue.replay, visit.account_id, webhook_id, parse_id(form["delivery"]))
        view.flash(request, gettext("Event queued again."))
        return view.redirect(request, f"/settings/webhooks/{webhook_id}")
    count = bite = await commit(queue.replay_failed, visit.account_id, webhook_id, ReplayFailedRequest())
    while bite == queue.REPLAY_BATCH_SIZE:
        bite = await commit(queue.replay_failed, visit.account_id, webhook_id, ReplayFailedRequest())
        count += bite
    view.flash(request, ngettext("%(num)s event queued again.", "%(num)s events queued again.", count))
    return view.redirect(request, f"/settings/webhooks/{webhook_id}")


@pages.post("/<webhook_id:int>/delete", name="delete")
@signed_in("account:write")
async def delete(request: Request, visit: Visit, webhook_id: int) -> HTTPResponse:
    """Delete a webhook with its log of deliveries."""
    deleted = await commit(subscriptions.delete, visit.account_id, webhook_id, visit.actor)
    view.flash(request, gettext("Webhook for %(host)s deleted.", host=subscriptions.webhook_host(deleted)))
    return view.redirect(request, "/settings/webhooks")


def _can_edit(visit: Visit) -> bool:
    return visit.can("account:write")


def _pop_new_secret(visit: Visit, webhook_id: int) -> str | None:
    """Return the secret that the user has just created for this webhook, once; otherwise None."""
    stored = session.pop_secret(visit, "webhook")
    return str(stored[1]) if isinstance(stored, tuple) and stored[0] == webhook_id else None


def _url_formatter(visit: Visit) -> Any:
    """Return the function that displays a webhook's URL.

    Users who may not change webhooks see only its host.
    """
    return (lambda row: row.url) if _can_edit(visit) else subscriptions.webhook_host


def _webhook_badge(row: Any) -> tuple[str, str]:
    if not row.enabled:
        return "stopped", gettext("Turned off automatically") if row.disabled_reason else pgettext("webhook", "Off")
    return ("failed", pgettext("webhook", "Failing")) if row.failing_since else ("done", pgettext("webhook", "On"))


def _build_form(row: Any) -> Form:
    return Form({"url": row.url, "which": "some" if row.events else "all", "own": ""}, {"events": list(row.events)})


def _read_events(form: Form) -> list[str]:
    own = [name.strip() for name in form["own"].replace("\n", ",").split(",") if name.strip()]
    return [] if form["which"] == "all" else [*form.getlist("events"), *own]


def _read_fields(form: Form) -> dict[str, Any]:
    events = _read_events(form)
    if form["which"] != "all" and not events:
        form.add_error("which", gettext("Select at least one event, or all events."))
    if any(log.find_name_error(name) == "is invalid" for name in events):
        form.add_error("own", gettext(_EVENT_NAME_ERROR))
    return {"url": form["url"], "events": events}


def _parse_form(kind: Any, form: Form) -> Any:
    """Parse a form to the Struct `kind`. Raises Invalid, also if the form has errors already."""
    filters = validation.read(kind, _read_fields(form))
    if form.errors:
        raise errors.Invalid({})
    return filters


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of an Invalid to the fields of the form as sentences, and return the form."""
    if any(path.startswith("events") for path in error.fields):
        form.add_error("own", gettext(_EVENT_NAME_ERROR))
    if "url" in error.fields:
        form.add_error("url", gettext("Enter a public URL, such as https://example.com/hook."))
    if "base" in error.fields:
        form.add_error("base", formats.sentence(error.fields["base"][0]))
    return form


async def _render_form(request: Request, visit: Visit, form: Form, webhook: Any, status: int) -> HTTPResponse:
    counts = await fetch(log.count_by_name, visit.account_id, clock.now_ms() - _MONTH_MS)
    own = sorted(
        {
            name
            for name in [*counts, *form.getlist("events")]
            if name not in log.RESERVED_NAMES and name != subscriptions.ALL_EVENTS
        }
    )
    groups = [
        (gettext(label), [(kind.name, labels.event(kind.name)[2]) for kind in log.EVENT_KINDS if kind.group == group])
        for group, label in _GROUP_LABELS.items()
    ]
    if own:
        groups.insert(0, (gettext("Custom events"), [(name, name) for name in own]))
    return view.render(request, "webhooks/form.html", status, form=form, webhook=webhook, groups=groups)


async def _render_webhook(request: Request, visit: Visit, webhook_id: int, tested: Any = None) -> HTTPResponse:
    status = request.args.get("status") or ""
    raw = {"page": parse_int(request.args.get("page")), "limit": 50}
    query = validation.read(DeliveryQuery, raw | ({"status": status} if status in STATUSES else {}))

    def read() -> tuple[Any, Any]:
        webhook = subscriptions.get(visit.account_id, webhook_id)
        return webhook, queue.list_deliveries(visit.account_id, webhook_id, query)

    webhook, outcome = await fetch(read)
    return view.render(
        request, "webhooks/show.html",
        statuses={key: (tone, pgettext("delivery", label)) for key, (tone, label) in STATUSES.items()},
        webhook=webhook, deliveries=outcome, status=status if status in STATUSES else "",
        secret=_pop_new_secret(visit, webhook_id), tested=tested, state=_webhook_badge(webhook),
        why_off=gettext(_DISABLED_REASONS.get(webhook.disabled_reason or "", "")),
        display_url=_url_formatter(visit)(webhook), host=subscriptions.webhook_host(webhook), may_edit=_can_edit(visit),
    )  # fmt: skip
