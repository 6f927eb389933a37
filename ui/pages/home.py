"""The Home page (setup checklist, campaigns, rates, events) and the jump box."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, accounts, approvals, audit
from appliance.accounts import limits as account_limits
from appliance.audience import lists
from appliance.audience import lists as contact_lists
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.store import ContactQuery
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import results, states
from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignQuery, Phase
from appliance.content import brand
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateQuery
from appliance.core import i18n, validation
from appliance.core.cache import CostAwareCache
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.events import log
from appliance.events.log import EventQuery
from appliance.flows import report as flow_report
from appliance.flows import store as flows
from appliance.flows.store import FlowQuery
from appliance.inbound import sms_conversations
from appliance.inbound.sms_conversations import IncomingQuery
from appliance.ops import updates
from appliance.sending.domains import store as domains
from appliance.sending.domains.store import DomainQuery
from appliance.sending.messages import delivery_status
from appliance.settings import config
from appliance.storage.transactions import fetch, scan_for
from appliance.tracking import orders
from appliance.webhooks import subscriptions
from appliance.webhooks.subscriptions import WebhookQuery
from ui import formats, labels, view
from ui.guard import signed_in
from ui.pages import activity, docs
from ui.session import Pages, Visit
from ui.widgets import charts

pages = Pages("ui_home")

_CURRENT_PHASES: tuple[Phase, ...] = ("holding", "sending", "paused")
_DONE_PHASES: tuple[Phase, ...] = ("completed", "cancelled")
# The account that manages the installation.
_FIRST_ACCOUNT = 1
_MAX_ROWS = 5
# The number of days whose orders are counted
_ORDER_DAYS = 30
_activity_cache: CostAwareCache[dict[str, Any]] = CostAwareCache(min_age_seconds=0.8, cost_factor=5)
# The bounce and complaint rates above which mailbox providers begin to reject messages (docs/decisions.md#6).
_MAX_BOUNCED, _MAX_COMPLAINED = states.MAX_BOUNCES, states.MAX_COMPLAINTS


@pages.get("/")
@signed_in()
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the setup checklist until it is complete, campaigns, list growth, rates and events.

    A partial request for the block `happening` gets only the campaigns in progress, one for `growth` only list growth.
    """
    if not visit.sees_home():
        first = next((page.href for page in view.list_navigation("") if visit.can_open(page.href)), "/settings/you")
        return view.redirect(request, first)
    if view.is_partial(request) and view.target_id(request) == "happening":
        key = visit.account_id, i18n.get_language()
        activity_ = await fetch(_activity_cache.get, key, lambda: _load_activity(visit.account_id))
        return view.render(request, "home/index.html", **activity_)
    days = int(request.args.get("growth") or 0) if (request.args.get("growth") or "").isdecimal() else 0
    days = days if days in charts.GROWTH_RANGES else next(iter(charts.GROWTH_RANGES))
    if view.is_partial(request) and view.target_id(request) == "growth":
        return view.render(request, "home/index.html", **await scan_for(visit.account_id, _load_growth, visit, days))
    facts = await fetch(_load_home, visit, visit.account)
    facts |= await scan_for(visit.account_id, _load_growth, visit, days)
    return view.render(request, "home/index.html", **facts)


def _load_growth(visit: Visit, days: int) -> dict[str, Any]:
    """Return the template context of the growth of lists in the last `days` days.

    If no list has contacts, `growing` and `growth` are empty.
    """
    formats.current_zone.set(visit.zone)
    growing = [item for item in contact_lists.measure_growth(visit.account_id) if item.size]
    bars = charts.build_growth(visit.account_id, days) if growing else []
    joined, left = sum(bar.joined for bar in bars), sum(bar.left for bar in bars)
    return {
        "growing": growing, "growth": bars, "joined": joined, "gone": left, "growth_days": days,
        "growth_ranges": [(key, gettext(label)) for key, label in sorted(charts.GROWTH_RANGES.items())],
    }  # fmt: skip


def _load_activity(account_id: int) -> dict[str, Any]:
    """Return the template context that the Home page refreshes while a campaign is being sent.

    The context has the campaigns in progress and scheduled, open approval requests, the number of uncertain
    messages, and the limits of the account of which 80 % are used.
    """
    phases = campaigns.count_by_phase(account_id)
    now = sorted(_list_by_phases(account_id, phases, _CURRENT_PHASES), key=lambda row: row.updated_at, reverse=True)
    return {
        "now_rows": now,
        "moving": any(row.phase in ("holding", "sending") for row in now),
        "next_rows": sorted(_list_by_phases(account_id, phases, ("scheduled",)), key=lambda row: row.scheduled_at),
        "asked_rows": _list_approval_requests(account_id),
        "doubts": delivery_status.count_by_status(account_id, "uncertain"),
        "full_limits": [
            account_limits.describe(use)
            for use in account_limits.list_uses(account_id)
            if use.share >= account_limits.WARN_SHARE
        ],
    }


