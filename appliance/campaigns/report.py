"""The Structs of a campaign's report, and the problems and progress that the campaign's page polls.

`results` builds the report itself. The page polls every two seconds, so problems and progress must be fast to compute
for a campaign of any size.
"""

import hashlib
import re
import threading
import time
from collections import Counter, deque
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from appliance.sending.delivery import bounce_classes
from appliance.storage import masking
from appliance.storage.database import rows, scalar
from appliance.storage.models import Campaign, Message

# Normalized replies of mail servers: without the details of one recipient, a thousand replies become one problem.

# The details that `normalize_reply` replaces with `…`: addresses, phone numbers, timestamps and queue ids.
_RECIPIENT_DETAILS = re.compile(
    r"<?(?<![^\s<>@:;,()\[\]\"'])[^\s<>@:;,()\[\]\"']+@[\w.-]+\w>?|"  # an address
    r"(?<!\w)\+[1-9]\d{6,14}\b|"  # a phone number
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|"  # a timestamp
    r"(?<![\w./=])(?=[\w.-]*\d)(?=[\w.-]*[a-z])(?![\w.-]*\.[a-z]{2,}\b)[a-zA-Z0-9][\w.-]{11,}(?![\w./])|"
    r"\b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{9,}\b"
)
_SPACES = re.compile(r"\s+")
# The ledger keeps this many characters of a reply. `_RECIPIENT_DETAILS` takes quadratic time.
_MAX_REPLY_CHARACTERS = 1_000


def normalize_reply(text: str | None) -> str | None:
    """Return a server's reply (None: no reply) on one line, with the details of one recipient replaced with `…`.

    Only the first `_MAX_REPLY_CHARACTERS` are used.
    """
    if text is None:
        return None
    return _SPACES.sub(" ", _RECIPIENT_DETAILS.sub("…", text[:_MAX_REPLY_CHARACTERS])).strip()


_FAILED_STATUSES = ("failed", "bounced", "skipped", "uncertain", "complained")
# Messages that wait for a retry are due later than untried ones. The condition on `run_id` lets the index find
# them directly.
_AWAITS_RETRY = (
    "m.campaign_id = ? AND m.run_id IS NULL AND m.status IN ('queued', 'held') AND m.due_at > ? AND m.attempts > 0"
)
_FAILED_LIST = f"({','.join(repr(status) for status in _FAILED_STATUSES)})"
_PROBLEM_COLUMNS = "m.status, coalesce(m.skip_reason, m.error_code), m.error_text, r.kind"
_JOIN_BOUNCE = "LEFT JOIN bounce r ON r.message_id = m.id"
_MAX_SHOWN, _MAX_CACHED = 200, 50
_RATE_SECONDS, _MIN_MEASURED_SECONDS = 60.0, 20.0


class _ProblemGroup(NamedTuple):
    """Messages that failed, or wait for a retry, for the same reason.

    `reason` is the skip reason or error code, `text` the server's reply, and `kind` the name of the bounce class.
    """

    status: str
    reason: str | None
    text: str | None
    kind: str | None
    message_count: int

    def normalized(self) -> "_ProblemGroup":
        """Return the group with its reply normalized and a count of 0, so that equal problems compare as equal."""
        return self._replace(text=normalize_reply(self.text), message_count=0)

    def key(self) -> str:
        """Return the key by which `RecipientQuery.problem` selects the group: 16 hexadecimal digits."""
        return hashlib.sha256(repr(self[:4]).encode()).hexdigest()[:16]


