"""The results of a campaign: its report, the average results of earlier campaigns, and conversions.

All figures of a report are from one read snapshot. For a large campaign, building the report can take most of a second
on a slow disk. It is therefore cached for `_CACHE_TIME_FACTOR` times as long as it took to build, so that many viewers
cost no more than one.
"""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from appliance.campaigns import recipients, report, store
from appliance.campaigns.report import (
    Bucket,
    CampaignReport,
    CountryFigures,
    DomainFigures,
    EngagementFigures,
    LedgerFigures,
    LedgerTerm,
    LinkFigures,
    ProblemFigures,
    RecipientCount,
    SmsFigures,
    TransportFigures,
)
from appliance.content.designs import links
from appliance.core import addresses, clock
from appliance.core.cache import CostAwareCache
from appliance.sending.delivery import mx_routes
from appliance.sending.messages.ledger import FINAL_STATUSES
from appliance.storage.database import rows, scalar
from appliance.storage.models import Campaign, Link
from appliance.storage.transactions import snapshot

# The SMS figures of a report: the accepted parts, for which the provider charges, and results by country.

_MAX_COUNTRIES = 50
_ACCEPTED_SMS = "status IN ('sent', 'delivered', 'bounced', 'complained')"
_SMS_SUMS = (
    f"SELECT {recipients.NUMBER_PREFIX}, max(recipient_key), count(*), count(*) FILTER (WHERE {_ACCEPTED_SMS}), "
    "count(*) FILTER (WHERE status = 'delivered'), count(*) FILTER (WHERE status = 'bounced'), "
    "count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'skipped'), count(clicked_at), "
    f"sum(CASE WHEN {_ACCEPTED_SMS} THEN coalesce(segments, 0) ELSE 0 END) FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND recipient_key IS NOT NULL GROUP BY 1"
)


def count_sms(campaign: Campaign) -> SmsFigures | None:
    """Return the SMS figures of a campaign, or None for an email campaign.

    Only the `_MAX_COUNTRIES` countries with the most messages are listed, the largest first; `parts` includes all.
    """
    if campaign.channel != "sms":
        return None
    sums: dict[str | None, list[int]] = {}
    for _, number, *counts in rows(_SMS_SUMS, (*recipients.get_id_range(campaign.id), campaign.id)):
        country = addresses.inspect_number(number).country
        totals = sums.setdefault(country, [0] * len(counts))
        sums[country] = [total + int(count or 0) for total, count in zip(totals, counts, strict=True)]
    order = sorted(sums, key=lambda code: (-sums[code][0], code or ""))
    countries = [
        CountryFigures(code, recipients_url(campaign.id, country=code or recipients.UNKNOWN), *sums[code])
        for code in order[:_MAX_COUNTRIES]
    ]
    return SmsFigures(sum(counts[-1] for counts in sums.values()), countries)


# The report.

_ACCEPTED = ("sent", "delivered", "bounced", "complained")
_MIN_CACHED_AUDIENCE, _CACHE_TIME_FACTOR, _MAX_CACHED = 5_000, 20, 20
_MAX_DOMAINS = 50
_HOUR_MS, _MINUTE_MS = 3600 * 1000, 60 * 1000
_HOURS, _DAYS = 48, 90
_AT_SIGN = "instr(recipient_key, '@')"
_DOMAINS = (
    f"SELECT substr(recipient_key, {_AT_SIGN} + 1), provider, count(*), "
    "count(*) FILTER (WHERE status IN ('sent', 'delivered', 'bounced', 'complained')), "
    "count(*) FILTER (WHERE status = 'bounced'), count(*) FILTER (WHERE status = 'failed'), "
    "count(*) FILTER (WHERE status = 'complained'), count(opened_at), count(clicked_at) "
    f"FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND channel = 'email' GROUP BY 1, 2"
)
# The number of the bucket of a time: hours for the first two days, then days. The last bucket includes everything
# later.
_BUCKET = "CASE WHEN ({at} - ?1) < {first} THEN ({at} - ?1) / {hour} ELSE {hours} + ({at} - ?1 - {first}) / {day} END"
_COUNT_BY_BUCKET = (
    f"SELECT min({_BUCKET}, {{last}}), count(*) FROM message INDEXED BY {{index}} "
    "WHERE campaign_id = ?2 AND {at} IS NOT NULL GROUP BY 1"
)
# Messages that only machines opened or clicked. The link numbers are listed because the index needs them.
_MACHINE_ONLY = (
    "SELECT count(*) FROM message m WHERE m.{at} IS NULL AND m.id IN (SELECT message_id FROM hit "
    "WHERE campaign_id = ? AND kind = ? AND number {numbers} AND verdict = 'machine' AND message_id IS NOT NULL)"
)
_CLICKERS = (
    "SELECT number, count(DISTINCT message_id) FROM hit WHERE campaign_id = ? AND kind = 'click' "
    "AND verdict != 'machine' AND message_id IS NOT NULL GROUP BY 1"
)