def _list_approval_requests(account_id: int) -> list[tuple[str, str, int]]:
    """Return the open approval requests as (name, URL, time), the oldest first."""
    rows = campaigns.list_campaigns(account_id, CampaignQuery(limit=_MAX_ROWS, awaiting_approval=True), sums=False).rows
    requests = [(row.name, f"/campaigns/{row.id}", row.asked_at) for row in rows]
    requests += [(row.name, f"/flows/{row.id}", row.asked_at) for row in flows.list_awaiting_approval(account_id)]
    return sorted(requests, key=lambda request: request[2])


def _load_home(visit: Visit, account: Any) -> dict[str, Any]:
    account_id = visit.account_id
    phases = campaigns.count_by_phase(account_id)
    contact_count, list_count = accounts.count_audience(account_id)
    has_sent = any(phases.get(name) for name in (*_CURRENT_PHASES, "completed", "cancelled"))
    health = log.get_mail_health(account_id)
    done_rows = _list_sent(account_id)
    return {
        **_load_activity(account_id),
        "steps": _list_setup_steps(brand.get(account_id), account, contact_count, list_count, has_sent),
        "people": contact_count, "lists": list_count, "campaigns": sum(phases.values()), "health": health,
        "limits": _list_rates(health),
        "drafts": _list_by_phases(account_id, phases, ("draft",))[:_MAX_ROWS],
        "done_rows": done_rows, "results": results.list_results(done_rows),
        **_load_live_flows(account),
        "orders": orders.count_after_emails(account_id, _ORDER_DAYS, account.attribution_days),
        "attention": sorted(
            [*_list_approvals(visit), *_list_problems(account_id, health), *_list_versions(visit)],
            key=lambda problem: problem[0] != "bad",
        ),
        "events": activity.load_events(account_id, EventQuery(limit=8, test=False), is_grouped=True).rows,
    }  # fmt: skip


def _load_live_flows(account: Any) -> dict[str, Any]:
    """Return the template context of the live flows, those that changed last first."""
    rows = list(flows.list_flows(account.id, FlowQuery(limit=_MAX_ROWS, status="active"), "-updated").rows)
    return {
        "live_flows": rows, "flow_stats": flow_report.load_stats(rows),
        "flow_orders": orders.count_by_flow([row.id for row in rows], account.attribution_days),
    }  # fmt: skip


def _list_rates(health: log.MailHealth) -> list[tuple[str, int, float, float, str]]:
    """Return the rates that mailbox providers judge senders by, as (label, number, share, limit, URL).

    The list is empty below `states.FROM_MESSAGES` messages.
    """
    if health.sent < states.FROM_MESSAGES:
        return []  # too few messages for meaningful rates
    delivered = max(health.sent - health.bounced, 1)
    return [
        (gettext("Hard bounce rate"), health.bounced, health.bounced / health.sent, _MAX_BOUNCED,
         "/activity?event=email_bounced"),
        (gettext("Spam complaint rate"), health.complained, health.complained / delivered, _MAX_COMPLAINED,
         "/activity?event=email_complained"),
    ]  # fmt: skip


def _list_sent(account_id: int) -> list[Any]:
    """Return the campaigns that were sent last, without sums."""
    rows: list[Any] = []
    for phase in _DONE_PHASES:
        query = CampaignQuery(limit=_MAX_ROWS, phase=phase)
        rows += campaigns.list_campaigns(account_id, query, "-started", sums=False).rows
    return sorted(rows, key=lambda row: row.started_at or 0, reverse=True)[:_MAX_ROWS]


def _list_approvals(visit: Visit) -> list[tuple[str, str, str]]:
    """Return what the user has to approve, or to change after a rejection, as (colour class, text, URL)."""
    account_id, todo = visit.account_id, []
    asked = campaigns.list_campaigns(account_id, CampaignQuery(limit=_MAX_ROWS, awaiting_approval=True), sums=False)
    waiting = [
        *((f"/campaigns/{row.id}", row) for row in asked.rows),
        *((f"/flows/{row.id}", row) for row in flows.list_awaiting_approval(account_id)),
    ]
    if mine := [href for href, row in waiting if approvals.can_approve(row, visit.actor)]:
        text = ngettext("%(num)s item needs your approval.", "%(num)s items need your approval.", len(mine))
        todo.append(("warn", text, mine[0]))
    refused = CampaignQuery(limit=_MAX_ROWS, phase="draft", approval_state="rejected")
    for row in campaigns.list_campaigns(account_id, refused, "-updated", sums=False).rows:
        if _is_author(visit, row):
            text = gettext("“%(name)s” was rejected: %(note)s", name=row.name, note=row.approval_note or "")
            if not row.approval_note:
                text = gettext("“%(name)s” was rejected.", name=row.name)
            todo.append(("warn", text, f"/campaigns/{row.id}"))
    return todo


