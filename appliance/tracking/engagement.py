"""Record opens, clicks and replies in messages, contacts and events, and correct them when verdicts change.

`opened_at` and `clicked_at` of a message are the times of its first hits that were not by machines. A click counts as
an open too, even if the images were never loaded. The counts of a contact are numbers of messages, so opens and clicks
never exceed the messages sent. SMS have no opens; the counts of a contact are for email and leave SMS out.

Clicks are also counted by contact and hour of the day (`ClickHour`), so that a campaign can be sent at the best hour of
each contact. Only the first click on each message counts (`clicked_at`), unless it was by a machine. The hour is in the
time zone that the contact has when the click is counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from appliance.audience import time_zones
from appliance.core import clock, signals
from appliance.events import submit, user_agents
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.links import TrackedMessage
from appliance.storage.database import connection, fetch_one, rows, run, run_set, scalar
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.tracking.bot_detection import HUMAN, MACHINE, ObservedHit, Verdict

_UPDATE_MESSAGE = "UPDATE message SET opened_at = ?, clicked_at = ?, updated_at = ? WHERE id = ?"
_UPDATE_CONTACT = (
    "UPDATE contact SET email_open_count = email_open_count + ?1, email_click_count = email_click_count + ?2, "
    "email_last_opened_at = max(coalesce(email_last_opened_at, 0), ?3), "
    "email_last_clicked_at = CASE WHEN ?4 THEN max(coalesce(email_last_clicked_at, 0), ?4) "
    "ELSE email_last_clicked_at END, last_interacted_at = max(coalesce(last_interacted_at, 0), ?3) "
    "WHERE id = ?5"
)
_UPDATE_LAST_INTERACTION = (
    "UPDATE contact SET last_interacted_at = max(coalesce(last_interacted_at, 0), ?) WHERE id = ?"
)
_VERIFY_CHANNEL = (
    "UPDATE channel SET verified_at = ?, updated_at = ? WHERE account_id = ? AND kind = ? AND key = ? "
    "AND contact_id = ? AND verified_at IS NULL"
)
_ADD_CLICK_HOURS = (
    "INSERT INTO click_hour (contact_id, hour, clicks) SELECT value ->> 0, value ->> 1, value ->> 2 "
    "FROM json_each(:items) WHERE true ON CONFLICT (contact_id, hour) DO UPDATE SET clicks = clicks + excluded.clicks"
)
_DELETE_EMPTY_HOURS = "DELETE FROM click_hour WHERE contact_id = ? AND hour = ? AND clicks <= 0"


class FirstClick(NamedTuple):
    """The first click of a contact on a message, at a time in Unix milliseconds."""

    account_id: int
    contact_id: int
    at: int


class _MessageState:
    """The state of a message while hits are counted: the times of its first open and click, its contact and address."""

    __slots__ = ("clicked_at", "contact_id", "key", "opened_at")

    def __init__(self, opened_at: int | None, clicked_at: int | None, contact_id: int | None, key: str | None) -> None:
        self.opened_at, self.clicked_at, self.contact_id, self.key = opened_at, clicked_at, contact_id, key


def count_engagement(hits: Sequence[tuple[TrackedMessage, ObservedHit, Verdict]]) -> None:
    """Count opens and clicks in their messages and contacts; a click by a person also verifies the channel.

    `hits` must not contain hits by machines.
    """
    if not hits:
        return
    ids = ",".join({str(message.message_id) for message, _, _ in hits})
    query = "SELECT id, opened_at, clicked_at, contact_id, recipient_key FROM message WHERE id IN"
    states = {row[0]: _MessageState(*row[1:]) for row in rows(f"{query} ({ids})")}
    now, database = clock.now_ms(), connection()
    marked: set[int] = set()
    contacts: list[tuple[Any, ...]] = []
    interactions: list[tuple[Any, ...]] = []
    verified: list[tuple[Any, ...]] = []
    first_clicks: list[FirstClick] = []
    for message, hit, verdict in hits:
        state = states[message.message_id]
        clicked, is_mail = hit.kind == "click", message.channel == "email"
        is_first_open, is_first_click = is_mail and state.opened_at is None, clicked and state.clicked_at is None
        if is_first_open:
            state.opened_at = hit.at
        if is_first_click:
            state.clicked_at = hit.at
        if is_first_open or is_first_click:
            marked.add(message.message_id)
        if message.test or state.contact_id is None:
            continue
        if is_first_click:
            first_clicks.append(FirstClick(message.account_id, state.contact_id, hit.at))
        if is_mail:
            contacts.append((is_first_open, is_first_click, hit.at, hit.at if clicked else None, state.contact_id))
        else:
            interactions.append((hit.at, state.contact_id))
        if clicked and verdict.verdict == HUMAN:
            kind = "email" if is_mail else "phone"
            verified.append((hit.at, now, message.account_id, kind, state.key, state.contact_id))
    written = [
        (states[message_id].opened_at, states[message_id].clicked_at, now, message_id) for message_id in sorted(marked)
    ]
    database.executemany(_UPDATE_MESSAGE, written)
    database.executemany(_UPDATE_CONTACT, contacts)
    database.executemany(_UPDATE_LAST_INTERACTION, interactions)
    database.executemany(_VERIFY_CHANNEL, verified)
    add_click_hours(first_clicks)


# The events of opens and clicks, with the link, the client, and the verdict with its reason.

_encode = msgspec.json.Encoder().encode
# The message id, kind, link number, and whether a machine made the hit. Only the first hit with a key gets an event.
EventKey = tuple[int, str, int | None, bool]
_INSERT_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "generated, quiet, chain_depth, ip, user_agent, browser, os, device_type, referrer, utm_source, utm_medium, "
    "utm_term, utm_content, utm_campaign, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


def fetch_recorded_keys(messages: Iterable[int]) -> set[EventKey]:
    """Return the keys of the hits of these messages that already have an event; `messages` are message ids."""
    ids = ",".join(map(str, messages))
    query = "SELECT message_id, kind, number, verdict = 'machine' FROM hit WHERE event_id IS NOT NULL AND message_id IN"
    return {(row[0], row[1], row[2], bool(row[3])) for row in rows(f"{query} ({ids})")} if ids else set()


class HitEvent(NamedTuple):
    """A judged hit, with the message and referrer that its event contains."""

    message: TrackedMessage
    hit: ObservedHit
    referrer: str | None
    verdict: Verdict


def record_hit_events(hits: Sequence[HitEvent]) -> list[int]:
    """Insert the events of hits and return their ids, in the order of the hits. Flows are woken after the commit."""
    if not hits:
        return []
    after_commit(lambda: signals.wake("flows"))
    now = clock.now_ms()
    names: dict[tuple[int | None, int | None], str | None] = {}
    return [
        int(row[0]) for row in connection().executemany(_INSERT_EVENT, [_event_row(hit, names, now) for hit in hits])
    ]


def _event_row(event: HitEvent, names: dict[tuple[int | None, int | None], str | None], now: int) -> tuple[Any, ...]:
    message, hit, referrer, verdict = event
    data: dict[str, Any] = {
        "message_id": message.message_id, "campaign_id": message.campaign_id, "flow_id": message.flow_id,
        "step_id": message.step_id, "reason": verdict.reason, "verdict": verdict.verdict,
    }  # fmt: skip
    if hit.number is not None:
        data["link"] = hit.number
    source = (message.campaign_id, message.flow_id)
    if source not in names:
        names[source] = _source_name(message)
    return (
        message.account_id,
        message.contact_id,
        f"{message.channel}_{'opened' if hit.kind == 'open' else 'clicked'}",
        _encode(data).decode(),
        f"message:{message.message_id}",
        names[source],
        message.url,
        message.test,
        message.chain_depth,
        hit.ip,
        hit.agent,
        *user_agents.parse_device(hit.agent),
        referrer,
        *submit.parse_utm(message.url),
        hit.at,
        now,
    )


def _source_name(message: TrackedMessage) -> str | None:
    table, number = ("campaign", message.campaign_id) if message.campaign_id is not None else ("flow", message.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None


# Corrections: a later hit may show that earlier hits of the message were by a machine.

# The events that count as an interaction of the contact, besides opens and clicks.
_ACTIVITY_EVENTS = "('email_replied', 'form_submitted', 'double_opt_in_confirmed', 'message', 'keyword')"
_LAST_HITS = (
    "SELECT max(CASE WHEN h.kind = 'click' AND m.channel = 'email' THEN h.at END), "
    "max(CASE WHEN m.channel = 'email' THEN h.at END), max(h.at) FROM hit h JOIN message m ON m.id = h.message_id "
    "WHERE m.contact_id = ? AND m.test = 0 AND h.verdict <> 'machine'"
)
_LAST_EVENT = (
    f"SELECT max(created_at) FROM event WHERE contact_id = ? AND (generated = 0 OR event IN {_ACTIVITY_EVENTS})"
)


class StoredHit(NamedTuple):
    """A row of the table `hit`; the verdict is None until it is judged, `event_id` None unless it has an event."""

    id: int
    observed: ObservedHit
    verdict: Verdict | None
    event_id: int | None


class VerdictChange(NamedTuple):
    """A stored hit, and the verdict that replaces the stored one."""

    hit: StoredHit
    verdict: Verdict


def read_stored_hit(row: tuple[Any, ...]) -> StoredHit:
    """Return a stored hit from a row.

    The columns are id, message id, at, kind, number, method, ip, user agent, verdict, reason, event id; more are
    ignored.
    """
    return StoredHit(row[0], ObservedHit(*row[2:8]), None if row[8] is None else Verdict(row[8], row[9]), row[10])


def find_changes(judged: Iterable[tuple[StoredHit, Verdict]]) -> list[VerdictChange]:
    """Return the hits whose new verdict or reason differs from the stored one."""
    return [VerdictChange(hit, verdict) for hit, verdict in judged if hit.verdict != verdict]


def apply_changes(message: TrackedMessage, changed: list[VerdictChange]) -> None:
    """Write changed verdicts of a message's hits, also into the data of the events of the hits.

    If a verdict changed from or to MACHINE, also record missing events, and correct the message's times of the first
    open and click and the contact's counts.
    """
    database = connection()
    for hit, verdict in changed:
        database.execute(
            "UPDATE hit SET verdict = ?, reason = ? WHERE id = ?", (verdict.verdict, verdict.reason, hit.id)
        )
        if hit.event_id is not None:
            database.execute(
                "UPDATE event SET data = json_set(data, '$.verdict', ?, '$.reason', ?), updated_at = ? WHERE id = ?",
                (verdict.verdict, verdict.reason, clock.now_ms(), hit.event_id),
            )
    if any(_was_machine(hit) != (verdict.verdict == MACHINE) for hit, verdict in changed):
        _record_missing_events(message)
        _recount_message(message, [hit.observed.at for hit, verdict in changed if verdict.verdict == MACHINE])


def _was_machine(hit: StoredHit) -> bool:
    return hit.verdict is not None and hit.verdict.verdict == MACHINE


def _record_missing_events(message: TrackedMessage) -> None:
    """Record events for judged hits whose key has none, after verdicts have changed from or to MACHINE.

    At most 1,000 hits of the message are read.
    """
    recorded = fetch_recorded_keys([message.message_id])
    query = (
        "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id, referrer "
        "FROM hit WHERE message_id = ? AND event_id IS NULL AND verdict IS NOT NULL ORDER BY at, id LIMIT 1000"
    )
    for row in rows(query, (message.message_id,)):
        hit = read_stored_hit(row)
        key = (message.message_id, hit.observed.kind, hit.observed.number, _was_machine(hit))
        if key not in recorded and hit.verdict is not None:
            recorded.add(key)
            (event,) = record_hit_events(
                [HitEvent(message._replace(url=_find_link_url(key)), hit.observed, row[11], hit.verdict)]
            )
            run("UPDATE hit SET event_id = ? WHERE id = ?", (event, hit.id))


def _find_link_url(key: EventKey) -> str | None:
    """Return the URL of a link from the event of an earlier hit on the link, or None if there is no such event."""
    url = scalar(
        "SELECT e.resource_url FROM hit h JOIN event e ON e.id = h.event_id "
        "WHERE h.message_id = ? AND h.kind = ? AND h.number IS NOT DISTINCT FROM ? AND h.event_id IS NOT NULL LIMIT 1",
        key[:3],
    )
    return str(url) if url is not None else None


def _recount_message(message: TrackedMessage, machine_times: list[int]) -> None:
    """Recalculate the first open and click of a message, and the counts and last interactions of its contact.

    `machine_times` are the times of hits that are now known to be by machines; a channel verified by one of them
    becomes unverified.
    """
    previous = fetch_one("SELECT opened_at, clicked_at, contact_id FROM message WHERE id = ?", (message.message_id,))
    if previous is None:
        return
    opened, clicked = fetch_one(
        "SELECT min(at), min(CASE WHEN kind = 'click' THEN at END) FROM hit WHERE message_id = ? "
        "AND verdict <> 'machine'",
        (message.message_id,),
    ) or (None, None)
    is_mail = message.channel == "email"
    if not is_mail:
        opened = None
    now = clock.now_ms()
    run(
        "UPDATE message SET opened_at = ?, clicked_at = ?, updated_at = ? WHERE id = ?",
        (opened, clicked, now, message.message_id),
    )
    contact_id = previous[2]
    if message.test or contact_id is None:
        return
    more_opens = (opened is not None) - (previous[0] is not None)
    more_clicks = (clicked is not None) - (previous[1] is not None) if is_mail else 0
    last_click, last_open, last_hit = fetch_one(_LAST_HITS, (contact_id,)) or (None, None, None)
    last_event = scalar(_LAST_EVENT, (contact_id,))
    if previous[1] != clicked:
        if previous[1] is not None:
            remove_click_hour(FirstClick(message.account_id, contact_id, previous[1]))
        if clicked is not None:
            add_click_hours([FirstClick(message.account_id, contact_id, clicked)])
    run(
        "UPDATE contact SET email_open_count = max(0, email_open_count + ?), "
        "email_click_count = max(0, email_click_count + ?), email_last_opened_at = ?, "
        "email_last_clicked_at = ?, last_interacted_at = nullif(max(coalesce(?, 0), coalesce(?, 0)), 0) "
        "WHERE id = ?",
        (more_opens, more_clicks, last_open, last_click, last_hit, last_event, contact_id),
    )
    for moment in machine_times:
        # If a click at this time verified the channel, it was not by a person.
        run(
            "UPDATE channel SET verified_at = NULL, updated_at = ? WHERE contact_id = ? AND verified_at = ?",
            (now, contact_id, moment),
        )


# Replies of recipients.


def record_reply(message_id: int, source: str) -> bool:
    """Record a reply to a message, which verifies the address (docs/decisions.md#9).

    `source` says who reported the reply, such as `capture` for a simulated one. Returns False if the message or its
    recipient was deleted.
    """
    require_write_transaction()
    message_row = fetch_one(f"SELECT {COLUMNS} FROM message WHERE id = ? AND recipient_key IS NOT NULL", (message_id,))
    if message_row is None:
        return False
    row, now = LedgerRow._make(message_row), clock.now_ms()
    ledger.record_event(row, f"{row.channel}_replied", {"source": source})
    if not row.test:
        contact = "(SELECT contact_id FROM message WHERE id = ?)"
        run(f"UPDATE contact SET last_interacted_at = ? WHERE id = {contact}", (now, row.id))
        run(
            f"UPDATE channel SET verified_at = ?, updated_at = ? WHERE verified_at IS NULL AND contact_id = {contact} "
            "AND kind = ? AND key = ?",
            (now, now, row.id, row.address_kind, row.recipient_key),
        )
    return True


def add_click_hours(clicks: Collection[FirstClick]) -> None:
    """Add first clicks to the counts by contact and hour of the day (`ClickHour`)."""
    require_write_transaction()
    if clicks:
        counts = Counter(_find_hours(clicks))
        run_set(_ADD_CLICK_HOURS, [(*key, number) for key, number in counts.items()])


def remove_click_hour(click: FirstClick) -> None:
    """Subtract a first click from the counts by hour (`ClickHour`), because it turned out to be by a machine."""
    require_write_transaction()
    for contact_id, hour in _find_hours([click]):
        run_set(_ADD_CLICK_HOURS, [(contact_id, hour, -1)])
        connection().execute(_DELETE_EMPTY_HOURS, (contact_id, hour))


def _find_hours(clicks: Collection[FirstClick]) -> Iterator[tuple[int, int]]:
    """Yield (contact id, hour of the day in the contact's time zone) of each click, unless its contact was deleted."""
    for account_id in {click.account_id for click in clicks}:
        of_account = [click for click in clicks if click.account_id == account_id]
        zones = time_zones.find_zones(account_id, [click.contact_id for click in of_account])
        for click in of_account:
            if click.contact_id in zones:
                yield click.contact_id, datetime.fromtimestamp(click.at / 1000, zones[click.contact_id].zone).hour