class _ReportCache:
    """Cached reports of large campaigns, by campaign id.

    An entry is (monotonic time when it was built, seconds that it took, phase and `updated_at` of the campaign,
    report).
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reports: dict[int, tuple[float, float, Any, CampaignReport]] = {}


_cache = _ReportCache()


def build_report(account_id: int, campaign_id: int) -> CampaignReport:
    """Return the report of a campaign; with an audience of at least `_MIN_CACHED_AUDIENCE`, the report may be cached.

    Raises NotFound.
    """
    with snapshot():
        campaign = store.get_row(account_id, campaign_id)
        if campaign.audience_count < _MIN_CACHED_AUDIENCE:
            return _build_report(store.add_sums(campaign))
        state = campaign.phase, campaign.updated_at
        with _cache.lock:
            cached = _cache.reports.get(campaign_id)
        started = time.monotonic()
        if cached is not None and cached[2] == state and started - cached[0] < _CACHE_TIME_FACTOR * cached[1]:
            return cached[3]
        report = _build_report(store.add_sums(campaign))
        ended = time.monotonic()
        with _cache.lock:
            if len(_cache.reports) >= _MAX_CACHED:
                _cache.reports.clear()
            _cache.reports[campaign_id] = ended, ended - started, state, report
        return report


def recipients_url(campaign_id: int, **chosen: Any) -> str:
    """Return the API path that lists a campaign's recipients; `chosen` are filters of `RecipientQuery`."""
    query = f"?{urlencode(chosen)}" if chosen else ""
    return f"/v1/my/campaigns/{campaign_id}/recipients{query}"


def _build_report(campaign: Campaign) -> CampaignReport:
    ledger = _build_ledger_sum(campaign)
    domain_figures, transport_figures = _build_domains(campaign.id)
    hits = _load_hits(campaign.id)
    total = ledger.delivered_to
    opened, clicked = _count_engaged(campaign.id, "opened"), _count_engaged(campaign.id, "clicked")
    unsubscribed = len(recipients.list_unsubscribed(campaign.id))
    return CampaignReport(
        campaign_id=campaign.id, tracking=campaign.tracking, ledger=ledger,
        opens=_build_engagement(campaign.id, "open", hits, opened, total),
        clicks=_build_engagement(campaign.id, "click", hits, clicked, total),
        unsubscribes=_build_count(campaign.id, unsubscribed, total, unsubscribed="true"),
        complaints=_build_count(campaign.id, campaign.stats["complained"], total, status="complained"),
        bounces=_build_count(campaign.id, campaign.stats["bounced"], campaign.stats["accepted"], status="bounced"),
        links=_build_links(campaign.id, hits, clicked),
        domains=domain_figures, transports=transport_figures,
        sms=count_sms(campaign),
        problems=[_build_problems(campaign.id, problem) for problem in report.list_problems(campaign)],
        over_time=_build_timeline(campaign),
    )  # fmt: skip


def _build_count(campaign_id: int, count: int, total: int, **chosen: Any) -> RecipientCount:
    return RecipientCount(count, round(count / total, 6) if total else None, recipients_url(campaign_id, **chosen))


