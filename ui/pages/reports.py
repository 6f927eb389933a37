"""What becomes of a campaign after it is sent: its report in tabs, and how its sending stands."""

from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.campaigns import last_actions, ledger_check, link_map, preflight, report, results, states, store
from appliance.content.designs.merge import MergeError
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.rested import Rested
from appliance.storage.work import call, commit, render, render_for
from ui import audiences, charts, mail, reading, rights, view, words
from ui.guard import signed_in
from ui.pages import compose, compose_send
from ui.session import Pages, Visit

pages = Pages("ui_reports", url_prefix="/campaigns")
_MOVING = ("sending", "holding")
# However many follow a campaign in however many tabs, it is looked at once a second at most
_followed: Rested[dict[str, Any]] = Rested(least=0.8, rests=5)
# What was marked right before a pause may still be on its way into somebody's hands
_SETTLES_MS = 3_000


@pages.get("/<campaign_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """A draft opens its composer; anything later is a report that follows what happens."""
    by = "day" if request.args.get("by") == "day" else "hour"
    base = await call(facts, visit, campaign_id, "")
    if base["campaign"].phase == "draft":
        return await compose.page(request, visit, campaign_id)
    if base["campaign"].phase == "scheduled":
        return await compose_send.armed(request, visit, campaign_id)
    told = await call(_overview, visit.account_id, base, by)
    return view.page(request, "campaigns/overview.html", **base, **told)


@pages.get("/<campaign_id:int>/live", name="live")
@signed_in
async def live(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """How the sending stands; the answer has no trigger once nothing moves any more, so polling ends itself."""
    base = await call(_shared, visit.account_id, campaign_id)
    base = {**base, "tab": "", "wide": not request.args.get("slim"), **_allowed(visit, campaign_id)}
    if not view.is_part(request) or base["campaign"].phase in ("draft", "scheduled"):
        # Somebody took it back meanwhile: it is a draft, and that has another page
        return view.go(request, f"/campaigns/{campaign_id}")
    # Whatever the target is: the rest of the page has facts that were not read here
    answer = view.pieces(request, "campaigns/report.html", ("live",), **base)
    if not base["moving"]:
        answer.headers["HX-Trigger"] = "settled"  # the figures below look once more, and not ten seconds later
    return answer


@pages.get("/<campaign_id:int>/links", name="links")
@signed_in
async def links(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Every link: on the message as people saw it, and as a table."""
    return await tab(request, visit, campaign_id, "links")


@pages.get("/<campaign_id:int>/links/map", name="map")
@signed_in
async def map_(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """The message as a document of its own, each link with its number and how many people clicked it."""

    def read() -> str:
        campaign = store.get(visit.account_id, campaign_id)
        if campaign.content_id is None:
            return ""
        return link_map.html(campaign, results.of(visit.account_id, campaign_id).links)

    try:
        return mail.frame(await render_for(visit.account_id, read))
    except MergeError as broken:
        return mail.broken(broken.words())


@pages.get("/<campaign_id:int>/domains", name="domains")
@signed_in
async def domains(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Who keeps the mailboxes, or which countries the numbers are of, and what became of each."""
    return await tab(request, visit, campaign_id, "domains", everything=bool(request.args.get("all")))


@pages.get("/<campaign_id:int>/problems", name="problems")
@signed_in
async def problems(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """What did not arrive, by the answer that was given, and what a person has to decide."""
    return await tab(request, visit, campaign_id, "problems")


async def tab(
    request: Request, visit: Visit, campaign_id: int, name: str, status: int = 200, /, **more: Any
) -> HTTPResponse:  # fmt: skip
    """Return one of the tabs; what has no report yet answers its own page."""
    base = await call(facts, visit, campaign_id, name)
    if base["campaign"].phase in ("draft", "scheduled"):
        return view.go(request, f"/campaigns/{campaign_id}")
    return view.page(request, f"campaigns/{name}.html", status, **base, **more)


def _action(name: str, verb: Callable[[int, int, By], Any], done: str) -> None:
    """Register a button of the report: it moves the campaign on and comes back to it."""

    @pages.post(f"/<campaign_id:int>/{name}", name=name)
    @signed_in
    async def act(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
        if name == "resume":
            # It may have been armed and never started: then it starts now
            await render(preflight.warm, visit.account_id, campaign_id, None)
        try:
            told = (f"campaign_{name}", verb, visit.account_id, campaign_id, visit.by)
            await commit(audit.noting, visit.by, *told)
        except Invalid as refused:
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


def facts(visit: Visit, campaign_id: int, name: str) -> dict[str, Any]:
    """Return what every tab shows: the campaign, how it stands, and what this person may do."""
    found = {**_shared(visit.account_id, campaign_id), "tab": name, "wide": name == ""}
    found |= _allowed(visit, campaign_id)
    campaign = found["campaign"]
    if "figures" not in found:
        return found
    found["report_tabs"] = _tabs(campaign, len(found["figures"].links))
    if name == "problems":
        found |= {"problems": report.problems(campaign), "doubts": report.doubts(campaign_id)}
    return found


def _shared(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return how a campaign stands: while it moves as at most a moment ago, once it does not as it is now."""
    row = store.row(account_id, campaign_id)
    key = account_id, campaign_id, row.phase, row.updated_at
    found = _followed.get(key, lambda: _standing(account_id, campaign_id))
    if not found["moving"]:
        _followed.forget(key)
    return found


def _standing(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return how the sending of a campaign stands, and its figures once it has begun."""
    campaign = store.get(account_id, campaign_id)
    begun = campaign.phase not in ("draft", "scheduled")
    return {
        **({"figures": results.of(account_id, campaign_id)} if begun else {}),
        "campaign": campaign, "stats": campaign.stats, "moving": _is_moving(campaign),
        "act": last_actions.last(campaign),
        "audience": audiences.name(campaign, audiences.choices(account_id).names),
        "progress": report.progress(campaign),
        "wrong": ledger_check.quick(campaign) if campaign.started_at else [],
        "skips": [(words.reason(code, campaign.channel), count) for code, count in report.skips(campaign).items()],
    }  # fmt: skip


def _allowed(visit: Visit, campaign_id: int) -> dict[str, bool]:
    may, path = visit.user.role, f"/campaigns/{campaign_id}"
    return {
        "may_send": rights.may(may, "POST", f"{path}/pause"),
        "may_write": rights.may(may, "POST", f"{path}/delete"),
    }


def _tabs(campaign: Any, links: int) -> list[tuple[str, str, int, str]]:
    """Return the tabs: their paths, words, and how many there are of what each shows."""
    stats = campaign.stats
    wrong = stats["failed"] + stats["bounced"] + stats["uncertain"] + stats["complained"]
    return [
        ("", "Overview", 0, ""), ("links", "Links", links, ""), ("people", "People", stats["audience"], ""),
        ("domains", "Countries" if campaign.channel == "sms" else "Mailboxes", 0, ""),
        ("problems", "Problems", wrong, "bad"),
    ]  # fmt: skip


def _overview(account_id: int, base: dict[str, Any], by: str) -> dict[str, Any]:
    campaign, stats = base["campaign"], base["stats"]
    if "figures" not in base:
        return {"by": by}
    figures = base["figures"]
    usual = results.usual_results(campaign)
    after = results.conversions_of(campaign) if figures.tracking else []
    return {
        "by": by, "usual": usual, "after": after,
        "facts": reading.facts(figures, stats, usual),
        "steps": reading.steps(campaign.id, figures, stats, usual, after),
        "columns": charts.columns(figures.over_time, by), "is_long": charts.is_long(figures.over_time),
        "summary": reading.summary(figures.over_time),
        "top_links": reading.top_links(campaign.id, figures), "places": reading.places(campaign.id, figures),
    }  # fmt: skip


def _is_moving(campaign: Any) -> bool:
    """Return whether the numbers may still change by themselves; after a pause or stop, what is in hand still ends."""
    if campaign.freezing or (campaign.closing and campaign.stats["pending"]):
        return True
    if campaign.phase in ("paused", "cancelled"):
        return clock.now_ms() - campaign.updated_at < _SETTLES_MS or report.in_hand(campaign.id) > 0
    return campaign.phase in _MOVING
