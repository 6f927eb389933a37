"""The pages of Activity: the list of events, and incoming SMS to review."""

import re
from datetime import date, timedelta
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import store
from appliance.campaigns import report
from appliance.campaigns import store as campaigns
from appliance.core import clock, validation
from appliance.core.cache import CostAwareCache
from appliance.core.errors import NotFound
from appliance.core.i18n import fold, gettext, gettext_noop, ngettext, pgettext
from appliance.events import log
from appliance.imports import outcome_counts
from appliance.inbound import sms_conversations
from appliance.inbound.sms_conversations import IncomingQuery, OptOutReview
from appliance.storage.database import Page
from appliance.storage.models import Contact, Event, Import
from appliance.storage.transactions import commit, fetch, scan_for
from ui import formats, labels, view
from ui.forms import Form, lookups, parse_day, parse_id, parse_int
from ui.guard import signed_in
from ui.pages import bulk_actions
from ui.pages.audit import actor_label
from ui.session import Pages, Visit

pages = Pages("ui_activity", url_prefix="/activity")

_MONTH_MS = 30 * clock.DAY_MS
_MAX_CANDIDATES = 8
# The batch of the events of an import or of a bulk action (`log.in_batch`).
_BATCH = re.compile(r"(?:import|act):[1-9]\d{0,14}")
_recent_counts: CostAwareCache[dict[str, int]] = CostAwareCache()
# The label of each group of events; the last one is that of events which the service does not record itself.
_GROUPS = {
    "contact": gettext_noop("Contacts"), "audience": gettext_noop("Lists and segments"),
    "consent": gettext_noop("Consent"), "email": gettext_noop("Email"), "sms": gettext_noop("SMS"),
    "flow": gettext_noop("Flows"), "campaign": gettext_noop("Campaigns and settings"),
    "custom": gettext_noop("Custom events"),
}  # fmt: skip


class EventSearch(NamedTuple):
    """The filters of the event list: event name, contact, search for a contact, first and last day, and test events."""

    event: str
    contact_id: int | None
    who: str
    since: date | None
    until: date | None
    tests: bool
    batch: str = ""

    @property
    def is_grouped(self) -> bool:
        """Return whether events of an import or bulk action, and of skipped contacts of a campaign, are one line."""
        return not (self.event or self.contact_id or self.batch)

    def query(self) -> dict[str, Any]:
        """Return the filters as parameters of `EventQuery`, which also select the events of an export."""
        raw: dict[str, Any] = {"event": self.event, "contact_id": self.contact_id}
        raw["created_after"] = self.since.isoformat() if self.since else None
        # The query excludes its end, but the filter includes the last day.
        raw["created_before"] = (self.until + timedelta(days=1)).isoformat() if self.until else None
        raw["test"] = None if self.tests else "false"
        return {name: value for name, value in raw.items() if value}

    def address(self) -> dict[str, Any]:
        """Return the filters as query parameters of this page."""
        return {
            "event": self.event, "contact_id": self.contact_id, "who": self.who, "from": self.since or "",
            "to": self.until or "", "tests": "yes" if self.tests else "", "batch": self.batch,
        }  # fmt: skip


@pages.get("/", strict_slashes=False)
@signed_in("events:read")
async def list_events(request: Request, visit: Visit) -> HTTPResponse:
    """Show the events that match the filters, newest first; test events are only shown on request."""
    query = _read_query(request)

    def read() -> tuple[Page, Contact | None, list[Contact], dict[str, int]]:
        person, candidates = _find_person(visit.account_id, query)
        mine = query._replace(contact_id=person.id) if person is not None else query
        if query.who and person is None:
            return Page([], 0, 1, 50), None, candidates, {}
        raw = {**mine.query(), "page": parse_int(request.args.get("page")), "limit": 50}
        event_query = validation.read(log.EventQuery, raw, loose=True)
        page = load_events(visit.account_id, event_query, mine.batch, mine.is_grouped)
        return page, person, [], _count_recent(visit.account_id)

    page, person, candidates, counts = await scan_for(visit.account_id, read)
    waiting = (
        await fetch(
            sms_conversations.list_incoming, visit.account_id, sms_conversations.IncomingQuery(unseen=True, limit=1)
        )
    ).total
    if person is not None:
        query = query._replace(contact_id=person.id, who="")
    return view.render(
        request, "activity/index.html", also=("export",), page=page, filters=query, person=person,
        candidates=candidates, groups=_group_kinds(counts, query.event), spans=_list_spans(query), waiting=waiting,
        is_filtered=any(query.address().values()),
        batch_label=pgettext("noun", "Import") if query.batch.startswith("import") else gettext("Bulk action"),
    )  # fmt: skip


