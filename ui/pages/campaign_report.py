"""The report of a campaign: progress of sending, results, links, mailbox providers and problems."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.campaigns import ledger_check, preflight, recipients, report, results, send, states, store
from appliance.campaigns import links as link_check
from appliance.campaigns.report import Bucket, EngagementFigures, Report
from appliance.campaigns.results import Conversion, UsualResults
from appliance.content.designs.merge_limits import MergeError
from appliance.core import clock
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Invalid
from appliance.sending.messages import delivery_status
from appliance.storage.transactions import commit, fetch, render, render_for
from ui import formats, view
from ui.forms import audience_form
from ui.guard import signed_in
from ui.pages import composer
from ui.session import Pages, Visit
from ui.widgets import charts
from ui.widgets.charts import FunnelStep

pages = Pages("ui_reports", url_prefix="/campaigns")


_MAX_TOP_ROWS = 5


class ResultFact(NamedTuple):
    """A number of a report out of `whole`, with the query of the page that lists its contacts.

    `usual` is the share in the account's earlier campaigns, or None. `machines` are the opens or clicks by machines:
    their number, and the query that lists them.
    """

    label: str
    many: int
    whole: int
    href: str = ""
    usual: float | None = None
    note: str = ""
    machines: tuple[int, str] | None = None
    tone: str = ""


def shorten_url(url: str, limit: int = 60) -> str:
    """Return a URL without scheme and `www.`, cut to `limit` characters."""
    bare = url.partition("://")[2].removeprefix("www.").rstrip("/") or url
    return bare if len(bare) <= limit else f"{bare[: limit - 1]}…"


def _describe_total(figures: EngagementFigures, singular: str, plural: str) -> str:
    """Return the number of opens or clicks by people, such as `5 opens in total`, if it exceeds the number of people.

    It may be smaller, because who clicked counts as having opened.
    """
    if figures.total_human <= figures.people.count:
        return ""
    return f"{formats.count(figures.total_human, singular, plural)} in total"


def list_facts(figures: Report, stats: dict[str, int], usual: UsualResults | None, replied: int) -> list[ResultFact]:
    """Return the results of a campaign, the most important ones first.

    `replied` is the number of emails with a recorded reply. It is only shown if there are any, because replies that go
    to the reply address are not known.
    """
    reached = figures.ledger.delivered_to
    clicks, opens = figures.clicks, figures.opens
    clicked = ResultFact(
        "Clicked", clicks.people.count, reached, "clicked=people", usual.clicked if usual else None,
        _describe_total(clicks, "click", "clicks"),
        (clicks.machines.count, "clicked=machines") if clicks.machines.count else None,
    )  # fmt: skip
    unsubscribed = figures.unsubscribes.count
    if figures.sms is not None:
        return [
            ResultFact("Delivered", stats["delivered"], stats["accepted"], "status=delivered"),
            clicked,
            ResultFact("Opted out", unsubscribed, reached, "unsubscribed=true", tone="warn"),
            ResultFact("Not delivered", figures.bounces.count, stats["accepted"], "status=bounced", tone="bad"),
        ]
    opened = ResultFact(
        "Opened, about", opens.people.count, reached, "opened=people", usual.opened if usual else None,
        _describe_total(opens, "open", "opens"),
        (opens.machines.count, "opened=machines") if opens.machines.count else None,
    )  # fmt: skip
    usual_bounced, usual_complained = (usual.bounced, usual.complained) if usual else (None, None)
    return [
        clicked,
        opened,
        *([ResultFact("Replied", replied, reached, "replied=true")] if replied else []),
        ResultFact("Unsubscribed", unsubscribed, reached, "unsubscribed=true", tone="warn"),
        ResultFact(
            "Called it spam", figures.complaints.count, reached, "status=complained", usual_complained, tone="bad"
        ),
        ResultFact("Bounced", figures.bounces.count, stats["accepted"], "status=bounced", usual_bounced, tone="bad"),
    ]


def list_funnel_steps(
    campaign_id: int,
    figures: Report,
    stats: dict[str, int],
    usual: UsualResults | None,
    conversions: Sequence[Conversion],
) -> list[FunnelStep]:
    """Return the steps of the funnel: reached, opened, clicked, and each conversion.

    An SMS has the steps sent and delivered instead of reached and opened.
    """
    to, reached = f"/campaigns/{campaign_id}/people?", figures.ledger.delivered_to
    items = [FunnelStep("Reached", reached, reached, f"{to}accepted=true")]
    if figures.sms is not None:
        items = [FunnelStep("Handed over", stats["accepted"], stats["accepted"], f"{to}accepted=true"),
                FunnelStep("Delivered", stats["delivered"], stats["accepted"], f"{to}status=delivered")]  # fmt: skip
    elif figures.tracking:
        items.append(FunnelStep("Opened, about", figures.opens.people.count, reached, f"{to}opened=people",
                         usual.opened if usual else None))  # fmt: skip
    if figures.tracking:
        total = items[0].total
        items.append(FunnelStep("Clicked", figures.clicks.people.count, total, f"{to}clicked=people",
                         usual.clicked if usual else None))  # fmt: skip
    for conversion in conversions:
        amount = f", {formats.number(round(conversion.amount))} in all" if conversion.amount else ""
        note = f"within a week after the click{amount}"
        items.append(FunnelStep(formats.event(conversion.event)[2], conversion.people, items[0].total, note=note))
    return items


def list_top_links(campaign_id: int, figures: Report) -> list[tuple[str, int, str]]:
    """Return the most clicked links as (text, number of contacts, URL of those contacts), at most `_MAX_TOP_ROWS`."""
    links = sorted(
        (link for link in figures.links if link.counted and link.clicked.count), key=lambda row: -row.clicked.count
    )
    return [
        (row.words or shorten_url(row.url), row.clicked.count, f"/campaigns/{campaign_id}/people?link={row.number}")
        for row in links[:_MAX_TOP_ROWS]
    ]


def list_top_providers(campaign_id: int, figures: Report) -> list[tuple[str, int, str]]:
    """Return the mailbox providers, or for SMS the countries, with the most accepted messages.

    Each is (name, number of accepted messages, URL of their recipients); at most `_MAX_TOP_ROWS`. Skipped members of
    the audience are not recipients and do not count.
    """
    to = f"/campaigns/{campaign_id}/people"
    if figures.sms is not None:
        providers = [
            (row.country or "Unknown", row.accepted, {"country": row.country or "unknown"})
            for row in figures.sms.countries
        ]
    else:
        providers = [
            (formats.unicode_domains(row.domains[0]) if len(row.domains) == 1 else row.name.capitalize(),
             row.accepted, {"domain": row.name})
            for row in figures.domains if row.name
        ]  # fmt: skip
    providers = sorted((row for row in providers if row[1]), key=lambda row: -row[1])[:_MAX_TOP_ROWS]
    return [
        (name, count, to + formats.query_string({**chosen, "accepted": "true"})) for name, count, chosen in providers
    ]


def summarize_timeline(campaign: Any, buckets: Sequence[Bucket]) -> str:
    """Return a sentence that says when most contacts clicked, or opened if none clicked; empty without either."""
    verb: Literal["clicked", "opened"] = "clicked" if any(bucket.clicked for bucket in buckets) else "opened"
    counts = [getattr(bucket, verb) for bucket in buckets]
    total = sum(counts)
    if not total:
        return ""
    peak_count = max(counts)
    at = formats.when(formats.parse_time(buckets[counts.index(peak_count)].from_))
    soon = formats.within(results.measure_half_time(campaign, verb, total))
    return (
        f"Most people {verb} from {at} on ({formats.number(peak_count)}); half of all who {verb} did so within {soon}."
    )


_MOVING_PHASES = ("sending", "holding")
# The state of a campaign is read about once a second at most, however many users watch it.
_status_cache: CostAwareCache[dict[str, Any]] = CostAwareCache(min_age_seconds=0.8, cost_factor=5)
# How long after a pause or stop the page keeps polling: messages claimed just before may still be in flight.
_SETTLE_MS = 3_000


@pages.get("/<campaign_id:int>", name="show")
@signed_in()
async def show(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the composer of a draft, the page of a scheduled campaign, or the overview of the report."""
    by = "day" if request.args.get("by") == "day" else "hour"
    base = await fetch(load_report, visit, campaign_id, "")
    if base["campaign"].phase == "draft":
        return await composer.render_composer(request, visit, campaign_id)
    if base["campaign"].phase == "scheduled":
        return await composer.render_scheduled(request, visit, campaign_id)
    overview = await fetch(_load_overview, visit.account_id, base, by)
    return view.render(request, "campaigns/overview.html", **base, **overview)


