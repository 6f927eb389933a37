"""The people of a campaign: filtered by what they did, exported, kept as a segment; and what is decided about them."""

from collections.abc import Callable
from itertools import chain
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import bulk_actions, lists
from appliance.audience.segments import store as segment_requests
from appliance.audience.segments import store as segments
from appliance.campaigns import audience, recipients, report, results, store
from appliance.core import errors, fields
from appliance.exports import recipients as exporting
from appliance.sending.messages import ledger as messages
from appliance.sending.messages import manual_decisions
from appliance.sending.messages.manual_decisions import Part
from appliance.storage.work import call, commit
from ui import exports, people, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages import contact_acts, reports
from ui.session import Pages, Visit

# Spreadsheets take a file for UTF-8 by this mark alone
_MARK = "\ufeff"
pages = Pages("ui_recipients", url_prefix="/campaigns")
# By what the people of a campaign may be chosen, and what that is called
_BY = {
    "status": "", "opened": "opened", "clicked": "clicked", "link": "clicked a link", "domain": "mailboxes at",
    "country": "numbers in", "problem": "", "accepted": "handed over", "unsubscribed": "unsubscribed",
    "pending": "waiting",
}  # fmt: skip
# What a chip chooses, and its words
_CHIPS: tuple[tuple[str, str, str], ...] = (
    ("accepted", "true", "Handed over"), ("opened", "people", "Opened"), ("opened", "nobody", "Did not open"),
    ("clicked", "people", "Clicked"), ("clicked", "nobody", "Did not click"),
    ("unsubscribed", "true", "Unsubscribed"), ("pending", "true", "Waiting"),
    *(("status", name, words.STATUSES[name][1])
      for name in ("bounced", "complained", "failed", "skipped", "uncertain", "cancelled")),
)  # fmt: skip