class _ProblemCache:
    """Cached values by campaign id; `problems` also by whether contact data is masked.

    `problems` holds the groups of failed messages, and the counts of the campaign when they were read: other counts
    make the groups stale. `sent` holds samples of the sent count as (monotonic seconds, count).
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.problems: dict[tuple[int, bool], tuple[Any, list[_ProblemGroup]]] = {}
        self.sent: dict[int, deque[tuple[float, int]]] = {}


_cache = _ProblemCache()


def list_problems(campaign: Campaign) -> list[dict[str, Any]]:
    """Return the problems of a campaign: messages that failed or wait for a retry, grouped by what went wrong.

    The `_MAX_SHOWN` most frequent groups are returned, the largest first. Keys: `status`, `reason`, `text` (normalized
    reply), `class` (of the bounce), `meaning` and `help` (of the class), `count` and `key`. `campaign.stats` must be
    set.
    """
    groups = _load_problem_groups(campaign) + _group_problems(_AWAITS_RETRY, _retry_parameters(campaign))
    groups.sort(key=lambda group: (-group.message_count, group.status, group.reason or "", group.text or ""))
    return [_describe_group(group) for group in groups[:_MAX_SHOWN]]


def list_affected_messages(campaign: Campaign, key: str) -> list[int]:
    """Return the ids of the messages in the group of `list_problems` that has this key."""
    condition = f"m.campaign_id = ? AND m.status IN {_FAILED_LIST} OR {_AWAITS_RETRY}"
    values = (campaign.id, *_retry_parameters(campaign))
    messages = rows(f"SELECT m.id, {_PROBLEM_COLUMNS} FROM message m {_JOIN_BOUNCE} WHERE {condition}", values)
    return [row[0] for row in messages if _ProblemGroup(row[1], row[2], row[3], row[4], 0).normalized().key() == key]


def _describe_group(group: _ProblemGroup) -> dict[str, Any]:
    bounce_class = bounce_classes.CLASSES_BY_NAME.get(group.kind or "")
    return {
        "status": group.status, "reason": group.reason, "text": group.text, "count": group.message_count,
        "class": group.kind, "meaning": bounce_class.meaning if bounce_class else None,
        "help": (bounce_class.help or None) if bounce_class else None, "key": group.key(),
    }  # fmt: skip


def count_skips(campaign: Campaign) -> dict[str, int]:
    """Count a campaign's skipped messages by skip reason, the most frequent first; `campaign.stats` must be set."""
    counts: Counter[str] = Counter()
    for group in _load_problem_groups(campaign):
        if group.status == "skipped":
            counts[group.reason or ""] += group.message_count
    return dict(counts.most_common())


def _load_problem_groups(campaign: Campaign) -> list[_ProblemGroup]:
    """Return the groups of failed messages, from the cache unless the campaign or its counts have changed."""
    key = campaign.id, masking.is_active()
    sums = (campaign.updated_at, *(campaign.stats[name] for name in _FAILED_STATUSES))
    with _cache.lock:
        cached_sums, groups = _cache.problems.get(key, (None, []))
    if cached_sums != sums:
        groups = _group_problems(f"m.campaign_id = ? AND m.status IN {_FAILED_LIST}", (campaign.id,))
        with _cache.lock:
            if len(_cache.problems) >= _MAX_CACHED:
                _cache.problems.clear()
            _cache.problems[key] = sums, groups
    return groups


def _group_problems(condition: str, values: tuple[Any, ...]) -> list[_ProblemGroup]:
    """Group the messages that match a condition by normalized problem, the largest groups first.

    Returns the `_MAX_SHOWN` largest groups, and all groups of skipped messages, whose reasons are few.
    """
    counts: Counter[_ProblemGroup] = Counter()
    sql = f"SELECT {_PROBLEM_COLUMNS}, count(*) FROM message m {_JOIN_BOUNCE} WHERE {condition} GROUP BY 1, 2, 3, 4"
    for row in rows(sql, values):
        counts[_ProblemGroup(row[0], row[1], row[2], row[3], 0).normalized()] += row[4]
    groups = [group._replace(message_count=count) for group, count in counts.most_common()]
    return groups[:_MAX_SHOWN] + [group for group in groups[_MAX_SHOWN:] if group.status == "skipped"]


def _retry_parameters(campaign: Campaign) -> tuple[int, int]:
    return campaign.id, campaign.hold_until or 0


def count_in_delivery(campaign_id: int) -> int:
    """Count the messages of a campaign that are being sent at this moment."""
    return int(scalar("SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'sending'", (campaign_id,)))


def list_uncertain(campaign_id: int, count: int = 5) -> list[Message]:
    """Return the first `count` messages of a campaign whose reply was lost, in order of id."""
    messages = Message.select().where(Message.campaign == campaign_id, Message.status == "uncertain")
    return list(messages.order_by(Message.id).limit(count))