def _build_ledger_sum(campaign: Campaign) -> LedgerFigures:
    number, stats = campaign.id, campaign.stats
    terms = [LedgerTerm("pending", stats["pending"], recipients_url(number, pending="true"))]
    terms += [LedgerTerm(name, stats[name], recipients_url(number, status=name)) for name in FINAL_STATUSES]
    total = sum(term.count for term in terms)
    accepted, audience = stats["accepted"], stats["audience"]
    return LedgerFigures(
        audience=_build_count(number, audience, 0), accepted=_build_count(number, accepted, audience, accepted="true"),
        delivered_to=accepted - stats["bounced"], terms=terms, sum=total,
        adds_up=total == audience and accepted == sum(stats[name] for name in _ACCEPTED)
        and (campaign.pending_snapshot is not None or not campaign.started_at or audience == campaign.audience_count),
    )  # fmt: skip


def _count_engaged(campaign_id: int, column: str) -> int:
    """Count the messages of a campaign that a person opened (`column` is `opened`) or clicked (`clicked`)."""
    sql = f"SELECT count(*) FROM message INDEXED BY message_{column} WHERE campaign_id = ? AND {column}_at IS NOT NULL"
    return int(scalar(sql, (campaign_id,)))


# By kind (`open`, `click`) and link number: the number of hits by people, of hits by machines, and of anonymous hits,
# which are included in the first two.
_HitCounts = dict[tuple[str, int | None], tuple[int, int, int]]


def _load_hits(campaign_id: int) -> _HitCounts:
    """Count a campaign's hits by people and by machines; hits without a verdict, the latest ones, are left out."""
    hits: _HitCounts = {}
    for kind, number, verdict, count, is_named in rows(
        "SELECT kind, number, verdict, count(*), count(message_id) FROM hit WHERE campaign_id = ? GROUP BY 1, 2, 3",
        (campaign_id,),
    ):
        if verdict is not None:
            human, machine, unnamed = hits.get((kind, number), (0, 0, 0))
            is_machine = verdict == "machine"
            human_and_machine = (0, count) if is_machine else (count, 0)
            hits[kind, number] = (
                human + human_and_machine[0],
                machine + human_and_machine[1],
                unnamed + count - is_named,
            )
    return hits


# Messages that bounced although they were opened or clicked.
_ENGAGED_BOUNCES = "SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'bounced' AND {}_at IS NOT NULL"
# Delivered messages without an open whose contact has been deleted.
_UNOPENED_WITHOUT_CONTACT = (
    "SELECT count(*) FROM message INDEXED BY message_without_contact WHERE account_id = ? AND contact_id IS NULL "
    "AND campaign_id = ? AND opened_at IS NULL AND status IN ('sent', 'delivered', 'complained')"
)


def count_unengaged(campaign_id: int, column: Literal["opened", "clicked"], delivered: int, engaged: int) -> int:
    """Return how many of the delivered messages no person opened or clicked: the recipients with `opened=never`.

    `engaged` is the number of messages that a person opened or clicked, including messages that bounced.
    """
    return delivered - engaged + int(scalar(_ENGAGED_BOUNCES.format(column), (campaign_id,)))


def count_non_openers(campaign: Campaign, delivered: int, opened: int) -> tuple[int, int]:
    """Return how many contacts received an email and did not open it, and how many more have been deleted since then.

    The first number is that of the segment of a resend, the sum is that of the recipients with `opened=never`.
    """
    deleted = int(scalar(_UNOPENED_WITHOUT_CONTACT, (campaign.account_id, campaign.id)))
    return max(count_unengaged(campaign.id, "opened", delivered, opened) - deleted, 0), deleted


