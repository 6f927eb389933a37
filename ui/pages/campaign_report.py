"""The report of a campaign: progress of sending, results, links, mailbox providers and problems."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.campaigns import (
    content,
    experiment_results,
    ledger_check,
    preflight,
    recipients,
    report,
    results,
    send,
    states,
    store,
)
from appliance.campaigns import links as link_check
from appliance.campaigns.report import Bucket, CampaignReport, EngagementFigures
from appliance.campaigns.results import Conversion, UsualResults
from appliance.content.designs.merge_limits import MergeError
from appliance.core import clock, i18n
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.sending.messages import delivery_status
from appliance.storage.transactions import commit, fetch, render, render_for
from ui import formats, labels, view
from ui.forms import lookups
from ui.guard import signed_in
from ui.pages import composer
from ui.session import Pages, Visit
from ui.widgets import charts, experiment_words, local_times, repeat_views
from ui.widgets.charts import FunnelStep

pages = Pages("ui_reports", url_prefix="/campaigns")


_MAX_TOP_ROWS = 5


class ResultFact(NamedTuple):
    """A result in a report: `many` out of `whole`, with the query (`href`) of the page that lists its contacts.

    `rate` is the share as text. `usual` is the share (0 to 1) in the account's earlier campaigns, or None. `machines`
    are the opens or clicks by machines: their number, and the query that lists them. `definition` explains the rate.
    """

    label: str
    many: int
    whole: int
    rate: str
    href: str = ""
    usual: float | None = None
    note: str = ""
    machines: tuple[int, str] | None = None
    tone: str = ""
    definition: str = ""


def shorten_url(url: str, limit: int = 60) -> str:
    """Return a URL without scheme and `www.`, cut to `limit` characters."""
    bare = url.partition("://")[2].removeprefix("www.").rstrip("/") or url
    return bare if len(bare) <= limit else f"{bare[: limit - 1]}…"


def _describe_clicks(clicks: EngagementFigures) -> str:
    """Return the total number of clicks by people, such as `5 total clicks`, if it exceeds the number of people."""
    if clicks.total_human <= clicks.people.count:
        return ""
    return ngettext("%(num)s total click", "%(num)s total clicks", clicks.total_human)


def _describe_opens(opens: EngagementFigures) -> str:
    """Return the total number of opens by people, such as `5 total opens`, if it exceeds the number of people.

    The number of opens may be smaller, because a person who clicked counts as one who opened.
    """
    if opens.total_human <= opens.people.count:
        return ""
    return ngettext("%(num)s total open", "%(num)s total opens", opens.total_human)


def list_facts(
    figures: CampaignReport, stats: dict[str, int], usual: UsualResults | None, replied: int
) -> list[ResultFact]:
    """Return the results of a campaign, the most important ones first.

    `replied` is the number of emails with a recorded reply. Replies are left out if there are none, because replies to
    the reply-to address are usually not recorded.
    """
    reached, sent = _count_delivered(stats), stats["accepted"]
    clicks, opens, bounced = figures.clicks, figures.opens, stats["bounced"]
    many = clicks.people.count
    clicked = ResultFact(
        gettext("Clicks"), many, reached, gettext("%(rate)s click rate", rate=formats.percent(many, reached)),
        "clicked=people", usual.clicked if usual else None, _describe_clicks(clicks),
        (clicks.machines.count, "clicked=machines") if clicks.machines.count else None,
        definition=gettext("Contacts who clicked a link, as a share of messages delivered."),
    )  # fmt: skip
    unsubscribed = figures.unsubscribes.count
    rate = gettext("%(rate)s unsubscribe rate", rate=formats.percent(unsubscribed, reached))
    opt_outs = ResultFact(
        pgettext("count", "Unsubscribed"), unsubscribed, reached, rate, "unsubscribed=true", tone="warn",
        definition=gettext("Contacts who unsubscribed through this message, as a share of messages delivered."),
    )  # fmt: skip
    if figures.sms is not None:
        rate = gettext("%(rate)s delivery rate", rate=formats.percent(stats["delivered"], sent))
        bounce_rate = gettext("%(rate)s of sent", rate=formats.percent(bounced, sent))
        return [
            ResultFact(gettext("Delivered"), stats["delivered"], sent, rate, "status=delivered",
                       note=_describe_unreported(sent - stats["delivered"] - bounced),
                       definition=gettext("SMS that the provider reports as delivered, as a share of SMS sent.")),
            clicked,
            opt_outs,
            ResultFact(gettext("Not delivered"), bounced, sent, bounce_rate, "status=bounced", tone="bad",
                       definition=gettext("SMS that the provider reports as not delivered, as a share of SMS sent.")),
        ]  # fmt: skip
    many = opens.people.count
    opened = ResultFact(
        gettext("Opens (estimated)"), many, reached, gettext("%(rate)s open rate", rate=formats.percent(many, reached)),
        "opened=people", usual.opened if usual else None, _describe_opens(opens),
        (opens.machines.count, "opened=machines") if opens.machines.count else None,
        definition=gettext("Contacts whose email app loaded the tracking pixel, as a share of emails delivered."),
    )  # fmt: skip
    return [
        clicked,
        opened,
        *([_describe_replies(replied, reached)] if replied else []),
        opt_outs,
        *_list_harm(stats, usual),
    ]


def _describe_unreported(count: int) -> str:
    """Return a text with the number of sent SMS whose delivery the provider has not reported yet; empty for 0."""
    return ngettext("%(num)s being delivered", "%(num)s being delivered", count) if count > 0 else ""


def _describe_replies(replied: int, delivered: int) -> ResultFact:
    rate = gettext("%(rate)s reply rate", rate=formats.percent(replied, delivered))
    return ResultFact(gettext("Replies"), replied, delivered, rate, "replied=true")


def _count_delivered(stats: dict[str, int]) -> int:
    """Return the number of delivered messages, the basis of rates: sent and not bounced.

    The report of a large campaign is cached, so its own sum may be older than the progress of sending.
    """
    return stats["accepted"] - stats["bounced"]


def _list_harm(stats: dict[str, int], usual: UsualResults | None) -> list[ResultFact]:
    """Return the spam complaints and the bounces of an email campaign."""
    sent, complained, bounced, reached = (
        stats["accepted"], stats["complained"], stats["bounced"], _count_delivered(stats)
    )  # fmt: skip
    complaint_rate = gettext("%(rate)s complaint rate", rate=formats.percent(complained, reached))
    bounce_rate = gettext("%(rate)s bounce rate", rate=formats.percent(bounced, sent))
    usual_bounced, usual_complained = (usual.bounced, usual.complained) if usual else (None, None)
    return [
        ResultFact(gettext("Spam complaints"), complained, reached, complaint_rate, "status=complained",
                   usual_complained, tone="bad",
                   definition=gettext("Contacts who marked the email as spam, as a share of emails delivered.")),
        ResultFact(pgettext("count", "Bounced"), bounced, sent, bounce_rate, "status=bounced", usual_bounced,
                   tone="bad",
                   definition=gettext("Emails returned by the recipient’s server, as a share of emails sent.")),
    ]  # fmt: skip


def list_funnel_steps(
    campaign_id: int,
    figures: CampaignReport,
    stats: dict[str, int],
    usual: UsualResults | None,
    conversions: Sequence[Conversion],
    window_days: int,
) -> list[FunnelStep]:
    """Return the steps of the funnel: delivered, opened, clicked, and each conversion.

    An SMS has the steps sent and delivered instead of delivered and opened. Without tracking, opens and clicks are left
    out.
    """
    to, reached, sent = f"/campaigns/{campaign_id}/people?", _count_delivered(stats), stats["accepted"]
    items = [FunnelStep(gettext("Delivered"), reached, reached, f"{to}accepted=true",
                        description=gettext("sent and not bounced"))]  # fmt: skip
    if figures.sms is not None:
        items = [FunnelStep(gettext("Sent"), sent, sent, f"{to}accepted=true",
                            description=gettext("accepted by the SMS provider")),
                 FunnelStep(gettext("Delivered"), stats["delivered"], sent, f"{to}status=delivered",
                            description=gettext("%(rate)s of sent", rate=formats.percent(stats["delivered"], sent)))
        ]  # fmt: skip
    elif figures.tracking:
        opened = figures.opens.people.count
        items.append(FunnelStep(gettext("Opens (estimated)"), opened, reached, f"{to}opened=people",
                         usual.opened if usual else None, description=_share_of(opened, figures, reached)))  # fmt: skip
    total = items[0].total
    if figures.tracking:
        clicked = figures.clicks.people.count
        items.append(FunnelStep(gettext("Clicks"), clicked, total, f"{to}clicked=people",
                         usual.clicked if usual else None, description=_share_of(clicked, figures, total)))  # fmt: skip
    for conversion in conversions:
        note = ngettext("within %(num)s day of a click", "within %(num)s days of a click", window_days)
        if conversion.amount:
            amount = formats.number(round(conversion.amount))
            note = ngettext("worth %(amount)s, within %(num)s day of a click",
                            "worth %(amount)s, within %(num)s days of a click", window_days, amount=amount)  # fmt: skip
        items.append(FunnelStep(labels.event(conversion.event)[2], conversion.people, total, note=note,
                         description=_share_of(conversion.people, figures, total)))  # fmt: skip
    return items


def _share_of(count: int, figures: CampaignReport, total: int) -> str:
    """Return a number of contacts as a share of those to whom an SMS was sent, or an email delivered."""
    rate = formats.percent(count, total)
    if figures.sms is not None:
        return gettext("%(rate)s of sent", rate=rate)
    return gettext("%(rate)s of delivered", rate=rate)


def list_top_links(campaign_id: int, figures: CampaignReport) -> list[tuple[str, int, str]]:
    """Return the most clicked links as (text, number of contacts, URL of those contacts), at most `_MAX_TOP_ROWS`."""
    links = sorted(
        (link for link in figures.links if link.counted and link.clicked.count), key=lambda row: -row.clicked.count
    )
    return [
        (row.words or shorten_url(row.url), row.clicked.count, f"/campaigns/{campaign_id}/people?link={row.number}")
        for row in links[:_MAX_TOP_ROWS]
    ]


def list_top_providers(campaign_id: int, figures: CampaignReport) -> list[tuple[str, int, str]]:
    """Return the mailbox providers, or for SMS the countries, with the most accepted messages.

    Each is (name, number of accepted messages, URL of their recipients); at most `_MAX_TOP_ROWS`. Skipped members of
    the audience are not recipients and do not count.
    """
    to = f"/campaigns/{campaign_id}/people"
    if figures.sms is not None:
        providers = [
            (
                i18n.name_country(row.country) if row.country else gettext("Unknown"),
                row.accepted,
                {"country": row.country or "unknown"},
            )
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
    if verb == "opened":
        return ngettext(
            "Peak: %(time)s (%(num)s open). Half of the contacts who opened did so within %(duration)s.",
            "Peak: %(time)s (%(num)s opens). Half of the contacts who opened did so within %(duration)s.",
            peak_count, time=at, duration=soon,
        )  # fmt: skip
    return ngettext(
        "Peak: %(time)s (%(num)s click). Half of the contacts who clicked did so within %(duration)s.",
        "Peak: %(time)s (%(num)s clicks). Half of the contacts who clicked did so within %(duration)s.",
        peak_count, time=at, duration=soon,
    )  # fmt: skip


_MOVING_PHASES = ("sending", "holding")
# The state of a campaign is read about once a second at most, however many users watch it.
_status_cache: CostAwareCache[dict[str, Any]] = CostAwareCache(min_age_seconds=0.8, cost_factor=5)
# How long after a pause or stop the page keeps polling: messages claimed just before may still be in flight.
_SETTLE_MS = 3_000


@pages.get("/<campaign_id:int>", name="show")
@signed_in("campaigns:read")
async def show(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the composer of a draft, the page of a scheduled campaign, or the overview of the report."""
    by = "day" if request.args.get("by") == "day" else "hour"
    base = await fetch(load_report, visit, campaign_id, "", by)
    if base["campaign"].phase == "draft":
        return await composer.render_composer(request, visit, campaign_id)
    if base["campaign"].phase == "scheduled":
        return await composer.render_scheduled(request, visit, campaign_id)
    return view.render(request, "campaigns/overview.html", **base)