def get_progress(campaign: Campaign) -> dict[str, Any]:
    """Return the progress of a send.

    Keys: `retrying` (messages that wait for a retry), `per_second` (rate of the last `_RATE_SECONDS`), and
    `seconds_left`, None unless the campaign is sending and was observed for `_MIN_MEASURED_SECONDS`. `campaign.stats`
    must be set.
    """
    seconds, sent = _measure_recent_rate(campaign.id, campaign.sent_count)
    rate = sent / seconds if seconds >= 1 else 0.0
    is_measured = seconds >= _MIN_MEASURED_SECONDS and rate > 0 and campaign.phase == "sending"
    return {
        "retrying": int(scalar(f"SELECT count(*) FROM message m WHERE {_AWAITS_RETRY}", _retry_parameters(campaign))),
        "per_second": rate,
        "seconds_left": campaign.stats["pending"] / rate if is_measured else None,
    }


def _measure_recent_rate(campaign_id: int, sent: int) -> tuple[float, int]:
    """Record a sample of the sent count; return (seconds since the oldest sample, messages sent since then).

    Samples older than `_RATE_SECONDS` are dropped.
    """
    now = time.monotonic()
    with _cache.lock:
        if campaign_id not in _cache.sent and len(_cache.sent) >= _MAX_CACHED:
            _cache.sent.clear()
        samples = _cache.sent.setdefault(campaign_id, deque())
        if not sent:
            samples.clear()  # The time before the first message says nothing about the rate.
        samples.append((now, sent))
        while samples[0][0] < now - _RATE_SECONDS:
            samples.popleft()
        return now - samples[0][0], sent - samples[0][1]


# The Structs of a report: each figure has the path that lists the messages it counts.


class RecipientCount(Struct):
    """A number of recipients, its rate, and the API path that lists these recipients."""

    count: int
    rate: Annotated[float, Meta(description="rate, from 0 to 1; null if the total is 0")] | None
    people: str


class LedgerTerm(Struct):
    """The number of recipients in one state, with the API path that lists them."""

    name: Annotated[str, Meta(description="name of the term")]
    count: int
    people: str


class LedgerFigures(Struct):
    """The ledger of a campaign: each member of the audience is counted in exactly one of the terms.

    `delivered_to` is the number of accepted messages minus bounces. The rates of opens, clicks, unsubscribes and
    complaints are shares of it.
    """

    audience: RecipientCount
    accepted: RecipientCount
    delivered_to: Annotated[int, Meta(description="number of recipients reached, the basis of rates")]
    terms: Annotated[list[LedgerTerm], Meta(description="terms of the ledger")]
    sum: Annotated[int, Meta(description="sum of the terms")]
    adds_up: Annotated[bool, Meta(description="whether the sum equals the audience, as it always does")]


class EngagementFigures(Struct):
    """Opens or clicks: the number of recipients with at least one, and the total number of opens or clicks.

    `machines` counts the recipients with automated activity only. `unnamed` counts the anonymous opens or clicks of
    contacts with aggregate tracking, which are included in the totals only.
    """

    people: Annotated[RecipientCount, Meta(description="number of people")]
    machines: Annotated[RecipientCount, Meta(description="number of recipients with automated activity only")]
    total: Annotated[int, Meta(description="total number")]
    total_human: Annotated[int, Meta(description="number by people")]
    total_machine: Annotated[int, Meta(description="number by machines, such as mailbox scanners")]
    unnamed: Annotated[int, Meta(description="number by contacts that are counted anonymously")]


class LinkFigures(Struct):
    """The clicks of one link. The rate of `clicked` is a share of the recipients who clicked any link.

    A link that is not `counted` is sent with its own URL and is not tracked: opt-out links, `mailto:` and `tel:` links,
    and URLs whose host contains a merge tag.
    """

    number: Annotated[int, Meta(description="number of the link, starting at 1")]
    url: Annotated[str, Meta(description="URL of the link")]
    words: Annotated[str, Meta(description="text of the link")]
    counted: Annotated[bool, Meta(description="whether clicks on the link are tracked")]
    clicked: Annotated[
        RecipientCount, Meta(description="number of people who clicked the link, and their share of all who clicked")
    ]
    total: Annotated[int, Meta(description="total number")]
    total_human: Annotated[int, Meta(description="number by people")]
    total_machine: Annotated[int, Meta(description="number by machines, such as mailbox scanners")]


