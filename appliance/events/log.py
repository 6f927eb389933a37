"""Record events of the service, define their kinds, list and count events, and delete expired ones.

Other modules insert events too. Audience snapshots, imports and engagement write sets of rows in one statement, without
a Python object for each; `submit.py` writes all columns of a client's event and returns the new id.
"""

import logging
import re
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from appliance.core import addresses, clock, signals
from appliance.core.cache import CostAwareCache
from appliance.core.errors import Invalid, NotFound, Unavailable
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import ContactId, CreatedAfter, CreatedBefore, PageQuery, Short
from appliance.events import listing, user_agents
from appliance.events.listing import EventFilters
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import Page, connection, rows, run, run_set, scalar
from appliance.storage.models import Account, Event
from appliance.storage.transactions import after_commit, require_write_transaction

_INSERT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "quiet, chain_depth, batch, generated, created_at, updated_at) "
    "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, "
    "value ->> 8, value ->> 9, value ->> 10, 1, coalesce(value ->> 11, :now), :now FROM json_each(:items) ORDER BY key"
)
# The recursive query jumps in the index from one event name to the next. A GROUP BY would read all events of each name,
# including those before `since`.
_COUNTS = (
    "WITH RECURSIVE names (name) AS (SELECT min(event) FROM event WHERE account_id = :account UNION ALL "
    "SELECT (SELECT min(event) FROM event WHERE account_id = :account AND event > name) FROM names "
    "WHERE name IS NOT NULL) SELECT name, (SELECT count(*) FROM event INDEXED BY event_of_name "
    "WHERE account_id = :account AND event = name AND created_at >= :since) AS number FROM names "
    "WHERE name IS NOT NULL AND number"
)
_FILTERS = ("event", "contact_id", "resource_uid", "resource_name", "test")


class NewEvent(msgspec.Struct):
    """An event that the service records itself."""

    account_id: int
    event: str
    contact_id: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    resource_uid: str | None = None
    resource_name: str | None = None
    resource_url: str | None = None
    test: bool = False
    chain_depth: int = 0
    quiet: bool = False  # the event is only recorded and starts no flow
    batch: str | None = None  # the import or bulk action, such as `import:12`; None: that of `in_batch`, if any
    happened_at: int | None = None  # Unix milliseconds; None: now


class EventQuery(PageQuery):
    """The query parameters of the event list; `created_after` is inclusive, `created_before` exclusive."""

    event: Annotated[Short, Meta(description="only events of this name")] | UnsetType = UNSET
    contact_id: Annotated[ContactId, Meta(description="only events of this contact")] | UnsetType = UNSET
    created_after: CreatedAfter | UnsetType = UNSET
    created_before: CreatedBefore | UnsetType = UNSET
    resource_uid: Annotated[Short, Meta(description="only events with exactly this `resource_uid`")] | UnsetType = UNSET
    resource_name: Annotated[Short, Meta(description="only events with this `resource_name`")] | UnsetType = UNSET
    test: Annotated[bool, Meta(description="true: only tests; false: no tests")] | UnsetType = UNSET


class _Chain(threading.local):
    """What the current thread adds to events: the minimum chain depth, whether they are tests, and their batch.

    `names` are the names of the events that it records, None for all.
    """

    names: Set[str] | None = None
    depth: int = 0
    test: bool = False
    batch: str | None = None


_chain = _Chain()


@contextmanager
def at_chain_depth(depth: int, test: bool = False) -> Iterator[None]:
    """Give all events that this thread records in the block at least the chain depth `depth` (docs/decisions.md#12).

    Steps of flows use this. With `test`, which is set for a test run, the events are test events, so that they start no
    real flows.
    """
    before = _chain.depth, _chain.test
    _chain.depth, _chain.test = depth, test
    try:
        yield
    finally:
        _chain.depth, _chain.test = before


@contextmanager
def in_batch(batch: str) -> Iterator[None]:
    """Mark all events that this thread records in the block as events of an import or bulk action, such as `import:12`.

    A grouped list of events (`EventFilters.is_grouped`) omits them; record an event that counts them after the block.
    """
    before = _chain.batch
    _chain.batch = batch
    try:
        yield
    finally:
        _chain.batch = before