@pages.get("/<campaign_id:int>/live", name="live")
@signed_in("campaigns:read")
async def show_live(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the progress of sending, polled by the page; once nothing changes, the response ends the polling.

    The figures of the overview are part of the response, so that all numbers are read at the same time.
    """
    by = None if request.args.get("slim") else "day" if request.args.get("by") == "day" else "hour"
    base = await fetch(_load_cached_status, visit.account_id, campaign_id, by)
    base = {**base, "tab": "", "wide": by is not None, **_permissions(visit)}
    is_poll = view.is_partial(request) and view.target_id(request) == "live"
    if not is_poll or base["campaign"].phase in ("draft", "scheduled"):
        # The send was undone meanwhile; a draft has another page.
        return view.redirect(request, f"/campaigns/{campaign_id}")
    # Only these blocks are rendered: the rest of the page needs values that were not loaded here.
    if by is not None:
        response = view.render(request, "campaigns/overview.html", also=("figures",), **base)
    else:
        response = view.render(request, "campaigns/report.html", **base)
    if not base["moving"]:
        delivery_status.forget_summary(visit.account_id)  # The sidebar reloads it at once.
        response.headers["HX-Trigger"] = "settled"  # reload the sidebar at once, not seconds later
    return response


@pages.get("/<campaign_id:int>/links", name="links")
@signed_in("campaigns:read")
async def show_links(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the links of a campaign and their clicks, on the message and as a table."""
    return await render_tab(request, visit, campaign_id, "links")


@pages.get("/<campaign_id:int>/links/map", name="map")
@signed_in("campaigns:read")
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
@signed_in("campaigns:read")
async def show_domains(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the results by mailbox provider, or for SMS by country."""
    return await render_tab(request, visit, campaign_id, "domains", everything=bool(request.args.get("all")))


@pages.get("/<campaign_id:int>/problems", name="problems")
@signed_in("campaigns:read")
async def show_problems(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show why messages were not delivered, grouped by the server's response, and the unconfirmed messages.

    A user must decide whether an unconfirmed message is sent again.
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
            view.flash(request, gettext("The campaign’s status has changed. This page shows the current status."))
        else:
            view.flash(request, gettext(done))
        return view.redirect(request, f"/campaigns/{campaign_id}")


_add_action("pause", states.pause, gettext_noop("Campaign paused. No more messages are sent until you resume it."))
_add_action("resume", send.resume, gettext_noop("Campaign resumed."))
_add_action("cancel", states.cancel, gettext_noop("Campaign cancelled. Queued messages are not sent."))


def load_report(visit: Visit, campaign_id: int, name: str, by: str | None = None) -> dict[str, Any]:
    """Return the context that every tab shares: campaign, progress, figures, tabs, and the user's permissions.

    With `by`, the interval of the timeline (`hour` or `day`), also the values of the overview.
    """
    context = {**_load_cached_status(visit.account_id, campaign_id, by), "tab": name, "wide": name == ""}
    context |= _permissions(visit)
    campaign = context["campaign"]
    if "figures" not in context:
        return context
    context["report_tabs"] = _list_tabs(campaign, sum(link.counted for link in context["figures"].links))
    if name == "problems":
        context |= {"problems": report.list_problems(campaign), "doubts": report.list_uncertain(campaign_id)}
    return context


def _load_cached_status(account_id: int, campaign_id: int, by: str | None = None) -> dict[str, Any]:
    """Return `_load_status` of a campaign, from a short-lived cache while it is sending."""
    row = store.get_row(account_id, campaign_id)
    key = account_id, campaign_id, row.phase, row.updated_at, i18n.get_language(), by
    status = _status_cache.get(key, lambda: _load_status(account_id, campaign_id, by))
    if not status["moving"]:
        _status_cache.invalidate(key)
    return status


def _load_status(account_id: int, campaign_id: int, by: str | None) -> dict[str, Any]:
    """Return the campaign with its progress, and its figures once sending has begun; with `by` also the overview."""
    campaign = store.get(account_id, campaign_id)
    has_started = campaign.phase not in ("draft", "scheduled")
    figures = results.build_report(account_id, campaign_id) if has_started else None
    skip_counts = report.count_skips(campaign)
    return {
        **({"figures": figures} if figures is not None else {}),
        **(_load_overview(campaign, figures, by) if figures is not None and by is not None else {}),
        "campaign": campaign, "stats": campaign.stats, "moving": _is_moving(campaign),
        "local": local_times.build_local_times(campaign) if has_started and by is not None else None,
        "act": states.find_last_action(campaign),
        "audience": lookups.describe_audience(campaign, lookups.load_audience_choices(account_id).names),
        "progress": report.get_progress(campaign),
        "ledger_differences": ledger_check.check_quickly(campaign) if campaign.started_at else [],
        "skip_counts": skip_counts,
        "skips": [*skip_counts.items()],
    }  # fmt: skip


def _permissions(visit: Visit) -> dict[str, bool]:
    return {"may_send": visit.can("campaigns:send"), "may_write": visit.can("campaigns:write")}


def _list_tabs(campaign: Any, links: int) -> list[tuple[str, str, int, str]]:
    """Return the tabs of the report as (path, label, count, colour class); `links` is the number of tracked links."""
    stats = campaign.stats
    problem_count = stats["failed"] + stats["bounced"] + stats["uncertain"] + stats["complained"]
    return [
        ("", gettext("Overview"), 0, ""), ("links", gettext("Links"), links, ""),
        ("people", gettext("Audience"), stats["audience"], ""),
        ("domains", gettext("Countries") if campaign.channel == "sms" else gettext("Mailbox providers"), 0, ""),
        ("problems", gettext("Problems"), problem_count, "bad"),
    ]  # fmt: skip


def _load_overview(campaign: Any, figures: CampaignReport, by: str) -> dict[str, Any]:
    """Return the values of the overview. Its sums come from `campaign.stats`, as in the progress of sending."""
    stats = campaign.stats
    usual = results.find_usual_results(campaign)
    window_days = accounts.get(campaign.account_id).attribution_days
    conversions = results.list_conversions(campaign, window_days) if figures.tracking else []
    silent, deleted = results.count_non_openers(campaign, _count_delivered(stats), figures.opens.people.count)
    test = experiment_results.get_result(campaign.account_id, campaign.id) if campaign.setup is not None else None
    return {
        "test": test, "test_words": experiment_words.describe(test, campaign) if test is not None else None,
        "series": repeat_views.build(campaign), "series_source": repeat_views.find_series(campaign),
        "silent": silent, "silent_deleted": deleted,
        "by": by, "usual": usual, "after": conversions, "window_days": window_days, "reached": _count_delivered(stats),
        "facts": list_facts(figures, stats, usual, len(recipients.list_replied(campaign))),
        "steps": list_funnel_steps(campaign.id, figures, stats, usual, conversions, window_days),
        "columns": charts.build_columns(figures.over_time, by), "is_long": charts.has_daily_buckets(figures.over_time),
        "summary": summarize_timeline(campaign, figures.over_time),
        "top_links": list_top_links(campaign.id, figures), "bare_links": content.list_bare_links(campaign),
        "places": list_top_providers(campaign.id, figures),
    }  # fmt: skip


def _is_moving(campaign: Any) -> bool:
    """Return whether the numbers may still change. After a pause or stop, messages in flight are still completed."""
    if campaign.pending_snapshot or (campaign.pending_end and campaign.stats["pending"]):
        return True
    if campaign.phase in ("paused", "cancelled"):
        return clock.now_ms() - campaign.updated_at < _SETTLE_MS or report.count_in_delivery(campaign.id) > 0
    return campaign.phase in _MOVING_PHASES