def _build_engagement(campaign_id: int, kind: str, hits: _HitCounts, count: int, total: int) -> EngagementFigures:
    name = {"open": "opened", "click": "clicked"}[kind]
    own_hits = {key[1]: counts for key, counts in hits.items() if key[0] == kind}
    numbers = (
        "IS NULL" if kind == "open" else f"IN ({','.join(str(number) for number in own_hits if number is not None)})"
    )
    machines = int(scalar(_MACHINE_ONLY.format(at=f"{name}_at", numbers=numbers), (campaign_id, kind)))
    human, machine, unnamed = (sum(counts[index] for counts in own_hits.values()) for index in range(3))
    return EngagementFigures(
        people=_build_count(campaign_id, count, total, **{name: "people"}),
        machines=_build_count(campaign_id, machines, total, **{name: "machines"}),
        total=human + machine, total_human=human, total_machine=machine, unnamed=unnamed,
    )  # fmt: skip


def _build_links(campaign_id: int, hits: _HitCounts, clicked: int) -> list[LinkFigures]:
    """Return the figures of all links of a campaign by number, including those without clicks.

    `clicked` is the number of people who clicked any link, the basis of the rates.
    """
    clickers: dict[int, int] = dict(rows(_CLICKERS, (campaign_id,)))
    figures = []
    for link in Link.select().where(Link.campaign == campaign_id).order_by(Link.number):
        human, machine, _ = hits.get(("click", link.number), (0, 0, 0))
        clicked_by = _build_count(campaign_id, clickers.get(link.number, 0), clicked, link=link.number)
        is_counted = links.is_trackable(link.url)
        figures.append(
            LinkFigures(link.number, link.url, link.words, is_counted, clicked_by, human + machine, human, machine)
        )
    return figures


def _build_domains(campaign_id: int) -> tuple[list[DomainFigures], list[TransportFigures]]:
    """Return the figures of the `_MAX_DOMAINS` largest mailbox providers, the largest first, and of the transports.

    All smaller providers are combined into a last entry without a name. Recipients who were erased have no provider.
    """
    bounds = recipients.get_id_range(campaign_id)
    sums: dict[str, list[int]] = {}
    domains: dict[str, set[str]] = {}
    by_transport: dict[str, list[int]] = {}
    # The rows of a campaign are close together, so a scan of their range is faster than any index.
    for domain, transport, *counts in rows(_DOMAINS, (*bounds, campaign_id)):
        transport_totals = by_transport.setdefault(transport, [0] * (len(counts) - 1))
        by_transport[transport] = [total + count for total, count in zip(transport_totals, counts[1:], strict=True)]
        if domain is None:
            continue
        name = mx_routes.get_address_group(f"@{domain}")
        domains.setdefault(name, set()).add(mx_routes.domain_of(f"@{domain}"))
        totals = sums.setdefault(name, [0] * len(counts))
        sums[name] = [total + count for total, count in zip(totals, counts, strict=True)]
    order = sorted(sums, key=lambda name: (-sums[name][0], name))
    largest, smaller = order[:_MAX_DOMAINS], order[_MAX_DOMAINS:]
    figures = [
        DomainFigures(name, sorted(domains[name]), recipients_url(campaign_id, domain=name), *sums[name])
        for name in largest
    ]
    if smaller:
        remaining_sums = [sum(column) for column in zip(*(sums[name] for name in smaller), strict=True)]
        figures.append(DomainFigures(None, [], None, *remaining_sums))
    used = [(key, totals) for key, totals in by_transport.items() if any(totals)]
    used.sort(key=lambda entry: (-entry[1][0], entry[0]))
    return figures, [TransportFigures(key, *totals) for key, totals in used]


def _build_problems(campaign_id: int, group: dict[str, Any]) -> ProblemFigures:
    return ProblemFigures(
        group["key"], group["status"], group["reason"], group["text"], group["class"], group["meaning"],
        group["help"], group["count"], recipients_url(campaign_id, problem=group["key"]),
    )  # fmt: skip


