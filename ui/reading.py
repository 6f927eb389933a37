"""What the pages of a report say of its numbers: facts with their shares, steps of a funnel, words for a chart."""

from collections.abc import Sequence
from typing import NamedTuple

from appliance.campaigns.figures import Bucket, Report
from appliance.campaigns.results import After, Usual
from ui import words
from ui.charts import Step

_FEW = 5


class Fact(NamedTuple):
    """A number with its name, the whole it is a share of, where its people are, and what is usual."""

    label: str
    many: int
    whole: int
    href: str = ""
    usual: float | None = None
    note: str = ""
    machines: tuple[int, str] | None = None
    tone: str = ""


def shortened(url: str, most: int = 60) -> str:
    """Write an address without what all have, and not too long."""
    bare = url.partition("://")[2].removeprefix("www.").rstrip("/") or url
    return bare if len(bare) <= most else f"{bare[: most - 1]}…"


def facts(figures: Report, stats: dict[str, int], usual: Usual | None) -> list[Fact]:
    """Return what people did, what counts most first."""
    reached = figures.ledger.delivered_to
    clicks, opens = figures.clicks, figures.opens
    clicked = Fact(
        "Clicked", clicks.people.count, reached, "clicked=people", usual.clicked if usual else None,
        f"{words.number(clicks.total_human)} in all" if clicks.total_human else "",
        (clicks.machines.count, "clicked=machines") if clicks.machines.count else None,
    )  # fmt: skip
    unsubscribed = figures.unsubscribes.count
    if figures.sms is not None:
        return [
            Fact("Delivered", stats["delivered"], stats["accepted"], "status=delivered"),
            clicked,
            Fact("Opted out", unsubscribed, reached, "unsubscribed=true", tone="warn"),
            Fact("Not delivered", figures.bounces.count, stats["accepted"], "status=bounced", tone="bad"),
        ]
    opened = Fact(
        "Opened, about", opens.people.count, reached, "opened=people", usual.opened if usual else None,
        f"{words.number(opens.total_human)} in all" if opens.total_human else "",
        (opens.machines.count, "opened=machines") if opens.machines.count else None,
    )  # fmt: skip
    back, spam = (usual.bounced, usual.complained) if usual else (None, None)
    return [
        clicked,
        opened,
        Fact("Unsubscribed", unsubscribed, reached, "unsubscribed=true", tone="warn"),
        Fact("Called it spam", figures.complaints.count, reached, "status=complained", spam, tone="bad"),
        Fact("Bounced", figures.bounces.count, stats["accepted"], "status=bounced", back, tone="bad"),
    ]


def steps(
    campaign_id: int, figures: Report, stats: dict[str, int], usual: Usual | None, after: Sequence[After]
) -> list[Step]:
    """Return the way from sent to done: who was reached, opened, clicked, and did what a program recorded."""
    to, reached = f"/campaigns/{campaign_id}/people?", figures.ledger.delivered_to
    made = [Step("Reached", reached, reached, f"{to}accepted=true")]
    if figures.sms is not None:
        made = [Step("Handed over", stats["accepted"], stats["accepted"], f"{to}accepted=true"),
                Step("Delivered", stats["delivered"], stats["accepted"], f"{to}status=delivered")]  # fmt: skip
    elif figures.tracking:
        made.append(Step("Opened, about", figures.opens.people.count, reached, f"{to}opened=people",
                         usual.opened if usual else None))  # fmt: skip
    if figures.tracking:
        whole = made[0].whole
        made.append(Step("Clicked", figures.clicks.people.count, whole, f"{to}clicked=people",
                         usual.clicked if usual else None))  # fmt: skip
    for one in after:
        amount = f", {words.number(round(one.amount))} in all" if one.amount else ""
        note = f"within a week after the click{amount}"
        made.append(Step(words.event(one.event)[2], one.people, made[0].whole, note=note))
    return made


def top_links(campaign_id: int, figures: Report) -> list[tuple[str, int, str]]:
    """Return the links that most people followed."""
    found = sorted(
        (one for one in figures.links if one.counted and one.clicked.count), key=lambda one: -one.clicked.count
    )
    return [
        (one.words or shortened(one.url), one.clicked.count, f"/campaigns/{campaign_id}/people?link={one.number}")
        for one in found[:_FEW]
    ]


def places(campaign_id: int, figures: Report) -> list[tuple[str, int, str]]:
    """Return where most people are: the providers of their mailboxes, or the countries of their numbers."""
    to = f"/campaigns/{campaign_id}/people"
    if figures.sms is not None:
        return [
            (one.country or "Unknown", one.audience, to + words.query({"country": one.country or "unknown"}))
            for one in figures.sms.countries[:_FEW]
        ]
    return [
        (one.domains[0] if len(one.domains) == 1 else one.name.capitalize(), one.audience,
         to + words.query({"domain": one.name}))
        for one in figures.domains[:_FEW] if one.name
    ]  # fmt: skip


def summary(buckets: Sequence[Bucket]) -> str:
    """Say in a sentence what a chart shows: when most people clicked, and how soon half of them had."""
    what = "clicked" if any(one.clicked for one in buckets) else "opened"
    counts = [getattr(one, what) for one in buckets]
    total = sum(counts)
    if not total:
        return ""
    most = max(counts)
    peak = buckets[counts.index(most)]
    gone, half = 0, 0
    for index, count in enumerate(counts):
        gone += count
        if 2 * gone >= total:
            half = index
            break
    begin, end = words.moment(buckets[0].from_) or 0, words.moment(buckets[half].until) or 0
    hours = max(1, round((end - begin) / 3_600_000))
    soon = f"{hours} hours" if hours < 48 else f"{round(hours / 24)} days"
    soon = "an hour" if hours == 1 else soon
    at = words.when(words.moment(peak.from_))
    return f"Most people {what} from {at} on ({words.number(most)}); half of all who {what} did so within {soon}."