def _count_recent(account_id: int) -> dict[str, int]:
    """Return the number of events of the last 30 days by name, cached because counting a million events is slow."""
    return _recent_counts.get(account_id, lambda: log.count_by_name(account_id, clock.now_ms() - _MONTH_MS))


class BatchSummary(NamedTuple):
    """The line for all events of an import or bulk action, or for all contacts that a campaign skipped.

    `href` is the page of the import or campaign, or empty. `list_href` and `list_label` lead to all its events.
    """

    text: str
    details: str
    href: str
    list_href: str
    list_label: str


class _BulkResult(NamedTuple):
    """The outcome of a bulk action, from the data of its event."""

    action: str
    state: str
    changed: int
    skipped: dict[str, int]


def load_events(account_id: int, query: log.EventQuery, batch: str = "", is_grouped: bool = False) -> Page:
    """Return a page of events; each row gets its contact as attribute `who`, or None, and the `subject` of its email.

    The subject is empty if a campaign names the email, or if the events are all of one message. `batch` selects the
    events of an import or bulk action. With `is_grouped` such events, and events of contacts that a campaign skips, are
    left out. The events that stand for them get a `summary`, which is None for others.
    """
    page = log.list_events(account_id, query, batch or None, is_grouped)
    contacts_by_id = lookups.contacts_by_id({row.contact_id for row in page.rows if row.contact_id})
    subjects = lookups.email_subjects(page.rows) if not query.resource_uid else {}
    for row in page.rows:
        row.who = contacts_by_id.get(row.contact_id)
        row.subject = subjects.get(row.resource_uid, "")
        row.summary = _summarize_campaign(row) if is_grouped and row.event == "campaign_started" else None
    _add_summaries(account_id, [row for row in page.rows if row.event in _SUMMARIES])
    return page


def _add_summaries(account_id: int, events: list[Event]) -> None:
    if not events:
        return
    names = audit.fetch_actor_names(account_id)
    import_ids = [event.data.get("import_id") for event in events if event.data.get("import_id")]
    stored_imports = {row.id: row for row in Import.select().where(Import.id.in_(import_ids))} if import_ids else {}
    for event in events:
        if event.event == "import_completed" and (job := stored_imports.get(event.data["import_id"])):
            # The event counts rows. A row with the contact of an earlier row of the file does not count as an update.
            event.data = event.data | {"updated": event.data["updated"] - outcome_counts.count_repeated(job)}
        text, details = _SUMMARIES[event.event](event, actor_label(event.data["actor"] or audit.SYSTEM, names))
        import_id = event.data.get("import_id")
        href = f"/contacts/imports/{import_id}" if import_id in stored_imports else ""
        list_href = f"/activity{formats.query_string({'batch': event.resource_uid})}"
        event.summary = BatchSummary(text, details, href, list_href, gettext("Show events"))


_MAX_REASONS = 3