@contextmanager
def record_only(names: Set[str]) -> Iterator[None]:
    """Record only events with these names within the block, in this thread.

    It is for simulations, which read no other events.
    """
    before = _chain.names
    _chain.names = names
    try:
        yield
    finally:
        _chain.names = before


def record(event: NewEvent) -> None:
    """Record an event of the service; see `record_many`."""
    record_many([event])


def record_many(events: list[NewEvent]) -> None:
    """Record events of the service in the current write transaction, and wake the flow engine after the commit."""
    require_write_transaction()
    if _chain.names is not None:
        events = [event for event in events if event.event in _chain.names]
    if not events:
        return
    encode = msgspec.json.encode
    items = [
        (
            event.account_id, event.contact_id, event.event, encode(event.data).decode(), event.resource_uid,
            event.resource_name, event.resource_url, event.test or _chain.test, event.quiet,
            max(event.chain_depth, _chain.depth), event.batch or _chain.batch, event.happened_at,
        )
        for event in events
    ]  # fmt: skip
    run_set(_INSERT, items, now=clock.now_ms())
    after_commit(lambda: signals.wake("flows"))


def record_with_client(event: NewEvent, ip: str | None, agent: str | None) -> None:
    """Record an event with the IP address and User-Agent of the person who caused it.

    The IP address is stored at the precision that the account's `privacy_ip` allows. The first parse of a User-Agent
    takes a millisecond, so call `user_agents.parse_device`, which caches it, before the write transaction.
    """
    record(event)
    privacy = str(scalar("SELECT privacy_ip FROM account WHERE id = ?", (event.account_id,)))
    run(
        "UPDATE event SET ip = ?, user_agent = ?, browser = ?, os = ?, device_type = ? WHERE id = ?",
        (
            addresses.anonymize_ip(ip, privacy),
            agent,
            *user_agents.parse_device(agent),
            connection().last_insert_rowid(),
        ),
    )


def list_events(account_id: int, query: EventQuery, batch: str | None = None, is_grouped: bool = False) -> Page:
    """Return a page of an account's events that match the query, newest first. Raises Invalid for malformed times.

    `EventFilters` describes `batch` and `is_grouped`.
    """
    filters = read_filters(account_id, query)._replace(batch=batch, is_grouped=is_grouped)
    return listing.list_page(filters, query.page, query.size())


def read_filters(account_id: int, query: Any) -> EventFilters:
    """Convert the query of a list or export of events to filters. Raises Invalid for a time that cannot be parsed.

    `query` is an EventQuery, or another Struct with the same filter fields.
    """
    zone = Account.get_by_id(account_id).time_zone
    after, before = parse_time_filters(query.created_after, query.created_before, zone)
    filters = {name: getattr(query, name) for name in _FILTERS}
    return EventFilters(
        account_id, after=after, before=before, **{name: value for name, value in filters.items() if value is not UNSET}
    )


def get(account_id: int, event_id: int) -> Event:
    """Return an event of an account. Raises NotFound."""
    event = Event.get_or_none(Event.account == account_id, Event.id == event_id)
    if event is None:
        raise NotFound
    return event


def count_by_name(account_id: int, since: int) -> dict[str, int]:
    """Return the number of an account's events since a time (ms) by name, without names that have no events."""
    return dict(rows(_COUNTS, {"account": account_id, "since": since}))


def is_recorded(account_id: int, name: str) -> bool:
    """Return whether an account has an event of this name."""
    sql = "SELECT 1 FROM event INDEXED BY event_of_name WHERE account_id = ? AND event = ? LIMIT 1"
    return scalar(sql, (account_id, name)) is not None


def parse_time_filters(after: str | UnsetType, before: str | UnsetType, zone: str) -> tuple[int | None, int | None]:
    """Parse the filters `created_after` and `created_before` to milliseconds; UNSET becomes None.

    A date without a time means 00:00 in the time zone `zone`. Raises Invalid with an error for each malformed time.
    """
    times: list[int | None] = []
    faults: dict[str, list[str]] = {}
    for name, text in (("created_after", after), ("created_before", before)):
        try:
            times.append(None if text is UNSET else clock.parse_day_or_time(str(text), zone))
        except (ValueError, OverflowError):
            faults[name] = [gettext("is invalid")]
            times.append(None)
    if faults:
        raise Invalid(faults)
    return times[0], times[1]


