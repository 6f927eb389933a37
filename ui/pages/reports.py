"""What becomes of a campaign after it is sent: its report, the people behind each number, and what a person decides."""

from collections.abc import Callable
from typing import Any

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import clock, errors, fields
from appliance.campaigns import books, preflight, recipients, report, results, states, store
from appliance.db.work import call, commit
from appliance.messages import deciding
from appliance.messages import store as messages
from appliance.messages.deciding import Part
from ui import audiences, people, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages import compose, compose_send
from ui.session import Visit

pages = Blueprint("ui_reports", url_prefix="/campaigns")
_MOVING = ("sending", "holding")
_SETTLES_MS = 15_000
# By what the people of a campaign may be chosen, and what that is called
_BY = {
    "status": "", "opened": "opened", "clicked": "clicked", "link": "clicked a link", "domain": "mailboxes at",
    "country": "numbers in",
    "problem": "", "accepted": "handed over", "unsubscribed": "unsubscribed", "pending": "waiting",
}  # fmt: skip


@pages.get("/<campaign_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """A draft opens its composer; anything later is a report that follows what happens."""
    facts = await call(_facts, visit.account_id, campaign_id)
    if facts["campaign"].phase == "draft":
        return await compose.page(request, visit, campaign_id)
    if facts["campaign"].phase == "scheduled":
        return await compose_send.armed(request, visit, campaign_id)
    # The answer to a poll has no trigger once nothing moves any more, so polling ends itself.
    return view.page(request, "campaigns/report.html", moving=_is_moving(facts["campaign"]), **facts)


@pages.get("/<campaign_id:int>/people", name="people")
@signed_in
async def persons(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Every person of a campaign and what became of their message."""
    campaign = await call(store.get, visit.account_id, campaign_id)
    kept = {name: request.args.get(name) for name in _BY if request.args.get(name)}
    raw = {**_typed(kept), "page": number(request.args.get("page")), "limit": 50}
    try:
        asked = fields.read(recipients.RecipientQuery, raw)
    except errors.Invalid:
        return view.go(request, f"/campaigns/{campaign_id}/people")
    found = await call(recipients.page, visit.account_id, campaign_id, asked)
    known = await call(people.by_id, {row.contact_id for row in found.rows if row.contact_id})
    chosen = None
    if set(kept) - {"status"}:
        chosen = await call(_chosen, visit.account_id, campaign_id, kept)
    return view.page(
        request, "campaigns/people.html", campaign=campaign, found=found, status=kept.get("status", ""), known=known,
        kept=kept, chosen=chosen,
    )  # fmt: skip


def _action(name: str, verb: Callable[[int, int, str], Any], done: str) -> None:
    """Register a button of the report: it moves the campaign on and comes back to it."""

    @pages.post(f"/<campaign_id:int>/{name}", name=name)
    @signed_in
    async def act(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
        if name == "resume":
            # It may have been armed and never started: then it starts now
            await call(preflight.warm, visit.account_id, campaign_id, None)
        try:
            await commit(verb, visit.account_id, campaign_id, visit.actor)
        except errors.Invalid as refused:
            if refused.reason != "invalid_transition":
                raise
            # The page was older than the campaign: show where it is now instead of an error.
            view.say(request, "It has moved on meanwhile. This is how it stands.")
        else:
            view.say(request, done)
        return view.go(request, f"/campaigns/{campaign_id}")


_action("pause", states.pause, "Paused. Nothing more leaves until you continue.")
_action("resume", states.resume, "Going on.")
_action("cancel", states.cancel, "Stopped. What had not left stays here.")


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
        part = Part(form["status"], chosen=None if form["all"] else tuple(form.ids("message")))
        decided, more = 0, True
        while more:
            count, after = await commit(verb, campaign.id, part, visit.actor)
            decided, part, more = decided + count, part._replace(after=after), after > 0
        view.say(request, done.format(words.people(decided)) if decided else "There was nothing to decide any more.")
        return view.go(request, f"/campaigns/{campaign_id}")


_decision("retry", deciding.retry_some, "On its way again to {}.")
_decision("assume", deciding.assume_some, "Counted as sent to {}.")


def _is_moving(campaign: Any) -> bool:
    """Say whether the numbers may still change by themselves; after a pause or stop, what is in hand still ends."""
    if campaign.freezing or (campaign.closing and campaign.stats["pending"]):
        return True
    settling = campaign.stats["pending"] and clock.now_ms() - campaign.updated_at < _SETTLES_MS
    return campaign.phase in _MOVING or bool(settling and campaign.phase in ("paused", "cancelled"))


def _typed(kept: dict[str, str]) -> dict[str, Any]:
    """Read what an address says as what the filters take."""
    truth = {"true": True, "false": False}
    return {
        name: int(value) if name == "link" and value.isdecimal() and len(value) < 9 else truth.get(value, value)
        for name, value in kept.items()
    }


def _chosen(account_id: int, campaign_id: int, kept: dict[str, str]) -> str:
    """Say whom the page shows."""
    said = []
    for name, value in kept.items():
        if name == "link":
            urls = {str(one.number): one.words or one.url for one in results.of(account_id, campaign_id).links}
            value = urls.get(value, value)
        if name == "problem":
            found = report.problems(store.get(account_id, campaign_id))
            same = [one["text"] or words.reason(one["reason"]) for one in found if one["key"] == value]
            said.append(same[0] if same else "a problem that is gone")
        elif name != "status":
            shown = {"people": "", "true": "", "machines": "by machines only", "false": "not"}.get(value, value)
            said.append(f"{_BY[name]} {shown}".strip())
    return ", ".join(said)


def _facts(account_id: int, campaign_id: int) -> dict[str, Any]:
    campaign = store.get(account_id, campaign_id)
    return {
        "campaign": campaign,
        "stats": campaign.stats,
        "audience": audiences.name(campaign, audiences.choices(account_id).names),
        "progress": report.progress(campaign),
        "figures": results.of(account_id, campaign_id),
        "problems": report.problems(campaign),
        "doubts": report.doubts(campaign_id),
        "wrong": books.quick(campaign) if campaign.started_at else [],
        "skips": [(words.reason(code, campaign.channel), count) for code, count in report.skips(campaign).items()],
    }