def _build_timeline(campaign: Campaign) -> list[Bucket]:
    """Return the first opens and clicks by bucket, from the minute of the start to the last bucket that has any."""
    if campaign.started_at is None:
        return []
    begin = campaign.started_at - campaign.started_at % _MINUTE_MS
    counts = {column: _count_by_bucket(campaign.id, column, begin) for column in ("opened", "clicked")}
    last = max((index for by_bucket in counts.values() for index in by_bucket), default=-1)
    buckets = []
    for index in range(last + 1):
        start, end = (begin + _get_bucket_start(number) for number in (index, index + 1))
        numbers = (counts[column].get(index, 0) for column in ("opened", "clicked"))
        buckets.append(Bucket(str(clock.iso(start)), str(clock.iso(end)), *numbers))
    return buckets


def _count_by_bucket(campaign_id: int, engagement: str, begin: int) -> dict[int, int]:
    sql = _COUNT_BY_BUCKET.format(
        at=f"{engagement}_at", index=f"message_{engagement}", hour=_HOUR_MS, first=_HOURS * _HOUR_MS, hours=_HOURS,
        day=24 * _HOUR_MS, last=_HOURS + _DAYS - 1,
    )  # fmt: skip
    return {max(0, int(row[0])): row[1] for row in rows(sql, (begin, campaign_id))}


def _get_bucket_start(index: int) -> int:
    """Return the milliseconds from the start of the first bucket to the start of bucket `index`."""
    return min(index, _HOURS) * _HOUR_MS + max(0, index - _HOURS) * 24 * _HOUR_MS


_NTH_ENGAGED = (
    "SELECT {at} FROM message INDEXED BY message_{engagement} WHERE campaign_id = ? AND {at} NOT NULL "
    "ORDER BY {at} LIMIT 1 OFFSET ?"
)