def _is_author(visit: Visit, campaign: Any) -> bool:
    """Return whether the user changed a rejected campaign last or requested its approval."""
    if campaign.edited_by == visit.user.id:
        return True
    actions = ("campaign_ask_approval",)
    entry = audit.find_latest(visit.account_id, f"campaign:{campaign.id}", actions, campaign.created_at)
    return entry is not None and entry.actor == visit.actor_id


def _list_problems(account_id: int, health: log.MailHealth) -> list[tuple[str, str, str]]:
    """Return what needs attention, as (colour class, text, URL)."""
    problems = [
        ("bad", gettext("%(domain)s is no longer verified: DNS records are missing.",
                        domain=formats.unicode_domains(domain.name)), f"/settings/domains/{domain.id}")
        for domain in domains.list_domains(account_id, DomainQuery(limit=100)).rows if domain.status == "failed"
    ]  # fmt: skip
    for campaign in _list_by_phase(account_id, "paused"):
        if campaign.pause_reason:
            reason = formats.uncapitalize(labels.reason_label(campaign.pause_reason, campaign.channel))
            text = gettext("“%(name)s” was paused: %(reason)s.", name=campaign.name, reason=reason)
            problems.append(("bad", text, f"/campaigns/{campaign.id}"))
    for label, _, share, limit, href in _list_rates(health):
        if share > limit / 2:
            values = {"name": label, "rate": formats.share_of_limit(share, limit), "limit": formats.share(limit)}
            text = gettext("%(name)s: %(rate)s. Keep it below %(limit)s.", **values)
            problems.append(("bad" if share > limit else "warn", text, href))
    for webhook in subscriptions.list_webhooks(account_id, WebhookQuery(limit=100)).rows:
        if webhook.enabled or not webhook.disabled_reason:
            continue
        text = gettext("The webhook to %(host)s was turned off.", host=subscriptions.webhook_host(webhook))
        problems.append(("warn", text, f"/settings/webhooks/{webhook.id}"))
    replies = sms_conversations.list_incoming(account_id, IncomingQuery(unseen=True, limit=1)).total
    if replies:
        text = ngettext("%(num)s SMS reply may be an opt-out.", "%(num)s SMS replies may be opt-outs.", replies)
        problems.append(("warn", text, "/activity/answers?show=unseen"))
    return problems


def _list_versions(visit: Visit) -> list[tuple[str, str, str]]:
    """Return the notice of a newer version for users who may install it, as `_list_problems` does."""
    if visit.account_id != _FIRST_ACCOUNT or not visit.can(access.ADMIN_SCOPE):
        return []
    new = updates.find_new_version()
    if new is None:
        return []
    return [("warn", gettext("Version %(version)s of Campanero is available.", version=new.version), new.url)]


def _list_by_phases(account_id: int, phases: dict[str, int], names: tuple[Phase, ...]) -> list[Any]:
    return [row for name in names if phases.get(name) for row in _list_by_phase(account_id, name)]


def _list_by_phase(account_id: int, phase: Phase) -> list[Any]:
    return list(campaigns.list_campaigns(account_id, CampaignQuery(limit=_MAX_ROWS, phase=phase)).rows)


class SetupStep(NamedTuple):
    """A step of the setup checklist; `scope` is what a user needs to take it.

    The checklist is complete without its optional steps.
    """

    title: str
    text: str
    button: str
    href: str
    icon: str
    scope: str
    done: bool
    is_optional: bool = False


def _list_domain_step(account_id: int) -> list[SetupStep]:
    """Return a list with the setup step for a sending domain, empty in test mode.

    The step is optional if the mail server sends from any domain.
    """
    email = config.current().email
    if email.transport == "capture":
        return []
    is_done = domains.find_default_domain(account_id) is not None
    text = gettext("Add a few DNS records to prove you own it.")
    if email.allow_unverified_domains:
        text = gettext("Your mail server sends from any domain. DNS records of your own keep more emails out of spam.")
    return [
        SetupStep(
            gettext("Verify your sending domain"), text, gettext("Verify domain"), "/settings/domains", "zap",
            "domains:write", is_done, email.allow_unverified_domains,
        )
    ]  # fmt: skip