# The kinds of events that the service records; the names of clients' events must differ (docs/decisions.md#13).


class EventKind(NamedTuple):
    """A kind of event that the service records.

    `label` stands alone ("Opened an email"), `description` follows the name of a contact ("opened an email"); both are
    marked texts.
    """

    name: str
    group: str
    label: str
    description: str


EVENT_KINDS = tuple(
    EventKind(name, group, *texts)
    for group, names in (
        (
            "contact",
            {
                "contact_add": (gettext_noop("Added"), gettext_noop("was added")),
                "contact_update": (gettext_noop("Changed"), gettext_noop("was updated")),
                "contact_delete": (gettext_noop("Deleted"), gettext_noop("was deleted")),
                "contact_merge": (gettext_noop("Merged with another contact"), gettext_noop("was merged")),
                "tag_add": (gettext_noop("Tag added"), gettext_noop("got a tag")),
                "tag_remove": (gettext_noop("Tag removed"), gettext_noop("lost a tag")),
            },
        ),
        (
            "audience",
            {
                "list_add": (gettext_noop("Joined a list"), gettext_noop("joined a list")),
                "list_remove": (gettext_noop("Left a list"), gettext_noop("left a list")),
                "segment_enter": (gettext_noop("Entered a segment"), gettext_noop("entered a segment")),
                "segment_exit": (gettext_noop("Left a segment"), gettext_noop("left a segment")),
            },
        ),
        (
            "consent",
            {
                "opt_in": (gettext_noop("Subscribed"), gettext_noop("opted in")),
                "opt_out": (gettext_noop("Unsubscribed"), gettext_noop("opted out")),
                "double_opt_in_requested": (
                    gettext_noop("Confirmation requested"),
                    gettext_noop("was asked to confirm the address"),
                ),
                "double_opt_in_confirmed": (
                    gettext_noop("Confirmed the address"),
                    gettext_noop("confirmed the address"),
                ),
                "form_submitted": (gettext_noop("Submitted a form"), gettext_noop("submitted a form")),
                "erase_requested": (
                    gettext_noop("Requested data deletion (GDPR)"),
                    gettext_noop("asked for their data to be deleted"),
                ),
            },
        ),
        (
            "email",
            {
                "email_sent": (gettext_noop("Email sent"), gettext_noop("email sent")),
                "email_delivered": (gettext_noop("Email delivered"), gettext_noop("email delivered")),
                "email_opened": (gettext_noop("Opened an email"), gettext_noop("opened an email")),
                "email_clicked": (gettext_noop("Clicked a link"), gettext_noop("clicked a link")),
                "email_soft_bounced": (gettext_noop("Email soft bounced"), gettext_noop("email soft bounced")),
                "email_bounced": (gettext_noop("Email bounced"), gettext_noop("email hard bounced")),
                "email_complained": (gettext_noop("Marked an email as spam"), gettext_noop("marked an email as spam")),
                "email_complaint_unverified": (
                    gettext_noop("Unverified spam complaint"),
                    gettext_noop("a spam complaint could not be verified"),
                ),
                "email_failed": (gettext_noop("Email rejected"), gettext_noop("email rejected")),
                "email_skipped": (gettext_noop("Email skipped"), gettext_noop("email skipped")),
                "email_replied": (gettext_noop("Replied"), gettext_noop("replied to an email")),
            },
        ),
        (
            "sms",
            {
                "sms_sent": (gettext_noop("SMS sent"), gettext_noop("SMS sent")),
                "sms_delivered": (gettext_noop("SMS delivered"), gettext_noop("SMS delivered")),
                "sms_failed": (gettext_noop("SMS not delivered"), gettext_noop("SMS not delivered")),
                "sms_skipped": (gettext_noop("SMS skipped"), gettext_noop("SMS skipped")),
                "sms_clicked": (gettext_noop("Clicked a link in an SMS"), gettext_noop("clicked a link in an SMS")),
                "message": (gettext_noop("Replied by SMS"), gettext_noop("replied by SMS")),
                "keyword": (gettext_noop("Sent a keyword"), gettext_noop("sent an SMS keyword")),
            },
        ),
        (
            "flow",
            {
                "flow_enter": (gettext_noop("Entered a flow"), gettext_noop("entered a flow")),
                "flow_exit": (gettext_noop("Left a flow"), gettext_noop("left a flow")),
                "flow_goal": (gettext_noop("Reached the goal of a flow"), gettext_noop("reached the goal of a flow")),
                "date_reached": (gettext_noop("Date reached (anniversary)"), gettext_noop("a date was reached")),
                "flow_paused": (gettext_noop("Flow paused"), gettext_noop("flow paused")),
            },
        ),
        (
            "campaign",
            {
                "campaign_started": (gettext_noop("Campaign started"), gettext_noop("campaign started")),
                "campaign_paused": (gettext_noop("Campaign paused"), gettext_noop("campaign paused")),
                "campaign_completed": (gettext_noop("Campaign sent"), gettext_noop("campaign sent")),
                "campaign_test_decided": (gettext_noop("A/B test decided"), gettext_noop("A/B test decided")),
                "domain_verified": (gettext_noop("Sending domain verified"), gettext_noop("sending domain verified")),
                "domain_failed": (
                    gettext_noop("Sending domain failed verification"),
                    gettext_noop("sending domain failed verification"),
                ),
                "webhook_disabled": (gettext_noop("Webhook turned off"), gettext_noop("webhook turned off")),
                "import_completed": (gettext_noop("Import completed"), gettext_noop("import completed")),
                "import_undone": (gettext_noop("Import undone"), gettext_noop("import undone")),
                "bulk_action_completed": (gettext_noop("Bulk action completed"), gettext_noop("bulk action completed")),
            },
        ),
    )
    for name, texts in names.items()
)