def measure_half_time(campaign: Campaign, engagement: Literal["opened", "clicked"], count: int) -> float:
    """Return the seconds from the start of a campaign until half of `count` people had opened it, or clicked in it.

    `count` is the number of people who have done so by now (`engagement`). The result is 0.0 if `count` is 0.
    """
    sql = _NTH_ENGAGED.format(at=f"{engagement}_at", engagement=engagement)
    at = scalar(sql, (campaign.id, max(0, (count + 1) // 2 - 1)))
    return 0.0 if at is None or campaign.started_at is None else max(0, at - campaign.started_at) / 1000


# The results of many campaigns at once, for lists.

_COUNT_ENGAGED_BY_CAMPAIGN = (
    "SELECT campaign_id, count(*) FROM message INDEXED BY message_{column} WHERE campaign_id IN ({ids}) "
    "AND {column}_at IS NOT NULL GROUP BY 1"
)
_COUNT_STATUS_BY_CAMPAIGN = (
    "SELECT campaign_id, count(*) FROM message WHERE campaign_id IN ({ids}) AND status = '{column}' GROUP BY 1"
)
_list_cache: CostAwareCache[dict[int, "ListResults"]] = CostAwareCache(min_age_seconds=3)


class ListResults(NamedTuple):
    """The results of a campaign in a list: messages sent, those that did not bounce, and people who opened and clicked.

    `delivered` is the number of SMS that are reported as delivered, 0 for emails.
    """

    sent: int
    not_bounced: int
    opened: int
    clicked: int
    delivered: int


def list_results(campaigns: Sequence[Campaign]) -> dict[int, ListResults]:
    """Return the results of the campaigns that were started, by campaign id; cached for at least three seconds.

    All campaigns are counted together, by indexes that contain only messages with an open or a click.
    """
    started = [campaign for campaign in campaigns if campaign.started_at]
    key = tuple((campaign.id, campaign.updated_at) for campaign in started)
    return _list_cache.get(key, partial(_count_results, started)) if started else {}


def _count_results(campaigns: list[Campaign]) -> dict[int, ListResults]:
    def count(sql: str, channel: str, column: str) -> dict[int, int]:
        ids = ",".join(str(campaign.id) for campaign in campaigns if not channel or campaign.channel == channel)
        return dict(rows(sql.format(ids=ids, column=column))) if ids else {}

    opened = count(_COUNT_ENGAGED_BY_CAMPAIGN, "email", "opened")
    clicked = count(_COUNT_ENGAGED_BY_CAMPAIGN, "", "clicked")
    delivered = count(_COUNT_STATUS_BY_CAMPAIGN, "sms", "delivered")
    bounced = count(_COUNT_STATUS_BY_CAMPAIGN, "", "bounced")
    return {
        campaign.id: ListResults(
            campaign.sent_count, max(campaign.sent_count - bounced.get(campaign.id, 0), 0), opened.get(campaign.id, 0),
            clicked.get(campaign.id, 0), delivered.get(campaign.id, 0),
        )
        for campaign in campaigns
    }  # fmt: skip


# The average results of earlier campaigns, for comparison.

_EARLIER_CAMPAIGNS = (
    "SELECT id, sent_count, bounced_count, complained_count, tracking FROM campaign WHERE account_id = ? "
    "AND channel = ? AND phase = 'completed' AND test = 0 AND deleted_at IS NULL AND sent_count > 0 "
    "AND id != ? AND started_at < ? ORDER BY started_at DESC LIMIT 10"
)
# Opens and clicks of earlier campaigns hardly change, so they are cached for at least five minutes.
_engagement_cache: CostAwareCache[tuple[int, int]] = CostAwareCache(min_age_seconds=300)


class UsualResults(NamedTuple):
    """Average rates of earlier campaigns, as shares (0 to 1) of delivered messages (`bounced`: of accepted messages).

    `campaigns` is the number of campaigns. `opened` and `clicked` are None if none of them was tracked.
    """

    campaigns: int
    opened: float | None
    clicked: float | None
    complained: float
    bounced: float  # share of the accepted messages


def find_usual_results(campaign: Campaign) -> UsualResults | None:
    """Return the averages of the up to ten latest completed campaigns of the same channel that started before this one.

    Returns None if there are fewer than two. Test campaigns do not count.
    """
    campaigns = rows(
        _EARLIER_CAMPAIGNS, (campaign.account_id, campaign.channel, campaign.id, campaign.started_at or 2**62)
    )
    if len(campaigns) < 2:
        return None
    opened, clicked, complained, bounced = [], [], [], []
    for campaign_id, sent, bounced_count, complained_count, tracking in campaigns:
        delivered = max(sent - bounced_count, 1)
        bounced.append(bounced_count / sent)
        complained.append(complained_count / delivered)
        if tracking:
            engagement = _engagement_cache.get(campaign_id, partial(_get_open_and_click_count, campaign_id))
            opened.append(engagement[0] / delivered)
            clicked.append(engagement[1] / delivered)
    return UsualResults(
        len(campaigns),
        _get_mean(opened),
        _get_mean(clicked),
        sum(complained) / len(campaigns),
        sum(bounced) / len(campaigns),
    )


def _get_open_and_click_count(campaign_id: int) -> tuple[int, int]:
    return _count_engaged(campaign_id, "opened"), _count_engaged(campaign_id, "clicked")


def _get_mean(shares: list[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


# Conversions: events that the account's own programs submitted after a click, such as orders or bookings.

_CONVERSIONS = (
    "SELECT e.event, count(DISTINCT m.id), total(e.amount) FROM message m INDEXED BY message_clicked "
    "JOIN event e ON e.contact_id = m.contact_id AND e.created_at >= m.clicked_at AND e.created_at < m.clicked_at + ? "
    "WHERE m.campaign_id = ? AND m.clicked_at IS NOT NULL AND e.generated = 0 AND e.test = 0 "
    "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
)
_conversion_cache: CostAwareCache[list["Conversion"]] = CostAwareCache(min_age_seconds=5)


class Conversion(NamedTuple):
    """An event, the number of people who caused it after a click, and the sum of its amounts (0 without amounts)."""

    event: str
    people: int
    amount: float


def list_conversions(campaign: Campaign, window_days: int) -> list[Conversion]:
    """Return the up to three events that most people caused within `window_days` days after a click, most people first.

    Events that the service itself records, and test events, do not count. Cached for at least five seconds.
    """
    values = (window_days * clock.DAY_MS, campaign.id)
    return _conversion_cache.get(values, lambda: [Conversion(*row) for row in rows(_CONVERSIONS, values)])