def _contacts_step(contact_count: int, list_count: int) -> SetupStep:
    if contact_count and not list_count:
        return SetupStep(
            gettext("Create a list"), gettext("Add your contacts to a list, such as your newsletter."),
            gettext("Create list"), "/lists/new", "users", "contacts:write", False,
        )  # fmt: skip
    return SetupStep(
        gettext("Import your contacts"), gettext("Upload a CSV file, or add one by hand."),
        pgettext("verb", "Import"),
        "/contacts/imports/new", "users", "contacts:write", contact_count > 0 and list_count > 0,
    )  # fmt: skip


def _list_setup_steps(look: Any, account: Any, contact_count: int, list_count: int, has_sent: bool) -> list[SetupStep]:
    if config.current().email.transport == "capture":
        first = gettext("In test mode it goes to the test inbox, not to your contacts.")
    else:
        first = gettext("You see the number of recipients before anything is sent.")
    return [
        SetupStep(
            gettext("Add your company details"),
            gettext("Shown in every email footer; required by law in most countries."),
            gettext("Add details"), "/brand", "palette", "account:write",
            bool(look.company_name and look.physical_address),
        ),
        SetupStep(
            gettext("Set your From name and address"), gettext("Contacts see them in their inbox."),
            gettext("Set up"), "/settings", "mail", "account:write", bool(account.email_from_email),
        ),
        *_list_domain_step(account.id),
        _contacts_step(contact_count, list_count),
        SetupStep(
            gettext("Send your first email"), first, gettext("New email"), "/campaigns/new", "send", "campaigns:write",
            has_sent,
        ),
    ]  # fmt: skip


# The jump box.

_MAX_MATCHES, _MAX_GUIDES = 5, 3
# The commands: label, URL, icon, the scope that a user needs, and further words that find the command.
_COMMANDS = (
    (gettext_noop("New email"), "/campaigns/new", "mail", "campaigns:write", "create campaign newsletter"),
    (gettext_noop("New SMS"), "/campaigns/new?channel=sms", "smartphone", "campaigns:write",
     "create campaign text message"),
    (gettext_noop("Add contact"), "/contacts/new", "user-plus", "contacts:write", "new create a person subscriber"),
    (gettext_noop("Import contacts"), "/contacts/imports/new", "upload", "contacts:write",
     "add people upload file csv"),
    (gettext_noop("New list"), "/lists/new", "list", "contacts:write", "create add"),
    (gettext_noop("New segment"), "/segments/new", "list-filter", "contacts:write", "create add"),
    (gettext_noop("New form"), "/forms/new", "user-plus", "contacts:write", "create add sign-up signup"),
    (gettext_noop("New flow"), "/flows/new", "workflow", "flows:write", "create add automation"),
    (gettext_noop("New template"), "/templates/new", "layout-template", "templates:write", "create add"),
    (gettext_noop("Add domain"), "/settings/domains/new", "send", "domains:write", "new sending verify dns"),
)  # fmt: skip
# Pages that the navigation does not list; they are only found by a search.
_SUBPAGES = (
    (gettext_noop("Outbox"), "/outbox", "inbox"),
    (gettext_noop("Suppression list"), "/contacts/suppressions", "ban"),
    (gettext_noop("Imports"), "/contacts/imports", "upload"),
    (gettext_noop("SMS replies"), "/activity/answers", "inbox"),
    (gettext_noop("Images"), "/templates/pictures", "image"),
    (gettext_noop("Proposals"), "/proposals", "wand-sparkles"),
    (gettext_noop("Documentation"), "/docs", "book-open"),
)
# Words for the contents of the settings pages, by URL: not shown, but a search finds them.
_SETTINGS_WORDS = {
    "/settings": gettext_noop("approval, time zone, language, test recipients, emergency stop, From name, reply-to"),
    "/settings/consent": gettext_noop(
        "frequency cap, quiet hours, holidays, marketing calendar, allowed times, control group, UTM, IP, "
        "open and click tracking, opt-out text"
    ),
}
_GROUP_LABELS = {
    "page": gettext_noop("Pages"), "act": gettext_noop("Actions"), "contact": gettext_noop("Contacts"),
    "campaign": gettext_noop("Campaigns"), "flow": gettext_noop("Flows"), "template": gettext_noop("Templates"),
    "list": gettext_noop("Lists"), "segment": gettext_noop("Segments"), "guide": gettext_noop("Guides"),
}  # fmt: skip
# Objects that can be found by name: group, list function, query struct, icon and URL.
_OBJECTS: tuple[tuple[str, Any, Any, str, str], ...] = (
    ("campaign", campaigns.list_campaigns, CampaignQuery, "send", "/campaigns/{}"),
    ("flow", flows.list_flows, FlowQuery, "zap", "/flows/{}"),
    ("template", templates.fetch_page, TemplateQuery, "layout-template", "/templates/{}/edit"),
    ("list", lists.fetch_page, lists.ListQuery, "list", "/lists/{}"),
    ("segment", segments.fetch_page, SegmentQuery, "users", "/segments/{}"),
)


