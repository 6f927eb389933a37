"""Home: what is left to set up, then what is going on."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts
from appliance.audience.contacts import lists as contacts_lists
from appliance.campaigns import states, store
from appliance.campaigns.requests import CampaignQuery, Phase
from appliance.content import brand
from appliance.core.rested import Rested
from appliance.events import retention
from appliance.events.log import EventQuery
from appliance.flows import store as flows
from appliance.sending.domains import store as domains
from appliance.sending.messages import open_messages
from appliance.settings import config
from appliance.storage.work import call
from ui import view
from ui.guard import signed_in
from ui.pages import activity
from ui.session import Pages, Visit

pages = Pages("ui_home")
_NOW: tuple[Phase, ...] = ("holding", "sending", "paused")
_FEW = 5
_followed: Rested[dict[str, Any]] = Rested(least=0.8, rests=5)
# From here on mailbox providers begin to refuse (docs/decisions.md#6)
_MAX_BOUNCED, _MAX_COMPLAINED = states.MAX_BOUNCES, states.MAX_COMPLAINTS


@pages.get("/", name="index")
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The checklist until it is done; then now, next, how lists grow, how mail fares, and what happened."""
    if view.is_part(request) and view.target(request) == "happening":
        found = await call(_followed.get, visit.account_id, lambda: _happening(visit.account_id))
        return view.page(request, "home/index.html", **found)
    facts = await call(_facts, visit.account_id, visit.account)
    return view.page(request, "home/index.html", **facts)


def _happening(account_id: int) -> dict[str, Any]:
    """Return what goes on now and what comes next; asked for again and again while something moves."""
    phases = store.phases(account_id)
    now = sorted(_some(account_id, phases, _NOW), key=lambda row: row.updated_at, reverse=True)
    return {
        "now_rows": now,
        "moving": any(row.phase in ("holding", "sending") for row in now),
        "next_rows": sorted(_some(account_id, phases, ("scheduled",)), key=lambda row: row.scheduled_at),
        "asked_rows": _asked(account_id),
        "doubts": open_messages.count(account_id, "uncertain"),
    }


def _asked(account_id: int) -> list[tuple[str, str, int]]:
    """Return what waits for approval: its name, its page, and since when; the longest first."""
    campaigns = store.page(account_id, CampaignQuery(limit=_FEW, asked=True), sums=False).rows
    found = [(row.name, f"/campaigns/{row.id}", row.asked_at) for row in campaigns]
    found += [(row.name, f"/flows/{row.id}", row.asked_at) for row in flows.to_approve(account_id)]
    return sorted(found, key=lambda one: one[2])


def _facts(account_id: int, account: Any) -> dict[str, Any]:
    phases = store.phases(account_id)
    people, lists = accounts.crowd(account_id)
    has_sent = any(phases.get(name) for name in (*_NOW, "completed", "cancelled"))
    fared = retention.mail_health(account_id)
    return {
        **_happening(account_id),
        "steps": _steps(brand.get(account_id), account, people, lists, has_sent),
        "people": people, "lists": lists, "campaigns": sum(phases.values()), "fared": fared, "limits": _limits(fared),
        "growing": [one for one in contacts_lists.list_growth(account_id) if one.size],
        "drafts": _some(account_id, phases, ("draft",))[:_FEW],
        "done_rows": _some(account_id, phases, ("completed", "cancelled"))[:_FEW],
        "events": activity.load(account_id, EventQuery(limit=8, test=False)).rows,
    }  # fmt: skip


def _limits(fared: retention.Health) -> list[tuple[str, int, float, float, str]]:
    """Return what providers judge by: its name, how many, their share, where it begins to hurt, and where they are."""
    if fared.sent < states.FROM_MESSAGES:
        return []  # too few to say anything
    reached = max(fared.sent - fared.bounced, 1)
    return [
        ("Bounced", fared.bounced, fared.bounced / fared.sent, _MAX_BOUNCED, "/activity?event=email_bounced"),
        ("Called spam", fared.complained, fared.complained / reached, _MAX_COMPLAINED,
         "/activity?event=email_complained"),
    ]  # fmt: skip


def _some(account_id: int, phases: dict[str, int], names: tuple[Phase, ...]) -> list[Any]:
    return [row for name in names if phases.get(name) for row in _few(account_id, name)]


def _few(account_id: int, phase: Phase) -> list[Any]:
    return list(store.page(account_id, CampaignQuery(limit=_FEW, phase=phase)).rows)


def _domain(account_id: int) -> list[tuple[str, str, str, str, bool]]:
    """Return the step that only mail which really leaves needs."""
    email = config.current().email
    if email.transport == "capture" or email.allow_unverified_domains:
        return []
    done = domains.first_verified(account_id) is not None
    text = "A few lines in DNS, and receivers know that mail in your name is from you."
    return [("Show that your domain is yours", text, "/settings/domains", "zap", done)]


def _steps(look: Any, account: Any, people: int, lists: int, has_sent: bool) -> list[dict[str, Any]]:
    first = "In capture mode it goes to the inbox here, so nothing can go wrong."
    if config.current().email.transport != "capture":
        first = "You see for how many people it is before anything leaves."
    lines = (
        ("Say who is writing", "Company and postal address stand at the foot of every email.", "/brand", "palette",
         bool(look.company_name and look.physical_address)),
        ("Choose the name and address people see", "They know at a glance that it is you.", "/settings", "mail",
         bool(account.email_from_email)),
        *_domain(account.id),
        ("Bring in your people", "Add one person, and put them into a list.",
         "/lists/new" if people else "/contacts/new", "users", people > 0 and lists > 0),
        ("Send a first email", first, "/campaigns/new", "send", has_sent),
    )  # fmt: skip
    return [dict(zip(("title", "text", "href", "icon", "done"), line, strict=True)) for line in lines]