RESERVED_NAMES = frozenset(kind.name for kind in EVENT_KINDS)
KINDS_BY_NAME = {kind.name: kind for kind in EVENT_KINDS}
# Labels of the events that shops usually send.
SHOP_LABELS = {
    "order_paid": gettext_noop("Placed an order (paid)"), "order_shipped": gettext_noop("Order shipped"),
    "cart_abandoned": gettext_noop("Abandoned a cart"), "browse_abandoned": gettext_noop("Browse abandonment"),
    "checkout": gettext_noop("Started checkout"), "cart_add": gettext_noop("Added to cart"),
    "product_view": gettext_noop("Viewed a product"),
}  # fmt: skip
_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")


def find_name_error(name: str) -> str | None:
    """Return the error of the name of a client's event if it is reserved or invalid, in English, else None."""
    if name in RESERVED_NAMES:
        return gettext_noop("is reserved")
    return None if _PATTERN.fullmatch(name) else gettext_noop("is invalid")


def find_label(name: str) -> str | None:
    """Return the label of an event of the service, or of a shop, in the current language; None for any other."""
    kind = KINDS_BY_NAME.get(name)
    label = kind.label if kind else SHOP_LABELS.get(name)
    return None if label is None else gettext(label)


def name_event(name: str) -> str:
    """Return the name of an event to show: its label, else `Trial started` for `trial_started`."""
    return find_label(name) or name.replace("_", " ").capitalize()


def describe(name: str) -> str:
    """Return the description of an event in the current language; of an unknown event, its name with spaces for `_`."""
    kind = KINDS_BY_NAME.get(name)
    return gettext(kind.description) if kind else name.replace("_", " ")


# Expired events that are still needed are not deleted: those that a reader of the log (table `cursor`) has not read,
# those with a pending webhook delivery, and for each live run the event that started it and all later events of its
# contact.

log = logging.getLogger("campanero.events")