class Destination(NamedTuple):
    """A result of the jump box; `more` is a detail that tells equal titles apart.

    `language` is the tag of the language of a guide (RFC 5646), empty for other results.
    """

    group: str
    title: str
    href: str
    icon: str
    more: str = ""
    language: str = ""


@pages.get("/jump")
@signed_in()
async def jump(request: Request, visit: Visit) -> HTTPResponse:
    """Show the results of a search; without a search the pages, the commands and the latest campaigns."""
    q = (request.args.get("q") or "").strip()[:100]
    matches = await scan_for(visit.account_id, _search, visit, q)
    groups = [
        (gettext(label), group)
        for key, label in _GROUP_LABELS.items()
        if (group := [destination for destination in matches if destination.group == key])
    ]
    return view.render(request, "jump.html", q=q, count=len(matches), groups=groups)


def _search(visit: Visit, q: str) -> list[Destination]:
    account_id, low = visit.account_id, q.lower()
    current = [
        Destination("page", gettext(page.label), page.href, page.icon)
        for page in view.list_navigation("")
        if _has_words(f"{gettext(page.label)} {page.label}", low)
    ]
    below = [
        Destination("page", title, href, icon)
        for title, href, icon, words in _list_subpages()
        if low and _has_words(f"{title} {words}", low)
    ]
    acts = [
        Destination("act", gettext(title), href, icon)
        for title, href, icon, scope, words in _COMMANDS
        if visit.can(scope) and _has_words(f"{gettext(title)} {title} {words}", low)
    ]
    # By searching for more and more letters, a user could read data that is masked.
    found_contacts = _search_contacts(account_id, q) if q and visit.can(access.FULL_SCOPE) else ()
    objects = _search_objects(account_id, q)
    own = [item for item in (*current, *below, *acts, *found_contacts, *objects) if visit.can_open(item.href)]
    return [*own, *_search_guides(q)]


def _has_words(text: str, low: str) -> bool:
    """Return whether a text contains every word of a search in lower case, in any order."""
    return all(word in text.lower() for word in low.split())


def _list_subpages() -> Iterator[tuple[str, str, str, str]]:
    """Yield the title, URL, icon and further words of the pages that the navigation does not list."""
    yield from ((gettext(title), href, icon, "") for title, href, icon in _SUBPAGES)
    for name, href, _ in view.SETTINGS_TABS:
        words = _SETTINGS_WORDS.get(href, "")
        title = gettext("Settings: %(page)s", page=gettext(name))
        yield title, href, "settings", f"{gettext(words)} {words}" if words else ""


def _search_contacts(account_id: int, q: str) -> Iterator[Destination]:
    for row in contacts.fetch_page(
        account_id, validation.read(ContactQuery, {"search": q, "limit": _MAX_MATCHES})
    ).rows:
        address = next((channel.value for channel in row.channels), "")
        title = formats.contact_name(row)
        yield Destination("contact", title, f"/contacts/{row.id}", "users", address if address != title else "")


def _search_guides(q: str) -> Iterator[Destination]:
    for result in docs.search_documentation(q, only_headings=True, limit=_MAX_GUIDES):
        part = result.part
        more = part.title if part.heading else gettext("Guide")
        yield Destination("guide", part.heading or part.title, part.href, "book-open", more, part.language)


def _search_objects(account_id: int, q: str) -> Iterator[Destination]:
    linked = {item.href for item in view.list_navigation("")}
    for group, page, query, icon, href in _OBJECTS:
        if href.rpartition("/{}")[0] not in linked or (not q and group != "campaign"):
            continue
        raw: dict[str, Any] = {"limit": _MAX_MATCHES} | ({"search": q} if q else {})
        # Only stand-alone templates are searched; a template of a campaign or flow is found by its owner.
        params = validation.read(query, raw | ({"standalone": True} if query is TemplateQuery else {}))
        for row in page(account_id, params).rows:
            more = labels.phase(row.phase)[1] if group == "campaign" else ""
            yield Destination(group, row.name or gettext("Untitled"), href.format(row.id), icon, more)
