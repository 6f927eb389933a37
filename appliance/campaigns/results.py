"""The report of a campaign: what became of it in numbers, each with the rows that it counts.

All numbers are of one moment. Those of a large campaign take a good part of a second where a disk is slow: they are
counted again only after a rest of some twenty times what that took, so that many who look cost no more than one.
"""

import threading
import time
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from appliance.campaigns import recipients, report, store
from appliance.campaigns.figures import (
    Books,
    Bucket,
    Count,
    CountryFigures,
    DomainFigures,
    Engaged,
    LinkFigures,
    Report,
    SmsFigures,
    Term,
    Trouble,
)
from appliance.content.designs import links
from appliance.core import clock
from appliance.core.rested import Rested
from appliance.sending.delivery import groups
from appliance.sending.messages.ledger import FINAL
from appliance.sending.sms import numbers
from appliance.storage.models import Campaign, Link
from appliance.storage.open import rows, scalar
from appliance.storage.work import snapshot

# The numbers of a report that only SMS have: the parts that were paid for, and what became of them by country.

_MAX_COUNTRIES = 50
_ACCEPTED_SMS = "status IN ('sent', 'delivered', 'bounced', 'complained')"
_SUMS = (
    f"SELECT {recipients.NUMBER_PREFIX}, max(recipient_key), count(*), count(*) FILTER (WHERE {_ACCEPTED_SMS}), "
    "count(*) FILTER (WHERE status = 'delivered'), count(*) FILTER (WHERE status = 'bounced'), "
    "count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'skipped'), count(clicked_at), "
    f"sum(CASE WHEN {_ACCEPTED_SMS} THEN coalesce(segments, 0) ELSE 0 END) FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND recipient_key IS NOT NULL GROUP BY 1"
)


def sms_figures(campaign: Campaign) -> SmsFigures | None:
    """Sum a campaign of SMS by the countries of the numbers, the largest first; None for mail."""
    if campaign.channel != "sms":
        return None
    sums: dict[str | None, list[int]] = {}
    for _, number, *counts in rows(_SUMS, (*recipients.bounds(campaign.id), campaign.id)):
        country = numbers.look(number).country
        have = sums.setdefault(country, [0] * len(counts))
        sums[country] = [before + int(more or 0) for before, more in zip(have, counts, strict=True)]
    order = sorted(sums, key=lambda one: (-sums[one][0], one or ""))
    shown = [CountryFigures(one, _people(campaign.id, one), *sums[one]) for one in order[:_MAX_COUNTRIES]]
    return SmsFigures(sum(counts[-1] for counts in sums.values()), shown)


def _people(campaign_id: int, country: str | None) -> str:
    return f"/v1/my/campaigns/{campaign_id}/recipients?{urlencode({'country': country or recipients.UNKNOWN})}"


_ACCEPTED = ("sent", "delivered", "bounced", "complained")
_LARGE, _RESTS, _MAX_KEPT = 5_000, 20, 20
_MAX_DOMAINS = 50
_HOUR_MS = 3600 * 1000
_HOURS, _DAYS = 48, 90
_AT = "instr(recipient_key, '@')"
_DOMAINS = (
    f"SELECT substr(recipient_key, {_AT} + 1), count(*), "
    "count(*) FILTER (WHERE status IN ('sent', 'delivered', 'bounced', 'complained')), "
    "count(*) FILTER (WHERE status = 'bounced'), count(*) FILTER (WHERE status = 'failed'), "
    "count(*) FILTER (WHERE status = 'complained'), count(opened_at), count(clicked_at) "
    f"FROM message NOT INDEXED "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND recipient_key IS NOT NULL AND channel = 'email' GROUP BY 1"
)
# Hours of the first two days, then days, the last of which takes all that comes later
_PLACE = "CASE WHEN ({at} - ?1) < {first} THEN ({at} - ?1) / {hour} ELSE {hours} + ({at} - ?1 - {first}) / {day} END"
_WHEN = (
    f"SELECT min({_PLACE}, {{last}}), count(*) FROM message INDEXED BY {{index}} "
    "WHERE campaign_id = ?2 AND {at} IS NOT NULL GROUP BY 1"
)
# Messages that machines asked for and no person; each number of a link is a place in the index
_MACHINES = (
    "SELECT count(*) FROM message m WHERE m.{at} IS NULL AND m.id IN (SELECT message_id FROM hit "
    "WHERE campaign_id = ? AND kind = ? AND number {numbers} AND verdict = 'machine' AND message_id IS NOT NULL)"
)
_CLICKERS = (
    "SELECT number, count(DISTINCT message_id) FROM hit WHERE campaign_id = ? AND kind = 'click' "
    "AND verdict != 'machine' AND message_id IS NOT NULL GROUP BY 1"
)