# A transaction that deletes this many events takes a few milliseconds.
_CHUNK_EVENTS = 400
_READ_BY_FLOWS = "coalesce((SELECT event_id FROM cursor WHERE name = 'flows'), 0)"
_READ_BY_ALL = "coalesce((SELECT min(event_id) FROM cursor), 0)"
_IS_READ = f"e.id <= min({_READ_BY_FLOWS}, {_READ_BY_ALL})"
_IS_NEEDED = (
    "(EXISTS (SELECT 1 FROM run r WHERE r.contact_id = e.contact_id AND r.status = 'live' "
    "AND (r.created_at <= e.created_at OR r.event_id = e.id)) "
    "OR EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.event_id = e.id AND d.status = 'pending'))"
)
_SELECT_EXPIRED = (
    f"SELECT e.id, e.created_at FROM event e INDEXED BY event_listed WHERE e.account_id = :account "
    "AND (e.created_at, e.id) > (:at, :last) AND e.created_at < :before "
    f"AND {_IS_READ} AND NOT {_IS_NEEDED} ORDER BY e.created_at, e.id LIMIT {_CHUNK_EVENTS}"
)
_running = threading.Lock()


def delete_expired(stopping: threading.Event) -> None:
    """Delete the events of all accounts that are older than `events.keep` and no longer needed; `0d` keeps all.

    Events are deleted in transactions of up to `_CHUNK_EVENTS`, with pauses for other writes, until `stopping` is set.
    Does nothing if another thread is deleting. Raises Unavailable if the storage accepts no writes.
    """
    days = config.parse_seconds(config.current().events.keep)
    if not days or not _running.acquire(blocking=False):
        return
    try:
        before = clock.now_ms() - int(days * 1000)
        for (account_id,) in rows("SELECT id FROM account"):
            deleted_count = _delete_expired_of_account(account_id, before, stopping)
            if deleted_count:
                log.info(
                    "events: deleted expired events account=%d count=%d keep=%s",
                    account_id,
                    deleted_count,
                    config.current().events.keep,
                )
    finally:
        _running.release()


def _delete_expired_of_account(account_id: int, before: int, stopping: threading.Event) -> int:
    """Delete an account's unneeded events from before a time in ms, oldest first; return the number deleted."""
    parameters: dict[str, Any] = {"account": account_id, "before": before, "at": -1, "last": 0}
    deleted_count = 0
    while not stopping.is_set() and (expired := rows(_SELECT_EXPIRED, parameters)):
        started = time.perf_counter()
        try:
            deleted_count += transactions.write(_delete_events, account_id, before, [row[0] for row in expired])
        except Unavailable:
            if transactions.is_stopped():
                break
            raise
        parameters |= {"last": expired[-1][0], "at": expired[-1][1]}
        stopping.wait(time.perf_counter() - started)
    return deleted_count


def _delete_events(account_id: int, before: int, ids: list[int]) -> int:
    """Delete the events with these ids, except those that have become needed, and return the number deleted.

    `account.events_since` is set to `before`, the time from which the log is complete.
    """
    require_write_transaction()
    run(
        "UPDATE account SET events_since = :before WHERE id = :account AND coalesce(events_since, 0) < :before",
        {"account": account_id, "before": before},
    )
    return run(f"DELETE FROM event AS e WHERE e.id IN ({','.join(map(str, ids))}) AND NOT {_IS_NEEDED}")


# Mailbox providers judge a sender by its bounces and complaints, so the service counts them too.

_MAIL_HEALTH = (
    "SELECT event, count(*) FROM event INDEXED BY event_of_name WHERE account_id = ? AND event IN "
    "('email_sent', 'email_bounced', 'email_complained', 'sms_sent', 'sms_failed') AND created_at >= ? AND test = 0 "
    "GROUP BY event"
)
_mail_health_cache: CostAwareCache["MailHealth"] = CostAwareCache(min_age_seconds=10)


class MailHealth(NamedTuple):
    """The numbers of emails sent, bounced and reported as spam, and of SMS sent and failed, in the last `days` days."""

    days: int
    sent: int
    bounced: int
    complained: int
    sms_sent: int
    sms_failed: int


def get_mail_health(account_id: int, days: int = 30) -> MailHealth:
    """Return the counts of `MailHealth` for an account, without test events; cached for at least 10 seconds."""

    def count() -> MailHealth:
        counts: dict[str, int] = dict(rows(_MAIL_HEALTH, (account_id, clock.now_ms() - days * clock.DAY_MS)))
        names = ("email_sent", "email_bounced", "email_complained", "sms_sent", "sms_failed")
        return MailHealth(days, *(counts.get(name, 0) for name in names))

    return _mail_health_cache.get((account_id, days), count)