def _summarize_campaign(event: Event) -> BatchSummary | None:
    """Return the line for a start of a campaign, with the number of its skipped contacts; None if there are none."""
    try:
        campaign = campaigns.get(event.account_id, event.data["campaign_id"])
    except NotFound:
        return None
    count, href = campaign.stats["skipped"], f"/campaigns/{campaign.id}"
    if not count:
        return None
    counts = [*report.count_skips(campaign).items()]
    if len(counts) == 1:
        reasons = [formats.uncapitalize(labels.reason_label(counts[0][0], campaign.channel))]
    else:
        reasons = [labels.count_reason(code, number, campaign.channel) for code, number in counts[:_MAX_REASONS]]
    details = ngettext(
        "%(num)s contact skipped: %(reasons)s", "%(num)s contacts skipped: %(reasons)s", count,
        reasons=formats.join_names(reasons),
    )  # fmt: skip
    text = gettext("Campaign “%(name)s” started", name=event.resource_name or campaign.name)
    return BatchSummary(text, details, href, f"{href}/people?status=skipped", gettext("Show skipped contacts"))


def _summarize_import(event: Event, name: str) -> tuple[str, str]:
    data, file = event.data, event.resource_name or ""
    created, updated = data["created"], data["updated"]
    if data["resource"] == "suppressions":
        text = ngettext("Import %(file)s: %(num)s address suppressed by %(name)s",
                        "Import %(file)s: %(num)s addresses suppressed by %(name)s", created + updated, file=file,
                        name=name)  # fmt: skip
        updated = 0
    elif created:
        text = ngettext(
            "Import %(file)s: %(num)s contact added by %(name)s",
            "Import %(file)s: %(num)s contacts added by %(name)s",
            created, file=file, name=name,
        )  # fmt: skip
    else:
        text = ngettext(
            "Import %(file)s: %(num)s contact updated by %(name)s",
            "Import %(file)s: %(num)s contacts updated by %(name)s",
            updated, file=file, name=name,
        )  # fmt: skip
        updated = 0
    counts = [
        ngettext("%(num)s updated", "%(num)s updated", updated) if updated else "",
        ngettext("%(num)s skipped", "%(num)s skipped", data["skipped"]) if data["skipped"] else "",
        ngettext("%(num)s with problems", "%(num)s with problems", data["failed"]) if data["failed"] else "",
        gettext("stopped before the end") if data["status"] != "complete" else "",
    ]
    return text, " · ".join(count for count in counts if count)


def _summarize_undo(event: Event, name: str) -> tuple[str, str]:
    removed, restored = event.data["removed"], event.data["restored"]
    text = gettext("Import %(file)s undone by %(name)s", file=event.resource_name or "", name=name)
    counts = [
        ngettext("%(num)s removed", "%(num)s removed", removed) if removed else "",
        ngettext("%(num)s restored", "%(num)s restored", restored) if restored else "",
    ]
    return text, " · ".join(count for count in counts if count)


def _summarize_bulk_action(event: Event, name: str) -> tuple[str, str]:
    data = event.data
    target = bulk_actions.target_name(event.account_id, data["action"], data["argument"])
    result = _BulkResult(data["action"], data["state"], data["changed"], data["skipped"])
    return bulk_actions.result_message(result, target), gettext("Bulk action by %(name)s", name=name)


# The functions that return the text and the details of the line for an event of this name and its actor.
_SUMMARIES = {
    "import_completed": _summarize_import,
    "import_undone": _summarize_undo,
    "bulk_action_completed": _summarize_bulk_action,
}


def _read_query(request: Request) -> EventSearch:
    contact = request.args.get("contact_id")
    return EventSearch(
        (request.args.get("event") or "")[:64], parse_id(contact) if contact else None,
        (request.args.get("who") or "").strip()[:254], parse_day(request.args.get("from")),
        parse_day(request.args.get("to")),
        request.args.get("tests") == "yes",
        batch if _BATCH.fullmatch(batch := request.args.get("batch") or "") else "",
    )  # fmt: skip


def _find_person(account_id: int, params: EventSearch) -> tuple[Contact | None, list[Contact]]:
    """Return the contact that the filters select and an empty list, or None and the contacts to choose from."""
    if params.contact_id is not None:
        try:
            return store.get(account_id, params.contact_id), []
        except NotFound:
            return None, []
    if not params.who:
        return None, []
    matches = list(store.find_by_words(account_id, params.who, 1, _MAX_CANDIDATES).rows)
    exact = [
        contact for contact in matches if params.who.lower() in [channel.value.lower() for channel in contact.channels]
    ]
    if len(exact) == 1 or len(matches) == 1:
        return (exact or matches)[0], []
    return None, matches