class _Memory:
    """Reports of large campaigns as they were counted last: when, how long that took, and how the campaign stood."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reports: dict[int, tuple[float, float, Any, Report]] = {}


_memory = _Memory()


def of(account_id: int, campaign_id: int) -> Report:
    """Return the report of a campaign; raises NotFound."""
    with snapshot():
        campaign = store.row(account_id, campaign_id)
        if campaign.audience_count < _LARGE:
            return _count(store.sum_up(campaign))
        stands = campaign.phase, campaign.updated_at
        with _memory.lock:
            known = _memory.reports.get(campaign_id)
        begun = time.monotonic()
        if known is not None and known[2] == stands and begun - known[0] < _RESTS * known[1]:
            return known[3]
        made = _count(store.sum_up(campaign))
        ended = time.monotonic()
        with _memory.lock:
            if len(_memory.reports) >= _MAX_KEPT:
                _memory.reports.clear()
            _memory.reports[campaign_id] = ended, ended - begun, stands, made
        return made


def people(campaign_id: int, **chosen: Any) -> str:
    """Return the path that lists some people of a campaign."""
    query = f"?{urlencode(chosen)}" if chosen else ""
    return f"/v1/my/campaigns/{campaign_id}/recipients{query}"


def _count(campaign: Campaign) -> Report:
    books = _books(campaign)
    asked = _asked(campaign.id)
    whole = books.delivered_to
    opened, clicked = _first(campaign.id, "opened"), _first(campaign.id, "clicked")
    return Report(
        campaign_id=campaign.id, tracking=campaign.tracking, ledger=books,
        opens=_engaged(campaign.id, "open", asked, opened, whole),
        clicks=_engaged(campaign.id, "click", asked, clicked, whole),
        unsubscribes=_of(campaign.id, len(recipients.unsubscribed(campaign.id)), whole, unsubscribed="true"),
        complaints=_of(campaign.id, campaign.stats["complained"], whole, status="complained"),
        bounces=_of(campaign.id, campaign.stats["bounced"], campaign.stats["accepted"], status="bounced"),
        links=_links(campaign.id, asked, clicked),
        domains=_domains(campaign.id),
        sms=sms_figures(campaign),
        problems=[_trouble(campaign.id, found) for found in report.problems(campaign)],
        over_time=_over_time(campaign),
    )  # fmt: skip


def _of(campaign_id: int, count: int, whole: int, **chosen: Any) -> Count:
    return Count(count, round(count / whole, 6) if whole else None, people(campaign_id, **chosen))


def _books(campaign: Campaign) -> Books:
    number, stats = campaign.id, campaign.stats
    terms = [Term("pending", stats["pending"], people(number, pending="true"))]
    terms += [Term(name, stats[name], people(number, status=name)) for name in FINAL]
    total = sum(term.count for term in terms)
    accepted, audience = stats["accepted"], stats["audience"]
    return Books(
        audience=_of(number, audience, 0), accepted=_of(number, accepted, audience, accepted="true"),
        delivered_to=accepted - stats["bounced"], terms=terms, sum=total,
        adds_up=total == audience and accepted == sum(stats[name] for name in _ACCEPTED)
        and (campaign.freezing is not None or not campaign.started_at or audience == campaign.audience_count),
    )  # fmt: skip


def _first(campaign_id: int, what: str) -> int:
    return int(scalar(f"SELECT count(*) FROM message INDEXED BY message_{what} WHERE campaign_id = ? "
                      f"AND {what}_at IS NOT NULL", (campaign_id,)))  # fmt: skip


# By kind and number of the link: by people and by machines, and how much of it was by nobody in particular
_Asked = dict[tuple[str, int | None], tuple[int, int, int]]


def _asked(campaign_id: int) -> _Asked:
    """Sum what was asked for; what came a moment ago is judged first."""
    found: _Asked = {}
    for kind, number, verdict, count, named in rows(
        "SELECT kind, number, verdict, count(*), count(message_id) FROM hit WHERE campaign_id = ? GROUP BY 1, 2, 3",
        (campaign_id,),
    ):
        if verdict is not None:
            human, machine, unnamed = found.get((kind, number), (0, 0, 0))
            is_machine = verdict == "machine"
            more = (0, count) if is_machine else (count, 0)
            found[kind, number] = human + more[0], machine + more[1], unnamed + count - named
    return found


def _engaged(campaign_id: int, kind: str, asked: _Asked, count: int, whole: int) -> Engaged:
    name = {"open": "opened", "click": "clicked"}[kind]
    mine = {key[1]: found for key, found in asked.items() if key[0] == kind}
    numbers = "IS NULL" if kind == "open" else f"IN ({','.join(str(number) for number in mine if number is not None)})"
    machines = int(scalar(_MACHINES.format(at=f"{name}_at", numbers=numbers), (campaign_id, kind)))
    human, machine, unnamed = (sum(found[at] for found in mine.values()) for at in range(3))
    return Engaged(
        people=_of(campaign_id, count, whole, **{name: "people"}),
        machines=_of(campaign_id, machines, whole, **{name: "machines"}),
        total=human + machine, total_human=human, total_machine=machine, unnamed=unnamed,
    )  # fmt: skip


def _links(campaign_id: int, asked: _Asked, clicked: int) -> list[LinkFigures]:
    """Return every link as it was numbered, also those nobody followed."""
    clickers: dict[int, int] = dict(rows(_CLICKERS, (campaign_id,)))
    made = []
    for link in Link.select().where(Link.campaign == campaign_id).order_by(Link.number):
        human, machine, _ = asked.get(("click", link.number), (0, 0, 0))
        people_of_it = _of(campaign_id, clickers.get(link.number, 0), clicked, link=link.number)
        counted = links.is_target(link.url)
        made.append(
            LinkFigures(link.number, link.url, link.words, counted, people_of_it, human + machine, human, machine)
        )
    return made


def _domains(campaign_id: int) -> list[DomainFigures]:
    """Sum by the provider of the mailbox, the largest first, and the many small ones together."""
    bounds = recipients.bounds(campaign_id)
    sums: dict[str, list[int]] = {}
    named: dict[str, set[str]] = {}
    # The rows of a campaign stand side by side: one walk along them is faster than any index
    for domain, *counts in rows(_DOMAINS, (*bounds, campaign_id)):
        name = groups.group_of(f"@{domain}")
        named.setdefault(name, set()).add(groups.domain_of(f"@{domain}"))
        have = sums.setdefault(name, [0] * len(counts))
        sums[name] = [before + more for before, more in zip(have, counts, strict=True)]
    order = sorted(sums, key=lambda name: (-sums[name][0], name))
    shown, others = order[:_MAX_DOMAINS], order[_MAX_DOMAINS:]
    made = [DomainFigures(name, sorted(named[name]), people(campaign_id, domain=name), *sums[name]) for name in shown]
    if others:
        rest = [sum(column) for column in zip(*(sums[name] for name in others), strict=True)]
        made.append(DomainFigures(None, [], None, *rest))
    return made


def _trouble(campaign_id: int, found: dict[str, Any]) -> Trouble:
    return Trouble(
        found["key"], found["status"], found["reason"], found["text"], found["class"], found["meaning"],
        found["help"], found["count"], people(campaign_id, problem=found["key"]),
    )  # fmt: skip


def _over_time(campaign: Campaign) -> list[Bucket]:
    """Return when people opened and clicked for the first time, from the hour it began to the last one of them."""
    if campaign.started_at is None:
        return []
    begin = campaign.started_at - campaign.started_at % _HOUR_MS
    counted = {what: _when(campaign.id, what, begin) for what in ("opened", "clicked")}
    last = max((index for found in counted.values() for index in found), default=-1)
    made = []
    for index in range(last + 1):
        start, end = (begin + _start(number) for number in (index, index + 1))
        numbers = (counted[what].get(index, 0) for what in ("opened", "clicked"))
        made.append(Bucket(str(clock.iso(start)), str(clock.iso(end)), *numbers))
    return made


def _when(campaign_id: int, what: str, begin: int) -> dict[int, int]:
    sql = _WHEN.format(
        at=f"{what}_at", index=f"message_{what}", hour=_HOUR_MS, first=_HOURS * _HOUR_MS, hours=_HOURS,
        day=24 * _HOUR_MS, last=_HOURS + _DAYS - 1,
    )  # fmt: skip
    return {max(0, int(row[0])): row[1] for row in rows(sql, (begin, campaign_id))}


def _start(index: int) -> int:
    """Return when a bucket begins, after the first one did."""
    return min(index, _HOURS) * _HOUR_MS + max(0, index - _HOURS) * 24 * _HOUR_MS


# What is usual: how the campaigns before one did on average, so that its own numbers mean something.

_LAST = (
    "SELECT id, sent_count, bounced_count, complained_count, tracking FROM campaign WHERE account_id = ? "
    "AND channel = ? AND phase = 'completed' AND test = 0 AND deleted_at IS NULL AND sent_count > 0 "
    "AND id != ? AND started_at < ? ORDER BY started_at DESC LIMIT 10"
)
# What came of a campaign weeks ago hardly changes
_did: Rested[tuple[int, int]] = Rested(least=300)


class Usual(NamedTuple):
    """Averages of so many campaigns: shares of those who were reached; None where none of them counted it."""

    campaigns: int
    opened: float | None
    clicked: float | None
    complained: float
    bounced: float  # of those who were accepted


def usual_results(campaign: Campaign) -> Usual | None:
    """Return the averages of the last ten campaigns before this one, or None if there were fewer than two."""
    before = rows(_LAST, (campaign.account_id, campaign.channel, campaign.id, campaign.started_at or 2**62))
    if len(before) < 2:
        return None
    opened, clicked, complained, bounced = [], [], [], []
    for number, sent, back, unwelcome, tracking in before:
        reached = max(sent - back, 1)
        bounced.append(back / sent)
        complained.append(unwelcome / reached)
        if tracking:
            did = _did.get(number, partial(_read, number))
            opened.append(did[0] / reached)
            clicked.append(did[1] / reached)
    return Usual(len(before), _mean(opened), _mean(clicked), sum(complained) / len(before), sum(bounced) / len(before))


def _read(campaign_id: int) -> tuple[int, int]:
    return _count_of_average(campaign_id, "opened"), _count_of_average(campaign_id, "clicked")


def _mean(shares: list[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def _count_of_average(campaign_id: int, what: str) -> int:
    """Count people of a campaign who opened or clicked, by the index of it."""
    sql = f"SELECT count(*) FROM message INDEXED BY message_{what} WHERE campaign_id = ? AND {what}_at IS NOT NULL"
    return int(scalar(sql, (campaign_id,)))


# What people did after a click, by the events of the account's own: orders, bookings, whatever a program records.

_WEEK_MS = 7 * 86_400_000
_SQL = (
    "SELECT e.event, count(DISTINCT m.id), total(e.amount) FROM message m INDEXED BY message_clicked "
    "JOIN event e ON e.contact_id = m.contact_id AND e.created_at >= m.clicked_at AND e.created_at < m.clicked_at + ? "
    "WHERE m.campaign_id = ? AND m.clicked_at IS NOT NULL AND e.generated = 0 AND e.test = 0 "
    "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
)
_known: Rested[list["After"]] = Rested(least=5)


class After(NamedTuple):
    """An event, of how many people, and what it came to in all (0 where events name no amount)."""

    event: str
    people: int
    amount: float


def conversions_of(campaign: Campaign) -> list[After]:
    """Return the events of a program that most people caused within a week after their first click."""
    return _known.get(campaign.id, lambda: [After(*row) for row in rows(_SQL, (_WEEK_MS, campaign.id))])