@pages.get("/<campaign_id:int>/people", name="people")
@signed_in
async def persons(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Every person of a campaign and what became of their message."""
    chosen = _chosen(request)
    try:
        asked = _asked(chosen, number(request.args.get("page")))
    except errors.Invalid:
        return view.go(request, f"/campaigns/{campaign_id}/people")
    return await _people(request, visit, campaign_id, chosen, asked, None)


async def _people(
    request: Request, visit: Visit, campaign_id: int, chosen: dict[str, str], asked: recipients.RecipientQuery,
    listed: Form | None,
) -> HTTPResponse:  # fmt: skip
    """Show the people of a campaign; `listed` is what was typed for a list of them and could not be kept."""
    found = await call(recipients.page, visit.account_id, campaign_id, asked)
    known = await call(people.by_id, {row.contact_id for row in found.rows if row.contact_id})
    said = await call(_said, visit.account_id, campaign_id, chosen) if chosen else ""
    return await reports.tab(
        request, visit, campaign_id, "people", 422 if listed else 200, listed=listed, found=found, known=known,
        chosen=chosen, said=said, chips=_chips,
        keeps=audience.filters(campaign_id, asked) is not None, form=Form({"name": _named(said)}),
    )  # fmt: skip


@pages.get("/<campaign_id:int>/export", name="export")
@signed_in
async def export(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse | None:
    """The people of a campaign as CSV, those that are chosen."""
    try:
        asked = _asked(_chosen(request), 1)
    except errors.Invalid:
        return view.go(request, f"/campaigns/{campaign_id}/people")
    campaign = await call(store.get, visit.account_id, campaign_id)
    found = await call(recipients.ids, visit.account_id, campaign_id, asked)
    lines = exporting.csv(found)
    name = f"campaign-{campaign.id}-people.csv"
    await audit.exported(visit.by, visit.account_id, name, _chosen(request), len(found))
    return await exports.send_file(request, name, "text/csv; charset=utf-8", chain((_MARK,), lines))


@pages.post("/<campaign_id:int>/segment", name="segment")
@signed_in
async def keep(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Keep the people that are shown as a segment: it finds the same ones, and whoever does the same later."""
    form = Form.of(request)
    await call(store.get, visit.account_id, campaign_id)
    chosen = {name: form[name] for name in _BY if form[name]}
    filters = audience.filters(campaign_id, _asked(chosen, 1))
    if filters is None:
        raise errors.Invalid({"base": ["cannot be kept as a segment"]})
    asked = fields.read(segment_requests.SegmentCreate, {"name": form["name"] or "People", "filters": filters})
    made = await commit(segments.create, visit.account_id, asked)
    view.say(request, f"{made.name} is kept as a segment.")
    return view.go(request, f"/segments/{made.id}")


@pages.post("/<campaign_id:int>/list", name="list")
@signed_in
async def enlist(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Put the people that are shown into a new list, as they are now; very many as a job. The message takes it back."""
    form = Form.of(request)
    form.need("name", "Give the list a name.")
    chosen = {name: form[name] for name in _BY if form[name]}
    asked = _asked(chosen, 1)
    who = await call(recipients.people, visit.account_id, campaign_id, asked)
    try:
        if form.errors:
            raise errors.Invalid({})
        read = fields.read(lists.ListCreate, {"name": form["name"]})
        made = await commit(lists.create, visit.account_id, read)
    except errors.Invalid as refused:
        return await _people(request, visit, campaign_id, chosen, asked, form.take(refused))
    told = (visit.account_id, visit.user.id, "list_add", {"contact_list_id": made.id}, who, people.evidence(visit))
    await contact_acts.go_on(request, visit, await commit(bulk_actions.begin, *told))
    return view.go(request, f"/lists/{made.id}")


@pages.get("/<campaign_id:int>/decide", name="decide")
@signed_in
async def undecided(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The messages of which nobody knows whether they arrived, or those refused, for a person to decide."""
    campaign = await call(store.get, visit.account_id, campaign_id)
    status = "failed" if request.args.get("status") == "failed" else "uncertain"
    raw = {"page": number(request.args.get("page")), "limit": 50, "campaign_id": campaign_id, "status": status}
    found = await call(messages.page, visit.account_id, fields.read(messages.MessageQuery, raw))
    known = await call(people.by_id, {row.contact_id for row in found.rows if row.contact_id})
    return view.page(request, "campaigns/decide.html", campaign=campaign, found=found, status=status, known=known)


def _decision(name: str, verb: Callable[[int, Part, str], tuple[int, int]], done: str) -> None:
    """Register a button of that page: it decides about the messages chosen, or all of them, in short transactions."""

    @pages.post(f"/<campaign_id:int>/{name}", name=name)
    @signed_in
    async def act(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
        campaign, form = await call(store.get, visit.account_id, campaign_id), Form.of(request)
        chosen = form.ids("message")
        for key in form.all("problem"):
            chosen += await call(report.troubled, campaign, key)
        decided = 0
        # A statement takes so many numbers, and a transaction should be short
        parts = [None] if form["all"] else [tuple(chosen[at : at + 500]) for at in range(0, len(chosen), 500)]
        for ids in parts:
            part, more = Part(form["status"], chosen=ids), True
            while more:
                count, after = await commit(verb, campaign.id, part, visit.actor)
                decided, part, more = decided + count, part._replace(after=after), after > 0
        if decided:
            told = (f"campaign_{name}", f"campaign:{campaign.id}", {"messages": decided})
            await commit(audit.note, visit.by, visit.account_id, *told)
        view.say(request, done.format(words.people(decided)) if decided else "There was nothing to decide any more.")
        return view.go(request, f"/campaigns/{campaign_id}/problems")


_decision("retry", manual_decisions.retry_some, "On its way again to {}.")
_decision("assume", manual_decisions.assume_some, "Counted as sent to {}.")


def _chosen(request: Request) -> dict[str, str]:
    return {name: request.args.get(name) for name in _BY if request.args.get(name)}


def _asked(chosen: dict[str, str], page: int) -> recipients.RecipientQuery:
    """Read what an address says as what the filters take; raises Invalid."""
    truth = {"true": True, "false": False}
    typed = {
        name: int(value) if name == "link" and value.isdecimal() and len(value) < 9 else truth.get(value, value)
        for name, value in chosen.items()
    }
    return fields.read(recipients.RecipientQuery, {**typed, "page": page, "limit": 50})


def _chips(campaign: Any, figures: Any) -> list[tuple[str, str, str, int]]:
    """Return what one click chooses, and how many that are."""
    stats, opened, clicked = campaign.stats, figures.opens.people.count, figures.clicks.people.count
    counts = {
        ("accepted", "true"): stats["accepted"], ("pending", "true"): stats["pending"],
        ("unsubscribed", "true"): figures.unsubscribes.count,
    }  # fmt: skip
    if campaign.tracking:
        counts |= {("clicked", "people"): clicked, ("clicked", "nobody"): stats["accepted"] - clicked}
        if campaign.channel == "email":
            counts |= {("opened", "people"): opened, ("opened", "nobody"): stats["accepted"] - opened}
    counts |= {("status", name): stats[name] for name in messages.FINAL}
    return [(name, value, label, counts.get((name, value), 0)) for name, value, label in _CHIPS]


def _named(said: str) -> str:
    return words.sentence(said).rstrip(".") if said else ""


def _said(account_id: int, campaign_id: int, chosen: dict[str, str]) -> str:
    """Return whom the page shows."""
    said = []
    labels: dict[tuple[str, str], str] = {(name, value): label for name, value, label in _CHIPS}
    for name, value in chosen.items():
        if (name, value) in labels:
            said.append(labels[name, value])
        elif name == "link":
            urls = {str(one.number): one.words or one.url for one in results.of(account_id, campaign_id).links}
            said.append(f"clicked {urls.get(value, value)}")
        elif name == "problem":
            found = report.problems(store.get(account_id, campaign_id))
            same = [one["text"] or words.reason(one["reason"]) for one in found if one["key"] == value]
            said.append(same[0] if same else "a problem that is gone")
        elif name == "status":
            said.append(words.STATUSES.get(value, ("", value))[1])
        else:
            shown = {"people": "", "true": "", "machines": "by machines only", "false": "not"}.get(value, value)
            said.append(f"{_BY[name]} {shown}".strip())
    return ", ".join(said)