def _group_kinds(counts: dict[str, int], selected: str) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Return the recent event names by group: (group, [(name, label, number)]), including the selected name."""
    grouped: dict[str, list[tuple[str, str, int]]] = {}
    for name in sorted({*counts, *([selected] if selected else [])}, key=lambda name: fold(labels.event(name)[2])):
        kind = log.KINDS_BY_NAME.get(name)
        group = kind.group if kind else "custom"
        grouped.setdefault(group, []).append((name, labels.event(name)[2], counts.get(name, 0)))
    return [(gettext(label), grouped[group]) for group, label in _GROUPS.items() if group in grouped]


def _list_spans(params: EventSearch) -> list[tuple[str, str, bool]]:
    """Return the links to common spans of days: label, URL, and whether the span is selected."""
    today = formats.local_time(clock.now_ms()).date()
    spans = []
    for label, days in (
        (gettext("All time"), None), (gettext("Today"), 1), (gettext("7 days"), 7), (gettext("30 days"), 30),
    ):  # fmt: skip
        since = None if days is None else today - timedelta(days=days - 1)
        current = params.since == since and params.until is None
        address = formats.query_string({**params._replace(since=since, until=None).address()})
        spans.append((label, f"/activity{address}", current))
    return spans


# Incoming SMS, which may come from unknown numbers.

# The colour class and the label of each kind.
REPLY_KINDS = {
    "stop": ("stopped", "STOP"), "refusal": ("paused", gettext_noop("Opt-out")), "start": ("done", "START"),
    "help": ("sending", "HELP"), "keyword": ("sched", gettext_noop("Keyword")),
}  # fmt: skip


@pages.get("/answers", strict_slashes=False)
@signed_in("messages:read")
async def list_replies(request: Request, visit: Visit) -> HTTPResponse:
    """Show all incoming SMS, newest first, or with `show=unseen` only possible opt-outs that are not reviewed yet."""
    unseen = request.args.get("show") == "unseen"
    raw: dict[str, Any] = {"page": parse_int(request.args.get("page")), "limit": 50}

    def read() -> tuple[Any, dict[int, Any], int, int]:
        waiting = sms_conversations.list_incoming(visit.account_id, IncomingQuery(unseen=True, limit=1)).total
        page = sms_conversations.list_incoming(
            visit.account_id, validation.read(IncomingQuery, raw | ({"unseen": True} if unseen else {}))
        )
        contacts_by_id = lookups.contacts_by_id({row.contact_id for row in page.rows if row.contact_id})
        replies = log.list_events(visit.account_id, log.EventQuery(event="email_replied", test=False, limit=1)).total
        return page, contacts_by_id, waiting, replies

    page, names, waiting, email_replies = await fetch(read)
    return view.render(
        request, "activity/answers.html", page=page, contacts_by_id=names, waiting=waiting, unseen=unseen,
        kinds=REPLY_KINDS, may_write=visit.can("contacts:write"), email_replies=email_replies,
        reply_to=visit.account.email_reply_to or visit.account.email_from_email,
    )  # fmt: skip


@pages.post("/answers/<incoming_id:int>/seen")
@signed_in("contacts:write")
async def mark_reply_seen(request: Request, visit: Visit, incoming_id: int) -> HTTPResponse:
    """Mark an incoming SMS as reviewed, and opt its sender out if the user decided that it was an opt-out."""
    is_opt_out = Form.from_request(request)["opt_out"] == "yes"
    await commit(sms_conversations.mark_seen, visit.account_id, incoming_id, OptOutReview(is_opt_out), visit.actor_id)
    notice = gettext("This number is unsubscribed from SMS.") if is_opt_out else gettext("Marked as reviewed.")
    view.flash(request, notice)
    return view.redirect(request, "/activity/answers?show=unseen")