@pages.get("/<campaign_id:int>/live", name="live")
@signed_in()
async def show_live(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the progress of sending, polled by the page; once nothing changes, the response ends the polling."""
    base = await fetch(_load_cached_status, visit.account_id, campaign_id)
    base = {**base, "tab": "", "wide": not request.args.get("slim"), **_permissions(visit)}
    if not view.is_partial(request) or base["campaign"].phase in ("draft", "scheduled"):
        # The send was undone meanwhile; a draft has another page.
        return view.redirect(request, f"/campaigns/{campaign_id}")
    # Only this block is rendered: the rest of the page needs values that were not loaded here.
    response = view.render_blocks(request, "campaigns/report.html", ("live",), **base)
    if not base["moving"]:
        delivery_status.forget_summary(visit.account_id)  # The sidebar reloads it at once.
        response.headers["HX-Trigger"] = "settled"  # reload the figures and the sidebar at once, not seconds later
    return response


@pages.get("/<campaign_id:int>/links", name="links")
@signed_in()
async def show_links(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the links of a campaign and their clicks, on the message and as a table."""
    return await render_tab(request, visit, campaign_id, "links")


@pages.get("/<campaign_id:int>/links/map", name="map")
@signed_in()
async def show_link_map(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the message with the clicks of each link on it, as a document for a frame."""

    def read() -> str:
        campaign = store.get(visit.account_id, campaign_id)
        if campaign.content_id is None:
            return ""
        return link_check.render_link_map(campaign, results.build_report(visit.account_id, campaign_id).links)

    try:
        return view.render_email(await render_for(visit.account_id, read))
    except MergeError as error:
        return view.render_email_error(error.describe())


@pages.get("/<campaign_id:int>/domains", name="domains")
@signed_in()
async def show_domains(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the results by mailbox provider, or for SMS by country."""
    return await render_tab(request, visit, campaign_id, "domains", everything=bool(request.args.get("all")))


@pages.get("/<campaign_id:int>/problems", name="problems")
@signed_in()
async def show_problems(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show why messages did not arrive, grouped by the server's response, and the messages in doubt.

    A user must decide whether a message in doubt is sent again.
    """
    return await render_tab(request, visit, campaign_id, "problems")


async def render_tab(
    request: Request, visit: Visit, campaign_id: int, name: str, status: int = 200, /, **more: Any
) -> HTTPResponse:  # fmt: skip
    """Render a tab of the report; a draft or a scheduled campaign has no report and is redirected to its page."""
    base = await fetch(load_report, visit, campaign_id, name)
    if base["campaign"].phase in ("draft", "scheduled"):
        return view.redirect(request, f"/campaigns/{campaign_id}")
    return view.render(request, f"campaigns/{name}.html", status, **base, **more)


def _add_action(name: str, verb: Callable[..., Any], done: str) -> None:
    """Register the POST route `name` of a button that changes the state of the campaign; `done` is the notice."""

    @pages.post(f"/<campaign_id:int>/{name}", name=name)
    @signed_in("campaigns:send")
    async def act(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
        args: tuple[Any, ...] = (visit.account_id, campaign_id, visit.actor)
        if name == "resume":
            # A scheduled campaign that was never started starts now.
            args = (*args, await render(preflight.prepare_send, visit.account_id, campaign_id))
        try:
            await commit(audit.run_and_record, visit.actor, f"campaign_{name}", verb, *args)
        except Invalid as error:
            if error.reason != "invalid_transition":
                raise
            # The page was stale: show the present state instead of an error.
            view.flash(request, "It has moved on meanwhile. This is how it stands.")
        else:
            view.flash(request, done)
        return view.redirect(request, f"/campaigns/{campaign_id}")


_add_action("pause", states.pause, "Paused. Nothing more leaves until you continue.")
_add_action("resume", send.resume, "Going on.")
_add_action("cancel", states.cancel, "Stopped. What had not left stays here.")


def load_report(visit: Visit, campaign_id: int, name: str) -> dict[str, Any]:
    """Return the context that every tab shares: campaign, progress, figures, tabs, and the user's permissions."""
    context = {**_load_cached_status(visit.account_id, campaign_id), "tab": name, "wide": name == ""}
    context |= _permissions(visit)
    campaign = context["campaign"]
    if "figures" not in context:
        return context
    context["report_tabs"] = _list_tabs(campaign, sum(link.counted for link in context["figures"].links))
    if name == "problems":
        context |= {"problems": report.list_problems(campaign), "doubts": report.list_uncertain(campaign_id)}
    return context


def _load_cached_status(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return `_load_status` of a campaign, from a short-lived cache while it is sending."""
    row = store.get_row(account_id, campaign_id)
    key = account_id, campaign_id, row.phase, row.updated_at
    status = _status_cache.get(key, lambda: _load_status(account_id, campaign_id))
    if not status["moving"]:
        _status_cache.invalidate(key)
    return status


def _load_status(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return the campaign with its progress, and its figures once sending has begun."""
    campaign = store.get(account_id, campaign_id)
    begun = campaign.phase not in ("draft", "scheduled")
    return {
        **({"figures": results.build_report(account_id, campaign_id)} if begun else {}),
        "campaign": campaign, "stats": campaign.stats, "moving": _is_moving(campaign),
        "act": states.find_last_action(campaign),
        "audience": audience_form.describe(campaign, audience_form.load_choices(account_id).names),
        "progress": report.get_progress(campaign),
        "ledger_differences": ledger_check.check_quickly(campaign) if campaign.started_at else [],
        "skips": [(formats.reason_label(code, campaign.channel), count) for code,
            count in report.count_skips(campaign).items()],
    }  # fmt: skip


def _permissions(visit: Visit) -> dict[str, bool]:
    return {"may_send": visit.can("campaigns:send"), "may_write": visit.can("campaigns:write")}


def _list_tabs(campaign: Any, links: int) -> list[tuple[str, str, int, str]]:
    """Return the tabs of the report as (path, label, count, colour class); `links` is the number of tracked links."""
    stats = campaign.stats
    problem_count = stats["failed"] + stats["bounced"] + stats["uncertain"] + stats["complained"]
    return [
        ("", "Overview", 0, ""), ("links", "Links", links, ""), ("people", "People", stats["audience"], ""),
        ("domains", "Countries" if campaign.channel == "sms" else "Mailboxes", 0, ""),
        ("problems", "Problems", problem_count, "bad"),
    ]  # fmt: skip


def _load_overview(account_id: int, base: dict[str, Any], by: str) -> dict[str, Any]:
    campaign, stats = base["campaign"], base["stats"]
    if "figures" not in base:
        return {"by": by}
    figures = base["figures"]
    usual = results.find_usual_results(campaign)
    conversions = results.list_conversions(campaign) if figures.tracking else []
    return {
        "by": by, "usual": usual, "after": conversions,
        "facts": list_facts(figures, stats, usual, len(recipients.list_replied(campaign))),
        "steps": list_funnel_steps(campaign.id, figures, stats, usual, conversions),
        "columns": charts.build_columns(figures.over_time, by), "is_long": charts.exceeds_two_days(figures.over_time),
        "summary": summarize_timeline(campaign, figures.over_time),
        "top_links": list_top_links(campaign.id, figures), "places": list_top_providers(campaign.id, figures),
    }  # fmt: skip


def _is_moving(campaign: Any) -> bool:
    """Return whether the numbers may still change. After a pause or stop, messages in flight are still completed."""
    if campaign.pending_snapshot or (campaign.pending_end and campaign.stats["pending"]):
        return True
    if campaign.phase in ("paused", "cancelled"):
        return clock.now_ms() - campaign.updated_at < _SETTLE_MS or report.count_in_delivery(campaign.id) > 0
    return campaign.phase in _MOVING_PHASES