class DomainFigures(Struct):
    """The results at one mailbox provider, or, with a null `name`, at all providers that are too small to be listed."""

    name: Annotated[str, Meta(description="name of the provider; null for all smaller ones together")] | None
    domains: Annotated[list[str], Meta(description="domains of the provider to which messages were sent")]
    people: (
        Annotated[str, Meta(description="path of the list of recipients; null for several providers together")] | None
    )
    audience: int
    accepted: int
    bounced: int
    failed: int
    complained: Annotated[int, Meta(description="reported as spam")]
    opened: Annotated[int, Meta(description="number of people who opened")]
    clicked: Annotated[int, Meta(description="number of people who clicked a link")]


class TransportFigures(Struct):
    """The results of the emails that one transport took, or whose sending it failed."""

    provider: Annotated[str, Meta(description="key of the transport, as in messages")]
    accepted: int
    bounced: int
    failed: int
    complained: Annotated[int, Meta(description="reported as spam")]
    opened: Annotated[int, Meta(description="number of people who opened")]
    clicked: Annotated[int, Meta(description="number of people who clicked a link")]


class CountryFigures(Struct):
    """The results of the SMS to one country, or to numbers without a known country."""

    country: Annotated[str, Meta(description="two-letter country code; null for unknown countries")] | None
    people: str
    audience: int
    accepted: int
    delivered: Annotated[int, Meta(description="reported as delivered")]
    bounced: int
    failed: int
    skipped: Annotated[int, Meta(description="skipped, each for a reason")]
    clicked: Annotated[int, Meta(description="number of people who clicked a link")]
    parts: Annotated[int, Meta(description="number of accepted SMS parts")]


class SmsFigures(Struct):
    """The figures that only the report of an SMS campaign has."""

    parts: Annotated[int, Meta(description="number of accepted SMS parts")]
    countries: Annotated[list[CountryFigures], Meta(description="results by country")]


class ProblemFigures(Struct, rename={"class_": "class"}):
    """A reason why messages were not delivered.

    `text` is the server's reply, without details that differ between recipients, such as addresses and queue ids.
    """

    key: Annotated[str, Meta(description="key of the problem in filters")]
    status: Annotated[str, Meta(description="status of the messages")]
    reason: Annotated[str, Meta(description="reason code of the messages")] | None
    text: Annotated[str, Meta(description="response of the server")] | None
    class_: Annotated[str, Meta(description="class of the rejection")] | None
    meaning: Annotated[str, Meta(description="explanation of the problem")] | None
    help: Annotated[str, Meta(description="help text")] | None
    count: int
    people: str


class Bucket(Struct, rename={"from_": "from"}):
    """The number of first opens and first clicks in one hour (in the first two days of a campaign) or one day."""

    from_: Annotated[str, Meta(description="start of the interval, inclusive")]
    until: Annotated[str, Meta(description="end of the interval, exclusive")]
    opened: Annotated[int, Meta(description="number of recipients who first opened in the interval")]
    clicked: Annotated[int, Meta(description="number of recipients who first clicked in the interval")]


class CampaignReport(Struct):
    """The report of a campaign; all figures are from the same moment."""

    campaign_id: Annotated[int, Meta(description="id of the campaign")]
    tracking: bool
    ledger: Annotated[LedgerFigures, Meta(description="all recipients of the audience, each counted in one term")]
    opens: Annotated[EngagementFigures, Meta(description="opens")]
    clicks: Annotated[EngagementFigures, Meta(description="clicks")]
    unsubscribes: Annotated[RecipientCount, Meta(description="unsubscribes")]
    complaints: Annotated[RecipientCount, Meta(description="spam complaints")]
    bounces: Annotated[RecipientCount, Meta(description="bounces")]
    links: Annotated[list[LinkFigures], Meta(description="links in the order of the content")]
    domains: Annotated[list[DomainFigures], Meta(description="mailbox providers, largest first")]
    transports: Annotated[
        list[TransportFigures], Meta(description="transports that took emails of the campaign, largest first")
    ]
    sms: Annotated[SmsFigures, Meta(description="results for SMS only; null for email")] | None
    problems: Annotated[
        list[ProblemFigures], Meta(description="reasons why messages were not delivered, most frequent first")
    ]
    over_time: Annotated[list[Bucket], Meta(description="first opens and first clicks over time")]
